"""Late chunking (Günther et al. 2024): vectors of the parts of a text, each of which was read in its context."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from bertkit.checkpoints.sentence_folder import SentenceParts
from bertkit.errors import InputError, LongTextError, require
from bertkit.inference.feature_extraction import FeatureExtractionPipeline
from bertkit.inference.sentence_steps import sentence_vectors
from bertkit.ragged import Floats
from bertkit.tasks.pieces import stripped

#: Between parts that were sent one by one.
_BETWEEN = " "


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a text: ``text[start:end]``, its word pieces, and its vector ``(D,)``."""

    start: int
    end: int
    num_tokens: int
    vector: Floats


def late_chunks(
    pipe: FeatureExtractionPipeline,
    text: str,
    num_tokens: int | None = None,
    *,
    normalize: bool | None = None,
    dimensions: int | None = None,
) -> list[Chunk]:
    """The chunks of a text: its sentences, or of about ``num_tokens`` word pieces, cut at white space if there is some.

    The token vectors of each chunk are pooled as the pipeline pools those of a text, by their mean. A text that is
    longer than the model reads is read in windows of as many whole chunks as fit; a chunk knows nothing of other
    windows. A sentence that is longer than that is several chunks.

    Deviates: the paper's windows overlap.

    Raises:
        InputError: the model does not pool by the mean, or a chunk does not fit into what it reads.
        MissingExtraError: sentences are found by ``nupunkt``, which is not installed.
    """
    most = _most_tokens(pipe)
    if num_tokens is None:
        found = _of_ranges(pipe, text, _sentences(pipe, text, most), most)
    else:
        if not 1 <= num_tokens <= most:
            raise InputError(f"a chunk must have from 1 to {most} tokens for this model, got {num_tokens}")
        found = []
        for start, end in _windows(pipe, text, most // num_tokens * num_tokens):
            found += _of_window(pipe, text[start:end], start, num_tokens)
    return _with_steps(pipe, found, normalize, dimensions)


def late_parts(
    pipe: FeatureExtractionPipeline,
    texts: Sequence[str],
    *,
    normalize: bool | None = None,
    dimensions: int | None = None,
) -> list[Chunk]:
    """The same of parts that follow each other in one text, one chunk each; places are those of the part itself.

    Raises:
        LongTextError: a part is longer than the model reads.
        InputError: the model does not pool by the mean, or a part has no word.
    """
    most = _most_tokens(pipe)
    starts = [0, *accumulate(len(text) + len(_BETWEEN) for text in texts)]
    ranges = [(start, start + len(text)) for start, text in zip(starts, texts, strict=False)]
    for number, text in enumerate(texts):
        if (size := len(pipe.tokenizer(text, add_special_tokens=False)["input_ids"])) > most:
            raise LongTextError(f"part {number} (counted from 0) has {size:,} tokens", size, most)
    found = _of_ranges(pipe, _BETWEEN.join(texts), ranges, most)
    if len(found) < len(texts):
        raise InputError("a part has no word that the model knows: leave it out")
    own = [Chunk(0, len(text), chunk.num_tokens, chunk.vector) for text, chunk in zip(texts, found, strict=True)]
    return _with_steps(pipe, own, normalize, dimensions)


def _parts(pipe: FeatureExtractionPipeline) -> SentenceParts:
    """How the pipeline makes vectors: as its model says, unless it was made with another pooling."""
    return pipe.parts(pipe.options.get("pooling") or "model")


def _most_tokens(pipe: FeatureExtractionPipeline) -> int:
    """Word pieces that the model reads at once."""
    config = _parts(pipe).config
    if config.pooling != ("mean",):
        how = " and ".join(config.pooling)
        raise InputError(
            f"late chunking takes the mean of a chunk's tokens, and this model pools by {how}. For the mean alone, "
            "without the model's further steps, make the pipeline with pooling='mean'"
        )
    return min(config.max_length or pipe.max_length, pipe.max_length) - len(pipe.tokenizer("")["input_ids"])


def _with_steps(
    pipe: FeatureExtractionPipeline, chunks: list[Chunk], normalize: bool | None, dimensions: int | None
) -> list[Chunk]:
    """With what the model does to a vector after pooling."""
    if not chunks:
        return []
    pooled = np.stack([chunk.vector for chunk in chunks])
    vectors = sentence_vectors(pooled, _parts(pipe), normalize=normalize, dimensions=dimensions)
    return [
        Chunk(chunk.start, chunk.end, chunk.num_tokens, vector) for chunk, vector in zip(chunks, vectors, strict=True)
    ]


def _sentences(pipe: FeatureExtractionPipeline, text: str, most: int) -> list[tuple[int, int]]:
    """Where sentences stand, without white space around them; one of too many word pieces is cut."""
    splitter = require("nupunkt", extra=None, needed_for="cutting a text into sentences")
    found = []
    for first, last in splitter.sent_spans(text) if text.strip() else ():
        own = text[first:last]
        for start, end in _windows(pipe, own, most):
            found.append((first + start, first + end))
    return found


def _of_ranges(pipe: FeatureExtractionPipeline, text: str, ranges: Iterable[tuple[int, int]], most: int) -> list[Chunk]:
    """The chunks at places in their order, each of at most ``most`` word pieces; without those that have none."""
    starts = np.array([start for start, _ in _places(pipe, text)], np.int64)
    found: list[Chunk] = []
    window: list[tuple[int, int]] = []
    size = 0
    for start, end in ranges:
        own = int(((starts >= start) & (starts < end)).sum())
        if window and size + own > most:
            found += _at(pipe, text, window)
            window, size = [], 0
        window.append((start, end))
        size += own
    return found + (_at(pipe, text, window) if window else [])


def _at(pipe: FeatureExtractionPipeline, text: str, ranges: Sequence[tuple[int, int]]) -> list[Chunk]:
    """The chunks at places that are read together."""
    begin = ranges[0][0]
    begin -= text[begin - 1 : begin] == " "  # a byte-level tokenizer cuts a word behind a blank in another way
    places, vectors_SD = _token_vectors(pipe, text[begin : ranges[-1][1]])
    starts = np.array([start for start, _ in places], np.int64) + begin
    found = []
    for start, end in ranges:
        own = np.flatnonzero((starts >= start) & (starts < end))
        if len(own):
            found.append(Chunk(start, end, len(own), vectors_SD[own].mean(axis=0)))
    return found


def _places(pipe: FeatureExtractionPipeline, text: str) -> list[tuple[int, int]]:
    """Where the word pieces of a text stand."""
    found = pipe.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    return [stripped(text, *place) for place in found]  # some tokenizers count the blank before a word


def _windows(pipe: FeatureExtractionPipeline, text: str, most: int) -> list[tuple[int, int]]:
    """Parts of a text of at most so many word pieces."""
    places = _places(pipe, text)
    return [(places[first][0], places[last - 1][1]) for first, last in _cuts(places, most)]


def _cuts(places: list[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """Ranges of at most so many word pieces; each ends at white space if there is some in its second half."""
    found = []
    first = 0
    while first < len(places):
        last = min(first + most, len(places))
        if last < len(places):
            gaps = (at for at in range(last, first + most // 2, -1) if places[at][0] > places[at - 1][1])
            last = next(gaps, last)
        found.append((first, last))
        first = last
    return found


def _token_vectors(pipe: FeatureExtractionPipeline, text: str) -> tuple[list[tuple[int, int]], Floats]:
    """Places of a text's word pieces, and their vectors ``(S, D)``."""
    rows = pipe.tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True)
    own = np.flatnonzero(np.array(rows["special_tokens_mask"]) == 0)
    vectors_SD = np.asarray(pipe(text, pooling=None, max_length=pipe.max_length, progress=False))[0]
    return [stripped(text, *rows["offset_mapping"][at]) for at in own.tolist()], vectors_SD[own]


def _of_window(pipe: FeatureExtractionPipeline, text: str, begin: int, num_tokens: int) -> list[Chunk]:
    """The chunks of a part of a text that begins at ``begin``, with the means of their token vectors."""
    places, vectors_SD = _token_vectors(pipe, text)
    return [
        Chunk(begin + places[first][0], begin + places[last - 1][1], last - first, vectors_SD[first:last].mean(axis=0))
        for first, last in _cuts(places, num_tokens)
    ]
