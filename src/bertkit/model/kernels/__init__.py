"""Fast versions of parts of the model; each has a readable counterpart that it is tested against."""
