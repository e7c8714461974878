"""What the matrices of an encoder see when a model reads texts, and the texts themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bertkit.engine.backend import Wanted
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.errors import DataError
from bertkit.model.encoder import EncoderLayer
from bertkit.model.kernels.linear import Linear
from bertkit.model.padded import PackedModel
from bertkit.quantization.byte_matrices import Inputs
from bertkit.ragged import Floats, Ragged
from bertkit.tokenization import PreTrainedTokenizer

#: With fewer texts the first percentile of anything means nothing.
MIN_TEXTS = 100
MAX_TEXTS = 1000
#: Texts with a larger share of unknown tokens are not in the model's language.
MAX_UNKNOWN = 0.1
#: Of texts, what is compared: the mean over the tokens of the top layer.
VECTORS = Wanted(("last_hidden_state",), pooling="mean")


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts that a model is calibrated and judged on.

    rows: their tokens. unknown: share of these that are [UNK].
    """

    rows: Ragged
    unknown: float


def read_texts(texts: Sequence[str], tokenizer: PreTrainedTokenizer, max_length: int, source: str) -> Texts:
    """At most :data:`MAX_TEXTS` different texts, evenly drawn, in tokens; long ones are cut.

    Raises:
        DataError: too few different texts, or texts in another language than the model's.
    """
    different = list(dict.fromkeys(text for text in texts if text.strip()))
    if len(different) < MIN_TEXTS:
        raise DataError(
            f"{source} has {len(different)} different texts, and {MIN_TEXTS} are needed to calibrate a model and to "
            "judge it; give more, of the kind that the model will read"
        )
    places = np.linspace(0, len(different) - 1, min(len(different), MAX_TEXTS)).round().astype(int)
    rows = tokenizer.encode_ragged([different[place] for place in places], max_length=max_length)
    unknown = 0.0 if tokenizer.unk_token_id is None else float((rows.ids == tokenizer.unk_token_id).mean())
    if unknown > MAX_UNKNOWN:
        raise DataError(
            f"{unknown:.0%} of the tokens of {source} are {tokenizer.unk_token}: the texts are in another language or "
            "script than the model's. Give texts of the kind that the model will read"
        )
    return Texts(rows, unknown)


def matrices_of(model: PackedModel) -> dict[str, Linear]:
    """The linear layers of the encoder by name, which is where a model's time goes."""
    layers = {name: module for name, module in model.named_modules() if isinstance(module, EncoderLayer)}
    return {
        f"{name}.{part}": module
        for name, layer in layers.items()
        for part, module in layer.named_modules()
        if isinstance(module, Linear)
    }


def observe(model: PackedModel, rows: Ragged) -> Mapping[str, Inputs]:
    """What each matrix of the encoder sees when the model reads these rows."""
    matrices = matrices_of(model)
    seen = {name: Inputs(matrix.in_features) for name, matrix in matrices.items()}
    with _watched(matrices, seen):
        InferenceEngine.for_scoring(model).encoder().row_outputs(rows, VECTORS, label="calibrating")
    return seen


@contextmanager
def _watched(matrices: Mapping[str, Linear], seen: Mapping[str, Inputs]) -> Iterator[None]:
    def watch(inputs: Inputs) -> object:
        def see(module: torch.nn.Module, arguments: tuple[Tensor, ...]) -> None:
            inputs.see(arguments[0].detach())

        return see

    handles = [matrix.register_forward_pre_hook(watch(seen[name])) for name, matrix in matrices.items()]  # type: ignore[arg-type]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def vectors_of(model: PackedModel, rows: Ragged, label: str) -> Floats:
    """One vector for each row, by the fastest arithmetic that there is for the model."""
    engine = InferenceEngine.of(model).encoder()
    return engine.row_outputs(rows, VECTORS, label=label)
