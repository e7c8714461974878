"""The likeliest of several choices: ``pipeline("multiple-choice", model=...)``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from itertools import islice
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bertkit.batch import Batch
from bertkit.engine import windows_of_texts as engine
from bertkit.errors import InputError
from bertkit.inference.pipeline_base import Pipeline, eval_mode, shown, to_numpy
from bertkit.metrics.probabilities import softmax
from bertkit.tasks.choices.features import GroupSet, featurize_choices
from bertkit.tasks.choices.task import ChoiceExample

#: Questions that are tokenised and sorted by length together.
WINDOW_QUESTIONS = 512


class MultipleChoicePipeline(Pipeline):
    """Which choice goes on from a context, or answers a question: ``pipeline("multiple-choice", model=...)``."""

    task: ClassVar[str] = "multiple-choice"

    def __call__(
        self,
        inputs: Any,
        choices: Sequence[str] | None = None,
        *,
        start: str = "",
        truncation: bool = False,
        max_length: int | None = None,
        progress: bool | None = None,
    ) -> Any:
        """Choose.

        Args:
            inputs: a context, with ``choices``; a question ``{"context": ..., "choices": [...], "start": ...}``
                (``start``, which every choice begins with, may be left out); a list or an iterable of questions.
            choices: two texts or more, when ``inputs`` is a context.
            start: what every choice begins with, when ``inputs`` is a context.
            truncation: False (default) refuses a question whose longest choice does not fit beside the context; True
                cuts the context, and a choice only where it does not fit by itself.
            max_length: see :class:`~bertkit.inference.pipeline_base.Pipeline`; of a context and one choice together.
            progress: see :class:`~bertkit.inference.pipeline_base.Pipeline`.

        Returns:
            ``{"choice": text, "index": number from 0, "score": probability, "scores": [of every choice]}`` a question:
            a dict for one question, a list for a collection, a lazy iterator for any other iterable. With
            ``truncation=True`` each dict also says ``truncated``.

        Raises:
            InputError: a question of another form, fewer than two choices, one that is too long.
            CheckpointError: the model computes values that are not finite.
        """
        truncate, limit = self._read_limits(truncation, self._trained_length(max_length))
        if isinstance(inputs, str):
            if choices is None:
                raise InputError("a context needs choices=, a list of two texts or more")
            inputs = {"context": inputs, "choices": choices, "start": start}
        elif choices is not None or start:
            raise InputError("choices= and start= belong to a context that is a str; of questions each has its own")
        if isinstance(inputs, Mapping):
            return next(self._answers(iter([_read(inputs, "the question")]), truncate, limit, None, progress=False))
        if not isinstance(inputs, Iterable):
            raise InputError(f"a pipeline takes a question or an iterable of questions, got {type(inputs).__name__}")
        total = len(inputs) if isinstance(inputs, Sized) else None
        questions = (_read(question, f"question {number}") for number, question in enumerate(inputs))
        answers = self._answers(questions, truncate, limit, total, progress=progress)
        return answers if total is None else list(answers)

    def _answers(
        self,
        questions: Iterator[ChoiceExample],
        truncate: bool,
        limit: int,
        total: int | None,
        *,
        progress: bool | None,
    ) -> Iterator[dict[str, Any]]:
        first = 0
        with shown(total, self.task, progress, unit="questions") as advance:
            while window := list(islice(questions, WINDOW_QUESTIONS)):
                features = featurize_choices(window, self.tokenizer, limit)
                if not truncate:
                    _check_lengths(features, limit, first)
                yield from self._window(window, features, truncate)
                first += len(window)
                if advance is not None:
                    advance(len(window))

    def _window(
        self, questions: Sequence[ChoiceExample], features: GroupSet, truncate: bool
    ) -> Iterator[dict[str, Any]]:
        with eval_mode(self.model):
            found = engine.run_window(features.sequences, self._scores, self.device, None)
        logits = np.array(found, dtype=np.float32)
        for number, question in enumerate(questions):
            scores = softmax(logits[features.groups[number] : features.groups[number + 1]])
            best = int(scores.argmax())
            yield {
                "choice": question.choices[best],
                "index": best,
                "score": float(scores[best]),
                "scores": scores.tolist(),
                **({"truncated": bool(features.truncated[number])} if truncate else {}),
            }

    def _scores(self, batch: Batch) -> Sequence[NDArray[np.float32]]:
        return list(to_numpy(self.model.forward_packed(batch).logits, "logits").ravel())


def _read(question: Any, where: str) -> ChoiceExample:
    """A question in the one form; checked when it is drawn."""
    if isinstance(question, ChoiceExample):
        return question
    if not isinstance(question, Mapping) or not {"context", "choices"} <= question.keys():
        got = sorted(map(str, question)) if isinstance(question, Mapping) else type(question).__name__
        raise InputError(f"{where} must be a dict with 'context' and 'choices' (and perhaps 'start'), got {got}")
    unknown = sorted(str(key) for key in question.keys() - {"context", "choices", "start"})
    if unknown:
        raise InputError(f"{where} has the unknown keys {unknown}; expected 'context', 'choices' and perhaps 'start'")
    choices = question["choices"]
    if isinstance(choices, str) or not isinstance(choices, Iterable):
        raise InputError(f"'choices' of {where} must be a list of texts, got {type(choices).__name__}")
    listed = tuple(choices)
    if len(listed) < 2:
        raise InputError(f"{where} has {len(listed)} choices; expected two or more")
    for value in (question["context"], question.get("start", ""), *listed):
        if not isinstance(value, str):
            raise InputError(f"{where} holds a {type(value).__name__}, {value!r:.40}; expected texts")
    return ChoiceExample(question["context"], question.get("start", ""), listed)


def _check_lengths(features: GroupSet, limit: int, first: int) -> None:
    too_long = np.flatnonzero(features.truncated)
    if len(too_long):
        row = int(too_long[0])
        own = features.sequences.num_tokens[features.groups[row] : features.groups[row + 1]]
        raise InputError(
            f"question {first + row} (counted from 0) has {int(own.max()):,} tokens with its longest choice, special "
            f"tokens included; the limit is {limit:,}. Shorten it, or pass truncation=True to cut its context"
        )
