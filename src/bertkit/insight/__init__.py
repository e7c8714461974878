"""What is inside a model, as numbers: maps of vectors, attention, probes, explanations. ``visualize`` draws them."""
