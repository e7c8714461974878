"""TensorFlow checkpoints, read without TensorFlow."""
