"""What a linear classifier finds in each layer of a model, beside what it finds of labels that mean nothing.

Letters of the array shapes: L layers, N examples (texts, or words in their sentences), D width of the model.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from bertkit.errors import InputError, counted
from bertkit.insight.layer_vectors import LayerReader
from bertkit.metrics.intervals import wilson_interval
from bertkit.ragged import Flags, Floats, Ints
from bertkit.tasks.tokens.features import windows_of_words

#: Share of the texts that the classifiers are scored on.
DEV_SHARE = 0.2
#: Labels that are told apart; of more, those that most examples have.
MOST_LABELS = 100
#: Fewest examples that are divided into train and dev.
FEWEST = 20
#: Inverse of the penalty of a classifier's weights, and its steps at most.
INVERSE_PENALTY, MOST_STEPS = 0.1, 300

Strings = npt.NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class LayerScore:
    """Accuracy on dev of a linear classifier on a layer (0: the embeddings), and of one of control labels.

    low, high: the 95 % interval of ``accuracy`` (Wilson 1927), as if examples were independent.
    selectivity: what is left of the accuracy without the control's (Hewitt & Liang 2019).
    """

    layer: int
    accuracy: float
    low: float
    high: float
    control: float

    @property
    def selectivity(self) -> float:
        return self.accuracy - self.control


@dataclass(frozen=True, slots=True)
class Examples:
    """N labelled examples, of which some are dev.

    labels, controls: int64 ``(N,)``. The controls mean nothing: those of texts are shuffled; each different word has
        one, drawn as often as the labels are, which a classifier learns that knows the word only.
    dev: bool ``(N,)``; a sentence is in one part with all of its words.
    kept: int64 ``(N,)``, their places among all that were given.
    """

    labels: Ints
    controls: Ints
    dev: Flags
    kept: Ints
    num_labels: int
    notes: tuple[str, ...] = ()

    @property
    def majority(self) -> float:
        """Accuracy on dev of the label that most of train has."""
        return float(np.mean(self.labels[self.dev] == np.bincount(self.labels[~self.dev]).argmax()))


def divide(labels: Sequence[str | None], owners: Ints, words: Sequence[str] | None, seed: int) -> Examples:
    """Labelled examples in train and dev. ``owners``: number of the text of each; ``words``: None for whole texts.

    Raises:
        InputError: fewer than :data:`FEWEST` examples, or one label only.
    """
    counts = Counter(label for label in labels if label is not None)
    frequent = sorted(counts, key=lambda label: (-counts[label], label))[:MOST_LABELS]
    number = {label: place for place, label in enumerate(frequent)}
    kept = np.array([place for place, label in enumerate(labels) if label in number], np.int64)
    notes = []
    if missing := len(labels) - counts.total():
        notes.append(f"{missing:,} without a label are left out of the probes")
    if len(counts) > MOST_LABELS:
        left = counts.total() - len(kept)
        notes.append(f"the {MOST_LABELS} most frequent of {len(counts):,} labels are told apart; {left:,} are left out")
    if len(kept) < FEWEST or len(frequent) < 2:
        raise InputError(
            f"a probe needs {FEWEST} examples and two labels, got {counted(len(kept), 'example')} with "
            f"{counted(len(frequent), 'label')}"
        )
    generator = np.random.Generator(np.random.PCG64(seed))
    right = np.array([number[labels[place] or ""] for place in kept])
    texts = generator.permutation(np.unique(owners[kept]))
    dev = np.isin(owners[kept], texts[: max(1, round(DEV_SHARE * len(texts)))])
    if words is None:
        controls = generator.permutation(right)
    else:
        _, types = np.unique([words[place] for place in kept], return_inverse=True)
        controls = generator.choice(right, types.max() + 1)[types]
    if dev.all() or len(np.unique(right[~dev])) < 2 or len(np.unique(controls[~dev])) < 2:
        raise InputError("the part that a probe learns from has one label only; give more examples")
    return Examples(right, controls, dev, kept, len(frequent), tuple(notes))


def probe(
    vectors_LND: Floats, examples: Examples, advance: Callable[[int], None] = lambda count: None
) -> list[LayerScore]:
    """Scores of each layer. Features are standardised on train, the classifier is a penalised logistic regression."""
    scores = []
    for layer, x_ND in enumerate(vectors_LND[:, examples.kept]):
        accuracy, control = (_accuracy(x_ND, labels, examples.dev) for labels in (examples.labels, examples.controls))
        count = int(examples.dev.sum())
        low, high = wilson_interval(round(accuracy * count), count)
        scores.append(LayerScore(layer, accuracy, low, high, control))
        advance(1)
    return scores


def _accuracy(x_ND: Floats, labels: Ints, dev: Flags) -> float:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    train = x_ND[~dev].astype(np.float64)
    mean, spread = train.mean(axis=0), train.std(axis=0)
    spread[spread < 1e-6] = 1.0  # a number that all examples share, but for rounding
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the last bit of fit changes no label to speak of
        model = LogisticRegression(C=INVERSE_PENALTY, max_iter=MOST_STEPS).fit((train - mean) / spread, labels[~dev])
    return float(np.mean(model.predict((x_ND[dev] - mean) / spread) == labels[dev]))


def word_vectors(
    reader: LayerReader, sentences: Sequence[Sequence[str]], advance: Callable[[int], None] = lambda count: None
) -> tuple[Floats, Flags]:
    """The vectors of the words of some sentences, ``(L, W, D)``, and which words have any.

    A word has the vector of its first piece, as in tagging. A sentence that is too long is read in windows.
    """
    spans = []
    for words in sentences:
        ends = list(accumulate((len(word) + 1 for word in words), initial=0))
        spans.append([(start, start + len(word)) for start, word in zip(ends, words, strict=False)])
    texts = [" ".join(words) for words in sentences]
    windows = windows_of_words(texts, spans, reader.tokenizer, max_length=reader.max_length)
    assert windows.first_pieces is not None
    there = windows.first_pieces >= 0
    places = windows.places[windows.first_pieces[there]]
    rows = np.searchsorted(windows.rows.boundaries, places, side="right") - 1
    begins = np.searchsorted(rows, np.arange(len(windows.rows) + 1))  # words are read in the order of the rows
    found: list[Floats] = []
    is_new = np.diff(windows.row_texts, prepend=-1) > 0
    for row, states_LSD in enumerate(reader.states(windows.rows)):
        advance(int(is_new[row]))
        own = places[begins[row] : begins[row + 1]] - windows.rows.boundaries[row]
        found.append(states_LSD[:, own])
    vectors = np.zeros((found[0].shape[0], len(there), found[0].shape[2]), np.float32)
    vectors[:, there] = np.concatenate(found, axis=1)
    return vectors, there
