"""Text to text: summaries, translations, any text that a model is to write for another."""
