"""Faster versions of plain functions of the model; each has a readable counterpart."""
