"""Texts and pairs of texts with a label, several labels or a score: GLUE, IMDB, tweets, your own table."""
