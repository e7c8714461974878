"""Exact match and F1 of SQuAD answers, as the official evaluation scripts of v1.1 and v2.0 compute them.

Both compare texts after :func:`normalize_answer`; the best of several right answers counts. They differ in small
things, and so do the two functions here: :func:`squad_metrics` is v1.1 (Rajpurkar et al. 2016, section 6.1),
:func:`squad2_metrics` is v2.0 (Rajpurkar et al. 2018), where a question may have no answer and the right prediction is
then the empty text. Results are in percent under the names that the scripts print.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bertkit.errors import InputError, shorten

Floats = npt.NDArray[np.float64]
#: Right answers by question id; no text at all means that the question has no answer.
References = Mapping[str, Sequence[str]]

_articles = re.compile(r"\b(a|an|the)\b")
_no_punctuation = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, without ``a``, ``an``, ``the``, and single blanks between words."""
    return " ".join(_articles.sub(" ", text.lower().translate(_no_punctuation)).split())


@dataclass(frozen=True, slots=True)
class AnswerPoints:
    """Points of n questions, each from 0 to 1: float64 ``(n,)`` both."""

    exact: Floats
    f1: Floats


def answer_points(
    predictions: Sequence[str], references: Sequence[Sequence[str]], *, no_answers: bool = False
) -> AnswerPoints:
    """What each prediction is worth against the best of its right answers.

    Args:
        predictions: n texts.
        references: the right answers of each question.
        no_answers: the rules of v2.0: right answers of which nothing is left by :func:`normalize_answer` do not count,
            without any other the right prediction is the empty text, and F1 with an empty text on either side is 1 if
            both are, else 0. Without, the rules of v1.1: F1 is 0 where no word is shared.

    Raises:
        InputError: different lengths; under v1.1 a question without a right answer.
    """
    if len(predictions) != len(references):
        raise InputError(f"{len(predictions)} predictions but {len(references)} questions")
    exact, f1 = np.zeros(len(predictions)), np.zeros(len(predictions))
    for row, (prediction, answers) in enumerate(zip(predictions, references, strict=True)):
        if not all(isinstance(text, str) for text in (prediction, *answers)):
            raise InputError(f"question {row} (counted from 0) has an answer that is not text: {prediction!r:.40}")
        right = [normalize_answer(answer) for answer in dict.fromkeys(answers)]
        if no_answers:
            right = [text for text in right if text] or [""]
        elif not right:
            raise InputError(f"question {row} (counted from 0) has no right answer; only SQuAD 2.0 has such questions")
        said = normalize_answer(prediction)
        exact[row] = float(said in right)
        f1[row] = max(_word_f1(said.split(), text.split(), empty_counts=no_answers) for text in right)
    return AnswerPoints(exact, f1)


def squad_metrics(predictions: Mapping[str, str], references: References) -> dict[str, float]:
    """The v1.1 script's ``exact_match`` and ``f1`` in percent. A question without a prediction gets no points.

    Args:
        predictions: answer text by question id; ids that ``references`` does not have are ignored, as by the script.
        references: right answers by question id.

    Raises:
        InputError: nothing to score, or a question without a right answer.
    """
    _check_some(references)
    answered = [question for question in references if question in predictions]
    points = answer_points([predictions[q] for q in answered], [references[q] for q in answered])
    return {
        "exact_match": 100.0 * _sum(points.exact) / len(references),
        "f1": 100.0 * _sum(points.f1) / len(references),
    }


def squad2_metrics(
    predictions: Mapping[str, str],
    references: References,
    null_scores: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:
    """What the v2.0 script prints: ``exact``, ``f1``, ``total``; the same for ``HasAns_`` and ``NoAns_`` questions.

    Args:
        predictions: answer text by question id, empty for "no answer".
        references: right answers by question id.
        null_scores: for each question how sure the system is that there is no answer (the script's ``--na-prob-file``;
            any numbers that order the questions). Adds ``best_exact``, ``best_f1`` and their ``_thresh``.
        threshold: questions whose null score is above it count as answered by "no answer" (``--na-prob-thresh``).

    Returns:
        Percentages, counts and thresholds. The halves are absent where no question belongs to them.

    Raises:
        InputError: nothing to score, or questions without a prediction or a null score. (The script goes on without
            the former until it stops with a KeyError.)
    """
    _check_some(references)
    _check_complete("predictions", predictions, references)
    ids = list(references)
    texts = [predictions[question] for question in ids]
    points = answer_points(texts, [references[question] for question in ids], no_answers=True)
    has_answer = np.array([bool(references[question]) for question in ids])
    shown = points
    if null_scores is not None:
        _check_complete("null_scores", null_scores, references)
        nulls = np.array([null_scores[question] for question in ids], dtype=np.float64)
        shown = with_threshold(points, has_answer, nulls, threshold)
    found = _summary(shown, "")
    for prefix, chosen in (("HasAns_", has_answer), ("NoAns_", ~has_answer)):
        if chosen.any():
            found |= _summary(AnswerPoints(shown.exact[chosen], shown.f1[chosen]), prefix)
    if null_scores is not None:
        # Equal null scores stand in the order of the file of null scores, as in the script.
        rank = {question: place for place, question in enumerate(null_scores)}
        order = np.array(sorted(range(len(ids)), key=lambda row: (nulls[row], rank[ids[row]])))
        without = -np.array([bool(text) for text in texts], dtype=np.float64)  # of a question that has no answer
        for name, values in (("exact", points.exact), ("f1", points.f1)):
            gains = np.where(has_answer, values, without)
            totals = np.cumsum([np.count_nonzero(~has_answer), *gains[order]])  # begins with never answering
            cut = int(np.argmax(totals))
            found[f"best_{name}"] = 100.0 * float(totals[cut]) / len(ids)
            found[f"best_{name}_thresh"] = float(nulls[order][cut - 1]) if cut else 0.0
    return found


def with_threshold(
    points: AnswerPoints, has_answer: npt.NDArray[np.bool_], null_scores: Floats, threshold: float
) -> AnswerPoints:
    """The points when every question whose null score is above ``threshold`` is answered by "no answer"."""
    silent = null_scores > threshold
    right = (~has_answer).astype(np.float64)
    return AnswerPoints(np.where(silent, right, points.exact), np.where(silent, right, points.f1))


def best_threshold(points: npt.ArrayLike, has_answer: npt.ArrayLike, null_scores: npt.ArrayLike) -> tuple[float, float]:
    """Above which null score to say "no answer", so that the mean of the points is highest.

    Deviates from the script's search, which may cut between two equal null scores, where no threshold can, and which
    takes 0 for "never answer" whatever the scale of the null scores.

    Args:
        points: ``(n,)``, of the answers that are given where an answer is given.
        has_answer: ``(n,)``, which questions have an answer.
        null_scores: ``(n,)``, any scale.

    Returns:
        The threshold, in the middle between two null scores (1 below the lowest, or above the highest, where none or
        all questions are to be answered), and the mean of the points it gives. Of equally good ones the lowest.

    Raises:
        InputError: no questions, different lengths, or a null score that is not finite.
    """
    values, answerable = np.asarray(points, dtype=np.float64), np.asarray(has_answer, dtype=bool)
    nulls = np.asarray(null_scores, dtype=np.float64)
    if not values.shape == answerable.shape == nulls.shape or values.ndim != 1 or not len(values):
        raise InputError(f"shapes {values.shape}, {answerable.shape}, {nulls.shape}; expected three times (n,), n >= 1")
    if not np.isfinite(nulls).all():
        raise InputError(f"null score {nulls[~np.isfinite(nulls)][0]} of a question: it must be finite")
    order = np.argsort(nulls, kind="stable")
    nulls = nulls[order]
    totals = np.cumsum([np.count_nonzero(~answerable), *(values - ~answerable)[order]])
    last_of_equals = np.flatnonzero(np.append(nulls[1:] != nulls[:-1], True)) + 1
    cuts = np.concatenate([[0], last_of_equals])
    cut = int(cuts[np.argmax(totals[cuts])])
    low = nulls[cut - 1] if cut else nulls[0] - 2.0
    high = nulls[cut] if cut < len(nulls) else nulls[-1] + 2.0
    return float(low + (high - low) / 2), float(totals[cut]) / len(values)


def _word_f1(said: list[str], right: list[str], *, empty_counts: bool) -> float:
    if empty_counts and not (said and right):
        return float(said == right)
    shared = sum((Counter(said) & Counter(right)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(said), shared / len(right)
    return 2 * precision * recall / (precision + recall)


def _summary(points: AnswerPoints, prefix: str) -> dict[str, float]:
    total = len(points.exact)
    return {
        f"{prefix}exact": 100.0 * _sum(points.exact) / total,
        f"{prefix}f1": 100.0 * _sum(points.f1) / total,
        f"{prefix}total": total,
    }


def _sum(values: Floats) -> float:
    """One after another, as the scripts add; numpy would add pairwise."""
    return float(sum(values.tolist()))


def _check_some(references: References) -> None:
    if not references:
        raise InputError("nothing to score: no questions")


def _check_complete(what: str, values: Mapping[str, object], references: References) -> None:
    missing = [question for question in references if question not in values]
    if missing:
        raise InputError(
            f"{what} lacks {len(missing):,} of {len(references):,} questions ({shorten(missing, limit=3)}); v2.0 needs "
            "one for each question, the empty text for 'no answer'"
        )
