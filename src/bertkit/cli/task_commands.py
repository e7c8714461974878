"""Commands that train and score: finetune, evaluate, predict."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from cyclopts import Group, Parameter

from bertkit.cli import STANDARD_STREAM
from bertkit.cli.common_options import COMMON, OUTPUT, Common, Output, read_texts, write_json, write_line
from bertkit.errors import ConfigError, DataError
from bertkit.training.finetuning.finetune_settings import FinetuneConfig

if TYPE_CHECKING:
    from bertkit.inference.evaluate import Run
    from bertkit.tasks import Task as AnyTask
    from bertkit.tasks import TextTask
    from bertkit.tasks.reading.tables import OnError
    from bertkit.training.finetuning.finetune_results import FinetuneResult
    from bertkit.training.finetuning.glue_suite import GlueResult

Task = Annotated[
    str,
    Parameter(
        help="cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, or glue for all of them; squad, squad2; ner; "
        "swag, codah, arc; imdb, tweets; or csv for a file of your own."
    ),
]
FILE_GROUP = Group("Files of your own (task csv)", sort_key=1)
Column = Annotated[str | None, Parameter(help="Default: guessed from the file, and told.")]
SETTINGS = FinetuneConfig()


@Parameter(name="*", group=FILE_GROUP)
@dataclass(frozen=True)
class TextColumns:
    """How a table holds its texts."""

    text: Column = None
    text_pair: Column = None
    delimiter: Annotated[
        str | None, Parameter(help="Between the fields of a line: ';', tab ...; default: comma in .csv, tab in .tsv.")
    ] = None
    quoting: Annotated[
        Literal["csv", "none"] | None,
        Parameter(help="csv: double quotes enclose fields (default of .csv); none: they are text (default of .tsv)."),
    ] = None

    @property
    def separator(self) -> str | None:
        """The delimiter as a character.

        Raises:
            ConfigError: more than one character.
        """
        mark = {"tab": "\t", "\\t": "\t"}.get(self.delimiter or "", self.delimiter)
        if mark is not None and len(mark) != 1:
            raise ConfigError(f"--delimiter is one character, or 'tab'; got {self.delimiter!r}")
        return mark


@Parameter(name="*", group=FILE_GROUP)
@dataclass(frozen=True)
class LabelledColumns(TextColumns):
    """How a table holds its texts and labels."""

    label: Annotated[
        str | None,
        Parameter(
            help="Default: guessed from the file, and told. Several (a,b,c): each holds 1 or 0 for its own label."
        ),
    ] = None
    multi_label: Annotated[
        bool, Parameter(negative=(), help="The label column holds any number of labels a row, as in 'news|sport'.")
    ] = False
    label_separator: Annotated[str, Parameter(help="Between the labels of a row, with --multi-label.")] = "|"

    @property
    def are_given(self) -> bool:
        """Whether the user said anything."""
        named = (self.text, self.text_pair, self.label, self.delimiter, self.quoting)
        return self.multi_label or any(value is not None for value in named)

    def task(self, data: Path, **known: Any) -> TextTask:
        """The task ``csv`` of a file; ``known`` as in :func:`bertkit.tasks.csv_task`."""
        from bertkit.tasks import csv_task

        if self.multi_label:
            known = {**known, "problem": "multi_label"}
        return csv_task(
            data,
            text=self.text,
            text_pair=self.text_pair,
            label=self.label.split(",") if self.label and "," in self.label else self.label,
            label_separator=self.label_separator,
            delimiter=self.separator,
            quoting=self.quoting,
            **known,
        )


@Parameter(name="*", group=Group("CoNLL files (task ner)", sort_key=1))
@dataclass(frozen=True)
class TagColumns:
    """How a file holds words and their tags, one word a line."""

    word_column: Annotated[
        int | None,
        Parameter(help="Column of the words, counted from 1. Default: as the run was trained, or the first."),
    ] = None
    tag_column: Annotated[
        int | None, Parameter(help="Column of the tags. Default: as the run was trained, or -1, the last.")
    ] = None
    joiner: Annotated[
        str | None,
        Parameter(
            help="What stands between two words of the text; '' for scripts without blanks. Default: as the run was "
            "trained, or a blank."
        ),
    ] = None

    @property
    def given(self) -> dict[str, Any]:
        """What the user said, by the arguments of :func:`bertkit.tasks.ner_task`."""
        return {name: value for name, value in asdict(self).items() if value is not None}


TEXT_COLUMNS, LABELLED_COLUMNS, TAG_COLUMNS = TextColumns(), LabelledColumns(), TagColumns()


def finetune(
    task: Task,
    /,
    *,
    data: Annotated[Path, Parameter(help="Folder with the task's files, a training file, or hub:owner/name.")],
    model: Annotated[str, Parameter(alias="-m", help="Start from this folder, .safetensors file or Hub name.")],
    out: Annotated[Path, Parameter(alias="-o", help="Run folder to write; new, unless --resume is given.")],
    resume: Annotated[
        bool,
        Parameter(
            negative=(),
            help="Go on with the run in --out; repeat its other options. More --seeds than it has are added to it.",
        ),
    ] = False,
    columns: LabelledColumns = LABELLED_COLUMNS,
    tags: TagColumns = TAG_COLUMNS,
    config: Annotated[FinetuneConfig, Parameter(name="*", group=Group("Training", sort_key=2))] = SETTINGS,
    output: Output = OUTPUT,
) -> None:
    r"""Fine-tune a BERT on labelled text, and say how good it is.

    Before training comes a report on the data, beside the score that of TF-IDF
    with a linear model. RUN then holds the model, metrics.json with its protocol,
    predictions, pictures and a model card. Ctrl-C saves; --resume goes on.

    Task glue is all of GLUE that DATA has, with one table at the end, and the
    files of a submission for the tasks that have a test file.

    For example:

        bertkit finetune sst2 --data SST-2 --model bert-base-uncased --out run
        bertkit finetune csv --data reviews.csv --text body --label stars \
            --model bert-base-uncased --out run --seeds 3
        bertkit finetune tweets --data tweets --model DIR --out run --freeze-encoder
        bertkit finetune glue --data GLUE --model bert-base-uncased --out runs --seeds 5
    """
    from bertkit.system.console import set_quiet
    from bertkit.system.device import find_device
    from bertkit.training.finetuning.finetune import finetune as run_finetune
    from bertkit.training.finetuning.glue_suite import finetune_glue

    set_quiet(output.quiet)
    device = str(find_device(output.device))
    result: FinetuneResult | GlueResult
    if task == "glue":
        check_columns(task, columns, tags)
        result = finetune_glue(data, model, out, config, resume=resume, device=device)
    else:
        chosen = find_task(task, data, columns, config.on_error, tags)
        result = run_finetune(chosen, data, model, out, config, resume=resume, device=device)
    if output.json:
        write_json({"folder": str(result.folder), **result.to_dict()})
    else:
        write_line(result.render())


def find_task(
    name: str, data: Path, columns: LabelledColumns, on_error: OnError, tags: TagColumns = TAG_COLUMNS
) -> AnyTask:
    """The task of a name on the command line, with the columns that were named beside it."""
    from bertkit.tasks import get_task, ner_task

    check_columns(name, columns, tags)
    if name == "csv":
        return columns.task(data, on_error=on_error)
    return ner_task(data, on_error=on_error, **tags.given) if name == "ner" else get_task(name)


def check_columns(name: str, columns: LabelledColumns, tags: TagColumns) -> None:
    """Raises ConfigError where an option names columns that the task of that name does not read."""
    for task, given, known in (("csv", columns, LABELLED_COLUMNS), ("ner", tags, TAG_COLUMNS)):
        values = asdict(known)
        options = [f"--{key.replace('_', '-')}" for key, value in asdict(given).items() if value != values[key]]
        if name != task and options:
            told = ", ".join(options)
            raise ConfigError(
                f"task {name} does not read {told}, only task {task} does; leave out what it does not read"
            )
    if columns.label_separator != LABELLED_COLUMNS.label_separator and not columns.multi_label:
        raise ConfigError("--label-separator has a meaning with --multi-label only; give both, or leave it out")


def evaluate(
    task: Task,
    /,
    *,
    data: Annotated[Path, Parameter(help="Folder with the task's files, or one labelled file.")],
    model: Annotated[str, Parameter(alias="-m", help="Run folder, or any classifier's folder or Hub name.")],
    split: Annotated[
        str | None,
        Parameter(
            help="train, dev or test; of mnli also mismatched. Default: dev of a folder; a file as a whole, or the "
            "rows its run held out of it."
        ),
    ] = None,
    columns: LabelledColumns = LABELLED_COLUMNS,
    tags: TagColumns = TAG_COLUMNS,
    on_error: Annotated[
        Literal["raise", "skip"], Parameter(help="Stop at the first bad row, or leave it out and say so.")
    ] = "raise",
    common: Common = COMMON,
) -> None:
    """Score a finished run on labelled text.

    The scores, their protocol and every prediction are also kept in the run
    folder, in evaluation-SPLIT.json and evaluation-predictions-SPLIT.jsonl.

    For example:

        bertkit evaluate sst2 --data SST-2 --model run
        bertkit evaluate csv --data new-reviews.csv --model run
    """
    common.begin()
    from bertkit.inference.evaluate import evaluate_run, ner_task_of, open_run
    from bertkit.system.device import find_device

    check_columns(task, columns, tags)
    device = str(find_device(common.device))
    if task == "ner":
        chosen: AnyTask = ner_task_of(model, data, on_error=on_error, **tags.given)
        run = open_run(model, chosen, device=device)
    else:
        known = None if task == "csv" else find_task(task, data, columns, on_error, tags)
        run = open_run(model, known, device=device)
        chosen = _task_of_run(task, data, run, columns, on_error)
    result = evaluate_run(chosen, data, model, split or _split_of(data, run), device=device, on_error=on_error)
    if common.json:
        write_json(result.to_dict())
    else:
        write_line(result.render())


def predict(
    file: Annotated[Path, Parameter(help="A .txt (one text a line), .csv, .tsv, .jsonl or .parquet file; or -.")],
    /,
    *,
    model: Annotated[str, Parameter(alias="-m", help="Run folder, or any classifier's folder or Hub name.")],
    out: Annotated[Path | None, Parameter(alias="-o", help="Write to this .jsonl, .csv, .tsv or .parquet file.")] = (
        None
    ),
    columns: TextColumns = TEXT_COLUMNS,
    common: Common = COMMON,
) -> None:
    """Label a whole file.

    With --out the work can be stopped at any time; the same command goes on.
    Without it there is one line a text on stdout: label, probability, text.
    A text longer than those of the training is cut as there, and marked.

    For example:

        bertkit predict --model run reviews.csv --out labelled.csv
        cat lines.txt | bertkit predict --model run --json -
    """
    common.begin()
    from bertkit.cli.prediction_tables import check_format, write_table
    from bertkit.inference.predict_files import predict_file
    from bertkit.system.console import say
    from bertkit.system.device import find_device

    device = str(find_device(common.device))
    from_stdin = str(file) == STANDARD_STREAM
    if out is None:
        for row in _predicted(file, model, columns, device):
            _show(row, common)
        return
    check_format(out)
    if out.exists():
        raise ConfigError(f"{out} exists already; remove it or choose another name")
    if from_stdin:
        count = write_table(_predicted(file, model, columns, device), out)
    elif out.suffix == ".jsonl":
        count = predict_file(model, file, out, **_places(columns), device=device)
    else:
        # Finished rows are kept as JSON lines, to which a stopped run can append, and become a table at the end.
        lines = out.with_name(f".{out.name}.rows.jsonl")
        lines.unlink(missing_ok=True)
        predict_file(model, file, lines, **_places(columns), device=device)
        count = write_table(_read_lines(lines), out)
        lines.unlink()
    say(f"wrote {count:,} rows to {out}")
    if common.json:
        write_json({"out": str(out), "rows": count})


def _task_of_run(name: str, data: Path, run: Run, columns: LabelledColumns, on_error: OnError) -> AnyTask:
    """The task to score: of ``csv`` the run's own columns unless others are named, and always the run's labels."""
    known = run.task
    if known is not None and known.name == name and not columns.are_given:
        return cast("AnyTask", known)
    if name != "csv":
        return find_task(name, data, columns, on_error)
    config = run.model.config
    if config.problem_type == "regression" or config.num_labels == 1:
        return columns.task(data, problem="regression", on_error=on_error)
    problem = "multi_label" if config.problem_type == "multi_label_classification" else "classification"
    return columns.task(data, problem=problem, labels=list(config.id2label.values()), on_error=on_error)


def _split_of(data: Path, run: Run) -> Literal["train", "dev", "test"]:
    """Which rows to score: of a folder dev; a file as a whole, unless the run learned from it and held rows out."""
    if not data.is_file():
        return "dev"
    learned_from = run.settings.get("data")
    if learned_from is not None and Path(learned_from).resolve() == data.resolve():
        return "dev"
    return next(iter(run.workflow.splits(data)))


def _places(columns: TextColumns) -> dict[str, Any]:
    return {
        "text": columns.text,
        "text_pair": columns.text_pair,
        "delimiter": columns.separator,
        "quoting": columns.quoting,
    }


def _predicted(file: Path, model: str, columns: TextColumns, device: str) -> Iterator[dict[str, Any]]:
    from bertkit.inference.evaluate import Classifier, open_run, predict_run
    from bertkit.inference.predict_files import columns_of, predict_examples
    from bertkit.inference.predict_files import read_texts as read_rows

    run = open_run(model, device=device)
    if not isinstance(run, Classifier):
        if str(file) == STANDARD_STREAM:
            raise ConfigError(f"standard input has one text a line; a run of {run.workflow.task.name} needs a file")
        return predict_examples(run, file)
    if str(file) == STANDARD_STREAM:
        if columns != TEXT_COLUMNS:
            raise ConfigError("standard input has one text a line and no columns")
        return predict_run(run, read_texts((STANDARD_STREAM,), None))
    if not file.is_file():
        raise DataError(f"{file} does not exist")
    rows = read_rows(file, columns_of(run, **_places(columns)))
    return predict_run(run, (first if second is None else (first, second) for first, second in rows))  # type: ignore[arg-type]


def _show(row: dict[str, Any], common: Common) -> None:
    if common.json:
        write_json(row)
        return
    if "truncated" not in row or "text" not in row:  # of another kind than texts and labels
        write_line(json.dumps(row, ensure_ascii=False))
        return
    shown, shares = row["predicted"], row.get("probabilities")
    if isinstance(shown, list) and shares is not None:
        shown = "|".join(shown) + "\t" + "|".join(f"{shares[label]:.4f}" for label in shown)
    elif shares is not None:
        shown = f"{shown}\t{shares[shown]:.4f}"
    texts = "\t".join(row[key] for key in ("text", "text_pair") if key in row)
    write_line(f"{shown}\t{texts}" + ("\t(cut)" if row["truncated"] else ""))


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)
