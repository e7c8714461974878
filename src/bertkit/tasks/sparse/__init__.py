"""Sparse vectors: a masked-LM head that learns which words of the vocabulary a text should be found by."""
