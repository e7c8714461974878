"""The weights of a model as numpy arrays, in the parts that the C library takes. Imports no torch."""
