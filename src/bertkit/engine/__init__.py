"""From rows to model outputs: sort by length, pack, run, and put the results back in order.

:mod:`bertkit.engine.rows` does that for any :class:`~bertkit.engine.rows.Backend`, without torch;
:mod:`bertkit.engine.torch_backend` is the back-end of a torch model. Pipelines, evaluation, prediction of whole files
and the features of a frozen encoder all run through it.
"""
