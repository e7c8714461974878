"""Which words moved a prediction, by hiding one after the other: for every engine, without torch.

The prediction is a label of the text, a tag of one of its words, or an answer; a word counts by how much the
probability of the prediction falls when the word is hidden. :func:`bertkit.visualize.explain` adds integrated
gradients, which need torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bertkit.engine.backend import LOGITS, SPAN_LOGITS
from bertkit.engine.inference_engine import rows_of, tokens_of
from bertkit.errors import CheckpointError, InputError
from bertkit.inference.question_answering import QuestionAnsweringPipeline
from bertkit.inference.text_classification import TextClassificationPipeline
from bertkit.inference.token_classification import TokenClassificationPipeline
from bertkit.insight.explained_parts import ANSWERS, TEXTS, answer_of, check_texts, tag_of
from bertkit.insight.read_text import ReadText, number_of
from bertkit.metrics.probabilities import softmax
from bertkit.ragged import Floats, Ints, Ragged, boundaries_of
from bertkit.tasks.spans.decoding import span_mass
from bertkit.tasks.spans.features import SpanSettings
from bertkit.tasks.text.decoding import LabelDecision

#: Pipelines whose predictions can be explained.
ExplainedPipeline = TextClassificationPipeline | TokenClassificationPipeline | QuestionAnsweringPipeline


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
    """What a label, a tag or an answer loses without each word.

    label, predicted: what is explained, and what the model gives.
    score: of ``label``, as the pipeline gives it: a probability, or the number of a regression.
    hidden_by: whether words were masked, or left out because the model has no mask.
    word: of a tag the place of its word in ``words``.
    """

    label: str
    predicted: str
    score: float
    hidden_by: Literal["mask", "removal"]
    words: tuple[OccludedWord, ...]
    truncated: bool
    word: int | None = None


@dataclass(frozen=True, slots=True)
class _Scored:
    """``scores``: of the text as it is, then without each word."""

    label: str
    predicted: str
    scores: Sequence[float]
    word: int | None = None


def occlusion(
    pipe: ExplainedPipeline,
    text: str,
    text_pair: str | None = None,
    *,
    label: str | None = None,
    word: int | str | None = None,
    truncation: bool = False,
    max_length: int | None = None,
) -> Occlusion:
    """Hide one word after the other; the cost is that of as many texts as there are words.

    text, text_pair: of an answer the question and its context, which is read in one window.
    label: what is explained; None: the label of the highest score, or the model's answer.
    word: of a tagger the word whose tag is explained, as it is written or by its number from 1 on; None: the surest
        tag.

    Raises:
        InputError: a label or a word that there is not, or an answer that is no piece of the context, or one that the
            model cannot give because it is too long.
        TextError: a text without words, or of more than ``max_length`` tokens without ``truncation``.
        CheckpointError: scores that are not finite.
    """
    check_texts(pipe.task, text, text_pair)
    _, limit = pipe.read_limits(truncation, max_length)
    cut: Any = "only_second" if pipe.task == ANSWERS else "longest_first"
    read = ReadText.of(pipe.tokenizer, text, text_pair, limit, cut if truncation else None)
    mask: int | None = pipe.tokenizer.mask_token_id
    if mask is None and pipe.task != TEXTS:
        raise InputError("the model has no mask that could stand for a word, and without the word others would move")
    if word is not None and not isinstance(pipe, TokenClassificationPipeline):
        raise InputError(f"word= is for models that tag words, and this one is for {pipe.task}; leave it out")
    copies = _copies(read, mask)
    if isinstance(pipe, QuestionAnsweringPipeline):
        found = _of_answer(pipe, read, copies, text, text_pair or "", label)
    elif isinstance(pipe, TokenClassificationPipeline):
        found = _of_tag(pipe, read, copies, label, word)
    else:
        found = _of_label(pipe, copies, label)
    whole = found.scores[0]
    words = zip(read.words, found.scores[1:], strict=True)
    return Occlusion(
        label=found.label,
        predicted=found.predicted,
        score=whole,
        hidden_by="removal" if mask is None else "mask",
        words=tuple(OccludedWord(w.text, w.start, w.end, w.second, score, whole - score) for w, score in words),
        truncated=read.truncated,
        word=found.word,
    )


def _of_label(pipe: TextClassificationPipeline, copies: Ragged, label: str | None) -> _Scored:
    logits_KC, names = _finite(np.stack(pipe.engine.run(copies, LOGITS, rows_of))), pipe.config.id2label
    scores_KC, decision = pipe.scores(logits_KC), LabelDecision.of(pipe.decision, list(names.values()))
    several = pipe.config.problem_type == "multi_label_classification"
    best = int(scores_KC[0].argmax()) if several else int(decision.labels(logits_KC[:1], several=False)[0])
    number = best if label is None else number_of(label, names)
    return _Scored(names[number], names[best], scores_KC[:, number].astype(np.float64).tolist())


def _of_tag(
    pipe: TokenClassificationPipeline, read: ReadText, copies: Ragged, label: str | None, word: int | str | None
) -> _Scored:
    logits_KSC, names = _finite(np.stack(pipe.engine.run(copies, LOGITS, tokens_of))), pipe.config.id2label
    tag = tag_of(read, logits_KSC[0], names, label, word)
    scores_K = softmax(logits_KSC[:, tag.token])[:, tag.number].astype(np.float64).tolist()
    return _Scored(names[tag.number], names[tag.best], scores_K, tag.place)


def _of_answer(
    pipe: QuestionAnsweringPipeline, read: ReadText, copies: Ragged, question: str, context: str, label: str | None
) -> _Scored:
    """The probability among all pieces of the context, and "no answer" where that is possible, as the pipeline's."""
    answer = answer_of(pipe, read, question, context, label)
    logits_KS2 = _finite(np.stack(pipe.engine.run(copies, SPAN_LOGITS, tokens_of)).astype(np.float64))
    inside_S = np.array([part == 1 for part in read.parts])
    width = pipe.decision.get("max_answer_length") or SpanSettings().max_answer_length
    size = answer.last - answer.first + 1
    if size > width:
        raise InputError(f"the answer to explain has {size} word pieces, and the model gives {width} at most")
    scores = []
    for starts_S, ends_S in logits_KS2.transpose(0, 2, 1):
        null = starts_S[0] + ends_S[0]
        mass = span_mass(starts_S[inside_S], ends_S[inside_S], np.ones(int(inside_S.sum()), np.bool_), width)
        norm = mass if pipe.decision.get("null_threshold") is None else float(np.logaddexp(mass, null))
        scores.append(float(np.exp(starts_S[answer.first] + ends_S[answer.last] - norm)))
    return _Scored(answer.label, answer.predicted, scores)


def _finite(values: Floats) -> Any:
    if not np.isfinite(values).all():
        raise CheckpointError("the model's scores are not finite (NaN or infinity): its weights are damaged")
    return values


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
