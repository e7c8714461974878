"""Models behind HTTP: every task in many clients' shapes, one queue per model, no padding. ``bertkit serve`` starts it.

A request goes down through four parts, and its answer comes up again: ``http`` (ASGI: limits, keys, disconnects), a
dialect (bytes to a :class:`~bertkit.server.calls.Call`, an answer to bytes), the service (which model, which batch) and
a model's batcher, which calls the pipeline that ``bertkit.pipeline`` would have given.
"""
