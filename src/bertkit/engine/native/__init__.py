"""The encoder in C, for the processor that it runs on: compiled once, when first needed, if there is a compiler.

See ``docs/decisions/0131-the-encoder-in-c.md``.
"""
