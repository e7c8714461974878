"""How fast is a model on this machine: bertkit's own engine modes and other runtimes, measured side by side.

Every runtime is a script in ``peers/``, which is no part of the package: it is run as a process, lives through all
rounds, and answers requests. :mod:`~bertkit.benchmark.runtimes` lists them,
:mod:`~bertkit.benchmark.runtime_process` talks to one, :mod:`~bertkit.benchmark.measure` takes the figures in turn,
and :mod:`~bertkit.benchmark.benchmark_report` says what they mean.
"""
