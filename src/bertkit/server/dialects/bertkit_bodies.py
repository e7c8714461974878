"""The bodies of bertkit's own routes, and what every answer says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from bertkit.server.calls import Answer, Call, Overflow, Task
from bertkit.server.dialects.route import (
    Body,
    Count,
    Ids,
    Reply,
    Share,
    Text,
    Texts,
    TextsOrIds,
    Unit,
    call_of,
    json_reply,
)
from bertkit.server.failures import Failure
from bertkit.server.label_rule import LabelRule


class Request(Body):
    """What every request may say."""

    timeout: Annotated[
        float | None, Field(ge=0.001, le=3600, description="seconds after which the answer is not wanted any more")
    ] = None
    wait: Annotated[
        float | None,
        Field(ge=0, le=3600, description="seconds to wait for room where the queue is full, in place of 429"),
    ] = None
    priority: Annotated[
        Literal["interactive", "bulk"], Field(description="bulk work waits behind interactive requests")
    ] = "interactive"
    facts: Annotated[bool, Field(description="also say the model's revision, engine, calibration and dev scores")] = (
        False
    )

    def call(self, task: Task, items: Sequence[Any], overflow: Overflow | None = None, **options: Any) -> Call:
        """The call, without options that were not given."""
        call = call_of(task, items, getattr(self, "model", None), overflow, **options)
        return replace(call, timeout=self.timeout, wait=self.wait, bulk=self.priority == "bulk")

    def reply(self, answer: Answer, results: Sequence[Any] | Mapping[str, Any], **more: Any) -> Reply:
        """The results with what is said of every answer."""
        body: dict[str, Any] = {
            "model": answer.model.name,
            "results": results,
            **more,
            "truncated": answer.truncated,
            "usage": {"tokens": sum(answer.tokens)},
        }
        if self.facts:
            model = answer.model
            body["facts"] = {
                "revision": model.revision,
                "engine": model.engine,
                "temperature": model.temperature,
                "decides": model.decides,
                "dev_scores": model.dev_scores,
            }
        return json_reply(body)


class Common(Request):
    """What every task of a model takes."""

    model: Annotated[str | None, Field(description="name of a model; by default the first that does the task")] = None


Reading = Annotated[
    Literal["error", "truncate", "truncate-left"] | None,
    Field(
        description="a text that is too long is refused, or cut at its end or at its beginning; by default as the "
        "model was trained, else refused"
    ),
]
Windows = Annotated[
    Literal["error", "truncate", "truncate-left", "window"] | None,
    Field(description="the same; 'window': it is read whole, in windows that overlap"),
]
WholeTexts = Annotated[
    Literal["error", "truncate", "window"] | None,
    Field(
        description="a text that is too long is read whole, in windows that overlap, by default and with 'window'; "
        "refused; or cut at its end"
    ),
]
Places = Annotated[
    Unit, Field(description="what places in texts count: characters, code units of UTF-16, or bytes of UTF-8")
]
Pair = Annotated[list[str], Field(min_length=2, max_length=2, examples=[["He went to the bank.", "It was closed."]])]


class Embed(Common):
    """Texts to vectors."""

    input: TextsOrIds
    overflow: Annotated[
        Literal["error", "truncate", "truncate-left", "chunk"] | None,
        Field(
            description="a text that is too long is refused, or cut at its end or at its beginning; by default as the "
            "model was trained, else refused; 'chunk': the same as `chunk`, by sentences unless that says otherwise"
        ),
    ] = None
    normalize: bool | None = None
    dimensions: Annotated[Count | None, Field(description="keep the first numbers of each vector")] = None
    prompt: str | None = None
    prompt_name: str | None = None
    tokens: Annotated[bool, Field(description="a vector for each token in place of one for the text")] = False
    chunk: Annotated[
        Count | Literal["sentence"] | None,
        Field(
            description="late chunking: a vector for each sentence, or for about so many tokens each, with its place; "
            "any length of text"
        ),
    ] = None
    unit: Places = "codepoint"
    encoding: Literal["float", "base64"] = "float"


class Sparse(Common):
    """Texts to weights of words."""

    input: Texts
    overflow: Reading = None
    top_k: Count | None = None


class Similarity(Common):
    """One text compared with others."""

    source: Text
    sentences: Annotated[list[str], Field(min_length=1)]
    overflow: Reading = None


class Rerank(Common):
    """Documents by how well they answer a query, best first.

    This path is shared with the clients of Jina and Cohere, who say nothing of ours: the body is read as this one if
    it has one of `timeout`, `wait`, `priority`, `facts`, `overflow`, `top_k` or `function`, and then it may have no
    field of theirs.
    """

    query: Annotated[str, Field(examples=["What is a bank?"])]
    documents: Annotated[list[str], Field(min_length=1, examples=[["The side of a river.", "A tall tree."]])]
    top_k: Annotated[Count | None, Field(description="the best of them; by default all")] = None
    function: Annotated[
        Literal["sigmoid", "none"] | None,
        Field(description="probabilities, or the model's own numbers; by default as the model says"),
    ] = None
    overflow: Reading = None


class Classify(Common):
    """Labels of texts or pairs: all with their probabilities, and those that are chosen by the model's thresholds.

    ``chosen`` has a label for each text, or null where the model abstains, which ``abstained`` says, too; of labels
    that do not exclude each other a list.
    """

    input: Annotated[str | list[str | Pair], Field(examples=[["A film to remember."]])]
    overflow: Windows = None
    top_k: Annotated[Count | None, Field(description="the most probable labels; by default all")] = None
    function: Literal["softmax", "sigmoid", "none"] | None = None
    threshold: Annotated[
        Share | None, Field(description="leave out labels of a lower score: none may be left, which is an abstention")
    ] = None
    thresholds: Annotated[
        dict[str, Share] | None,
        Field(description="by label, the probability below which it is not `chosen`", examples=[{"positive": 0.8}]),
    ] = None

    def rule(self, answer: Answer) -> LabelRule | None:
        """How labels are chosen: as the model decides, and by the thresholds of this body; None: not at all."""
        rule = answer.model.decides
        if rule is None or self.function is not None:  # what are no probabilities of the model have no thresholds
            if self.thresholds:
                cause = "`function` is given" if rule else f"the model {answer.model.name} has no labels"
                raise Failure("invalid", f"`thresholds`: there are none where {cause}", param="thresholds")
            return None
        every = dict.fromkeys(rule.labels, self.threshold) if self.threshold is not None else {}
        try:
            return rule.with_least({**every, **(self.thresholds or {})})
        except ValueError as error:
            raise Failure("invalid", f"`thresholds`: {error}", param="thresholds") from None


class NextSentence(Common):
    """Whether the second text of a pair follows the first."""

    input: Annotated[Pair | list[Pair], Field(examples=[[["He went to the bank.", "It was closed."]]])]
    overflow: Reading = None


class ZeroShot(Common):
    """Labels that the model was not trained on."""

    input: Texts
    labels: Annotated[list[str], Field(min_length=1, examples=[["sports", "politics"]])]
    multi_label: bool = False
    template: Annotated[str | None, Field(description="the hypothesis, with {} for the label")] = None
    overflow: Annotated[
        Literal["error", "truncate"] | None, Field(description="a text that is too long is refused, or cut at its end")
    ] = None


class Tag(Common):
    """Entities in texts of any length."""

    input: Texts
    aggregation: Literal["none", "simple", "first", "average", "max"] = "simple"
    unit: Places = "codepoint"
    threshold: Share | None = None
    overflow: WholeTexts = None


class Redact(Common):
    """Texts with their entities replaced by placeholders."""

    input: Texts
    labels: Annotated[list[str] | None, Field(description="types of entities to replace; by default all")] = None
    threshold: Share | None = None
    unit: Places = "codepoint"
    overflow: Annotated[
        Literal["error", "window"] | None,
        Field(description="a text that is too long is read in windows, by default and with 'window', or refused"),
    ] = None


class Question(Body):
    """A question and the text that holds its answer."""

    question: Annotated[str, Field(examples=["Where is the bank?"])]
    context: Annotated[str, Field(examples=["The bank is by the river."])]


class AnswerQuestions(Common):
    """Answers as slices of their contexts, of any length."""

    input: Question | list[Question]
    top_k: Count | None = None
    unit: Places = "codepoint"
    overflow: Annotated[
        Literal["error", "window"] | None,
        Field(description="a context that is too long is read in windows, by default and with 'window', or refused"),
    ] = None


class ChoiceQuestion(Body):
    """A context and its possible continuations."""

    context: Annotated[str, Field(examples=["She put the kettle on."])]
    choices: Annotated[list[str], Field(min_length=2, examples=[["The water boiled.", "The car started."]])]


class Choose(Common):
    """The likeliest of several choices."""

    input: ChoiceQuestion | list[ChoiceQuestion]
    overflow: Reading = None


class FillMask(Common):
    """Words in the place of masks."""

    input: Annotated[str | list[str], Field(examples=["The [MASK] of the river."])]
    top_k: Count = 5
    targets: Annotated[list[str] | None, Field(description="only these words are considered")] = None
    overflow: Reading = None


class Generate(Common):
    """Text that a BART or T5 writes."""

    input: Texts
    max_new_tokens: Count | None = None
    num_beams: Count | None = None


class Tokenize(Common):
    """The pieces of texts."""

    input: Texts
    add_special_tokens: bool = True
    unit: Places = "codepoint"


class Decode(Common):
    """Ids of tokens back to text."""

    ids: Ids | list[Ids]
    skip_special_tokens: bool = True


class Search(Request):
    """Texts of an index that are nearest to queries, best first."""

    query: Annotated[str | list[str], Field(examples=["How do I get a refund?"])]
    index: Annotated[str | None, Field(description="name of an index; by default the first")] = None
    top_k: Annotated[int, Field(ge=1, le=1000, description="so many texts for each query")] = 10
    by: Annotated[
        Literal["vectors", "words", "both"] | None,
        Field(description="by meaning, by words (BM25), or both; by default as the index says"),
    ] = None
    overflow: Reading = None


class Analyze(Common):
    """All heads of a model at once."""

    input: Annotated[str | list[str | Pair], Field(examples=[["A film to remember."]])]
    unit: Places = "codepoint"


class Attention(Common):
    """How much each piece of a text attends to each other one, in one layer."""

    input: Annotated[str | Pair, Field(examples=["The bank of the river."])]
    layer: Annotated[Count | None, Field(description="from 1 on; by default the top one")] = None
    head: Annotated[Count | None, Field(description="from 1 on; by default all")] = None
    overflow: Reading = None
    unit: Places = "codepoint"


class Explain(Common):
    """Which words moved a label, a tag or an answer: how much its probability drops without each of them.

    By gradients: integrated gradients of its logit, and beside them how much the logit drops. They need torch.
    """

    input: Annotated[
        str | Pair, Field(description="for an answer its question and the context", examples=["A film to remember."])
    ]
    label: Annotated[
        str | None, Field(description="or tag, or piece of the context; by default what the model gives")
    ] = None
    word: Annotated[
        str | Count | None,
        Field(
            description="whose tag is explained, as it is written or by its number from 1; by default the surest tag"
        ),
    ] = None
    by: Annotated[Literal["occlusion", "gradients"], Field(description="gradients need torch")] = "occlusion"
    overflow: Reading = None
    unit: Places = "codepoint"


class Map(Common):
    """Texts as points in a plane, similar ones near each other."""

    input: Annotated[list[str], Field(min_length=3, max_length=1000, examples=[["A river.", "A lake.", "A loan."]])]
    method: Annotated[Literal["pca", "tsne"], Field(description="t-SNE needs scikit-learn")] = "pca"
    overflow: Reading = None
