"""Fine-tuning on labelled data."""
