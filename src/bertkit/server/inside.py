"""Tasks that show what a model does: attention, which words moved a prediction, a map of texts.

None needs torch but integrated gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertkit.config.any_config import AnyConfig
from bertkit.config.bert_config import BertConfig
from bertkit.engine.export_folder import is_export
from bertkit.errors import CheckpointError, InputError, LongTextError, needs_bertkit
from bertkit.inference.feature_extraction import FeatureExtractionPipeline
from bertkit.insight.occlusion import ExplainedPipeline, occlusion
from bertkit.insight.projection import project
from bertkit.system.console import quiet
from bertkit.system.fork_locks import ForkSafeLock
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.weights.checkpoint_weights import ModelWeights
from bertkit.weights.encoder_weights import EncoderWeights
from bertkit.weights.plain_attention import attention_of, why_no_plain_attention

if TYPE_CHECKING:
    from bertkit.insight.explanation import Explainer

#: Most tokens of a text whose attention is shown: its numbers grow with the square.
MOST_ATTENDED = 256
#: Most tokens of a text that is explained: it is computed once for each word.
MOST_EXPLAINED = 128
#: About how many texts are computed for gradients, there and back, besides one without each word.
TEXTS_OF_GRADIENTS = 96


def pieces_of(tokenizer: PreTrainedTokenizer, text: str, pair: str | None = None, **options: Any) -> list[Any]:
    """The pieces of a text or a pair, of which word of their text they are, from 0, and where they stand in it.

    A special one has no word and no place.
    """
    found = tokenizer(text, pair, return_offsets_mapping=True, return_special_tokens_mask=True, **options)
    ids = found["input_ids"]
    segments = found.get("token_type_ids", [0] * len(ids))
    words = tokenizer.convert_ids_to_tokens(ids)
    columns = (ids, words, found["special_tokens_mask"], segments, found["offset_mapping"])
    texts = zip(found.sequence_ids(0), found.word_ids(0), strict=True)
    return [
        {"id": number, "text": piece, "special": bool(special), "segment": segment, "second": side == 1, "word": word}
        | ({"start": None, "stop": None} if special else {"start": place[0], "stop": place[1]})
        for (number, piece, special, segment, place), (side, word) in zip(
            zip(*columns, strict=True), texts, strict=True
        )
    ]


class Attention:
    """The attention of a checkpoint, whose weights are read a second time when it is first asked for."""

    def __init__(self, path: Path, model_class: str, config: AnyConfig, tokenizer: PreTrainedTokenizer) -> None:
        self._path, self._model_class, self._config, self._tokenizer = path, model_class, config, tokenizer
        self._weights: EncoderWeights | None = None
        self._reading = ForkSafeLock()

    @property
    def why_not(self) -> str | None:
        """Why there is none, in words that follow "because"; None: there is."""
        if is_export(self._path):
            return "an exported graph does not give it"
        if not isinstance(self._config, BertConfig):
            return f"it is not computed for {self._config.model_type}"
        return why_no_plain_attention(self._config)

    def of(
        self, item: Sequence[str | None], limit: int, *, cut: bool, layer: int | None = None, head: int | None = None
    ) -> Any:
        """Of a text and perhaps a second one; ``layer`` and ``head`` from 1 on; None: the top layer, all heads."""
        text, pair = item
        pieces, most = pieces_of(self._tokenizer, text or "", pair), min(limit, MOST_ATTENDED)
        if (size := len(pieces)) > most:
            if not cut:
                raise LongTextError(f"the text has {size:,} tokens, and {most:,} are shown at most", size, most)
            pieces = pieces_of(self._tokenizer, text or "", pair, truncation=True, max_length=most)
        layers, heads = self._config.num_hidden_layers, self._config.num_attention_heads
        depth = layers if layer is None else layer
        for name, given, last in (("layer", depth, layers), ("head", head or 1, heads)):
            if not 1 <= given <= last:
                raise InputError(f"{name} must be from 1 to {last} for this model, got {given}")
        ids = np.array([piece["id"] for piece in pieces], np.int32)
        found = attention_of(self._read(), ids, np.array([piece["segment"] for piece in pieces], np.int8), depth)
        if not np.isfinite(found).all():
            raise CheckpointError("the model's attention is not finite (NaN or infinity): its weights are damaged")
        return {
            "layer": depth,
            "layers": layers,
            "heads": heads,
            "head": head,
            "pieces": pieces,
            "attentions": found if head is None else found[head - 1 : head],
            "truncated": size > most,
        }

    def _read(self) -> EncoderWeights:
        with self._reading:
            if self._weights is None:
                self._weights = ModelWeights.from_checkpoint(self._path, self._model_class, in_memory=True).encoder
            return self._weights


def explanation(
    pipe: ExplainedPipeline,
    item: Sequence[str | None],
    *,
    cut: bool,
    label: str | None = None,
    word: int | str | None = None,
) -> dict[str, Any]:
    """Which words of a text or a pair moved a label, a tag or an answer."""
    text, pair = item
    limit = _most_explained(pipe)
    return asdict(occlusion(pipe, text or "", pair, label=label, word=word, truncation=cut, max_length=limit))


def _most_explained(pipe: ExplainedPipeline) -> int:
    return min(pipe.decision.get("max_length") or pipe.max_length, pipe.max_length, MOST_EXPLAINED)


def explained_tokens(tokens: int, by: str | None) -> int:
    """About how many tokens are computed to explain a text of so many."""
    read = min(tokens, MOST_EXPLAINED)
    return read * (read + (TEXTS_OF_GRADIENTS if by == "gradients" else 0))


class Gradients:
    """Explanations by integrated gradients, of a model that torch reads when they are first asked for."""

    def __init__(self, path: Path, device: Any) -> None:
        self._path, self._device = path, device
        self._explainer: Explainer | None = None
        self._reading = ForkSafeLock()

    def of(
        self,
        pipe: ExplainedPipeline,
        item: Sequence[str | None],
        *,
        cut: bool,
        label: str | None = None,
        word: int | str | None = None,
    ) -> dict[str, Any]:
        """As :func:`explanation`, in logits, with occlusion beside them; ``pipe`` is what answers elsewhere."""
        text, pair = item
        how: Any = {"label": label, "word": word, "truncation": cut, "max_length": _most_explained(pipe)}
        with quiet():
            found = self._read().explain(text or "", pair, **how).to_dict()
        return {name: value for name, value in found.items() if name not in ("task", "text", "text_pair")}

    def _read(self) -> Explainer:
        with self._reading, needs_bertkit("an explanation by gradients"):
            if self._explainer is None:
                from bertkit.insight.explanation import Explainer

                self._explainer = Explainer(self._path, device=self._device)
            return self._explainer


def text_map(pipe: FeatureExtractionPipeline, item: Mapping[str, Any], keywords: Mapping[str, Any], method: Any) -> Any:
    """Places of texts in a plane, by their vectors."""
    vectors: Any = pipe(item["texts"], progress=False, **keywords)
    with needs_bertkit(f"a map by {method}"):
        found = project(np.stack(vectors), method)
    return {"places": np.ascontiguousarray(found.places), "axes": found.axes, "notes": found.notes} | found.to_dict()
