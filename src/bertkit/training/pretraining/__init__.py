"""Pre-training: masked language modelling with or without next-sentence prediction."""
