"""Labelling by hand: which texts to label next, and where the labels are kept."""
