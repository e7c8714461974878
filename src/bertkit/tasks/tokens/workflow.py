"""Token classification: a BIO tag for each word, entities from the tags, long sentences in windows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bertkit.config.any_config import AnyConfig
from bertkit.config.reading_settings import ReadingSettings
from bertkit.engine.backend import Network
from bertkit.errors import ConfigError, InputError, shorten
from bertkit.metrics.class_scores import ClassScores, Found
from bertkit.metrics.intervals import Drawn, Draws
from bertkit.metrics.probabilities import entropy, frequency_logits
from bertkit.metrics.tags import OUTSIDE, read_entities
from bertkit.ragged import Floats, Ints
from bertkit.tasks.answering import ColumnType
from bertkit.tasks.examples import Examples, Halves, Row, Split
from bertkit.tasks.reading.bad_rows import OnError
from bertkit.tasks.reading.splits import FileRules, NamedTask
from bertkit.tasks.report import DataReport
from bertkit.tasks.row_scores import RowScores
from bertkit.tasks.tokens.baseline import feature_baseline
from bertkit.tasks.tokens.decoding import word_labels, word_probabilities
from bertkit.tasks.tokens.features import IGNORED, OVERLAP, TokenWindows, windows_of_words
from bertkit.tasks.tokens.metrics import entity_scores, entity_table
from bertkit.tasks.tokens.reading import NER, RULES, hold_out_sentences, read_tagged
from bertkit.tasks.tokens.report import tagged_report
from bertkit.tasks.tokens.settings import TokenTaskSettings
from bertkit.tasks.tokens.task import TaggedExample, TokenTask, score_tags
from bertkit.tasks.workflow import Card, Decision, Head, Predicted, Workflow
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bertkit.batch import Batch

TagsPredicted = Predicted[TaggedExample, TokenWindows, Floats]


class TokenWorkflow(Workflow[TaggedExample, TokenWindows, Floats]):
    """Rows are windows; outputs are the logits of all pieces ``(P, C)``. Each word counts once, in loss and scores."""

    task: TokenTask
    model_class = "BertForTokenClassification"
    of_tokens = True
    fields = ("tokens",)

    @property
    def sources(self) -> tuple[NamedTask, FileRules]:
        return NER, RULES

    def read_file(self, path: Path, split: Split, *, on_error: OnError = "raise") -> Examples[TaggedExample]:
        return read_tagged(self.task, path, split, on_error=on_error)

    def example_of(self, item: Mapping[str, object], where: str) -> TaggedExample:
        words = item.get("tokens")
        if isinstance(words, str) or not isinstance(words, Iterable):
            raise InputError(f"'tokens' of {where} must be a list of words, got {type(words).__name__}")
        listed = tuple(words)
        if not all(isinstance(word, str) for word in listed):
            raise InputError(f"'tokens' of {where} holds something that is no word: {listed!r:.60}")
        return TaggedExample(listed, joiner=self.task.joiner)

    def hold_out(self, train: Examples[TaggedExample], share: float, seed: int) -> Halves[TaggedExample]:
        return hold_out_sentences(train, share, seed)

    def texts_of(self, example: TaggedExample) -> Sequence[str]:
        return (example.text,)

    def content(self, example: TaggedExample) -> object:
        entities = None if example.entities is None else [tuple(entity) for entity in example.entities]
        spacing = (example.spacing,) if example.spacing else ()  # the hash of words alone stays what it was
        return example.words, example.joiner, entities, *spacing

    def has_labels(self, examples: Sequence[TaggedExample]) -> bool:
        return examples[0].entities is not None

    def train_fault(self, train: Examples[TaggedExample]) -> str:
        if any(example.entities for example in train):
            return ""
        return f"none of {len(train):,} training sentences has an entity; there is nothing to learn"

    def report(
        self,
        splits: Mapping[str, Examples[TaggedExample]],
        encoded: Mapping[str, TokenWindows],
        settings: ReadingSettings,
    ) -> DataReport:
        assert settings.max_length is not None
        return tagged_report(self.task, splits, encoded, max_length=settings.max_length)

    def encode(
        self,
        examples: Sequence[TaggedExample],
        tokenizer: PreTrainedTokenizer,
        settings: ReadingSettings,
        *,
        labelled: bool,
    ) -> TokenWindows:
        assert settings.max_length is not None
        return windows_of_words(
            [example.text for example in examples],
            [example.spans for example in examples],
            tokenizer,
            max_length=settings.max_length,
            labels=[self.task.numbers_of(example.tags) for example in examples] if labelled else None,
            inner_labels=self._inner_labels() if settings.of(TokenTaskSettings).label_all_pieces else None,
        )

    def _inner_labels(self) -> list[int]:
        """``I-PER`` for ``B-PER``: what the further pieces of a word with that label get."""
        return self.task.numbers_of([re.sub("^B-", "I-", label) for label in self.task.labels])

    def collate(self, encoded: TokenWindows, rows: Sequence[int]) -> Batch:
        from bertkit.batch import collate

        return collate(encoded.rows, rows, token_targets={"labels": encoded.labels})

    def head(self) -> Head:
        return {"id2label": self.task.id2label}

    def check_model(self, model: Network, name: str) -> None:
        theirs = set(model.config.id2label.values())
        if theirs != set(self.task.labels):
            raise ConfigError(
                f"{name} predicts {shorten(sorted(theirs), limit=9)}; task {self.task.name} has the labels "
                f"{shorten(self.task.labels, limit=9)}. Both must have the same types, tagged in BIO"
            )

    def constant_answer(self, train: TokenWindows, settings: ReadingSettings) -> Floats:
        return frequency_logits(self._label_counts(train)).astype(np.float32)

    def loss_floor(self, train: TokenWindows, settings: ReadingSettings) -> float:
        return entropy(self._label_counts(train))

    def _label_counts(self, train: TokenWindows) -> npt.NDArray[np.float64]:
        assert train.labels is not None
        counted = train.labels[train.labels != IGNORED]
        return np.bincount(counted, minlength=len(self.task.labels)).astype(np.float64)

    def arrange(self, encoded: TokenWindows, values: Floats, config: AnyConfig) -> Floats:
        number = {name: index for index, name in config.id2label.items()}
        return values[encoded.places][:, [number[name] for name in self.task.labels]]

    def pipeline_options(self, decision: Decision) -> Row:
        return {"aggregation_strategy": "first"}

    def score(self, given: TagsPredicted) -> dict[str, float]:
        predicted, right = self._tags(given), [example.tags for example in given.examples]
        losses, targets = _piece_losses(given)
        return {**score_tags(self.task, predicted, right), "loss": float(losses[targets].mean())}

    def prediction_rows(self, given: TagsPredicted) -> list[Row]:
        return [
            {
                "row": example.row,
                "text": example.text,
                "words": list(example.words),
                **({} if example.entities is None else {"gold": example.tags}),
                "predicted": tags,
                "entities": _in_text(example, tags),
            }
            for example, tags in zip(given.examples, self._tags(given), strict=True)
        ]

    def answer_columns(self, config: AnyConfig) -> dict[str, ColumnType]:
        entity: ColumnType = {"type": "string", "start": "int64", "end": "int64", "word": "string"}
        return {"text": "string", "words": ["string"], "predicted": ["string"], "entities": [entity]}

    def badness(self, given: TagsPredicted) -> npt.NDArray[np.float64] | None:
        if given.encoded.labels is None:
            return None
        losses, _ = _piece_losses(given)
        ends = np.concatenate([[0.0], np.cumsum(losses)])
        return np.diff(ends[given.encoded.pieces.boundaries])

    def main_metric_of(self, given: TagsPredicted, draws: Draws) -> Drawn | None:
        metric = _metric_of_counts(self.task.main_metric, self._tags(given), [row.tags for row in given.examples])
        return None if metric is None else np.array([metric(draw) for draw in draws])

    def diagnose(self, given: TagsPredicted) -> list[str]:
        right = [example.tags for example in given.examples]
        marked = [any(tag != OUTSIDE for tags in side for tag in tags) for side in (self._tags(given), right)]
        if marked != [False, True]:
            return []
        return ["NO ENTITY: no word is marked; train for more epochs, or with a smaller batch size (--batch-size)"]

    def classes(self, given: TagsPredicted) -> ClassScores:
        return entity_scores(self._tags(given), [example.tags for example in given.examples])

    def files(self, given: TagsPredicted, split: str) -> dict[str, str]:
        """The text of each file about labelled rows, by its name; none without labels."""
        if not self.has_labels(given.examples):
            return {}
        predicted, right = self._tags(given), [example.tags for example in given.examples]
        table = {
            "task": self.task.name,
            "split": split,
            "default": entity_table(entity_scores(predicted, right)),
            "strict": entity_table(entity_scores(predicted, right, mode="strict")),
        }
        sentences = []  # a column holds no tab, and is not empty
        for example, tags in zip(given.examples, predicted, strict=True):
            words = [re.sub(r"\s+", " ", word) or " " for word in example.words]
            rows = zip(words, example.tags, tags, strict=True)
            sentences.append("".join("\t".join(row) + "\n" for row in rows))
        return {
            f"entities-{split}.json": json.dumps(table, indent=2, ensure_ascii=False) + "\n",
            f"predictions-{split}.conll": "\n".join(sentences),
        }

    def baseline(self, train: Examples[TaggedExample], dev: Examples[TaggedExample]) -> Row:
        return feature_baseline(train, dev, self.task)

    def card(self) -> Card:
        kinds = ", ".join(f"`{kind}`" for kind in self.task.types)
        return Card(
            pipeline="token-classification",
            predicts=f"which words of a text name one of: {kinds}",
            call='pipe("a text", aggregation_strategy="first")',
            limits="Longer texts are read in overlapping windows of {max_length} word pieces; nothing is cut off.",
        )

    @property
    def label_names(self) -> list[str]:
        return [OUTSIDE, *self.task.types]

    def label_rows(self, folder: Path, name: str, prefix: str = "") -> list[Row] | None:
        """The type of each word, without its place in an entity."""
        lines = (folder / f"{prefix}predictions-{name}.conll").read_text(encoding="utf-8").split("\n")
        types = ([tag.partition("-")[2] or tag for tag in line.split("\t")[1:]] for line in lines if line)
        return [{"gold": gold, "predicted": predicted} for gold, predicted in types]

    def row_scores(self, rows: Sequence[Mapping[str, Any]]) -> RowScores:
        gold, predicted = ([tuple(row[name]) for row in rows] for name in ("gold", "predicted"))
        only, main = replace(self.task, metrics=(self.task.main_metric,)), self.task.main_metric

        def of_tags(some: Ints) -> float:
            return score_tags(only, *([side[row] for row in some] for side in (predicted, gold)))[main]

        words = [tuple(row["words"]) for row in rows]
        return RowScores(
            keys=list(zip(words, gold, strict=True)),
            shown=[row["text"] for row in rows],
            gold=_entities_of(words, gold),
            predicted=_entities_of(words, predicted),
            right=np.array([a == b for a, b in zip(gold, predicted, strict=True)]),
            metric=_metric_of_counts(main, predicted, gold) or of_tags,
        )

    def draw(self, folder: Path, name: str = "dev", prefix: str = "") -> dict[str, Figure]:
        from bertkit.visualize.evaluation_pictures import scores_by_type

        table = json.loads((folder / f"{prefix}entities-{name}.json").read_text(encoding="utf-8"))["default"]
        return {"types": scores_by_type(table["by_type"])}

    def facts(self, settings: ReadingSettings) -> Row:
        every = settings.of(TokenTaskSettings).label_all_pieces
        return {
            "what_it_predicts": "entities",
            "tagging": "BIO",
            "entity_scores": "seqeval default (conlleval); strict_f1: seqeval strict, IOB2",
            "labelled_pieces": "all of a word" if every else "first of a word",
            "predicted_pieces": "first of a word",
            "window_overlap": OVERLAP,
        }

    def probabilities(self, given: TagsPredicted) -> list[Floats]:
        """The probability of each of the task's labels for each word of each text, ``(W, C)``."""
        return word_probabilities(given.outputs, given.encoded, self._numbers(given), self._inner_labels())

    def _tags(self, given: TagsPredicted) -> list[list[str]]:
        """The tag of each word as the model says it, not repaired."""
        return [[self.task.labels[number] for number in row.tolist()] for row in self._numbers(given)]

    def _numbers(self, given: TagsPredicted) -> list[Ints]:
        return word_labels(given.outputs, given.encoded, self.task.labels.index(OUTSIDE), self._inner_labels())


def _piece_losses(given: TagsPredicted) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Loss of each piece ``(P,)``, 0 where there is no target, and where there is one."""
    encoded = given.encoded
    assert encoded.labels is not None, "rows were encoded with labels"
    labels_P = encoded.labels[encoded.places]
    targets = labels_P != IGNORED
    x_PC = given.outputs.astype(np.float64)
    x_PC -= x_PC.max(axis=1, keepdims=True)
    right_P = x_PC[np.arange(len(x_PC)), np.where(targets, labels_P, 0)]
    losses = np.where(targets, np.log(np.exp(x_PC).sum(axis=1)) - right_P, 0.0)
    return losses, targets


def _metric_of_counts(
    name: str, predicted: Sequence[Sequence[str]], right: Sequence[Sequence[str]]
) -> Callable[[Ints], float] | None:
    """A metric of some sentences, whose entities are counted once; None for a metric that needs more than counts."""
    if name not in ("f1", "precision", "recall"):
        return None
    found = [
        entity_scores([ours], [theirs]).micro if theirs else Found(0, 0, 0)
        for ours, theirs in zip(predicted, right, strict=True)
    ]
    counts = np.array(found, dtype=np.int64)
    return lambda some: float(getattr(Found(*counts[some].sum(axis=0).tolist()), name))


def _entities_of(words: Sequence[Sequence[str]], tags: Sequence[Sequence[str]]) -> list[str]:
    return [
        "; ".join(f"{' '.join(text[start:end])}: {kind}" for kind, start, end in read_entities(own))
        for text, own in zip(words, tags, strict=True)
    ]


def _in_text(example: TaggedExample, tags: Sequence[str]) -> list[Row]:
    text, spans = example.text, example.spans
    found: list[Row] = []
    for kind, first, end in read_entities(tags):
        start, stop = spans[first][0], spans[end - 1][1]
        found.append({"type": kind, "start": start, "end": stop, "word": text[start:stop]})
    return found
