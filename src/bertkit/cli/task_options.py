"""Options of the commands that read labelled data: the task, and the columns of tables and of CoNLL files."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from bertkit.errors import ConfigError
from bertkit.system.model_sources import INCLUDED

if TYPE_CHECKING:
    from bertkit.tasks import Columns, TextTask
    from bertkit.tasks import Task as AnyTask
    from bertkit.tasks.embeddings.task import EmbeddingTask
    from bertkit.tasks.reading.bad_rows import OnError
    from bertkit.tasks.rerank.task import RerankTask
    from bertkit.tasks.seq2seq.task import Seq2SeqTask

#: Tasks of an encoder, in words.
_ENCODER_TASKS = (
    "squad, squad2; ner; swag, codah, arc; imdb, tweets; pairs, triplets, scored-pairs for vectors of texts, "
    "sparse-pairs for weights of their words; rerank"
)
_GLUE = "cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli"
FinetuneTask = Annotated[
    str,
    Parameter(
        help=f"{_GLUE}, or glue for all of them; {_ENCODER_TASKS}; summarize, text2text; multi for several heads on "
        "one encoder; or csv for a file of your own."
    ),
]
Task = Annotated[
    str, Parameter(help=f"{_GLUE}; {_ENCODER_TASKS}; summarize, text2text; or csv for a file of your own.")
]
AdaptTask = Annotated[str, Parameter(help=f"{_GLUE}; {_ENCODER_TASKS}; or csv for a file of your own.")]
FILE_GROUP = Group("Files of your own", sort_key=1)
#: The tasks of :class:`bertkit.tasks.embeddings.task.EmbeddingTask`.
EMBEDDINGS = ("pairs", "triplets", "scored-pairs", "sparse-pairs")
Column = Annotated[str | None, Parameter(help="Column; default: inferred from the file and reported.")]


@Parameter(name="*")
@dataclass(frozen=True)
class Start:
    """What a training begins with."""

    data: Annotated[Path, Parameter(help="Folder of the task's files, a training file, or hub:owner/name.")]
    model: Annotated[
        str,
        Parameter(
            alias="-m", help=f"Model to start from: folder, .safetensors file, Hub name, or {INCLUDED} (included)."
        ),
    ]


@Parameter(name="*", group=FILE_GROUP)
@dataclass(frozen=True)
class TextColumns:
    """How a table holds its texts."""

    text: Annotated[
        str | None,
        Parameter(help="Column of the text (for rerank, the query); default: inferred from the file and reported."),
    ] = None
    text_pair: Annotated[
        str | None, Parameter(help="Column of the second text (for rerank, the document); default: inferred.")
    ] = None
    delimiter: Annotated[
        str | None, Parameter(help="Separator of fields; default: tab in .tsv; ',', ';' or tab in .csv, by its header.")
    ] = None
    encoding: Annotated[
        str | None, Parameter(help="Encoding of text files; default: utf-8. Often cp1252 for files from Excel.")
    ] = None
    quoting: Annotated[
        Literal["csv", "none"] | None,
        Parameter(help="csv: double quotes enclose fields (default for .csv); none: they are text (default for .tsv)."),
    ] = None

    @property
    def separator(self) -> str | None:
        """The delimiter as a character."""
        mark = {"tab": "\t", "\\t": "\t"}.get(self.delimiter or "", self.delimiter)
        if mark is not None and len(mark) != 1:
            raise ConfigError(f"--delimiter is one character, or 'tab'; got {self.delimiter!r}")
        return mark

    @property
    def places(self) -> Columns:
        """Where the texts are."""
        from bertkit.tasks import Columns

        return Columns(
            text=() if self.text is None else (self.text,),
            text_pair=(self.text_pair,) if self.text_pair else (),
            delimiter=self.separator,
            quoting=self.quoting,
            encoding=self.encoding,
        )


# Subclasses stand here, because the annotations of their fields are looked up in the module of the subclass.


@Parameter(name="*", group=FILE_GROUP)
@dataclass(frozen=True)
class IndexColumns(TextColumns):
    """How a table holds texts and their ids."""

    id: Annotated[str | None, Parameter(help="Column of the ids; default: 'id' if there is one, else FILE:ROW.")] = None


@Parameter(name="*", group=FILE_GROUP)
@dataclass(frozen=True)
class LabelledColumns(TextColumns):
    """How a table holds its texts and labels."""

    label: Annotated[
        str | None,
        Parameter(
            help="Column; default: inferred from the file and reported. Several (a,b,c) hold 1 or 0 for one label each."
        ),
    ] = None
    multi_label: Annotated[
        bool, Parameter(negative=(), help="The label column holds several labels, as in 'news|sport'.")
    ] = False
    label_separator: Annotated[str, Parameter(help="Separator of labels, with --multi-label.")] = "|"

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
            encoding=self.encoding,
            **known,
        )


@Parameter(name="*", group=Group("CoNLL files (task ner)", sort_key=1))
@dataclass(frozen=True)
class TagColumns:
    """How a file holds words and their tags, one word per line."""

    word_column: Annotated[
        int | None,
        Parameter(help="Column of the words, counted from 1; default: as in training, or the first."),
    ] = None
    tag_column: Annotated[
        int | None, Parameter(help="Column of the tags; default: as in training, or -1, the last.")
    ] = None
    joiner: Annotated[
        str | None,
        Parameter(help="Text between two words; '' for scripts without spaces. Default: as in training, or a space."),
    ] = None


@Parameter(name="*", group=Group("Text to text (tasks summarize, text2text)", sort_key=1))
@dataclass(frozen=True)
class PairColumns:
    """How a table holds sources and targets, and what is put before a source."""

    source: Column = None
    target: Column = None
    prefix: Annotated[str, Parameter(help="Prefix of each source; T5 reads its task from it: 'summarize: '.")] = ""

    def task(self, task: Seq2SeqTask) -> Seq2SeqTask:
        """A task with these columns."""
        text = (self.source,) if self.source else task.columns.text
        label = (self.target,) if self.target else task.columns.label
        return replace(task, columns=replace(task.columns, text=text, label=label), prefix=self.prefix)


@Parameter(name="*", group=Group("Rerankers (task rerank)", sort_key=1))
@dataclass(frozen=True)
class Negatives:
    """What is added to the documents of a query."""

    negatives: Annotated[
        int, Parameter(help="Add this many documents of the file to each query as negatives: those nearest to it.")
    ] = 0
    searcher: Annotated[
        str, Parameter(help="How --negatives are found: bm25, or the vectors of a model (folder or Hub name).")
    ] = "bm25"


@Parameter(name="*", group=Group("Texts to compare (tasks pairs, triplets, scored-pairs)", sort_key=1))
@dataclass(frozen=True)
class ComparedColumns:
    """How a table holds texts that are compared, beside ``--text`` and ``--text-pair``."""

    negative: Annotated[
        str | None,
        Parameter(help="Column of texts unlike --text, or several (a,b,c); default: columns named negative."),
    ] = None
    score: Annotated[str | None, Parameter(help="Column of the similarity of two texts; any range of numbers.")] = None

    def task(self, task: EmbeddingTask, texts: TextColumns) -> EmbeddingTask:
        """A task with these columns."""
        usual, given = task.columns, texts.places
        columns = replace(
            given,
            text=given.text or usual.text,
            text_pair=given.text_pair or usual.text_pair,
            label=(self.score,) if self.score else usual.label,
        )
        return replace(task, columns=columns, negatives=tuple(self.negative.split(",")) if self.negative else None)


TEXT_COLUMNS, LABELLED_COLUMNS, TAG_COLUMNS = TextColumns(), LabelledColumns(), TagColumns()
PAIR_COLUMNS, COMPARED_COLUMNS, NEGATIVES = PairColumns(), ComparedColumns(), Negatives()


@Parameter(name="*")
@dataclass(frozen=True)
class FileColumns:
    """How files of one's own hold labelled data."""

    table: LabelledColumns = LABELLED_COLUMNS
    conll: TagColumns = TAG_COLUMNS
    pairs: PairColumns = PAIR_COLUMNS
    negatives: Negatives = NEGATIVES
    compared: ComparedColumns = COMPARED_COLUMNS

    def given(self, task: str) -> dict[str, Any]:
        """The options for files of a task that were given, without the encoding; those of another task are errors."""
        of_texts = {field.name for field in fields(TextColumns)} - {"encoding"}
        of_labels = {field.name for field in fields(LabelledColumns)} - of_texts - {"encoding"}
        found: dict[str, Any] = {}
        refused: dict[str, list[str]] = {}
        for kinds, columns, unset, names in (
            ((*EMBEDDINGS, "rerank", "csv"), self.table, LABELLED_COLUMNS, of_texts),
            (("rerank", "csv"), self.table, LABELLED_COLUMNS, of_labels),
            (("ner",), self.conll, TAG_COLUMNS, None),
            (("summarize", "text2text"), self.pairs, PAIR_COLUMNS, None),
            (("rerank",), self.negatives, NEGATIVES, None),
            (("scored-pairs",), self.compared, COMPARED_COLUMNS, {"score"}),
            (("triplets", "sparse-pairs", "pairs"), self.compared, COMPARED_COLUMNS, {"negative"}),
        ):
            default, values = asdict(unset), asdict(columns)
            given = {name: values[name] for name in names or values if values[name] != default[name]}
            if task in kinds:
                found |= given
            elif given:
                refused.setdefault(kinds[-1], []).extend(f"--{name.replace('_', '-')}" for name in given)
        for kind, options in refused.items():
            them = "it" if len(options) == 1 else "them"
            raise ConfigError(
                f"task {task} does not take {', '.join(options)}, but task {kind} does; leave {them} out, or use task "
                f"{kind} for a file of your own"
            )
        if "label_separator" in found and not self.table.multi_label:
            raise ConfigError("--label-separator needs --multi-label; give both, or leave it out")
        return found

    def task(self, name: str, data: Path, on_error: OnError) -> AnyTask:
        """The task of that name, with these columns."""
        from bertkit.tasks import get_task, ner_task
        from bertkit.tasks.embeddings.task import EmbeddingTask
        from bertkit.tasks.rerank.task import RerankTask
        from bertkit.tasks.seq2seq.task import Seq2SeqTask

        given = self.given(name)
        if name == "csv":
            return self.table.task(data, on_error=on_error)
        if name == "ner":
            return ner_task(data, on_error=on_error, encoding=self.table.encoding, **given)
        task = get_task(name)
        if isinstance(task, Seq2SeqTask):
            task = self.pairs.task(task)
        elif isinstance(task, EmbeddingTask):
            task = self.compared.task(task, self.table)
        elif isinstance(task, RerankTask):
            task = self._reranking(task)
        return in_encoding(task, self.table.encoding)

    def _reranking(self, task: RerankTask) -> RerankTask:
        """A task with these columns and negatives."""
        if self.table.multi_label:
            raise ConfigError("--multi-label is for task csv; a document of a query has one label, how relevant it is")
        given, own = self.table.places, task.columns
        columns = replace(
            given,
            text=given.text or own.text,
            text_pair=given.text_pair or own.text_pair,
            label=(self.table.label,) if self.table.label else own.label,
        )
        return replace(task, columns=columns, **asdict(self.negatives))


def in_encoding(task: AnyTask, encoding: str | None) -> AnyTask:
    """A task of texts whose files are read in an encoding; None leaves it as it is."""
    from bertkit.tasks import TextTask
    from bertkit.tasks.embeddings.task import EmbeddingTask
    from bertkit.tasks.rerank.task import RerankTask
    from bertkit.tasks.seq2seq.task import Seq2SeqTask

    if encoding is None:
        return task
    if not isinstance(task, TextTask | RerankTask | Seq2SeqTask | EmbeddingTask):
        raise ConfigError(f"task {task.name} reads UTF-8 only; convert the files and leave --encoding out")
    return replace(task, columns=replace(task.columns, encoding=encoding))
