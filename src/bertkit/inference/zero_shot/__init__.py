"""Labels that a model was never trained on: by entailment, by vectors of the labels, or by a masked word."""
