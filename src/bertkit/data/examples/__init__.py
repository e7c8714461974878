"""From a token store to pre-training batches: pairs, masks, order; denoising for encoder-decoders.

Also examples as the original code makes them.
"""
