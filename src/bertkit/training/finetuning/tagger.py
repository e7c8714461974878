"""BERT as a tagger of words, in the manner of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from bertkit.errors import InputError, counted
from bertkit.metrics.tags import Entity, Spelling, read_entities, spelling_of, write_tags
from bertkit.tasks.reading.listed_texts import KEEP, is_nothing, listed
from bertkit.training.finetuning.text_estimator import TextEstimator

if TYPE_CHECKING:
    from bertkit.tasks.tokens.task import TaggedExample, TokenTask


class BertTagger(TextEstimator):
    """Fine-tune a BERT to tag words: names, parts of addresses, aspects.

    ``X`` holds the words of each sentence as a list, or a text, whose words are what blanks part; ``y`` a list of tags,
    one for each word, in any scheme (BIO, IOB1, BIOES, BILOU, or types alone). ``predict`` gives tags in BIO. Sentences
    of any length are read whole, in windows that overlap. Works in ``cross_val_score`` and ``GridSearchCV``.

    Args:
        model: start checkpoint; the default is the small model that comes with bertkit.
        learning_rate: peak rate; None chooses by the size of the model.
        epochs: passes over the data; None means 3, more for small data (about 1,000 updates, at most 20 epochs).
        batch_size: windows in an optimizer step.
        max_length: word pieces of a window; None: 128, or as many as the model reads.
        freeze_encoder: train only the head.
        seed: data order, new head and dropout; the same seed gives the same model.
        random_state: the same by scikit-learn's name; None takes ``seed``.
        device: see :func:`bertkit.system.device.find_device`; None is the CPU.
        verbose: show progress.

    Attributes (after ``fit``): ``classes_`` (the tags that are predicted), ``model_``, ``tokenizer_``, ``config_``.
    """

    file, auto_class = "tagger.json", "AutoModelForTokenClassification"

    def fit(self, X: Sequence[Any], y: Sequence[Sequence[str]], **others: object) -> BertTagger:
        """Fine-tune from the start checkpoint; an earlier fit is forgotten.

        Args:
            X: n sentences, each a list of words or a text.
            y: n lists of tags, as many as words; "O" is no entity.
            **others: refused; the message says where each belongs.

        Raises:
            InputError: something that is no sentence, another number of tags than words, no entity at all.
            CheckpointError: the start checkpoint cannot be used.
        """
        self._refuse_arguments("fit", others)
        sentences = _sentences(X)
        tags, spelling = _tags(y, sentences)
        if not spelling.types:
            raise InputError("every word of y is tagged 'O', so that there is no entity to learn from")
        self._types = tuple(sorted(spelling.types))
        examples = [
            _example(row, words, tuple(read_entities(own, spelling.notation)))
            for row, (words, own) in enumerate(zip(sentences, tags, strict=True))
        ]
        self._train([example for example in examples if example.words])
        return self

    @property
    def classes_(self) -> npt.NDArray[np.generic]:
        """The tags that are predicted, ``(C,)``."""
        check_is_fitted(self, "model_")
        return np.array(self._task().labels)

    def predict(self, X: Sequence[Any]) -> npt.NDArray[np.generic]:
        """The tags of each sentence in BIO, one for each word: an object array ``(n,)`` of lists of texts."""
        return self._of_sentences(
            X, [], lambda workflow, given: [list(line["predicted"]) for line in workflow.prediction_rows(given)]
        )

    def predict_proba(self, X: Sequence[Any]) -> npt.NDArray[np.generic]:
        """How probable each of ``classes_`` is for each word: an object array ``(n,)`` of float32 ``(words, C)``.

        A word's are those of its first word piece.
        """
        check_is_fitted(self, "model_")
        nothing = np.zeros((0, len(self.classes_)), np.float32)
        return self._of_sentences(X, nothing, lambda workflow, given: workflow.probabilities(given))

    def _of_sentences(
        self, X: Sequence[Any], nothing: Any, made: Callable[[Any, Any], Sequence[Any]]
    ) -> npt.NDArray[np.generic]:
        """What is made of the predictions, one for each sentence, in an object array; ``nothing`` without words."""
        check_is_fitted(self, "model_")
        sentences = _sentences(X)
        found: npt.NDArray[np.generic] = np.empty(len(sentences), dtype=object)
        for row in range(len(sentences)):
            found[row] = copy(nothing)
        if examples := [_example(row, words) for row, words in enumerate(sentences) if words]:
            for example, one in zip(examples, made(*self._predicted(examples)), strict=True):
                found[example.row] = one
        return found

    def score(self, X: Sequence[Any], y: Sequence[Sequence[str]]) -> float:
        """F1 of entities, as ``seqeval`` and ``conlleval`` compute it: type, first and last word must be right."""
        from bertkit.tasks.tokens.metrics import entity_scores

        check_is_fitted(self, "model_")
        sentences = _sentences(X)
        tags, spelling = _tags(y, sentences)
        right = [write_tags(read_entities(own, spelling.notation), len(own)) for own in tags]
        return entity_scores(self.predict(sentences).tolist(), right).micro.f1

    def _task(self) -> TokenTask:
        from bertkit.tasks.tokens.task import TokenTask, types_of

        types = self._types if not hasattr(self, "model_") else types_of(self.model_.config.id2label.values())
        return TokenTask("ner", types)


def _sentences(X: Sequence[Any]) -> list[tuple[str, ...]]:
    """The words of each sentence; of a text what blanks part."""
    found = []
    for number, row in enumerate(listed(X)):
        if isinstance(row, str):
            row = row.split()
        if is_nothing(row):
            raise InputError(f"X has no sentence in row {number} (counted from 0), but {row!r}; {KEEP}")
        words = list(row) if isinstance(row, list | tuple | np.ndarray) else None
        if words is None or not all(isinstance(word, str) for word in words):
            raise InputError(f"X must hold lists of words, or texts; row {number} (counted from 0) is {row!r:.80}")
        found.append(tuple(words))
    if not found:
        raise InputError("X is empty: found 0 sample(s), a minimum of 1 is required")
    return found


def _tags(y: Sequence[Sequence[str]] | None, sentences: Sequence[Sequence[str]]) -> tuple[list[list[str]], Spelling]:
    """The tags of each sentence, and how they are written."""
    if y is None:
        raise InputError("BertTagger requires y to be passed, but the target y is None")
    rows = listed(y, "y")
    if len(rows) != len(sentences):
        raise InputError(f"y must have tags for each of the {counted(len(sentences), 'sentence')}, got {len(rows):,}")
    found = []
    for number, (row, words) in enumerate(zip(rows, sentences, strict=True)):
        if not isinstance(row, list | tuple | np.ndarray) or not all(isinstance(tag, str) and tag for tag in row):
            raise InputError(
                f"y must hold lists of tags as texts, such as ['O', 'B-PER']; row {number} (counted from 0) is "
                f"{row!r:.80}"
            )
        if len(row) != len(words):
            raise InputError(
                f"y has {counted(len(row), 'tag')} in row {number} (counted from 0) for {counted(len(words), 'word')}: "
                f"{' '.join(words)!r:.80}; give one tag for each word"
            )
        found.append(list(row))
    return found, spelling_of(found)


def _example(row: int, words: tuple[str, ...], entities: tuple[Entity, ...] | None = None) -> TaggedExample:
    from bertkit.tasks.tokens.task import TaggedExample

    return TaggedExample(words, entities, row)
