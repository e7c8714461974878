"""The labelled sets of a run: read, held out, cut and hashed; scored, with what is written of the scores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bertkit.config.reading_settings import ReadingSettings
from bertkit.errors import DataError, counted
from bertkit.metrics.intervals import Sets, bootstrap_draws
from bertkit.tasks.answering import Decision, EncodedT, OutputsT, Predicted
from bertkit.tasks.examples import Examples, ExampleT, Fact, Located, Row
from bertkit.tasks.hold_out import group_rows, plain_text
from bertkit.tasks.workflow import AnyWorkflow, Workflow

#: Name of the hash of train and dev together, among those of the parts.
ALL = "hash of all"
#: File of a run folder with the :func:`text_hashes` of its training rows, sorted.
TRAINED_ON = "trained-on.npy"


@dataclass(frozen=True, slots=True)
class Rows:
    """Labelled examples of a run.

    held_out: dev was taken out of the training file, because the task has none.
    num_before_cut: training examples before ``max_train_rows``, held-out ones not among them.
    hashes: of what the examples of each part hold, in their order, and of train and dev together (:data:`ALL`).
    more: further labelled sets that finished models are scored on, by name.
    """

    train: Examples[Located]
    dev: Examples[Located]
    held_out: bool
    num_before_cut: int
    hashes: dict[str, str]
    more: dict[str, Examples[Located]] = field(default_factory=dict)

    @property
    def cross_validated(self) -> bool:
        """Whether the dev rows are the training rows; their scores then come from models that have not seen them."""
        return self.dev is self.train

    @property
    def sha256(self) -> str:
        """The hash of train and dev together."""
        return self.hashes[ALL]


def read_rows(
    workflow: AnyWorkflow, data: str | Path, settings: ReadingSettings, *, cross_validated: bool = False
) -> Rows:
    """Read train and dev; hold dev out of train where there is no file for it; cut train to ``max_train_rows``.

    With ``cross_validated`` nothing is held out: see :attr:`Rows.cross_validated`. Hold-out and cut depend on
    ``settings.seed`` and not on the seed of a single run, so all runs see the same examples.
    """
    train = workflow.read(data, "train", on_error=settings.on_error)
    has_dev = "dev" in workflow.splits(data)
    dev: Examples[Located] | None = None
    if has_dev:
        dev = workflow.read(data, "dev", on_error=settings.on_error)
    elif not cross_validated:
        train, dev = workflow.hold_out(train, settings.dev_share, settings.seed)
    kept = workflow.sample(train, settings.max_train_rows, settings.seed)
    if fault := workflow.train_fault(kept):
        raise DataError(f"{'' if train.path is None else train.path.name}: {fault}")
    more = workflow.read_more(data, on_error=settings.on_error)
    held_out = dev is not None and not has_dev
    dev = kept if dev is None else dev
    return Rows(kept, dev, held_out, len(train), _hashes(workflow, kept, dev, more), more)


def held_out_again(
    workflow: AnyWorkflow, data: str | Path, settings: ReadingSettings, facts: Mapping[str, Fact]
) -> Examples[Located] | None:
    """The dev rows that a run held out of its training file; None where it held none out, or this is other data."""
    if not facts.get("dev_held_out_of_train") or "train" not in workflow.splits(data):
        return None
    train = workflow.read(data, "train", on_error="skip")  # the rows that the run left out, if any, are left out again
    counts = [facts["train_rows"], rows_not_drawn(facts), facts["dev_rows"]]
    if len(train) != sum(count for count in counts if isinstance(count, int)) or not workflow.has_labels(train):
        return None
    train, dev = workflow.hold_out(train, settings.dev_share, settings.seed)
    kept = workflow.sample(train, settings.max_train_rows, settings.seed)
    return dev if _hashes(workflow, kept, dev, {})[ALL] == facts["data_sha256"] else None


def rows_not_drawn(facts: Mapping[str, Fact]) -> int:
    """Good rows of the training file that a run did not use, because of ``max_train_rows``; of old runs, too."""
    count = facts["train_rows_not_drawn" if "train_rows_not_drawn" in facts else "train_rows_left_out"]
    return count if isinstance(count, int) else 0


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


@dataclass(frozen=True, slots=True)
class Scored:
    """A scored set: metrics, lines for the examples, and the content of files by name.

    decision: under which it was scored. bootstrap: the main metric of resampled examples; None where not known.
    classes: :meth:`ClassScores.to_dict` of it; None for a kind without classes.
    interval: of the main metric; None where there is none, or too few examples for one, which ``remarks`` says then.
    """

    scores: dict[str, float]
    rows: list[Row]
    files: dict[str, str]
    decision: Decision
    bootstrap: list[float] | None
    interval: list[float] | None = None
    table: str = ""
    classes: Row | None = None
    remarks: Sequence[str] = ()


def score_set(
    workflow: Workflow[ExampleT, EncodedT, OutputsT],
    given: Predicted[ExampleT, EncodedT, OutputsT],
    split: str,
    *,
    settings: ReadingSettings | None = None,
    worst: int = 0,
    resample: bool = True,
) -> Scored:
    """Score a labelled set, encoded with targets.

    ``split`` names the files: ``predictions-SPLIT.jsonl`` and, of the ``worst`` examples (0: none),
    ``errors-SPLIT.jsonl``. With ``settings`` these examples are dev of a run and decide; without, ``given.decision``
    stands. ``resample`` also scores the examples drawn with replacement.
    """
    if settings is not None:
        given = replace(given, decision=workflow.decide(given, settings))
    rows = workflow.prediction_rows(given)
    files = {f"predictions-{split}.jsonl": to_jsonl(rows), **workflow.files(given, split)}
    badness = workflow.badness(given) if worst else None
    if badness is not None:
        files[f"errors-{split}.jsonl"] = to_jsonl(worst_rows(rows, badness, worst))
    sets = sets_of(workflow, given.examples) if resample else None
    drawn = None if sets is None else workflow.main_metric_of(given, sets.draws)
    values = None if drawn is None else [round(value, 6) for value in drawn.tolist()]
    interval = None if sets is None else sets.interval(values, workflow.row_bounds())
    remarks = workflow.diagnose(given)
    if values and interval is None:
        remarks = [*remarks, no_interval(workflow.task.main_metric, values, len(given.examples))]
    classes = workflow.classes(given)
    table = workflow.table(given) if classes is None else classes.render()
    by_class = None if classes is None else classes.to_dict()
    return Scored(workflow.score(given), rows, files, given.decision, values, interval, table, by_class, remarks)


def sets_of(workflow: AnyWorkflow, examples: Sequence[Located], num_draws: int | None = None) -> Sets:
    """Sets of examples drawn with replacement, those of equal texts together."""
    groups = group_rows(_texts_key(workflow, example) for example in examples)
    return Sets(bootstrap_draws(groups, num_draws), len(groups))


def text_hashes(workflow: AnyWorkflow, examples: Sequence[Located]) -> npt.NDArray[np.uint64]:
    """64 bits for the texts of each example, the same for equal texts, whatever the case, white space and label."""
    keys = (repr(_texts_key(workflow, example)).encode("utf-8", "surrogatepass") for example in examples)
    return np.frombuffer(b"".join(hashlib.blake2b(key, digest_size=8).digest() for key in keys), "<u8")


def _texts_key(workflow: AnyWorkflow, example: Located) -> Hashable:
    texts = workflow.texts_of(example)
    return tuple(map(plain_text, texts)) if texts else repr(workflow.content(example))


def no_interval(metric: str, values: Sequence[float], num_examples: int) -> str:
    """Why a score has no interval although examples were drawn for one."""
    rows = f"{counted(num_examples, 'example')} {'is' if num_examples == 1 else 'are'}"
    return (
        f"TOO FEW ROWS: {metric} is {values[0]:.4f} however the {rows} resampled, so there is no interval: how far it "
        "could lie elsewhere is not known"
    )


def worst_rows(rows: Sequence[Mapping[str, Fact]], badness: npt.NDArray[np.floating], count: int) -> list[Row]:
    """The ``count`` rows with the largest badness, the worst first, each with it as ``badness``; 0 is not bad."""
    order = np.argsort(-badness, kind="stable")[:count].tolist()
    return [{"badness": round(float(badness[row]), 6), **rows[row]} for row in order if badness[row] > 0]


def to_jsonl(rows: Iterable[Mapping[str, Fact]]) -> str:
    """One JSON object per line."""
    return "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
