"""Where a run is wrong: confident mistakes, likely wrong labels, weak slices: ``bertkit.visualize.errors``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from bertkit.config.file_columns import Columns
from bertkit.errors import ConfigError, DataError, counted, did_you_mean
from bertkit.insight.run_evaluation import scored_rows, scored_set
from bertkit.system.json_files import parsed
from bertkit.visualize.drawn import Drawn
from bertkit.visualize.error_pictures import Slice, errors_page, slices_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Rows that are looked at for wrong labels; of more, so many are drawn.
MOST_ROWS = 10_000
#: Values of a column that make a slice each: those that most rows have.
MOST_VALUES = 12
#: A slice of fewer rows says nothing.
FEWEST_ROWS = 5
_FOLDS = 5


@dataclass(frozen=True, slots=True)
class ScoredText:
    """A line of ``predictions-*.jsonl``; ``row`` is its line in the data that was scored."""

    row: int
    text: str
    gold: str
    predicted: str
    probabilities: dict[str, float]
    text_pair: str | None = None

    @property
    def sides(self) -> str | tuple[str, str]:
        """The text, or the pair."""
        return self.text if self.text_pair is None else (self.text, self.text_pair)

    @property
    def shown(self) -> str:
        """For people."""
        return self.text if self.text_pair is None else f"{self.text} | {self.text_pair}"


@dataclass(frozen=True, slots=True)
class Mistake:
    """A row whose label and prediction differ.

    row: its line in the data that was scored. probability: of what was predicted. label_probability: of its label.
    """

    row: int
    text: str
    label: str
    predicted: str
    probability: float
    label_probability: float


@dataclass(frozen=True, slots=True)
class Errors(Drawn):
    """What is wrong in a scored set, or with it.

    accuracy: of all rows, with its 95 % interval.
    mistakes: wrong predictions, the most confident first.
    wrong_labels: rows whose label is likely wrong, by models that have not seen them, the clearest first; None where
        that was not asked for. num_checked: rows that were looked at for that.
    slices: parts of the rows, the weakest first.
    """

    title: ClassVar[str] = "Errors"
    split: str
    num_rows: int
    accuracy: Slice
    num_mistakes: int
    mistakes: Sequence[Mistake]
    slices: Sequence[Slice]
    num_checked: int = 0
    num_wrong_labels: int = 0
    wrong_labels: Sequence[Mistake] | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def render(self) -> str:
        """Mistakes, weak slices and likely wrong labels, a line each."""
        lines = [
            f"{self.split}: {counted(self.num_rows, 'row')}, {counted(self.num_mistakes, 'mistake')}; "
            f"accuracy {self.accuracy.text}",
            *_listed("most confident mistakes", self.mistakes),
            "slices, the weakest first (* below all rows together, beyond its 95 % interval):",
        ]
        for each in self.slices:
            mark = "*" if each.is_weak else " "
            lines.append(f" {mark} {each.text}  {each.name} ({counted(each.num_rows, 'row')})")
        if self.wrong_labels is not None:
            found = f"{self.num_wrong_labels:,} of {self.num_checked:,}"
            lines += _listed(f"likely wrong labels, {found}, by models that have not seen them", self.wrong_labels)
        return "\n".join(lines)

    def figure(self) -> Figure:
        return slices_figure(self.accuracy, self.slices)

    def page(self) -> str:
        """Tables of the mistakes and of the likely wrong labels, and the slices."""
        tables = {"Most confident mistakes": [asdict(each) for each in self.mistakes]}
        if self.wrong_labels is not None:
            tables["Likely wrong labels"] = [asdict(each) for each in self.wrong_labels]
        return errors_page(self.title, self.render().partition("\n")[0], tables, [self.accuracy, *self.slices])


def _listed(title: str, mistakes: Sequence[Mistake]) -> list[str]:
    lines = [f"{title}:"] if mistakes else [f"{title}: none"]
    for each in mistakes:
        text = " ".join(each.text.split())
        shown = text if len(text) <= 100 else text[:99] + "…"
        lines.append(f"  row {each.row:<6} {each.label} -> {each.predicted} ({each.probability:.3f})  {shown}")
    return lines


def errors(
    run: str | Path,
    split: str = "dev",
    *,
    top: int = 20,
    data: str | Path | None = None,
    columns: Sequence[str] = (),
    check_labels: bool | str | Path = False,
    seed: int = 0,
    device: Any = None,
) -> Errors:
    """The mistakes of a run on a scored set of texts with one label each.

    Args:
        run: a folder of ``bertkit finetune``.
        split: dev, or the name of a later evaluation: that in ``evaluation-NAME.json``.
        top: mistakes, and likely wrong labels, to list.
        data: the file of the scored rows; for ``columns``, whose values become slices.
        columns: of ``data``.
        check_labels: look for wrong labels by confident learning (Northcutt et al. 2021): a logistic regression on
            frozen vectors predicts each row in five-fold cross-validation. A label is likely wrong where another one
            has at least the mean probability that this other has on its own rows. Deviates: of several such labels the
            most probable counts, and rows are ordered by how much more probable it is. A model in place of True makes
            the vectors; True stands for the run, which knows the labels of its training rows.
        seed: of the parts, and of the rows that are drawn from more than :data:`MOST_ROWS`.
        device: see :func:`bertkit.pipeline`.

    Raises:
        ConfigError: no such set or column, or a task of another kind.
        DataError: ``data`` are not the scored rows; ``check_labels`` with fewer than two labels, or with one of too few
            rows.
    """
    workflow, scored = scored_rows(run, split)
    if "probabilities" not in scored[0] or isinstance(scored[0]["gold"], list):
        raise ConfigError(
            f"errors are listed of texts with one label each, and {run} is a run of task {workflow.task.name}; what it "
            "got most wrong is in its errors-dev.jsonl"
        )
    rows = parsed(scored, list[ScoredText], f"{run}: the predictions of {split}")
    right = np.array([row.gold == row.predicted for row in rows])
    whole = Slice.of("all rows", right)
    wrong = [_mistake(row) for row, hit in zip(rows, right, strict=True) if not hit]
    wrong.sort(key=lambda each: (-each.probability, each.row))
    values: dict[str, list[str]] = {}
    if data is not None:
        layout = workflow.task.columns
        if scored_set(run, split)[2]:  # the file of a later evaluation has an encoding and sheets of its own
            layout = replace(layout, encoding=None, sheet=None)
        values = _values(Path(data), layout, columns, rows)
    elif columns:
        raise ConfigError("columns= needs data=, the file of the scored rows (on the command line: --column, --data)")
    found = Errors(split, len(rows), whole, len(wrong), wrong[:top], _slices(rows, values, right, whole))
    if not check_labels:
        return found
    from bertkit.insight.wrong_labels import likely_wrong

    chosen = np.arange(len(rows))
    if len(rows) > MOST_ROWS:
        chosen = np.sort(np.random.default_rng(seed).choice(len(rows), MOST_ROWS, replace=False))
    checked = [rows[number] for number in chosen]
    encoder = run if check_labels is True else check_labels
    texts, labels = [row.sides for row in checked], [row.gold for row in checked]
    listed = [
        Mistake(row.row, row.shown, row.gold, suspect.label, suspect.probability, suspect.own)
        for suspect in likely_wrong(encoder, texts, labels, _FOLDS, seed=seed, device=device)
        for row in (checked[suspect.number],)
    ]
    return replace(found, num_checked=len(checked), num_wrong_labels=len(listed), wrong_labels=listed[:top])


def _mistake(row: ScoredText) -> Mistake:
    shares = row.probabilities
    return Mistake(row.row, row.shown, row.gold, row.predicted, shares[row.predicted], shares.get(row.gold, 0.0))


def _slices(
    rows: Sequence[ScoredText], values: Mapping[str, Sequence[str]], right: npt.NDArray[np.bool_], whole: Slice
) -> list[Slice]:
    """Parts by true label, by length in quarters, and by the values of columns; the weakest first."""
    lengths = np.array([len(row.text.split()) + len((row.text_pair or "").split()) for row in rows])
    edges = np.unique(np.quantile(lengths, [0, 0.25, 0.5, 0.75, 1], method="nearest"))
    parts: list[tuple[str, npt.NDArray[np.bool_]]] = []
    for below, high in pairwise(edges.tolist()):
        low = below if below == edges[0] else below + 1
        name = f"{low} words" if low == high else f"{low} to {high} words"
        parts.append((name, (lengths >= low) & (lengths <= high)))
    for column, each in {"label": [row.gold for row in rows], **values}.items():
        array = np.array(each)
        names, counts = np.unique(array, return_counts=True)
        frequent = names[np.argsort(-counts, kind="stable")[:MOST_VALUES]]
        parts += [(f"{column} = {name}", array == name) for name in frequent]
    found = [Slice.of(name, right[part], whole) for name, part in parts if part.sum() >= FEWEST_ROWS]
    return sorted(found, key=lambda each: (each.accuracy, each.name))


def _values(data: Path, layout: Columns, columns: Sequence[str], rows: Sequence[ScoredText]) -> dict[str, list[str]]:
    """The values of columns of the scored rows, found by their lines; ``layout``: how the run reads its files."""
    from bertkit.tasks.reading.bad_rows import BadRows
    from bertkit.tasks.reading.tables import names_of, open_table, records

    table = open_table(data, layout, BadRows("skip"))  # rows that cannot be read were not scored either
    for column in columns:
        if column not in table.columns:
            near = did_you_mean(column, table.columns)
            raise ConfigError(f"{data} has no column {column!r}{near}; it has {names_of(table.columns)}")
    lines = {row.row: number for number, row in enumerate(rows)}
    found: dict[str, list[str]] = {column: [""] * len(rows) for column in columns}
    for line, record in records(table):
        number = lines.pop(line, None)
        if number is None:
            continue
        if rows[number].text not in (str(value) for value in record.values()):
            raise DataError(f"{data}:{line}: this is not the row that was scored; give the file that was evaluated")
        for column in columns:
            found[column][number] = str(record[column])
    if lines:
        raise DataError(f"{data} ends before row {min(lines)}, which was scored; give the file that was evaluated")
    return found
