"""Encoder-decoders: BART and T5."""
