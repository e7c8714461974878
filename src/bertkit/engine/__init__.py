"""From rows to model outputs: sort by length, pack, run, and put the results back in order.

:class:`~bertkit.engine.inference_engine.InferenceEngine` does that for any back-end, without torch:
:mod:`bertkit.engine.torch_backend` has that of a torch model, :mod:`bertkit.engine.onnx_backend` that of an exported
graph. Pipelines, evaluation, prediction of whole files and the features of a frozen encoder all run through it.
"""
