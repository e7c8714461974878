"""Late chunking (Günther et al. 2024): vectors of the parts of a text, each of which was read in its context."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bertkit.errors import InputError
from bertkit.inference.feature_extraction import FeatureExtractionPipeline
from bertkit.inference.sentence_steps import sentence_vectors
from bertkit.ragged import Floats


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a text: ``text[start:end]``, its word pieces, and its vector ``(D,)``."""

    start: int
    end: int
    num_tokens: int
    vector: Floats


def late_chunks(
    pipe: FeatureExtractionPipeline, text: str, num_tokens: int, *, normalize: bool | None = None
) -> list[Chunk]:
    """The chunks of a text, of about ``num_tokens`` word pieces, cut at white space where there is some.

    The token vectors of each chunk are pooled as the model pools those of a text, by their mean. A text that is longer
    than the model reads is read in windows of as many whole chunks as fit; a chunk knows nothing of other windows.

    Deviates: the paper's windows overlap.

    Raises:
        InputError: the model does not pool by the mean, or a chunk does not fit into what it reads.
    """
    parts = pipe.parts("model")
    if parts.config.pooling != ("mean",):
        how = " and ".join(parts.config.pooling)
        raise InputError(f"late chunking takes the mean of a chunk's tokens, and this model pools by {how}")
    most = min(parts.config.max_length or pipe.max_length, pipe.max_length) - len(pipe.tokenizer("")["input_ids"])
    if not 1 <= num_tokens <= most:
        raise InputError(f"a chunk must have from 1 to {most} tokens for this model, got {num_tokens}")
    found: list[Chunk] = []
    for start, end in _windows(pipe, text, most // num_tokens * num_tokens):
        found += _of_window(pipe, text[start:end], start, num_tokens)
    if found:
        pooled = np.stack([chunk.vector for chunk in found])
        vectors = sentence_vectors(pooled, parts, normalize=normalize)
        found = [
            Chunk(chunk.start, chunk.end, chunk.num_tokens, vector)
            for chunk, vector in zip(found, vectors, strict=True)
        ]
    return found


def _windows(pipe: FeatureExtractionPipeline, text: str, most: int) -> list[tuple[int, int]]:
    """Parts of a text of at most so many word pieces."""
    places = pipe.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
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


def _of_window(pipe: FeatureExtractionPipeline, text: str, begin: int, num_tokens: int) -> list[Chunk]:
    """The chunks of a part of a text that begins at ``begin``, with the means of their token vectors."""
    rows = pipe.tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True)
    own = np.flatnonzero(np.array(rows["special_tokens_mask"]) == 0)
    vectors_SD = np.asarray(pipe(text, progress=False))[0][own]
    places = [rows["offset_mapping"][at] for at in own.tolist()]
    return [
        Chunk(begin + places[first][0], begin + places[last - 1][1], last - first, vectors_SD[first:last].mean(axis=0))
        for first, last in _cuts(places, num_tokens)
    ]
