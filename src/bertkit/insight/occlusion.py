"""Which words moved a label's probability, by hiding one after the other: for every engine, without torch.

:func:`bertkit.visualize.explain` sets integrated gradients beside it, which need torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from bertkit.engine.backend import LOGITS
from bertkit.engine.inference_engine import rows_of
from bertkit.errors import CheckpointError
from bertkit.inference.text_classification import TextClassificationPipeline
from bertkit.insight.read_text import ReadText, number_of
from bertkit.ragged import Ints, Ragged, boundaries_of


@dataclass(frozen=True, slots=True)
class OccludedWord:
    """A word at ``start:end`` of the first or the ``second`` text.

    score: what the label has without it. drop: how much less that is; below 0 where the word spoke against the label.
    """

    text: str
    start: int
    end: int
    second: bool
    score: float
    drop: float


@dataclass(frozen=True, slots=True)
class Occlusion:
    """What a label loses without each word.

    label, predicted: the one that is explained, and the one of the highest score.
    score: of ``label``, as the pipeline gives it: a probability, or the number of a regression.
    hidden_by: whether words were masked, or left out because the model has no mask.
    """

    label: str
    predicted: str
    score: float
    hidden_by: Literal["mask", "removal"]
    words: tuple[OccludedWord, ...]
    truncated: bool


def occlusion(
    pipe: TextClassificationPipeline,
    text: str,
    text_pair: str | None = None,
    *,
    label: str | None = None,
    truncation: bool = False,
    max_length: int | None = None,
) -> Occlusion:
    """Hide one word after the other; the cost is that of as many texts as there are words.

    label: what is explained; None: the label of the highest score.

    Raises:
        InputError: a label that the model does not have.
        TextError: a text without words, or of more than ``max_length`` tokens without ``truncation``.
    """
    _, limit = pipe.read_limits(truncation, max_length)
    read = ReadText.of(pipe.tokenizer, text, text_pair, limit, "longest_first" if truncation else None)
    mask = pipe.tokenizer.mask_token_id
    scores_KC = pipe.scores(np.stack(pipe.engine.run(_copies(read, mask), LOGITS, rows_of)))
    if not np.isfinite(scores_KC).all():
        raise CheckpointError("the model's scores are not finite (NaN or infinity): its weights are damaged")
    names = pipe.config.id2label
    best = int(scores_KC[0].argmax())
    scores_K = scores_KC[:, best if label is None else number_of(label, names)].astype(np.float64).tolist()
    return Occlusion(
        label=names[best] if label is None else label,
        predicted=names[best],
        score=scores_K[0],
        hidden_by="removal" if mask is None else "mask",
        words=tuple(
            OccludedWord(word.text, word.start, word.end, word.second, score, scores_K[0] - score)
            for word, score in zip(read.words, scores_K[1:], strict=True)
        ),
        truncated=read.truncated,
    )


def _copies(read: ReadText, mask: int | None) -> Ragged:
    """The text, and for each of its words a copy in which its tokens are masked, or missing."""
    ids, types = [read.ids], [read.types]
    for word in read.words:
        tokens = list(word.tokens)
        without: Ints = np.delete(read.ids, tokens) if mask is None else read.ids.copy()
        if mask is not None:
            without[tokens] = mask
        ids.append(without)
        types.append(np.delete(read.types, tokens) if mask is None else read.types)
    lengths = np.array(list(map(len, ids)), np.int64)
    flat, segments = np.concatenate(ids).astype(np.int32), np.concatenate(types).astype(np.int8)
    return Ragged(flat, boundaries_of(lengths), segments, lengths)
