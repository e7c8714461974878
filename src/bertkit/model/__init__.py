"""BERT and its descendants. To read the model, read five files in this order:

1. ``embeddings``: ids to vectors
2. ``attention``: every token attends to all tokens of its sequence, with a reference kernel as in the paper
3. ``encoder``: the layers around it
4. ``heads``: pooler, masked LM, next sentence
5. ``models``: encoder and head put together, one class a task

Together they hold every line from the ids of a packed batch (:mod:`bertkit.batch`) to its logits. Beside them:
``losses``; ``pooling``, mean vectors and their kin; ``padded``, for calls with padded tensors; ``output``, what a call
returns; ``loading`` and ``auto`` for checkpoints; ``resize`` for larger vocabularies; ``convert`` and ``fingerprint``
for the command line. What makes it fast is in ``kernels``, each a plain function or module with a readable counterpart.
"""
