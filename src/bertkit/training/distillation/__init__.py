"""Small models from large ones: students that learn from what a teacher says."""
