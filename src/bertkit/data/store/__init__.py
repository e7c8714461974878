"""The token store: a corpus as token ids on disk."""
