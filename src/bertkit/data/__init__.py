"""Pre-training data: from a corpus of text to packed batches of examples."""
