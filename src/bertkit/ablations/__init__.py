"""Experiments of the BERT paper at small sizes, as plans that can be resumed and split over machines."""
