"""The likeliest of several choices: ``pipeline("multiple-choice", model=...)``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from bertkit.engine.backend import LOGITS
from bertkit.engine.inference_engine import rows_of
from bertkit.engine.rows import WindowSize
from bertkit.errors import InputError
from bertkit.inference.pipeline_base import Encoding, Pipeline, check_groups
from bertkit.inference.pipeline_inputs import Shaped, request_of
from bertkit.metrics.probabilities import softmax
from bertkit.ragged import Floats
from bertkit.tasks.choices.features import featurize_choices
from bertkit.tasks.choices.task import ChoiceExample

#: Questions that are tokenized and sorted by length together.
WINDOW = WindowSize(items=512, first=32, characters=8_000_000)

#: A question as a caller may pass it, and what is returned for it.
Question = Mapping[str, str | Sequence[str]] | ChoiceExample
Choice = dict[str, str | int | float | list[float] | bool]


class MultipleChoicePipeline(Pipeline):
    """Which choice continues a context, or answers a question: ``pipeline("multiple-choice", model=...)``."""

    task: ClassVar[str] = "multiple-choice"
    unit: ClassVar[str] = "questions"

    def __call__(
        self,
        inputs: str | Question | Iterable[Question],
        choices: Sequence[str] | None = None,
        *,
        start: str = "",
        truncation: bool = False,
        max_length: int | None = None,
        progress: bool | None = None,
    ) -> Shaped[Choice]:
        """Choose.

        A question gives
        ``{"choice": text, "index": number from 0, "score": probability, "scores": [of every choice]}``, and with
        ``truncation=True``, which cuts the context, and a choice only where it does not fit by itself, ``truncated``.

        inputs: a context, with ``choices``; a question ``{"context": ..., "choices": [...], "start": ...}`` (``start``,
            which every choice begins with, may be left out); a list or an iterable of questions.
        choices, start: two texts or more, and what each begins with, when ``inputs`` is a context.
        """
        truncate, limit = self.read_limits(truncation, self._trained_length(max_length))
        if isinstance(inputs, str):
            if choices is None:
                raise InputError("a context needs choices=, a list of two texts or more")
            inputs = {"context": inputs, "choices": choices, "start": start}
        elif choices is not None or start:
            raise InputError("choices= and start= go with a single context; in a list, each question carries its own")
        request = request_of(inputs, ChoiceExample.of, "question", one=isinstance(inputs, Mapping | ChoiceExample))

        def encode(questions: list[ChoiceExample], first: int) -> Encoding[Floats, Choice]:
            features = featurize_choices(questions, self.tokenizer, limit, labelled=False)
            if not truncate:
                check_groups(features, limit, first, "question", "choice")

            def answers(logits: list[Floats]) -> Iterator[Choice]:
                values = np.concatenate(logits)
                for number, question in enumerate(questions):
                    scores = softmax(values[features.groups[number] : features.groups[number + 1]])
                    best = int(scores.argmax())
                    yield {
                        "choice": question.choices[best],
                        "index": best,
                        "score": float(scores[best]),
                        "scores": scores.tolist(),
                        **({"truncated": bool(features.truncated[number])} if truncate else {}),
                    }

            return features.sequences, answers

        def num_characters(question: ChoiceExample) -> int:
            return sum(len(first) + len(second) for first, second in question.pairs)

        return self._answer(request, encode, LOGITS, rows_of, num_characters, progress=progress, size=WINDOW)
