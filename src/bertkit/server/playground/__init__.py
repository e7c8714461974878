"""A page in the browser on which each model can be tried; it asks this server alone."""
