"""From a token store to pre-training batches: pairs, masks, order, prefetching."""
