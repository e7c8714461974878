"""From a token store to pre-training batches: pairs, masks, order; denoising for encoder-decoders; and examples as the original code makes them."""
