"""Entities in texts of any length: token classification."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bertkit.batch import Batch
from bertkit.engine import windows_of_texts as engine
from bertkit.errors import InputError
from bertkit.inference.pipeline_base import Pipeline, eval_mode, shown, to_numpy
from bertkit.inference.pipeline_inputs import Request, Text, read_request
from bertkit.metrics.probabilities import softmax
from bertkit.metrics.tags import OUTSIDE
from bertkit.tasks.tokens.decoding import Strategy, TextPieces, check_strategy, find_entities
from bertkit.tasks.tokens.features import TokenWindows, windows_of_texts


class TokenClassificationPipeline(Pipeline):
    """Entities with their places in the text: ``pipeline("token-classification", model=...)``, also ``"ner"``."""

    task: ClassVar[str] = "token-classification"

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
    ) -> Any:
        """Find entities.

        Args:
            inputs: a text, a collection of texts, or an iterable of them.
            aggregation_strategy: "none": every word piece by itself; "simple", "first", "average", "max": entities; see
                :func:`bertkit.tasks.tokens.decoding.find_entities`.
            ignore_labels: labels ("none") or types (else) that are left out.
            stride: tokens that two windows of a long text share; None means a quarter of a window. Each token is read
                in the window that shows most of what stands around it.
            is_split_into_words: ``inputs`` is a list of words, or a collection or an iterable of such lists; places are
                counted in the words joined by ``delimiter``.
            delimiter: see ``is_split_into_words``.
            truncation: True reads only the first window of a long text.
            max_length: tokens of a window, special tokens included, at most what the model reads; not given: as it was
                trained, else what it reads.
            progress: see :class:`~bertkit.inference.pipeline_base.Pipeline`.

        Returns:
            As in ``transformers``, a list of dicts a text: ``entity`` and ``index`` ("none") or ``entity_group``, and
            ``score``, ``word``, ``start``, ``end``. With ``truncation=True`` each dict also says ``truncated``.

        Raises:
            InputError: an input that is no text, an unknown strategy, a ``stride`` that leaves nothing new in a window.
            CheckpointError: the model computes values that are not finite.

        Deviates: ``word`` is ``text[start:end]``, always. A long text is read in windows without being asked for it,
        with every strategy; ``transformers`` cuts it in silence unless ``stride`` is given.
        """
        strategy = check_strategy(aggregation_strategy)
        truncate, limit = self._read_limits(truncation, self._trained_length(max_length))
        if stride is not None and (
            isinstance(stride, bool) or not isinstance(stride, int) or not 0 <= stride < limit - 2
        ):
            raise InputError(
                f"stride must be a whole number from 0 to {limit - 3} for windows of {limit} tokens, got {stride!r}"
            )
        if isinstance(ignore_labels, str):
            raise InputError(f"ignore_labels must be a list of labels, got one string: [{ignore_labels!r}]")
        request = read_request(_joined(inputs, delimiter) if is_split_into_words else inputs, tuple_is_pair=False)

        def present(text: str, probabilities_PC: NDArray[Any], pieces: TextPieces, truncated: bool) -> Any:
            note = {"truncated": truncated} if truncation else {}
            found = find_entities(pieces, probabilities_PC, self.model.config.id2label, strategy, ignore_labels)
            return [{**entity, **note} for entity in found]

        def stream() -> Iterator[Any]:
            with shown(request.total, self.task, progress) as advance:
                for drawn, windows in self._windows(request, limit, stride, truncate):
                    probabilities = self._probabilities(windows)
                    for number, (begin, end) in enumerate(windows.pieces.spans()):
                        text = drawn[number].text
                        cut = bool(windows.truncated[number]) if truncate else False
                        pieces = TextPieces.of(text, windows.pieces, begin, end)
                        yield present(text, probabilities[begin:end], pieces, cut)
                        if advance is not None:
                            advance(1)

        if request.shape == "lazy":
            return stream()
        results = list(stream())
        return results[0] if request.shape == "one" else results

    def _windows(
        self, request: Request, limit: int, stride: int | None, truncate: bool
    ) -> Iterator[tuple[list[Text], TokenWindows]]:
        """Runs of texts with their rows; memory is bounded by one run."""
        for drawn in engine.draw_windows(request.texts, lazy=request.shape == "lazy"):
            pair = next((number for number, text in enumerate(drawn) if text.pair is not None), None)
            if pair is not None:
                raise InputError(f"token classification takes single texts, got a pair: {drawn[pair].text!r:.60}")
            texts = [text.text for text in drawn]
            yield drawn, windows_of_texts(texts, self.tokenizer, max_length=limit, overlap=stride, truncate=truncate)

    def _probabilities(self, windows: TokenWindows) -> NDArray[np.float32]:
        """Of each label for each piece of all texts, ``(P, C)``."""

        def compute(batch: Batch) -> Sequence[NDArray[np.float32]]:
            with eval_mode(self.model):
                logits_TC = to_numpy(self.model.forward_packed(batch).logits, "logits")
            return [logits_TC[start:end] for start, end in batch.layout.spans()]

        rows = engine.run_window(windows.rows, compute, self.device, None)
        probabilities: NDArray[np.float32] = softmax(np.concatenate(rows)[windows.places])
        return probabilities


def _joined(inputs: Any, delimiter: str) -> Any:
    """Lists of words as texts, in the shape in which they came."""
    if isinstance(inputs, list | tuple) and all(isinstance(word, str) for word in inputs):
        return delimiter.join(inputs)
    if isinstance(inputs, str) or not isinstance(inputs, Iterable):
        raise InputError(f"with is_split_into_words=True the input is a list of words, got {type(inputs).__name__}")
    return [_one(words, delimiter) for words in inputs] if isinstance(inputs, Sequence) else _lazily(inputs, delimiter)


def _lazily(inputs: Iterable[Any], delimiter: str) -> Iterator[str]:
    return (_one(words, delimiter) for words in inputs)


def _one(words: Any, delimiter: str) -> str:
    if isinstance(words, str) or not all(isinstance(word, str) for word in words):
        raise InputError(f"with is_split_into_words=True each input is a list of words, got {words!r:.60}")
    return delimiter.join(words)
