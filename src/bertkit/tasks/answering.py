"""From text to answer, in one way for each kind of task: :class:`Answering`, the first half of a workflow.

Whoever answers (a run folder, evaluation, bulk prediction) has the kind ``encode`` its examples, computes what is
``wanted`` of the ``sequences`` with any back-end, and has the kind ``decode`` the arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, cast

from bertkit.config.any_config import AnyConfig
from bertkit.config.reading_settings import ReadingSettings
from bertkit.engine.backend import LOGITS, Check, Wanted
from bertkit.engine.inference_engine import stop_nothing
from bertkit.errors import InputError
from bertkit.ragged import Floats, GroupSet, Ragged
from bertkit.tasks.examples import Encoded, ExampleT, Fact, Row
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.windows import WindowRows

#: What was chosen on dev and is applied ever after (a threshold, a temperature): plain values, kept with the model.
Decision = Mapping[str, Fact]
#: Of a column: ``"string"``, ``"bool"``, ``"int32"``, ``"int64"``, ``"float32"`` or ``"float64"``; ``[type]`` of lists;
#: ``{name: type}`` of structs; ``("float32", width)`` of vectors.
ColumnType = str | list["ColumnType"] | dict[str, "ColumnType"] | tuple[str, int]
EncodedT = TypeVar("EncodedT", bound=Encoded)
OutputsT = TypeVar("OutputsT")


@dataclass(frozen=True, slots=True)
class Predicted(Generic[ExampleT, EncodedT, OutputsT]):
    """What a model said of some examples; ``decision`` is how that is read, empty where nothing was chosen on dev."""

    examples: Sequence[ExampleT]
    encoded: EncodedT
    outputs: OutputsT
    decision: Decision


class Answering(ABC, Generic[ExampleT, EncodedT, OutputsT]):
    """How a kind of task gets from examples to answers. It holds nothing but its task."""

    #: The model with the kind's head.
    model_class: ClassVar[str]
    #: What is computed of the rows, and whether of each of their tokens.
    wanted: ClassVar[Wanted] = LOGITS
    of_tokens: ClassVar[bool] = False
    #: Whether an example is nothing but a text or two, so that any table with a column of texts can be answered.
    reads_texts: ClassVar[bool] = False
    #: What an example is made of by :meth:`example_of`; empty: examples only come from files.
    fields: ClassVar[tuple[str, ...]] = ()

    def __init__(self, task: Any) -> None:
        self.task = task

    def example_of(self, item: Mapping[str, object], where: str) -> ExampleT:
        """An example of values by the names in :attr:`fields`; InputError for a value that is none, or is not there."""
        raise InputError(f"task {self.task.name} has no columns of its own; predict a file as it was trained on")

    @abstractmethod
    def encode(
        self, examples: Sequence[ExampleT], tokenizer: PreTrainedTokenizer, settings: ReadingSettings, *, labelled: bool
    ) -> EncodedT:
        """Token ids of one example or more, and if ``labelled`` what the loss compares with. ``max_length`` is set."""

    def sequences(self, encoded: EncodedT) -> Ragged:
        """What a back-end computes: the rows themselves, or what they are made of."""
        if isinstance(encoded, GroupSet):
            return encoded.sequences
        return encoded.rows if isinstance(encoded, WindowRows) else cast(Ragged, encoded)

    def arrange(self, encoded: EncodedT, values: Floats, config: AnyConfig) -> OutputsT:
        """The outputs of the values ``(S, width)`` of the sequences, or ``(T, width)`` of their tokens."""
        return cast(OutputsT, values)

    def outputs(self, engine: Any, encoded: EncodedT, *, check: Check = stop_nothing, label: str) -> OutputsT:
        """What a model says of every row, in numpy, as the ``row_outputs`` of its scoring or open engine."""
        read = engine.token_outputs if self.of_tokens else engine.row_outputs
        values = read(self.sequences(encoded), self.wanted, check=check, label=label)
        return self.arrange(encoded, values, engine.config)

    @abstractmethod
    def prediction_rows(self, given: Predicted[ExampleT, EncodedT, OutputsT]) -> list[Row]:
        """One line for each example: where it is, the input, ``gold`` where it is known, ``predicted``."""

    def decode(self, given: Predicted[ExampleT, EncodedT, OutputsT], config: AnyConfig) -> list[Row]:
        """What is answered to each example; ``config`` is the model's."""
        return self.prediction_rows(given)

    def answer_columns(self, config: AnyConfig) -> dict[str, ColumnType]:
        """The columns of :meth:`decode` beside the input's, as a table has them: of the task and the model alone."""
        return {"predicted": "string"}

    @property
    def reads_pairs(self) -> bool:
        """Whether the texts that are answered are pairs."""
        return False

    def pipeline_options(self, decision: Decision) -> Row | None:
        """With what keywords the kind's pipeline reads a bare text as in training; None: it is asked more than that."""
        return None
