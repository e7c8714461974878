"""Multiple choice: a context and some continuations or answers, one of them right. SWAG, CODAH, ARC and the like."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from bertkit.errors import InputError, counted
from bertkit.metrics.scores import METRICS, check_metrics
from bertkit.tasks.examples import BuiltIn, Located


@dataclass(frozen=True, slots=True)
class ChoiceExample(Located):
    """A question: two choices or more, after a ``context``, each perhaps with the same ``start`` (SWAG's ``sent2``)."""

    context: str
    start: str
    choices: tuple[str, ...]
    label: int | None = None
    row: int = 0
    source: str = ""

    @classmethod
    def of(cls, question: Any, where: str) -> Self:
        """A question in the one form; checked when it is drawn."""
        if isinstance(question, cls):
            return question
        if not isinstance(question, Mapping) or not {"context", "choices"} <= question.keys():
            got = sorted(map(str, question)) if isinstance(question, Mapping) else type(question).__name__
            raise InputError(f"{where} must be a dict with 'context' and 'choices' (and perhaps 'start'), got {got}")
        unknown = sorted(str(key) for key in question.keys() - {"context", "choices", "start"})
        if unknown:
            raise InputError(
                f"{where} has the unknown keys {unknown}; expected 'context', 'choices' and perhaps 'start'"
            )
        choices = question["choices"]
        if isinstance(choices, str) or not isinstance(choices, Iterable):
            raise InputError(f"'choices' of {where} must be a list of texts, got {type(choices).__name__}")
        listed = tuple(choices)
        if len(listed) < 2:
            raise InputError(f"{where} has {counted(len(listed), 'choice')}; expected two or more")
        for value in (question["context"], question.get("start", ""), *listed):
            if not isinstance(value, str):
                raise InputError(f"{where} holds a {type(value).__name__}, {value!r:.40}; expected texts")
        return cls(question["context"], question.get("start", ""), listed)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The pair of texts that the model reads for each choice (Devlin et al. 2019, section 4.4)."""
        return tuple((self.context, f"{self.start} {choice}" if self.start else choice) for choice in self.choices)

    @property
    def text(self) -> str:
        """The first of the two texts by which rows are compared."""
        return self.context

    @property
    def text_pair(self) -> str:
        """The second of them: start and choices, a line each."""
        return "\n".join((self.start, *self.choices))


@dataclass(frozen=True, slots=True)
class ChoiceTask(BuiltIn):
    """A context and some choices -> the number of the right one; columns are read off each file, see :mod:`reading`."""

    #: The kind of task, see :data:`bertkit.tasks.registry.KINDS`.
    form: ClassVar[str] = "choice"

    name: str
    metrics: tuple[str, ...] = ("accuracy",)
    main_metric: str = "accuracy"

    def __post_init__(self) -> None:
        check_metrics(self.name, self.metrics, self.main_metric, METRICS)


SWAG = ChoiceTask(
    name="swag",
    about="which of four endings goes on from a sentence? (Zellers et al. 2018); also files of other choices",
    folders=("swag", "swagaf", "swag_sample"),
)
CODAH = ChoiceTask(
    name="codah",
    about="which of four endings goes on from a sentence? Written to be hard for machines (Chen et al. 2019)",
    folders=("codah",),
)
ARC = ChoiceTask(
    name="arc",
    about="science questions of school exams, four answers each (Clark et al. 2018)",
    folders=("arc", "ARC-Easy", "ARC-Challenge"),
)
