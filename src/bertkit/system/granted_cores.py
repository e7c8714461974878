"""How many cores whoever started this process lets it use."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from bertkit.system.processor import usable_cores

#: Of a container: the time of processors that it gets in a period, and the period, in microseconds.
CGROUP = Path("/sys/fs/cgroup/cpu.max")


def granted_cores() -> int | None:
    """As many as Ray, Spark, SLURM or a container says, never more than there are; None if nobody says so.

    Ray and Spark know the task that this is called in; a whole number from 1, also of a fraction of a core.
    """
    said = (grant() for grant in (_ray, _spark, _slurm, _cgroup))
    found = next((cores for cores in said if cores is not None), None)
    return None if found is None else max(1, min(int(found), usable_cores()))


def _ray() -> float | None:
    ray: Any = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    if context.worker.mode != ray.WORKER_MODE:  # the driver has what it likes
        return None
    return float(context.get_assigned_resources().get("CPU", 1))


def _spark() -> float | None:
    spark: Any = sys.modules.get("pyspark")
    task = None if spark is None else spark.TaskContext.get()
    return None if task is None else float(task.cpus())


def _slurm() -> float | None:
    said = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return float(said) if said.isdecimal() else None


def _cgroup() -> float | None:
    try:
        quota, period = CGROUP.read_text(encoding="ascii").split()
        return int(quota) / int(period)
    except (OSError, ValueError):  # another system, or "max": no limit
        return None
