"""Named entities: sentences of words with tags, and what a task of this kind is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from bertkit.errors import ConfigError, DataError
from bertkit.metrics.scores import check_metrics
from bertkit.metrics.tags import OUTSIDE, Entity, Spelling, notation_of, write_tags
from bertkit.tasks.examples import Examples, Located
from bertkit.tasks.tokens.conll import ConllColumns
from bertkit.tasks.tokens.metrics import entity_scores, tag_accuracy

METRICS = ("f1", "precision", "recall", "macro_f1", "strict_f1", "tag_accuracy")


@dataclass(frozen=True, slots=True)
class TaggedExample(Located):
    """A sentence, or any other stretch of words that is tagged as one; ``entities`` are by numbers of words.

    document: number of its document in the file, 0 where the file has none.
    joiner: placed between two words of the text. A file of words does not say how its text was spaced; a blank makes no
        difference to BERT's tokenizer except inside words such as ``don't``, which it splits anyway.
    spacing: what stands before each word and behind the last, in a file of running texts; it takes the joiner's place.
    """

    words: tuple[str, ...]
    entities: tuple[Entity, ...] | None = None
    row: int = 0
    source: str = ""
    document: int = 0
    joiner: str = " "
    spacing: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The words, joined: what the model reads."""
        if not self.spacing:
            return self.joiner.join(self.words)
        return "".join(part for pair in zip(self.spacing, (*self.words, ""), strict=True) for part in pair)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """``(start, end)`` of each word in :attr:`text`."""
        found, place = [], 0
        for number, word in enumerate(self.words):
            gap = self.spacing[number] if self.spacing else self.joiner if number else ""
            place += len(gap) + len(word)
            found.append((place - len(word), place))
        return found

    @property
    def tags(self) -> list[str]:
        """The right tag of each word, in BIO; a DataError if the example has none."""
        if self.entities is None:
            raise DataError(f"{self.where}: the sentence has no tags")
        return write_tags(self.entities, len(self.words))


class TaggedExamples(Examples[TaggedExample]):
    """The sentences of one split; ``spelling`` is how the file was tagged.

    form: of texts with character spans whose form it is, in words; "" for words and tags.
    moved: marks that were moved to the borders of words.
    """

    spelling: Spelling | None = None
    form: str = ""
    moved: int = 0


@dataclass(frozen=True, slots=True)
class TokenTask:
    """Words -> entities. The model predicts one BIO tag a word, whatever scheme the files are written in.

    name: as on the command line.
    types: names of the entity types, in the order of their labels.
    columns: the columns of words and tags in a CoNLL file.
    joiner: see :class:`TaggedExample`; use "" for languages written without blanks.
    metrics: precision, recall and F1 over all entities (``seqeval``'s default), mean F1 of the types, F1 in strict
        mode, share of right tags; ``main_metric``, one of them, chooses the best checkpoint.
    about: one line for people.
    notes: what was inferred when the task was made from files, one sentence each.
    """

    form: ClassVar[str] = "token"

    name: str
    types: tuple[str, ...]
    columns: ConllColumns = field(default_factory=ConllColumns)
    joiner: str = " "
    metrics: tuple[str, ...] = METRICS
    main_metric: str = "f1"
    about: str = "which words name what?"
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not self.types:
            raise ConfigError(f"task {self.name}: no entity types, so there is nothing to find")
        if len(set(self.types)) != len(self.types):
            raise ConfigError(f"task {self.name}: a type is listed twice in {self.types}")
        check_metrics(self.name, self.metrics, self.main_metric, METRICS)

    @property
    def labels(self) -> tuple[str, ...]:
        """The model's outputs: ``O``, and ``B-`` and ``I-`` of each type."""
        return (OUTSIDE, *(f"{letter}-{kind}" for kind in self.types for letter in "BI"))

    @property
    def num_labels(self) -> int:
        """Outputs a model needs."""
        return 1 + 2 * len(self.types)

    @property
    def id2label(self) -> dict[int, str]:
        """Name of each output."""
        return dict(enumerate(self.labels))

    def numbers_of(self, tags: Sequence[str]) -> list[int]:
        """Label numbers of BIO tags."""
        number = {label: index for index, label in enumerate(self.labels)}
        return [number[tag] for tag in tags]


def score_tags(
    task: TokenTask, predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Every metric of the task, in its order, of the tags of n sentences."""
    scores = entity_scores(predictions, references)
    values = {
        "f1": scores.micro.f1,
        "precision": scores.micro.precision,
        "recall": scores.micro.recall,
        "macro_f1": scores.macro["f1"],
        "strict_f1": entity_scores(predictions, references, mode="strict").micro.f1,
        "tag_accuracy": tag_accuracy(predictions, references),
    }
    return {name: values[name] for name in task.metrics}


def types_of(labels: Iterable[str]) -> tuple[str, ...]:
    """The entity types in a model's labels, in their order."""
    names = list(labels)
    notation = notation_of(names)
    return tuple(dict.fromkeys(notation.split(name)[1] for name in names if name != OUTSIDE))
