"""``bertkit.BatchPredictor``: a table in, the same table with a model's answers out, in any worker of any engine."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bertkit.bulk.answers import Answers, Cells, open_answers, task_of
from bertkit.bulk.bad_rows import Failure, answers_or_failures, reason_of
from bertkit.bulk.tables import arrow_field, names_in, num_rows, values_of, with_columns, without_fixed_sizes
from bertkit.bulk.worker_models import fingerprint, opened, shared_name, use_variant
from bertkit.engine.backend import Precision
from bertkit.errors import CheckpointError, InputError
from bertkit.inference.row_cells import own_name
from bertkit.system.granted_cores import granted_cores
from bertkit.tasks.answering import ColumnType

if TYPE_CHECKING:
    import pyarrow as pa

#: The column that says why a row has no answer.
ERROR = "error"


@dataclass(frozen=True)
class Settings:
    """All that a worker needs to know: small, and plain data.

    task: of :func:`bertkit.bulk.answers.task_of`; None: as the model's run answers. sha256: of the model where this was
        made, so that a worker notices another one under the same name.
    """

    model: str
    task: str | None
    sha256: str
    columns: Mapping[str, str] = field(default_factory=dict)
    device: str | None = None
    precision: Precision = "auto"
    threads: int | None = None
    cpu: str | None = None
    on_error: Literal["mark", "raise"] = "mark"
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[object, ...]:
        """Of an open model: what it is opened with."""
        used = (self.task, self.sha256, "tokens" in self.columns, self.device, self.precision, self.threads, self.cpu)
        return *used, repr(sorted(self.options.items()))


class BatchPredictor:
    """Adds a model's answers to tables: picklable, and small, because the model is opened in the worker.

    Called with a ``pyarrow.Table`` or ``RecordBatch``, a pandas or polars ``DataFrame`` or a dict of numpy arrays, it
    returns the same kind of table with the same rows in the same order, and columns behind the others. Their names and
    types depend on task and model alone; where the table has a column of such a name, ours is ``bertkit_NAME``.

    A process opens a model once, whatever the number of predictors and batches. The last bits of numbers depend on
    which rows are in a batch, and on the processor; not on the number of threads.

    Args:
        model: a folder, a Hub name or a run folder, which every worker can read under this name.
        task: as for :func:`bertkit.pipeline`; ``"feature-extraction"`` gives one vector a text. None: the task of the
            run or of the model's head.
        columns: which column is read as what, for example ``{"text": "review"}``: ``text`` and ``text_pair``,
            ``question`` and ``context``, ``query`` and ``documents``, ``context`` and ``choices``, ``tokens`` (words).
            What is not named is looked for under these names and, of texts, as in the run's own data.
        device, precision: as for :func:`bertkit.pipeline`.
        threads: None: as many as the executor grants (Ray, Spark, SLURM, a container), else all cores.
        cpu: the variant of the compiled encoder, such as ``"avx2"``, by which different machines get the same bits.
        on_error: ``"mark"``: a row without a text, or at which the model fails, has a reason in ``error`` and nothing
            in the other columns. ``"raise"``: an InputError that names the row.
        **options: for the call of the task's pipeline, for example ``top_k=3`` or ``candidate_labels=[...]``.

    Raises:
        InputError: an unknown task, or settings that the task does not take.
        CheckpointError: no such model here.
    """

    def __init__(
        self,
        model: str | Path,
        task: str | None = None,
        columns: Mapping[str, str] | None = None,
        *,
        device: str | None = None,
        precision: Precision = "auto",
        threads: int | None = None,
        cpu: str | None = None,
        on_error: Literal["mark", "raise"] = "mark",
        **options: Any,
    ) -> None:
        if on_error not in ("mark", "raise"):
            raise InputError(f"on_error must be 'mark' or 'raise', got {on_error!r}")
        named = dict(columns or {})
        if len(set(named.values())) < len(named):
            raise InputError(f"columns= names one column twice: {named}")
        asked, sha256 = task_of(model, task), fingerprint(model)
        self.settings = Settings(
            shared_name(model), asked, sha256, named, device, precision, threads, cpu, on_error, options
        )

    def __repr__(self) -> str:
        return f"BatchPredictor({self.settings.model!r}, task={self.settings.task!r})"

    def __call__(self, table: Any) -> Any:
        """The table with the answers to its rows; see the class.

        Raises:
            InputError: no table, columns of different lengths, two columns of one name.
            DataError: a column that is read is not there.
            CheckpointError: this process sees no model under the name, or another one.
        """
        answers, names = self._answers(), names_in(table)
        fields = answers.find(names, self.settings.columns)
        columns = {name: values_of(table, column) for name, column in fields.items()}
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        assert len(rows) == num_rows(table)
        found = self._found(answers, rows)
        types = self._types(answers)
        added = {own_name(name, names): [cells.get(name) for cells in found] for name in types}
        return with_columns(table, added, {own_name(name, names): kind for name, kind in types.items()})

    def arrow_iterator(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One record batch for each, as Spark's ``mapInArrow`` asks for; it knows no lists of a fixed size."""
        return (without_fixed_sizes(self(batch)) for batch in batches)

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """The schema of the tables that a call returns for tables of a schema; opens the model."""
        import pyarrow as pa

        names = list(input_schema.names)
        types = self._types(self._answers())
        added = [arrow_field(own_name(name, names), kind) for name, kind in types.items()]
        return pa.schema([*input_schema, *added], metadata=input_schema.metadata)

    def _types(self, answers: Answers) -> dict[str, ColumnType]:
        return {**answers.columns, ERROR: "string"}

    def _answers(self) -> Answers:
        return opened(self.settings.key, lambda: open_model(self.settings))

    def _found(self, answers: Answers, rows: list[dict[str, Any]]) -> list[Cells]:
        items: list[Any] = []
        for number, row in enumerate(rows):
            try:
                items.append(answers.item_of(row))
            except InputError as error:
                items.append(Failure(reason_of(error)))
                self._check(number, items[-1].reason)
        asked = [item for item in items if not isinstance(item, Failure)]
        said: Iterator[Cells | Failure] = iter(answers_or_failures(asked, answers.cells))
        found = [item if isinstance(item, Failure) else next(said) for item in items]
        return [self._cells(number, each) for number, each in enumerate(found)]

    def _cells(self, number: int, found: Cells | Failure) -> Cells:
        """Of a row without an answer the error alone."""
        reason = found.reason if isinstance(found, Failure) else found.get(ERROR)
        if reason is None:
            assert not isinstance(found, Failure)
            return found
        self._check(number, reason)
        return {ERROR: reason}

    def _check(self, number: int, reason: str) -> None:
        if self.settings.on_error == "raise":
            raise InputError(f"row {number} (counted from 0): {reason}")


def open_model(settings: Settings) -> Answers:
    """Open a model in this process, as settings from another one say."""
    use_variant(settings.cpu)
    here = socket.gethostname()
    try:
        found = fingerprint(settings.model)
    except CheckpointError as error:
        raise CheckpointError(
            f"the worker on {here} has no model {settings.model!r}: {error}. Put it on storage that all workers share, "
            "or give a Hub name"
        ) from None
    if found != settings.sha256:
        raise CheckpointError(
            f"the model {settings.model!r} on {here} is not the one that the predictor was made with: its files have "
            "another hash. Copy the same model to all workers"
        )
    threads = settings.threads or granted_cores()
    computing = {"device": settings.device, "precision": settings.precision, "threads": threads}
    return open_answers(settings.model, settings.task, list(settings.columns), computing, settings.options)
