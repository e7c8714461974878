"""Training: one loop, exact checkpoints, fine-tuning, run folders, the scikit-learn estimator."""
