"""Rerankers: queries, each with documents that are more or less relevant to it."""
