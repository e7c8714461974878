"""The first garbage collection is delayed; later ones come as usual."""

from __future__ import annotations

import gc
import subprocess
import sys

from bertkit.cli import main

PROCESS = """
import gc, weakref
from bertkit.system.cyclic_garbage import START_UP_OBJECTS, no_collection_at_start_and_end

class Node: pass

def cycle():
    node = Node()
    node.itself = node
    return weakref.ref(node)

usual, kept = gc.get_threshold(), []
with no_collection_at_start_and_end():
    before = sum(each["collections"] for each in gc.get_stats())
    first = cycle()
    kept += [[] for _ in range(START_UP_OBJECTS // 2)]
    print(sum(each["collections"] for each in gc.get_stats()) - before, first() is not None)
    kept += [[] for _ in range(START_UP_OBJECTS // 2)]
    print(first() is None, gc.get_threshold() == usual, gc.callbacks)
    second = cycle()
    kept += [[] for _ in range(2 * usual[0])]
    print(second() is None)
print(gc.isenabled(), gc.get_freeze_count() > START_UP_OBJECTS)
"""


def test_the_first_search_comes_late_and_the_next_ones_as_usual() -> None:
    done = subprocess.run([sys.executable, "-c", PROCESS], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["0 True", "True True []", "True", "True True"], done.stdout


def test_a_call_from_python_leaves_the_collector_alone() -> None:
    before = gc.get_threshold(), list(gc.callbacks), gc.get_freeze_count()
    assert main(["--version"]) == 0
    assert (gc.get_threshold(), list(gc.callbacks), gc.get_freeze_count()) == before


SERVER = """
import gc, weakref
from bertkit.system import cyclic_garbage
from bertkit.system.cyclic_garbage import DUE, START_UP_OBJECTS, collect_for_a_server, collect_if_due
from bertkit.system.cyclic_garbage import no_collection_at_start_and_end

class Node: pass

def cycle():
    node = Node()
    node.itself = node
    return weakref.ref(node)

full = []
gc.callbacks.append(lambda phase, info: full.append(info["generation"]) if phase == "stop" else None)
with no_collection_at_start_and_end():
    kept = [[] for _ in range(START_UP_OBJECTS // 2)]
    collect_for_a_server()
    print(gc.get_freeze_count() > START_UP_OBJECTS // 2, len(gc.get_objects()) < 1_000)
    full.clear()
    lost = cycle()
    kept += [[] for _ in range(100_000)]
    print(2 in full, lost() is None, gc.get_count()[2] >= DUE)
    old = Node()
    old.itself = old
    gc.collect(1)
    lost = weakref.ref(old)
    del old
    collect_if_due()
    print(2 in full, lost() is None)
    full.clear()
    collect_if_due()
    print(full)
"""


def test_a_server_collects_little_at_a_time_and_all_when_nobody_waits() -> None:
    done = subprocess.run([sys.executable, "-c", SERVER], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["True True", "False True True", "True True", "[]"], done.stdout
