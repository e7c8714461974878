"""Can vectors tell the senses of a word apart? Those of a word in its sentence, layer by layer, and word vectors.

For each word, its vectors in all sentences are put into as many groups as it has senses, by k-means, which does not
know the senses; the adjusted Rand index (Hubert & Arabie 1985) says how far the groups are the senses: 1 all, 0 as by
chance. A word vector is the same in every sentence: one group, whose index is 0. A fairer comparison is the mean of the
word vectors of the other words of each sentence, which knows the company of the word but not its order.

Letters of the array shapes: L layers, N sentences, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from bertkit.engine.backend import Network
from bertkit.engine.static.word_vectors import WordVectors, split_words
from bertkit.errors import InputError, counted
from bertkit.insight.layer_vectors import LayerReader, token_reader
from bertkit.insight.sense_sentences import SenseSentence, read_sense_sentences
from bertkit.metrics.vector_similarity import unit_vectors
from bertkit.ragged import Floats
from bertkit.system.console import Progress
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.visualize.drawn import Drawn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Times that k-means begins anew.
_STARTS = 10


@dataclass(frozen=True, slots=True)
class WordScore:
    """Adjusted Rand indices of a word: of each layer from 0, of its neighbours' word vectors, of its own (0)."""

    word: str
    senses: tuple[str, ...]
    sentences: int
    layers: tuple[float, ...]
    neighbours: float
    static: float = 0.0


@dataclass(frozen=True, slots=True)
class WordPlaces:
    """A word to draw: the sense of each sentence, and its places by the neighbours' word vectors and by a layer."""

    word: str
    senses: tuple[str, ...]
    sentences: tuple[str, ...]
    layer: int
    neighbours: npt.NDArray[np.float64]
    contextual: npt.NDArray[np.float64]


@dataclass(frozen=True)
class SenseScores(Drawn):
    """How far vectors tell the senses of words apart: a score for each word, and one word to look at.

    static_vectors: which word vectors are meant.
    """

    title: ClassVar[str] = "Senses of a word: word vectors and contextual vectors"
    words: tuple[WordScore, ...]
    drawn: WordPlaces
    static_vectors: str

    @property
    def layers(self) -> list[float]:
        """The mean index over the words, of each layer."""
        return _means(self.words)

    @property
    def neighbours(self) -> float:
        """The mean index of the neighbours' word vectors."""
        return float(np.mean([each.neighbours for each in self.words]))

    @property
    def best_layer(self) -> int:
        """The layer with the largest mean."""
        return _best_layer(self.words)

    def to_dict(self) -> Mapping[str, Any]:
        """Plain values for JSON: adjusted Rand indices by layer and word, and the points of the drawn word."""
        return {
            "layers": self.layers,
            "best_layer": self.best_layer,
            "static": 0.0,
            "neighbours": self.neighbours,
            "static_vectors": self.static_vectors,
            "words": [asdict(each) for each in self.words],
            "drawn": {
                **asdict(self.drawn),
                "neighbours": self.drawn.neighbours.tolist(),
                "contextual": self.drawn.contextual.tolist(),
            },
        }

    def render(self) -> str:
        """The mean index of each layer, then each word's, for people."""
        best, width = self.best_layer, max(len(each.word) for each in self.words)
        senses, sentences = sum(len(each.senses) for each in self.words), sum(each.sentences for each in self.words)
        amounts = f"{counted(len(self.words), 'word')}, {counted(senses, 'sense')}, {counted(sentences, 'sentence')}"
        lines = [
            f"{amounts}: adjusted Rand index of k-means and senses (1: the same groups, 0: as by chance)",
            f"the word's own vector        {0:6.3f}",
            f"mean of the words around it  {self.neighbours:6.3f}  ({self.static_vectors})",
        ]
        for layer, mean in enumerate(self.layers):
            name = f"layer {layer}" + (" (embeddings)" if layer == 0 else "")
            lines.append(f"{name:<27}  {mean:6.3f}" + ("  best" if layer == best else ""))
        lines.append(f"{'word':<{width}}  around  layer {best}  senses")
        lines += [
            f"{each.word:<{width}}  {each.neighbours:6.3f}  {each.layers[best]:6.3f}   {', '.join(each.senses)}"
            for each in self.words
        ]
        return "\n".join(lines)

    def figure(self) -> Figure:
        """The drawn word by its sentences, and the mean index of each layer. MissingExtraError without matplotlib."""
        from bertkit.visualize.sense_pictures import senses_figure

        return senses_figure(
            self.drawn.word,
            self.drawn.senses,
            {
                "its own word vector: one point": np.zeros((len(self.drawn.senses), 2)),
                "the word vectors around it": self.drawn.neighbours,
                f"the word in its sentence, layer {self.drawn.layer}": self.drawn.contextual,
            },
            self.layers,
            self.neighbours,
        )


def senses(
    model: str | Path | Network,
    *,
    file: str | Path | None = None,
    words: list[str] | None = None,
    vectors: str | Path | WordVectors | None = None,
    tokenizer: str | Path | PreTrainedTokenizer | None = None,
    seed: int = 0,
    device: Any = None,
) -> SenseScores:
    """Whether a model's vectors of ambiguous words tell their senses apart, layer by layer, beside word vectors.

    Args:
        model: folder, name on the Hub, run folder, or a model object of an encoder.
        file: with the columns word, sense and sentence; None: 21 English words with 10 sentences a sense.
        words: only these words, in this order; the first is drawn.
        vectors: word vectors to compare with, see :meth:`bertkit.static.WordVectors.load`; None: the table of word
            embeddings of the model itself.
        tokenizer: needed for a model object.
        seed: of k-means.
        device: see :func:`bertkit.pipeline`.

    Raises:
        DataError, ConfigError: see :func:`bertkit.insight.sense_sentences.read_sense_sentences`.
        InputError: a model that does not show its layers, or a word beyond what the model reads of its sentence.
    """
    sentences = read_sense_sentences(file, words)
    reader = token_reader(model, {"tokenizer": tokenizer, "device": device})
    table = WordVectors.load(vectors) if isinstance(vectors, str | Path) else vectors
    contextual_LND = _contextual(reader, sentences)
    around_ND = _own_table(reader, sentences) if table is None else _around(table, sentences)
    scores, grouped = [], _rows_by_word(sentences)
    with Progress(len(grouped), label="grouping", unit="words") as bar:
        for word, rows in grouped.items():
            scores.append(
                _score(word, [sentences[row].sense for row in rows], contextual_LND[:, rows], around_ND[rows], seed)
            )
            bar.advance()
    best = _best_layer(scores)
    first, rows = next(iter(grouped.items()))
    drawn = WordPlaces(
        first,
        tuple(sentences[row].sense for row in rows),
        tuple(sentences[row].sentence for row in rows),
        best,
        _plane(around_ND[rows]),
        _plane(contextual_LND[best, rows]),
    )
    name = "the model's word embeddings" if table is None else f"{len(table):,} word vectors"
    return SenseScores(tuple(scores), drawn, name)


def _means(words: Sequence[WordScore]) -> list[float]:
    return [float(mean) for mean in np.mean([each.layers for each in words], axis=0)]


def _best_layer(words: Sequence[WordScore]) -> int:
    return int(np.argmax(_means(words)))


def _rows_by_word(sentences: Sequence[SenseSentence]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for row, each in enumerate(sentences):
        grouped.setdefault(each.word, []).append(row)
    return grouped


def _score(word: str, names: list[str], contextual_LND: Floats, around_ND: Floats, seed: int) -> WordScore:
    different = tuple(dict.fromkeys(names))
    layers = tuple(_index(x_ND, names, seed) for x_ND in contextual_LND)
    return WordScore(word, different, len(names), layers, _index(around_ND, names, seed))


def _index(x_ND: Floats, names: list[str], seed: int) -> float:
    """The adjusted Rand index of k-means of directions; 0 where all are the same."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score

    unit_ND = unit_vectors(x_ND)
    different = min(len(set(names)), len(np.unique(unit_ND.round(6), axis=0)))
    if different == 1:
        return 0.0
    groups = KMeans(different, n_init=_STARTS, random_state=seed).fit_predict(unit_ND)
    return float(adjusted_rand_score(names, groups))


def _plane(x_ND: Floats) -> npt.NDArray[np.float64]:
    """The first two principal components of the directions ``(N, 2)``."""
    unit_ND = unit_vectors(x_ND).astype(np.float64)
    unit_ND -= unit_ND.mean(axis=0)
    left, singular, _ = np.linalg.svd(unit_ND, full_matrices=False)
    places = np.zeros((len(x_ND), 2))
    kept = min(2, len(singular))
    places[:, :kept] = left[:, :kept] * singular[:kept]
    return places


def _spans(reader: LayerReader, sentences: Sequence[SenseSentence]) -> list[npt.NDArray[np.bool_]]:
    """Which tokens of each row are of its word."""
    found = []
    offsets = reader.tokenizer([each.sentence for each in sentences], return_offsets_mapping=True)["offset_mapping"]
    for each, row in zip(sentences, offsets, strict=True):
        of_word = np.array([start < each.end and end > each.start for start, end in row])
        if not of_word[: reader.max_length - 1].any() or of_word[reader.max_length - 1 :].any():
            raise InputError(
                f"{each.source}: the word {each.word!r} is not among the first {reader.max_length} tokens of its "
                "sentence, which is what the model reads; shorten the sentence"
            )
        found.append(of_word)
    return found


def _contextual(reader: LayerReader, sentences: Sequence[SenseSentence]) -> Floats:
    """The mean of the tokens of each word in its sentence: ``(L, N, D)``."""
    spans = _spans(reader, sentences)
    rows = reader.encode([each.sentence for each in sentences], truncation=True)
    with Progress(len(rows), label="reading sentences", unit="sentences") as bar:
        states = reader.states(rows, advance=bar.advance)
        found = [x_LSD[:, span[: x_LSD.shape[1]]].mean(axis=1) for x_LSD, span in zip(states, spans, strict=True)]
    return np.stack(found, axis=1)


def _own_table(reader: LayerReader, sentences: Sequence[SenseSentence]) -> Floats:
    """The mean of the model's word embeddings of the other tokens of each sentence ``(N, E)``."""
    encoder: Any = reader.pipe.model
    words = encoder.embeddings.word_embeddings
    rows_V = torch.arange(words.num_embeddings, device=words.weight.device)
    table_VE = words(rows_V).detach().float().cpu().numpy()  # read as the model does: in 8 bits with its scales
    rows, special = (
        reader.encode([each.sentence for each in sentences], truncation=True),
        reader.tokenizer.all_special_ids,
    )
    found = []
    for ids, of_word in zip(rows, _spans(reader, sentences), strict=True):
        others = ids[~of_word[: len(ids)] & ~np.isin(ids, special)]
        found.append(table_VE[others].mean(axis=0) if len(others) else np.zeros(table_VE.shape[1], np.float32))
    return np.stack(found)


def _around(table: WordVectors, sentences: Sequence[SenseSentence]) -> Floats:
    """The mean of the word vectors of the other words of each sentence ``(N, D)``; zeros where none is known.

    A word counts once: as it is written or, if the table lacks that form, in lower case, or else in lower case
    without accents.
    """
    found = []
    for each in sentences:
        others = each.sentence[: each.start] + " " + each.sentence[each.end :]
        forms = (
            (word, *split_words(word, strip_accents=False), *split_words(word))
            for word in split_words(others, lower=False)
        )
        known = [next((form for form in each if form in table), None) for each in forms]
        vectors = [table[word] for word in dict.fromkeys(known) if word is not None]
        found.append(np.mean(vectors, axis=0) if vectors else np.zeros(table.vectors.shape[1], np.float32))
    return np.stack(found)
