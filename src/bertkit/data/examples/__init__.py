"""From a token store to pre-training batches: pairs, masks, order; and examples as the original code makes them."""
