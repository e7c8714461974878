"""Fast paths from text to ids, without offsets; each equals its readable counterpart."""
