"""Pictures of runs and data (the extra ``plots``)."""
