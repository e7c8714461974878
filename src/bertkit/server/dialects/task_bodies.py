"""Bodies of the form ``{"inputs": ..., "parameters": ...}``, one for each task; see :mod:`.inputs`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from bertkit.server.calls import Overflow
from bertkit.server.dialects.route import Count, LenientBody, Text, Texts, TextsOrIds


def cut_at(truncate: bool | None, side: str, default: Overflow | None) -> Overflow | None:
    """What becomes of long texts, which are cut at a side in lower or upper case."""
    overflow = default if truncate is None else "truncate" if truncate else "error"
    return "truncate-left" if overflow == "truncate" and side.lower() == "left" else overflow


class Cut(LenientBody):
    """What all requests may say of long texts."""

    truncate: Annotated[bool | None, Field(description="cut texts that are too long; false: refuse them")] = None
    truncation_direction: Annotated[
        Literal["right", "Right", "left", "Left"], Field(description="at which side they are cut")
    ] = "right"
    prompt_name: Annotated[str | None, Field(description="a prompt of the model to put before each text")] = None

    def overflow(self, default: Overflow | None = "truncate") -> Overflow | None:
        """What becomes of long texts."""
        return cut_at(self.truncate, self.truncation_direction, default)


class TextInputs(Cut):
    """Texts, or texts as ids of tokens."""

    inputs: TextsOrIds


class EmbedInputs(TextInputs):
    """Texts to vectors."""

    normalize: Annotated[bool, Field(description="vectors of length 1")] = True
    dimensions: Annotated[int | None, Field(description="keep the first numbers of each vector")] = None


class RerankInputs(Cut):
    """A query, and texts to order by how well they answer it."""

    query: Annotated[str, Field(examples=["What is a bank?"])]
    texts: Annotated[list[str], Field(examples=[["The side of a river.", "A tall tree."]])]
    raw_scores: Annotated[bool, Field(description="the model's numbers in place of probabilities")] = False
    return_text: bool = False


class Compared(LenientBody):
    """A text and those that it is compared with."""

    source_sentence: Text
    sentences: Annotated[list[str], Field(examples=[["A loan from the bank.", "The side of a river."]])]


class SimilarityInputs(LenientBody):
    """One text compared with others."""

    inputs: Compared
    parameters: Cut | None = None


class ClassifyOptions(LenientBody):
    """What a classification may say."""

    function_to_apply: Literal["sigmoid", "softmax", "none"] | None = None
    top_k: Annotated[Count | None, Field(description="the most probable labels; by default all")] = None


class TextPair(LenientBody):
    """Two texts that are read together."""

    text: Text
    text_pair: str | None = None


class ClassifyInputs(LenientBody):
    """Labels of texts."""

    inputs: Annotated[str | TextPair | list[str | TextPair], Field(examples=["A film to remember."])]
    parameters: ClassifyOptions | None = None


class PredictInputs(Cut):
    """Labels of one text or pair, or of a batch of lists of one text or two."""

    inputs: Annotated[str | list[str] | list[list[str]], Field(examples=["A film to remember."])]
    raw_scores: Annotated[bool, Field(description="the model's numbers in place of probabilities")] = False


class TagOptions(LenientBody):
    """What token classification may say."""

    aggregation_strategy: Literal["none", "simple", "first", "average", "max"] = "simple"
    ignore_labels: list[str] | None = None
    stride: Annotated[int | None, Field(ge=0, description="tokens that two windows of a long text share")] = None


class TagInputs(LenientBody):
    """Entities in texts."""

    inputs: Texts
    parameters: TagOptions | None = None


class AnswerOptions(LenientBody):
    """What question answering may say."""

    top_k: Count | None = None
    handle_impossible_answer: bool | None = None
    max_answer_len: Count | None = None
    max_seq_len: Count | None = None
    max_question_len: Count | None = None
    align_to_words: bool | None = None


class QuestionInContext(LenientBody):
    """A question and the text that has its answer."""

    question: Annotated[str, Field(examples=["Where was it built?"])]
    context: Annotated[str, Field(examples=["The mill was built by the river."])]


class AnswerInputs(LenientBody):
    """The answer to a question, as a slice of its context."""

    inputs: QuestionInContext | list[QuestionInContext]
    parameters: AnswerOptions | None = None


class FillMaskOptions(LenientBody):
    """What filling a mask may say."""

    targets: Annotated[list[str] | None, Field(description="only these words are considered")] = None
    top_k: Count | None = None


class FillMaskInputs(LenientBody):
    """Words in the place of masks."""

    inputs: Annotated[str | list[str], Field(examples=["The [MASK] of the river."])]
    parameters: FillMaskOptions | None = None


class ZeroShotOptions(LenientBody):
    """The labels of a zero-shot classification."""

    candidate_labels: Annotated[str | list[str], Field(min_length=1, examples=[["sports", "politics"]])]
    multi_label: bool | None = None
    hypothesis_template: str | None = None


class ZeroShotInputs(LenientBody):
    """Labels that the model was not trained on."""

    inputs: Texts
    parameters: ZeroShotOptions


class GenerateOptions(LenientBody):
    """What writing text may say."""

    max_new_tokens: Count | None = None
    num_beams: Count | None = None


class GenerateInputs(LenientBody):
    """Text that a BART or T5 writes."""

    inputs: Texts
    parameters: GenerateOptions | None = None


class PairInputs(LenientBody):
    """Whether the second text of a pair follows the first."""

    inputs: Annotated[list[str] | list[list[str]], Field(examples=[["He went to the bank.", "It was closed."]])]


class ChoiceInContext(LenientBody):
    """A context and its possible continuations."""

    context: Annotated[str, Field(examples=["She put the kettle on."])]
    choices: Annotated[list[str], Field(min_length=2, examples=[["The water boiled.", "The car started."]])]


class ChooseInputs(LenientBody):
    """The likeliest of several choices."""

    inputs: ChoiceInContext | list[ChoiceInContext]


class AnyInputs(LenientBody):
    """What the model's own task reads: see the route of that task."""

    model_config = ConfigDict(extra="allow")

    inputs: Annotated[Any, Field(examples=["The bank of the river."])] = None
    parameters: dict[str, Any] | None = None
