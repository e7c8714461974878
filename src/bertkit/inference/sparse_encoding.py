"""Text to weights of words: ``pipeline("sparse-encoding", model=...)``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from bertkit.checkpoints.sparse_folder import SparseSettings, read_sparse_settings
from bertkit.config.bert_config import BertConfig
from bertkit.engine.backend import Pack, Values, Wanted, WordPooling
from bertkit.errors import CheckpointError, InputError
from bertkit.inference.pipeline_base import Pipeline, TextRow
from bertkit.inference.pipeline_inputs import Inputs, Shaped, is_whole, read_request
from bertkit.ragged import Floats

_Weights = tuple[npt.NDArray[np.int32], Floats]


@dataclass(frozen=True, slots=True, eq=False)
class SparseEmbedding:
    """What a text says, as weights of words.

    ids: int32 ``(n,)``, numbers of the words in the vocabulary, rising; all others weigh 0.
    weights: float32 ``(n,)``, above 0.
    num_tokens: word pieces that were encoded, special tokens included.
    """

    ids: npt.NDArray[np.int32]
    weights: Floats
    tokens: Sequence[str]
    num_tokens: int
    truncated: bool

    def as_dict(self) -> dict[str, float]:
        """The weight of each word, the heaviest first."""
        order = np.argsort(-self.weights, kind="stable").tolist()
        return {self.tokens[place]: float(self.weights[place]) for place in order}

    def dot(self, other: SparseEmbedding) -> float:
        """How near two texts are: the sum of the products of the weights of common words."""
        _, own, others = np.intersect1d(self.ids, other.ids, assume_unique=True, return_indices=True)
        return float(self.weights[own] @ other.weights[others])


class SparseEncodingPipeline(Pipeline):
    """Sparse vectors by a masked-LM head: SPLADE (Formal et al. 2021)."""

    task: ClassVar[str] = "sparse-encoding"
    #: How the model was trained to make weights of logits.
    settings = SparseSettings()

    def _prepare(self) -> None:
        if not isinstance(self.config, BertConfig):
            raise CheckpointError(f"{self.engine.model_class} makes no sparse vectors; a model with BERT's head does")

    def read_folder(self, folder: Path) -> None:
        super().read_folder(folder)
        self.settings = read_sparse_settings(folder)

    @property
    def max_length(self) -> int:
        """Most tokens of one input, special tokens included."""
        own = super().max_length
        return min(own, self.settings.max_length or own)

    def __call__(
        self,
        inputs: Inputs,
        *,
        top_k: int | None = None,
        truncation: bool = False,
        max_length: int | None = None,
        progress: bool | None = None,
    ) -> Shaped[SparseEmbedding]:
        """Encode texts; ``top_k``: keep only so many words of each, the heaviest. A pair may take the place of a text.

        The weight of a word is the maximum over the tokens of the text, [CLS] and [SEP] included, of
        ``log(1 + relu(logit))``; or the sum, where the model's folder says so.
        """
        if top_k is not None and not is_whole(top_k):
            raise InputError(f"top_k must be a whole number from 1, or None for all words, got {top_k!r}")

        def read(pack: Pack, values: Values) -> list[_Weights]:
            return [_nonzero(row, top_k) for row in values["word_weights"]]

        def present(found: _Weights, row: TextRow) -> SparseEmbedding:
            words = self.tokenizer.convert_ids_to_tokens(found[0].tolist())
            return SparseEmbedding(*found, words, row.num_tokens, row.truncated)

        words = WordPooling(self.settings.pooling, self.settings.logs)
        wanted = Wanted(("word_weights",), words=words, num_words=len(self.tokenizer))
        request = read_request(inputs, tuple_is_pair=False)
        return self._answer_texts(request, wanted, read, partial(map, present), truncation, max_length, progress)


def _nonzero(weights_V: Floats, most: int | None) -> _Weights:
    ids = np.flatnonzero(weights_V)
    if most is not None and len(ids) > most:
        ids = np.sort(ids[np.argsort(-weights_V[ids], kind="stable")[:most]])
    return ids.astype(np.int32), weights_V[ids]
