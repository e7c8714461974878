"""Labels for texts and pairs: text classification, regression, and whether one text follows another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np

from bertkit.config.bert_config import BertConfig
from bertkit.engine.backend import LOGITS
from bertkit.engine.inference_engine import rows_of
from bertkit.errors import InputError
from bertkit.inference.pipeline_base import Encoding, Pipeline, TextRow, check_lengths
from bertkit.inference.pipeline_inputs import Inputs, Shaped, Text, is_whole, join_pairs, num_characters, read_request
from bertkit.inference.pipeline_results import Ranked
from bertkit.metrics.probabilities import sigmoid, softmax
from bertkit.ragged import Floats
from bertkit.tasks.text.decoding import LabelDecision, ranked_labels
from bertkit.tasks.text.features import LongTexts as Reading
from bertkit.tasks.text.features import encode_texts, sequences_of, values_of

Function = Literal["softmax", "sigmoid", "none"]
LongTexts = bool | Literal["head_tail", "windows"]
#: A label with its score, and whether the text was truncated.
Label = dict[str, str | float | bool]
Answer = Label | list[Label]

FUNCTIONS: dict[str, Callable[[Floats], Floats]] = {
    "softmax": softmax,
    "sigmoid": sigmoid,
    "none": lambda logits: logits,
}


class TextClassificationPipeline(Pipeline):
    """Labels with their probabilities: ``pipeline("text-classification", model=...)``."""

    task: ClassVar[str] = "text-classification"
    truncations: ClassVar[str] = "True, False, 'head_tail' or 'windows'"
    other_names = MappingProxyType({"return_all_scores": ("top_k", {True: "all", False: "best"})})

    def __call__(
        self,
        inputs: Inputs,
        text_pair: str | Iterable[str] | None = None,
        *,
        top_k: int | Literal["best", "chosen", "all"] | None = "best",
        function_to_apply: Function | None = None,
        truncation: LongTexts | None = None,
        max_length: int | None = None,
        overlap: int | None = None,
        progress: bool | None = None,
    ) -> Shaped[Answer]:
        """Classify texts, or pairs of texts.

        As in ``transformers``: ``{"label": ..., "score": ...}`` per text, or a list of those per text when ``top_k`` is
        given. One bare text gives a list of one such dict, or of one such list where the pipeline, not the call, was
        given ``top_k``. With ``truncation=True`` each dict also says ``truncated``.

        inputs: a text; a pair ``{"text": ..., "text_pair": ...}`` or ``("first", "second")``; a collection or an
            iterable of those. ``text_pair``: the second text (or texts) when they are not in it.
        top_k: as many labels, the most probable first; None for all. Not given: the label that the model decides for,
            by the threshold of two labels where one was chosen on dev; of labels that do not exclude each other the
            most probable. ``"chosen"``: all that reach their threshold, half a probability where none was chosen on
            dev; perhaps none. ``"all"``: all in the order of their numbers, of one text in a list of one, as
            ``return_all_scores=True`` gives them in ``transformers`` 4.
        function_to_apply: ``"softmax"``, ``"sigmoid"`` or ``"none"`` (the logits). By default none for a regression
            model, sigmoid for a multi-label model and for any other model of one label, softmax else; at the
            temperature that was fitted on dev, where there is one.
        truncation: False refuses a long text, True cuts it: its end, or what it was trained to do without.
            ``"head_tail"`` keeps its beginning and its end; ``"windows"`` reads it whole, in overlapping windows, and
            takes the mean of their logits (neither for pairs). Not given: ``"windows"`` for a model that was trained
            so, else False.
        max_length: most tokens of a text or a window; not given: as it was trained, else what the model reads.
        overlap: word pieces that two windows share; not given: as it was trained, else 128 or a quarter of a window.
        """
        ranked, labels = top_k != "best", self.config.id2label
        several = self.config.problem_type == "multi_label_classification"
        tuned = self.decision.get("thresholds") is not None and not several
        by_threshold = top_k == "chosen" or (top_k == "best" and tuned)
        stored = LabelDecision.of(self.decision, list(labels.values()))
        decision = stored if by_threshold else None
        count = len(labels) if decision is not None or top_k in (None, "all") else 1 if top_k == "best" else top_k
        if not is_whole(count):
            raise InputError(f"top_k must be a whole number from 1, or None for all labels, got {top_k!r}")
        function = self._read_function(function_to_apply, stored.temperature)

        inputs = join_pairs(inputs, text_pair)
        request = read_request(inputs, tuple_is_pair=True)
        long_texts, common = self._read_long_texts(truncation, overlap)
        truncate, limit = self.read_limits(
            long_texts != "cut" or (truncation is not None and truncation), self._trained_length(max_length)
        )

        def present(logits_BC: Floats, truncated: Sequence[bool]) -> Iterator[Answer]:
            rankings = ranked_labels(logits_BC, function(logits_BC), count, decision, several=several)
            for ranking, cut in zip(rankings, truncated, strict=True):
                note = {"truncated": cut} if truncation else {}
                if top_k == "all":
                    ranking = sorted(ranking)
                found = Ranked({"label": labels[number], "score": score, **note} for number, score in ranking)
                yield found if ranked else found[0]

        def encode(texts: list[Text], first: int) -> Encoding[Floats, Answer]:
            rows = encode_texts(texts, self.tokenizer, limit, long_texts, common)
            if not truncate:
                check_lengths(rows, limit, first)
            cut = rows.truncated.tolist()
            return sequences_of(rows), lambda logits: present(values_of(rows, np.stack(logits)), cut)

        return self._answer(request, encode, LOGITS, rows_of, num_characters, progress=progress)

    def _shaped(self, results: Any, inputs: tuple[Any, ...], given: Mapping[str, Any]) -> Any:
        text, pair = (*inputs, None, None)[:2] if inputs else (given.get("inputs"), None)
        pair = given.get("text_pair", pair)
        nested = isinstance(text, str) and pair is None and given.get("top_k", "best") in ("best", "all")
        return Ranked([results]) if nested else results

    def logits(self, inputs: Inputs, *, max_length: int | None = None, progress: bool | None = None) -> Floats:
        """Logits of texts or pairs, float32 ``(N, C)``, in their order; those that are too long are cut.

        ``max_length``: most tokens of a text or a pair; None: as many as the model reads.
        """
        request = read_request(inputs, tuple_is_pair=False)
        found = self._answer_texts(request, LOGITS, rows_of, lambda rows, facts: rows, True, max_length, progress)
        listed = list(found)
        return np.stack(listed) if listed else np.zeros((0, self.config.num_labels), np.float32)

    def scores(self, logits_BC: Floats) -> Floats:
        """What a call makes of logits if no function is asked for."""
        stored = LabelDecision.of(self.decision, list(self.config.id2label.values()))
        return self._read_function(None, stored.temperature)(logits_BC)

    def _read_long_texts(self, truncation: LongTexts | None, overlap: int | None) -> tuple[Reading, int | None]:
        """How a text that is too long is read, and the overlap of windows: as given, else as the model was trained."""
        trained = self.decision.get("long_texts")
        if truncation == "head_tail" or (truncation is True and trained == "head_tail"):
            return "head_tail", None
        if truncation != "windows" and (truncation is not None or trained != "windows"):
            return "cut", None
        common = self.decision.get("overlap") if overlap is None else overlap
        if common is not None and not is_whole(common, 0):
            raise InputError(f"overlap must be a whole number from 0, got {common!r}")
        return "windows", common

    def _read_function(self, name: str | None, fitted: float) -> Callable[[Floats], Floats]:
        config, temperature = self.config, fitted if name is None else 1.0
        if name is None:
            if config.problem_type == "regression":
                name = "none"
            elif config.problem_type == "multi_label_classification" or config.num_labels == 1:
                name = "sigmoid"
            else:
                name = "softmax"
        if name not in FUNCTIONS:
            raise InputError(f"function_to_apply={name!r} is unknown; choose from {', '.join(FUNCTIONS)}")
        function = FUNCTIONS[name]
        return function if temperature == 1.0 else lambda logits: function(logits / temperature)


class NextSentencePipeline(Pipeline):
    """Whether one text follows another: ``pipeline("next-sentence", model=...)``."""

    task: ClassVar[str] = "next-sentence"

    def _prepare(self) -> None:
        if not isinstance(self.config, BertConfig) or self.config.type_vocab_size < 2:
            raise InputError("this model knows one segment only, so it cannot tell two texts apart")

    def __call__(
        self,
        inputs: Inputs,
        text_pair: str | Iterable[str] | None = None,
        *,
        truncation: bool = False,
        max_length: int | None = None,
        progress: bool | None = None,
    ) -> Shaped[Label]:
        """Judge pairs of texts (Devlin et al. 2019, section 3.1, "Task #2"); of long ones the longer half is cut first.

        A pair gives ``{"label": "is_next" | "not_next", "score": p, "is_next": q}``, and with ``truncation=True``
        ``truncated``: p is the probability of that label, q the one that the second text follows the first. The head's
        output 0 means "is next", as in the original code.

        inputs: a pair ``("first", "second")`` or ``{"text": ..., "text_pair": ...}``; a collection or an iterable of
            pairs; or the first text (or texts), with ``text_pair``.
        """

        def present(logits: Floats, row: TextRow) -> Label:
            is_next = float(softmax(logits)[0])
            label, score = ("is_next", is_next) if is_next >= 0.5 else ("not_next", 1.0 - is_next)
            note = {"truncated": row.truncated} if truncation else {}
            return {"label": label, "score": score, "is_next": is_next, **note}

        request = read_request(join_pairs(inputs, text_pair), tuple_is_pair=True, pair_required=True)
        return self._answer_texts(request, LOGITS, rows_of, partial(map, present), truncation, max_length, progress)
