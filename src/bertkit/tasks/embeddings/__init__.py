"""Texts as vectors: pairs that belong together, triplets, and pairs with a score of how alike they are."""
