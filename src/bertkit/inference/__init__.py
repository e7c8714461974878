"""Using a model: pipelines over the packed engine. Import from :mod:`bertkit` (``bertkit.pipeline``)."""
