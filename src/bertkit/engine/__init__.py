"""From rows to model outputs: sort by length, pack, run, and put the results back in order, on any back-end.

Pipelines, evaluation, prediction of whole files and the features of a frozen encoder all run through it.
"""
