"""Token classification: named entities and other tagged words."""
