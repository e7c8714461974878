"""From a token store to batches: pairs, masks, order; denoising; examples as the original code makes them."""
