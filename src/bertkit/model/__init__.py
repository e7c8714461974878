"""The architecture, and nothing else: read attention, encoder, embeddings, heads, bert, in that order."""
