"""Entities in texts of any length: token classification."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sized
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np

from bertkit.engine.backend import LOGITS
from bertkit.engine.inference_engine import tokens_of
from bertkit.errors import InputError
from bertkit.inference.pipeline_base import Encoding, Pipeline, TextRow
from bertkit.inference.pipeline_inputs import Inputs, Shaped, Text, is_whole, items_of, num_characters, read_request
from bertkit.inference.pipeline_results import Embedding, Entities
from bertkit.metrics.probabilities import softmax
from bertkit.metrics.tags import OUTSIDE
from bertkit.ragged import Floats
from bertkit.system.console import say
from bertkit.tasks.tokens.decoding import Strategy, check_strategy, find_entities
from bertkit.tasks.tokens.features import windows_of_texts

Entity = dict[str, str | int | float | bool]


class TokenClassificationPipeline(Pipeline):
    """Entities with their places in the text: ``pipeline("token-classification", model=...)``, also ``"ner"``."""

    task: ClassVar[str] = "token-classification"
    other_names = MappingProxyType(
        {
            "grouped_entities": ("aggregation_strategy", {True: "simple", False: "none"}),
            "ignore_subwords": ("aggregation_strategy", {True: "first", False: "none"}),
        }
    )

    def _prepare(self) -> None:
        names = self.config.id2label.values()
        near = next((name for name in names if name.casefold() in ("o", "0", "outside")), None)
        if near is not None and OUTSIDE not in names:
            say(
                f"NOTE: the model has no tag {OUTSIDE!r} for words outside entities; {near!r} is shown like a type of "
                f"entity (ignore_labels=[{near!r}] leaves it out)"
            )

    def __call__(
        self,
        inputs: Any,
        *,
        aggregation_strategy: Strategy = "none",
        ignore_labels: Collection[str] = (OUTSIDE,),
        stride: int | None = None,
        is_split_into_words: bool = False,
        delimiter: str = " ",
        truncation: bool = False,
        max_length: int | None = None,
        progress: bool | None = None,
    ) -> Shaped[Entities]:
        """Find entities.

        As in ``transformers``, a text gives a list of dicts: ``entity`` and ``index`` ("none") or ``entity_group``, and
        ``score``, ``word``, ``start``, ``end``. With ``truncation=True`` each dict also says ``truncated``.

        aggregation_strategy: "none": every word piece by itself; "simple", "first", "average", "max": entities; see
            :func:`bertkit.tasks.tokens.decoding.find_entities`.
        ignore_labels: labels ("none") or types (else) that are left out.
        stride: tokens that two windows of a long text share; None means a quarter of a window. Each token is read in
            the window that shows most of its surroundings.
        is_split_into_words: ``inputs`` is a list of words, or a collection or an iterable of such lists; places are
            counted in the words joined by ``delimiter``.
        truncation: True reads only the first window of a long text.
        max_length: tokens of a window; not given: as it was trained, else what the model reads.

        Deviates: ``word`` is ``text[start:end]``, always. A long text is read in windows without being asked for it,
        with every strategy; ``transformers`` cuts it in silence unless ``stride`` is given.
        """
        strategy = check_strategy(aggregation_strategy)
        truncate, limit = self.read_limits(truncation, self._trained_length(max_length))
        if stride is not None and not is_whole(stride, 0, limit - 3):
            raise InputError(
                f"stride must be a whole number from 0 to {limit - 3} for windows of {limit} tokens, got {stride!r}"
            )
        if isinstance(ignore_labels, str):
            raise InputError(f"ignore_labels must be a list of labels, got one string: [{ignore_labels!r}]")
        request = read_request(_joined(inputs, delimiter) if is_split_into_words else inputs, tuple_is_pair=False)

        def encode(texts: list[Text], first: int) -> Encoding[Floats, Entities]:
            pair = next((text for text, second in texts if second is not None), None)
            if pair is not None:
                raise InputError(f"token classification takes single texts, got a pair: {pair!r:.60}")
            alone = [text for text, _ in texts]
            windows = windows_of_texts(alone, self.tokenizer, max_length=limit, overlap=stride, truncate=truncate)

            def answers(logits: list[Floats]) -> list[Entities]:
                probabilities_PC = softmax(np.concatenate(logits)[windows.places])
                labels = self.config.id2label
                found = find_entities(windows.pieces, probabilities_PC, labels, strategy, ignore_labels)
                if truncation:
                    cut = (windows.truncated & truncate).tolist()
                    found = [[{**each, "truncated": of} for each in own] for own, of in zip(found, cut, strict=True)]
                return list(map(Entities, found, alone))

            return windows.rows, answers

        return self._answer(request, encode, LOGITS, tokens_of, num_characters, progress=progress)

    def token_scores(
        self,
        inputs: Inputs,
        *,
        function_to_apply: Literal["softmax", "none"] = "softmax",
        truncation: bool | str = False,
        max_length: int | None = None,
        progress: bool | None = None,
    ) -> Shaped[Embedding]:
        """Probabilities, or logits, of all labels for each token of a text: float32 ``(S, C)``.

        The rows, also of special tokens, are those of ``tokenizer(text)["input_ids"]``: a text is read
        once, not in windows.
        """
        if function_to_apply not in ("softmax", "none"):
            raise InputError(f"function_to_apply must be 'softmax' or 'none', got {function_to_apply!r}")

        def present(logits_SC: Floats, row: TextRow) -> Embedding:
            scores_SC = logits_SC.copy() if function_to_apply == "none" else softmax(logits_SC)
            return Embedding.of(scores_SC, num_tokens=row.num_tokens, truncated=row.truncated)

        request = read_request(inputs, tuple_is_pair=False)
        return self._answer_texts(request, LOGITS, tokens_of, partial(map, present), truncation, max_length, progress)


def _joined(inputs: Any, delimiter: str) -> Any:
    """Lists of words as texts, in the shape in which they came."""
    if isinstance(inputs, list | tuple) and all(isinstance(word, str) for word in inputs):
        return delimiter.join(inputs)
    if isinstance(inputs, str) or not isinstance(inputs, Iterable):
        raise InputError(f"with is_split_into_words=True the input is a list of words, got {type(inputs).__name__}")

    def joined(words: Any) -> str:
        if isinstance(words, str) or not all(isinstance(word, str) for word in words):
            raise InputError(f"with is_split_into_words=True each input is a list of words, got {words!r:.60}")
        return delimiter.join(words)

    texts = map(joined, items_of(inputs, "list of words"))
    return list(texts) if isinstance(inputs, Sized) else texts
