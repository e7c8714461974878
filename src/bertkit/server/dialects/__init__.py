"""Clients' shapes: each module turns the bodies of one family of clients into calls, and answers into bodies.

A dialect imports :mod:`~bertkit.server.calls`, :mod:`~bertkit.server.failures` and
:mod:`~bertkit.server.dialects.route`, and nothing else of bertkit: neither the engine nor HTTP.
"""
