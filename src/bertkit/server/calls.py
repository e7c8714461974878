"""What a client asks of a model and what comes back: the language between the dialects and the service; no HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from bertkit.server.label_rule import LabelRule

#: What a model can be asked, and what one item and one result of it are.
#:
#: embed         text                               float32 (D,)
#: embed-tokens  text                               float32 (S, D), a vector a token
#: embed-chunks  text, or {parts} that follow       [{start, end, num_tokens, vector}]
#:               each other in one
#: sparse        text                               SparseEmbedding: ids, weights, tokens
#: similarity    {source_sentence, sentences}       [number of each sentence]
#: rerank        {query, documents}                 [{index, score, text}], best first
#: classify      text, or (text, text_pair)         [{label, score}], best first
#: next-sentence (text, text_pair)                  {label, score, is_next}
#: zero-shot     text                               {labels, scores}, best first
#: tag           text                               [{entity_group, score, word, start, end}]
#: tag-tokens    text                               float32 (S, C), probabilities of the labels of each token
#: redact        text                               {text, spans}, see bertkit.inference.redaction
#: answer        {question, context}                {answer, score, start, end}, or a list with the option top_k
#: choose        {context, choices}                 {choice, index, score, scores}
#: fill-mask     text                               [{score, token, token_str, sequence}], of several masks a list each
#: generate      text                               {generated_text} or its like
#: tokenize      text                               [{id, text, special, start, stop}]
#: decode        [id]                               text
#: search        text                               {index, by, hits}, a hit as bertkit.inference.retrieval.hits
#: analyze       text, or (text, text_pair)         {head: what its task says}
#: attention     (text, text_pair or None)          {layer, pieces, attentions (N, S, S)}, see bertkit.server.inside
#: explain       (text, text_pair or None)          {label, score, words}, see bertkit.insight.occlusion
#: map           {texts}                            {places (N, 2), variance}, see bertkit.insight.projection
Task = Literal[
    "embed",
    "embed-tokens",
    "embed-chunks",
    "sparse",
    "similarity",
    "rerank",
    "classify",
    "next-sentence",
    "zero-shot",
    "tag",
    "tag-tokens",
    "redact",
    "answer",
    "choose",
    "fill-mask",
    "generate",
    "tokenize",
    "decode",
    "search",
    "analyze",
    "attention",
    "explain",
    "map",
]
#: What becomes of a text of more tokens than the model reads: refused, cut at its end or at its beginning, or read in
#: windows. None: as the model was trained to read, otherwise refused.
Overflow = Literal["error", "truncate", "truncate-left", "window"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A question to a model.

    items: at least one; in the place of a text may stand the ids of its tokens.
    model: a name; None: the first model whose own task it is, else the first that does it, too.
    options: keywords of the task's pipeline; of tasks that make vectors ``prompts``, names of prompts of which the
        first that the model has is its ``prompt_name``, and which change nothing where it has none of them; of a run
        of several heads ``run_head``, the one that is asked.
    timeout: seconds after which nobody waits for the answer.
    wait: seconds that it waits for room in a full queue; None: it is refused at once.
    bulk: answered behind requests that somebody waits for.
    """

    task: Task
    items: Sequence[Any]
    model: str | None = None
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    overflow: Overflow | None = None
    timeout: float | None = None
    wait: float | None = None
    bulk: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A question about the server or, with a name, about one of its models."""

    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What is known of a model.

    tasks: what it can be asked, its own first.
    lacks: tasks of other models of its kind that it does not do -> why, in words that follow "because".
    revision: SHA-256 of its weights and tokenizer; None until all of them have been read.
    engine: what computes it, with its instruction set.
    labels: names by number; None where it has none. mask: what stands for a hidden word; None: it has no such token.
    temperature: logits are divided by it, where it was calibrated.
    decides: which of its labels a classifier gives.
    dev_scores: of the run that trained it, by metric.
    heads: of a run of several heads, by the name of each; in lists of models a head is an entry of its own, named
        ``RUN/HEAD``.
    """

    name: str
    state: Literal["unloaded", "loading", "ready", "failed"]
    tasks: tuple[Task, ...]
    source: str
    created: int
    lacks: Mapping[Task, str] = field(default_factory=dict)
    error: str | None = None
    revision: str | None = None
    engine: str = ""
    model_class: str = ""
    precision: str = ""
    family: str = ""
    width: int = 0
    max_length: int = 0
    vocabulary: int = 0
    pooling: str | None = None
    dimensions: tuple[int, ...] = ()
    labels: tuple[str, ...] | None = None
    mask: str | None = None
    temperature: float | None = None
    decides: LabelRule | None = None
    dev_scores: Mapping[str, float] | None = None
    num_bytes: int = 0
    heads: Mapping[str, ModelFacts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFacts:
    """What is known of an index that is searched.

    by: what it is searched by, unless asked otherwise.
    model: name of the model that makes vectors of queries; None: none of those that are loaded was it built with.
    built_with: what that model was called when the index was built.
    """

    name: str
    num_texts: int
    by: str
    model: str | None
    built_with: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one request may have, and the server holds at once."""

    max_items: int
    max_body_bytes: int
    max_batch_tokens: int
    max_queue_tokens: int
    max_requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """The server, and the models that it has, or the one that was asked for."""

    version: str
    limits: Limits
    models: Sequence[ModelFacts]
    indexes: Sequence[IndexFacts] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds of a request: in the queue, in its batch (of which ``encode`` is the encoder's, and the rest tokenizing
    and what makes results of numbers; 0: not known), and in all.
    """

    queue: float
    compute: float
    encode: float = 0.0
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The results of a call, one an item.

    tokens: of each item, special tokens included.
    truncated: of each item, whether a part of it was not read.
    characters: of all items.
    """

    results: Sequence[Any]
    model: ModelFacts
    tokens: Sequence[int]
    truncated: Sequence[bool]
    characters: int
    times: Times
