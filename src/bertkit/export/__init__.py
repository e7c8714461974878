"""Writing models for other runtimes."""
