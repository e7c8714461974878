"""Text to text: a source, and the target that a model learns to write for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bertkit.config.file_columns import Columns
from bertkit.metrics.rouge import ROUGE
from bertkit.metrics.scores import check_metrics
from bertkit.tasks.examples import BuiltIn, Located

#: The share of targets that are written word for word; blanks count as one.
EXACT_MATCH = "exact_match"
SCORES = (*ROUGE, EXACT_MATCH)
SOURCE_NAMES = ("source", "article", "document", "dialogue", "body", "text", "input", "input_text", "sentence")
TARGET_NAMES = ("target", "summary", "highlights", "abstract", "title", "output", "target_text", "label")

USUAL_COLUMNS = Columns(text=SOURCE_NAMES, label=TARGET_NAMES)


@dataclass(frozen=True, slots=True)
class Seq2SeqExample(Located):
    """One source with its target, as in the file."""

    text: str
    target: str | None = None
    row: int = 0
    source: str = ""

    @property
    def text_pair(self) -> None:
        """There is no second text that rows are compared by."""
        return None

    @property
    def label(self) -> int | None:
        """All targets are of one class when rows are held out; None where there is no target."""
        return None if self.target is None else 0


@dataclass(frozen=True, slots=True)
class Seq2SeqTask(BuiltIn):
    """A text -> another text.

    columns: ``text`` is where the sources are, ``label`` where the targets are.
    prefix: put before each source; T5 reads its task from it.
    lead: the baseline is the first so many sentences of the source; None: the source itself.
    """

    #: The kind of task, see :data:`bertkit.tasks.registry.KINDS`.
    form: ClassVar[str] = "seq2seq"

    name: str
    columns: Columns = USUAL_COLUMNS
    prefix: str = ""
    lead: int | None = None
    metrics: tuple[str, ...] = SCORES
    main_metric: str = EXACT_MATCH

    def __post_init__(self) -> None:
        check_metrics(self.name, self.metrics, self.main_metric, SCORES)


SUMMARIZE = Seq2SeqTask(
    name="summarize",
    lead=3,
    main_metric="rougeL",
    about="a short text that says what a long one says",
    folders=("summarize", "summarization"),
)
TEXT2TEXT = Seq2SeqTask(
    name="text2text",
    about="any text for a text: translations, corrections, answers",
    folders=("text2text",),
)
