"""What each layer of a model knows, and how similar its layers are to each other and to those of another model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bertkit.engine.backend import Network
from bertkit.errors import InputError, counted
from bertkit.inference.feature_extraction import Pooling
from bertkit.inference.protocol import short_name
from bertkit.insight.layer_probes import Examples, LayerScore, divide, probe, word_vectors
from bertkit.insight.layer_vectors import LayerReader, cut_notes, several
from bertkit.metrics.layer_similarity import FEWEST, layer_similarity
from bertkit.ragged import Flags, Floats, Ints
from bertkit.system.console import Progress, aligned
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.visualize.drawn import Drawn
from bertkit.visualize.layer_pictures import Curve, HeatMap, layers_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Examples that are read, and those of which layers are compared.
MOST_EXAMPLES, MOST_COMPARED = 5000, 1000
Sentence = Sequence[str]


@dataclass(frozen=True)
class LayerStudy(Drawn):
    """Probes of the layers of one or two models, and the similarity of layers.

    models: their names. unit: what the ``examples`` are, ``"texts"`` or ``"words"``; sampled from ``of`` texts.
    probes: for each model the scores of its layers from 0, the embeddings, on; empty without labels.
    labels, train, dev: how many; majority: accuracy on dev of the label that most of train has.
    similarity: linear CKA of ``compared`` examples, ``[i][j]`` of layer i of the first model and layer j of the last;
        None for a layer in which all examples are the same.
    """

    title: ClassVar[str] = "What each layer knows, and how similar layers are"

    models: tuple[str, ...]
    unit: str
    examples: int
    of: int
    probes: tuple[tuple[LayerScore, ...], ...]
    labels: int
    train: int
    dev: int
    majority: float | None
    similarity: tuple[tuple[float | None, ...], ...]
    compared: int
    notes: tuple[str, ...]

    @property
    def _names(self) -> tuple[str, ...]:
        """The names of the models, or words that tell two of the same name apart."""
        same = len(self.models) == 2 and self.models[0] == self.models[1]
        return ("the first model", "the second model") if same else self.models

    def to_dict(self) -> dict[str, Any]:
        probes = [[{**asdict(each), "selectivity": each.selectivity} for each in scores] for scores in self.probes]
        return {**asdict(self), "probes": probes}

    def render(self) -> str:
        """Accuracies of probes by layer, with intervals and control tasks, and how alike the layers are, for people."""
        names = self._names
        lines = [f"{self.examples:,} {self.unit} for {' and '.join(names)}"]
        for name, scores in zip(names, self.probes, strict=False):
            of = counted(self.labels, "label")
            lines.append(f"linear probes of {name}: {of}, train {self.train:,}, dev {self.dev:,}")
            table = [("layer", "accuracy", "(95 %)", "control", "selectivity")]
            for each in scores:
                interval = f"{each.low:.3f} to {each.high:.3f}"
                table.append(
                    (
                        str(each.layer),
                        f"{each.accuracy:.4f}",
                        interval,
                        f"{each.control:.4f}",
                        f"{each.selectivity:+.4f}",
                    )
                )
            lines += aligned(table)
        if self.majority is not None:
            lines.append(f"most frequent label: {self.majority:.4f}")
        if self.similarity:
            down, across = names[0], names[-1]
            lines.append(f"similarity (linear CKA, {self.compared:,} {self.unit}) of the layers of {down}, one a line,")
            lines.append(f"with layers 0, 1, ... of {across}")
            rows = [[f"{'-' if value is None else f'{value:.3f}':>6}" for value in row] for row in self.similarity]
            lines += [f"{layer:>5} {''.join(row)}" for layer, row in enumerate(rows)]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def figure(self) -> Figure:
        names = self._names
        curves = [
            Curve(name, *(np.array([getattr(each, field) for each in scores]) for field in Curve._fields[1:]))
            for name, scores in zip(names, self.probes, strict=False)
        ]
        values = np.array(self.similarity, np.float64)  # None is NaN
        heat = HeatMap(names[0], names[-1], values) if self.similarity else None
        return layers_figure(curves, self.majority, heat)


def layers(
    texts: Sequence[str] | Sequence[Sentence],
    labels: Sequence[str | None] | Sequence[Sequence[str]] | None = None,
    model: str | Path | Network | None = None,
    *,
    other: str | Path | Network | None = None,
    tokenizer: str | Path | PreTrainedTokenizer | None = None,
    other_tokenizer: str | Path | PreTrainedTokenizer | None = None,
    pooling: Pooling = "model",
    examples: int = MOST_EXAMPLES,
    seed: int = 0,
    max_length: int | None = None,
    device: Any = None,
) -> LayerStudy:
    """A linear probe for each layer, and the similarity of layers.

    A probe is a logistic regression on the vectors of one layer, which are not changed; it learns from four fifths of
    the texts and is scored on the others. Its control learns labels that mean nothing (Hewitt & Liang 2019): where it
    is good as well, a probe learns the labels by heart, and the layer need not know them. Similarity is linear CKA
    (Kornblith et al. 2019), see :func:`bertkit.metrics.layer_similarity.layer_similarity`.

    Args:
        texts: texts; or sentences as lists of words.
        labels: one a text, None for a text without; of sentences a list with a tag for each word. None: no probes.
        model: folder, name on the Hub, run folder, or a model object.
        other: a second model, whose layers are compared with those of the first, instead of those with each other.
        tokenizer: needed for a model object.
        other_tokenizer: the same for ``other``.
        pooling: how a text gets its vector from those of its tokens; see :class:`bertkit.SentenceEncoder`. Not for
            words.
        examples: of more texts, or words, so many are sampled.
        seed: of the sample, of train and dev, and of the control labels.
        max_length: most tokens of a text; longer ones are cut, and sentences of words are read in windows.
        device: see :func:`bertkit.pipeline`.

    Raises:
        InputError: labels that do not belong to the texts, too few of either, a single text in place of several, a
            ``pooling`` of words, a model that does not show its layers.
    """
    if model is None:
        raise InputError("give a model, whose layers are to be looked at")
    if examples < 1:
        raise InputError(f"examples must be from 1, got {examples}")
    given = _Given.sampled(several(texts), None if labels is None else list(labels), examples, seed)
    if given.words is not None and pooling != "model":
        raise InputError(f"pooling={pooling!r} has no effect: a word has the vectors of its own pieces; leave it out")
    readers = [
        LayerReader(each, words, pooling=pooling, device=device, max_length=max_length)
        for each, words in ((model, tokenizer), (other, other_tokenizer))
        if each is not None
    ]
    names = tuple(_name_of(each) for each in (model, other) if each is not None)
    found, kept, notes = given.read(readers)
    divided = given.divided(kept, seed)
    probes = [] if divided is None else [_probed(vectors, divided) for vectors in found]
    compared = np.sort(np.random.Generator(np.random.PCG64(seed)).permutation(len(kept))[:MOST_COMPARED])
    similar = np.zeros((0, 0))
    if len(compared) >= FEWEST:
        similar = layer_similarity(found[0][:, compared], found[-1][:, compared])
    else:
        notes.append(f"{counted(len(compared), 'example')} are too few to compare layers: {FEWEST} are needed")
    dev = 0 if divided is None else int(divided.dev.sum())
    return LayerStudy(
        models=names,
        unit="texts" if given.words is None else "words",
        examples=len(kept),
        of=given.of,
        probes=tuple(probes),
        labels=0 if divided is None else divided.num_labels,
        train=0 if divided is None else len(divided.dev) - dev,
        dev=dev,
        majority=None if divided is None else divided.majority,
        similarity=tuple(tuple(None if np.isnan(each) else float(each) for each in row) for row in similar),
        compared=len(compared),
        notes=(*notes, *(() if divided is None else divided.notes)),
    )


@dataclass(frozen=True, slots=True)
class _Given:
    """N sampled examples: texts, or the words of sentences, with their labels.

    labels: one an example; None: none at all. owners: int64 ``(N,)``, the text of each.
    words: the examples, if they are words. of: how many texts or sentences were given.
    """

    texts: list[Any]
    labels: list[str | None] | None
    owners: Ints
    words: list[str] | None
    of: int
    notes: list[str]

    @classmethod
    def sampled(cls, texts: list[Any], labels: list[Any] | None, most: int, seed: int) -> _Given:
        if not texts:
            raise InputError("there are no texts to look at")
        if labels is not None and len(labels) != len(texts):
            raise InputError(f"got {counted(len(labels), 'label')} for {counted(len(texts), 'text')}; give one a text")
        in_words = not isinstance(texts[0], str)
        sizes = np.array([len(text) for text in texts]) if in_words else np.ones(len(texts), np.int64)
        if in_words and labels is not None:
            wrong = next((n for n, tags in enumerate(labels) if len(tags) != sizes[n]), None)
            if wrong is not None:
                raise InputError(
                    f"sentence {wrong} (counted from 0) has {sizes[wrong]} words and {len(labels[wrong])} tags"
                )
        drawn = np.random.Generator(np.random.PCG64(seed)).permutation(len(texts))
        enough = np.cumsum(sizes[drawn]) - sizes[drawn] < most
        rows = np.sort(drawn[enough]).tolist()
        kept = [texts[row] for row in rows]
        found = None if labels is None else [labels[row] for row in rows]
        owners = np.repeat(np.arange(len(rows)), sizes[rows])
        name, notes = "sentences" if in_words else "texts", []
        if len(rows) < len(texts):
            notes.append(f"{len(rows):,} of {len(texts):,} {name} were sampled (seed {seed})")
        if not in_words:
            return cls(kept, found, owners, None, len(texts), notes)
        words = [word for sentence in kept for word in sentence]
        tags = None if found is None else [tag for each in found for tag in each]
        return cls(kept, tags, owners, words, len(texts), notes)

    def vectors(self, reader: LayerReader) -> tuple[Floats, Flags, list[str]]:
        """Those of the examples ``(L, N, D)``, which examples have any, and what is to be said of them."""
        with Progress(len(self.texts), label="reading layers", unit="texts") as bar:
            if self.words is not None:
                return *word_vectors(reader, self.texts, bar.advance), []
            rows = reader.encode(self.texts, truncation=True)
            vectors = reader.vectors(rows, advance=bar.advance)
        return vectors, np.ones(len(rows), np.bool_), cut_notes(rows.truncated)

    def read(self, readers: Sequence[LayerReader]) -> tuple[list[Floats], Ints, list[str]]:
        """The vectors by each model of the examples that have any, which these are, and what is to be said."""
        notes, found = list(self.notes), []
        there = np.ones(len(self.owners), np.bool_)
        for reader in readers:
            vectors, known, told = self.vectors(reader)
            there &= known
            found.append(vectors)
            notes += [note for note in told if note not in notes]
        if not there.all():
            left = counted(int((~there).sum()), "word")
            notes.append(f"left out, for want of a word piece: {left}")
        kept = np.flatnonzero(there)
        return [vectors[:, kept] for vectors in found], kept, notes

    def divided(self, kept: Ints, seed: int) -> Examples | None:
        """Train and dev of the examples that are kept; None without labels."""
        if self.labels is None:
            return None
        words = None if self.words is None else [self.words[place] for place in kept]
        return divide([self.labels[place] for place in kept], self.owners[kept], words, seed)


def _probed(vectors_LND: Floats, examples: Examples) -> tuple[LayerScore, ...]:
    with Progress(len(vectors_LND), label="training probes", unit="layers") as bar:
        return tuple(probe(vectors_LND, examples, bar.advance))


def _name_of(model: str | Path | Network) -> str:
    return short_name(model) if isinstance(model, str | Path) else type(model).__name__
