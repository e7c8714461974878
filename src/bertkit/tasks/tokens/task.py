"""Named entities: sentences of words with tags, and what a task of this kind is. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from bertkit.errors import ConfigError, DataError, did_you_mean, shorten
from bertkit.metrics.tags import OUTSIDE, Entity, Spelling, notation_of, read_entities, spelling_of, write_tags
from bertkit.tasks.examples import Examples, SkippedRow, Split
from bertkit.tasks.reading.tables import BadRows, OnError
from bertkit.tasks.tokens.conll import RUNNING_TEXT, ConllColumns, Sentence
from bertkit.tasks.tokens.metrics import entity_scores, tag_accuracy
from bertkit.tasks.tokens.tagged_files import tagged_file, tagged_files
from bertkit.tasks.tokens.tagged_rows import read_sentences

#: More types than this in a user's file are a sign that the tag column is another one.
MANY_TYPES = 200
METRICS = ("f1", "precision", "recall", "macro_f1", "strict_f1", "tag_accuracy")


@dataclass(frozen=True, slots=True)
class TaggedExample:
    """A sentence, or any other stretch of words that is tagged as one.

    words: as in the file.
    entities: what is to be found, by numbers of words; None in a test file without tags.
    row: line of the first word, from 1.
    source: the file it came from.
    document: number of its document in the file, 0 where the file has none.
    joiner: what stands between two words of the text. A file of words does not say how its text was spaced; a blank
        makes no difference to BERT's tokenizer but inside of words such as ``don't``, which it cuts anyway.
    """

    words: tuple[str, ...]
    entities: tuple[Entity, ...] | None = None
    row: int = 0
    source: str = ""
    document: int = 0
    joiner: str = " "

    @property
    def where(self) -> str:
        """``file:row`` for error messages."""
        return f"{self.source}:{self.row}"

    @property
    def text(self) -> str:
        """The words, joined: what the model reads."""
        return self.joiner.join(self.words)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """``(start, end)`` of each word in :attr:`text`."""
        found, place = [], 0
        for word in self.words:
            found.append((place, place + len(word)))
            place += len(word) + len(self.joiner)
        return found

    @property
    def tags(self) -> list[str]:
        """The right tag of each word, in BIO.

        Raises:
            DataError: the example has none.
        """
        if self.entities is None:
            raise DataError(f"{self.where}: the sentence has no tags")
        return write_tags(self.entities, len(self.words))


class TaggedExamples(Examples[TaggedExample]):
    """The sentences of one split.

    Attributes:
        spelling: how the file was tagged; None where it has no tags.
    """

    spelling: Spelling | None = None


@dataclass(frozen=True, slots=True)
class TokenTask:
    """Words -> entities. The model predicts one BIO tag a word, whatever scheme the files are written in.

    name: as on the command line.
    types: names of the entity types, in the order of their labels.
    columns: where words and tags stand in a CoNLL file.
    joiner: see :class:`TaggedExample`; give "" for languages that are written without blanks.
    metrics: precision, recall and F1 over all entities (``seqeval``'s default), mean F1 of the types, F1 in strict
        mode, share of right tags; ``main_metric``, one of them, chooses the best checkpoint.
    about: one line for people.
    notes: what was guessed when the task was made from files, one sentence each.
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
        unknown = [name for name in (*self.metrics, self.main_metric) if name not in METRICS]
        if unknown:
            raise ConfigError(f"task {self.name}: unknown metric {unknown[0]!r}{did_you_mean(unknown[0], METRICS)}")

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


def ner_task(
    data: str | Path,
    *,
    name: str = "ner",
    types: Sequence[str] | None = None,
    word_column: int = 1,
    tag_column: int = -1,
    delimiter: str | None = None,
    joiner: str = " ",
    on_error: OnError = "raise",
) -> TokenTask:
    """The task of finding what the entities in CoNLL files are.

    Args:
        data: a folder with train, dev and test files, or one file; see
            :func:`bertkit.tasks.tokens.tagged_files.tagged_files`.
        name: of the task.
        types: names of the entity types, when a model fixes them; None takes those of the train and dev files, sorted.
        word_column: the column of the words, counted from 1.
        tag_column: the column of the tags, counted from 1, or from the end with -1.
        delimiter: None means a tab where the first line of data has one, else runs of blanks.
        joiner: what stands between two words, see :class:`TaggedExample`.
        on_error: "skip" passes over bad lines while looking for types.

    Raises:
        DataError: files that cannot be read, or hold no entity.
    """
    columns = ConllColumns(word_column, tag_column, delimiter)
    about = "entities in CoNLL files"
    if types is not None:
        return TokenTask(name, tuple(types), columns, joiner, about=about)
    found: dict[str, int] = {}
    notes = []
    files = {split: path for split, path in tagged_files(data).items() if split != "test"} or tagged_files(data)
    for split, path in files.items():
        sentences = list(read_sentences(path, columns, BadRows(on_error)))
        spelling = spelling_of([sentence.tags for sentence in sentences])
        _check_types(path, spelling, sum(len(sentence.words) for sentence in sentences))
        notes.append(f"{split} is tagged in {_described(spelling)}")
        for kind, count in spelling.entities.items():
            found[kind] = found.get(kind, 0) + count
    if not found:
        raise DataError(f"{data}: every word is tagged {OUTSIDE}, so there is no entity to learn from")
    return TokenTask(name, tuple(sorted(found)), columns, joiner, about=about, notes=tuple(notes))


def load_tagged(task: TokenTask, data: str | Path, split: Split, *, on_error: OnError = "raise") -> TaggedExamples:
    """Read one split. Tags of any scheme become entities by the one rule of :mod:`bertkit.metrics.tags`.

    Args:
        task: from :func:`ner_task`.
        data: a folder or a file.
        split: train, dev or test; a test file may have words alone.
        on_error: "raise" stops at the first bad line; "skip" leaves out the sentences that hold bad lines, and lists
            the lines, each with its reason, in ``.skipped`` of the result.

    Raises:
        DataError: no such split, no sentence, or a bad line: named with file, line, found, expected.
    """
    return read_tagged(task, tagged_file(data, split), split, on_error=on_error)


def read_tagged(task: TokenTask, path: Path, split: Split, *, on_error: OnError = "raise") -> TaggedExamples:
    """The sentences of one file, whatever its name says; as :func:`load_tagged`."""
    bad = BadRows(on_error)
    sentences = list(read_sentences(path, task.columns, bad, tagged=None if split == "test" else True))
    tagged = bool(sentences[0].tags)
    spelling = spelling_of([sentence.tags for sentence in sentences]) if tagged else None
    rows = []
    for sentence in sentences:
        entities = None
        if spelling is not None:
            entities = tuple(read_entities(sentence.tags, spelling.notation))
            if not _known_types(task, path, sentence, entities, bad, RUNNING_TEXT if split == "test" else ""):
                continue
        rows.append(
            TaggedExample(tuple(sentence.words), entities, sentence.lines[0], str(path), sentence.document, task.joiner)
        )
    if not rows:
        raise DataError(f"{path}: every sentence has a bad line; the first: {bad.skipped[0].message}")
    examples = TaggedExamples(rows, path, split, _by_row(bad.skipped))
    examples.spelling = spelling
    return examples


def score_tags(
    task: TokenTask, predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Every metric of the task, in its order, of the tags of n sentences.

    Raises:
        InputError: as :func:`bertkit.tasks.tokens.metrics.entity_scores`.
    """
    scores = entity_scores(predictions, references)
    values = {
        "f1": scores.micro.f1,
        "precision": scores.micro.precision,
        "recall": scores.micro.recall,
        "macro_f1": scores.macro_f1,
        "strict_f1": entity_scores(predictions, references, mode="strict").micro.f1,
        "tag_accuracy": tag_accuracy(predictions, references),
    }
    return {name: values[name] for name in task.metrics}


def with_spelling(examples: Examples[TaggedExample], like: Examples[TaggedExample]) -> TaggedExamples:
    """The examples, knowing how the file of ``like`` was tagged."""
    found = TaggedExamples(examples, examples.path, examples.split, examples.skipped)
    found.spelling = getattr(like, "spelling", None)
    return found


def _described(spelling: Spelling) -> str:
    words = {
        "bare": "types without B- and I-, where neighbours of one type are one entity",
        "IO": "IO, where neighbours of one type are one entity",
    }.get(spelling.scheme, spelling.scheme)
    if not spelling.repaired:
        return words
    return f"{words}; {spelling.repaired:,} tags do not fit it and were read by the repair rule (bertkit.metrics.tags)"


def _check_types(path: Path, spelling: Spelling, num_words: int) -> None:
    if len(spelling.types) > MANY_TYPES or (len(spelling.types) > 20 and len(spelling.types) > num_words / 10):
        raise DataError(
            f"{path}: {len(spelling.types):,} different entity types in {num_words:,} words, such as "
            f"{shorten(spelling.types, limit=4)}. Is this the column of the tags? Choose it with --tag-column "
            "(tag_column=)"
        )


def _known_types(
    task: TokenTask, path: Path, sentence: Sentence, entities: Sequence[Entity], bad: BadRows, advice: str
) -> bool:
    """Whether the task has all types of a sentence; one that it lacks is reported."""
    for entity in entities:
        if entity.type not in task.types:
            bad.report(
                path,
                sentence.lines[entity.start],
                "unknown type",
                f"tag {sentence.tags[entity.start]!r} is of no known type{did_you_mean(entity.type, task.types)}; the "
                f"types are {shorten(task.types, limit=12)}{advice}",
            )
            return False
    return True


def _by_row(skipped: Sequence[SkippedRow]) -> list[SkippedRow]:
    """In the order of the lines: types are checked after everything else."""
    return sorted(skipped, key=lambda row: int(row.where.rpartition(":")[2]))


def types_of(labels: Iterable[str]) -> tuple[str, ...]:
    """The entity types that a model's labels speak of, in their order."""
    names = list(labels)
    notation = notation_of(names)
    return tuple(dict.fromkeys(notation.split(name)[1] for name in names if name != OUTSIDE))
