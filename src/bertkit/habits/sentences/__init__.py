"""The names of sentence-transformers, over :class:`bertkit.SentenceEncoder`, the rerankers and the training loop."""
