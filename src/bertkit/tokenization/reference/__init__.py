"""The readable tokenizers: what the fast paths are tested against."""
