"""The labelled rows of a run: read, held out, cut, and hashed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bertkit.errors import DataError
from bertkit.tasks.examples import Examples, ExampleT, Fact, Located
from bertkit.tasks.reading_settings import ReadingSettings
from bertkit.tasks.workflow import AnyWorkflow

#: Name of the hash of train and dev together, among those of the parts.
ALL = "hash of all"


@dataclass(frozen=True, slots=True)
class Rows:
    """Labelled examples of a run.

    held_out: dev was taken out of the training file, because the task has none.
    num_before_cut: training examples before ``max_train_rows``, held-out ones not among them.
    hashes: of what the examples of each part hold, in their order, and of train and dev together (:data:`ALL`): the
        same for two copies of the same data.
    more: further labelled sets that finished models are scored on, by name.
    """

    train: Examples[Located]
    dev: Examples[Located]
    held_out: bool
    num_before_cut: int
    hashes: dict[str, str]
    more: dict[str, Examples[Located]] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """The hash of train and dev together."""
        return self.hashes[ALL]


def read_rows(workflow: AnyWorkflow, data: str | Path, settings: ReadingSettings) -> Rows:
    """Read train and dev; hold dev out of train where there is no file for it; cut train to ``max_train_rows``.

    Hold-out and cut depend on ``settings.seed`` and not on the seed of a single run, so all runs see the same examples.
    """
    train = workflow.read(data, "train", on_error=settings.on_error)
    held_out = "dev" not in workflow.splits(data)
    if held_out:
        train, dev = workflow.hold_out(train, settings.dev_share, settings.seed)
    else:
        dev = workflow.read(data, "dev", on_error=settings.on_error)
    kept = _sample(train, settings.max_train_rows, settings.seed)
    if fault := workflow.train_fault(kept):
        raise DataError(f"{'' if train.path is None else train.path.name}: {fault}")
    more = workflow.read_more(data, on_error=settings.on_error)
    return Rows(kept, dev, held_out, len(train), _hashes(workflow, kept, dev, more), more)


def held_out_again(
    workflow: AnyWorkflow, data: str | Path, settings: ReadingSettings, facts: Mapping[str, Fact]
) -> Examples[Located] | None:
    """The dev rows that a run held out of its training file; None where it held none out, or this is other data.

    ``facts`` is the part ``data`` of the run's protocol, ``data`` what is now said to be the run's data.
    """
    if not facts.get("dev_held_out_of_train") or "train" not in workflow.splits(data):
        return None
    train = workflow.read(data, "train", on_error="skip")  # the rows that the run left out, if any, are left out again
    counts = [facts[name] for name in ("train_rows", "train_rows_left_out", "dev_rows")]
    if len(train) != sum(count for count in counts if isinstance(count, int)) or not workflow.has_labels(train):
        return None
    train, dev = workflow.hold_out(train, settings.dev_share, settings.seed)
    kept = _sample(train, settings.max_train_rows, settings.seed)
    return dev if _hashes(workflow, kept, dev, {})[ALL] == facts["data_sha256"] else None


def examples_hash(workflow: AnyWorkflow, examples: Sequence[Located]) -> str:
    """SHA-256 of texts and labels in their order: two data sets with the same hash are the same to a model."""
    return hashlib.sha256(_content(workflow, examples)).hexdigest()


def _hashes(
    workflow: AnyWorkflow, train: Sequence[Located], dev: Sequence[Located], more: Mapping[str, Sequence[Located]]
) -> dict[str, str]:
    parts = {"train": train, "dev": dev, **{f"dev-{name}": rows for name, rows in more.items()}}
    both, found = hashlib.sha256(), {}
    for name, examples in parts.items():
        content = _content(workflow, examples)
        found[f"hash of {name}"] = hashlib.sha256(content).hexdigest()[:16]
        if name in ("train", "dev"):
            both.update(content)
    return {ALL: both.hexdigest(), **found}


def _content(workflow: AnyWorkflow, examples: Sequence[Located]) -> bytes:
    return b"".join(repr(workflow.content(example)).encode("utf-8", "surrogatepass") + b"\n" for example in examples)


def _sample(examples: Examples[ExampleT], num_rows: int | None, seed: int) -> Examples[ExampleT]:
    if num_rows is None or num_rows >= len(examples):
        return examples
    order = np.random.Generator(np.random.PCG64([seed, 0x5A])).permutation(len(examples))
    chosen = [examples[number] for number in np.sort(order[:num_rows]).tolist()]
    return Examples(chosen, examples.path, examples.split, examples.skipped)
