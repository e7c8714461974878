"""The encoder in C, for the processor that it runs on: compiled once, when first needed, if there is a compiler.

:mod:`bertkit.engine.native.library` builds and loads it, :mod:`bertkit.engine.native.native_encoder` calls it. Nothing
here imports torch. See ``docs/decisions/0131-the-encoder-in-c.md``.
"""
