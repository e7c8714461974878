"""``bertkit demo``: fine-tuning or pre-training from start to finish on text that ships with Python."""
