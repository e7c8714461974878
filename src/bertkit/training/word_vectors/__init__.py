"""Word vectors: learned from a corpus, or distilled from an encoder."""
