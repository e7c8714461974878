"""What the matrices of an encoder see when a model reads texts, and the texts themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from zlib import crc32

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
from bertkit.tasks.registry import Task
from bertkit.tasks.workflow import workflow_of
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

#: With fewer texts the first percentile of anything means nothing.
MIN_TEXTS = 100
MAX_TEXTS = 1000
#: Different texts held at once while a file is read from which :data:`MAX_TEXTS` are drawn.
MOST_HELD = 4 * MAX_TEXTS
#: Texts with a larger share of unknown tokens are not in the model's language.
MAX_UNKNOWN = 0.1
#: What stands for a text when models are compared: the mean over its tokens of the top layer.
VECTORS = Wanted(("last_hidden_state",), pooling=("mean",))


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts that a model is calibrated and judged on. unknown: share of their tokens that are [UNK]."""

    rows: Ragged
    unknown: float


def draw_texts(texts: Iterable[str], source: str) -> list[str]:
    """At most :data:`MAX_TEXTS` different texts, evenly drawn; few are ever in memory."""
    held: dict[str, None] = {}
    step = 1
    for text in texts:
        if text.strip() and _draw(text, step):
            held[text] = None
        while len(held) > MOST_HELD:
            step *= 2
            held = {kept: None for kept in held if _draw(kept, step)}
    if len(held) < MIN_TEXTS:
        raise DataError(
            f"{source} has {len(held)} different texts, and {MIN_TEXTS} are needed to calibrate a model and to "
            "judge it; give more, of the kind that the model will read"
        )
    different = list(held)
    places = np.linspace(0, len(different) - 1, min(len(different), MAX_TEXTS)).round().astype(int)
    return [different[place] for place in places]


def _draw(text: str, step: int) -> bool:
    """Whether a text is among one in ``step``, by its content alone, so that it does not matter how often it comes."""
    return crc32(text.encode("utf-8", "surrogatepass")) % step == 0


def encode(
    texts: Sequence[str], tokenizer: PreTrainedTokenizer, max_length: int, source: str, task: Task | None
) -> Texts:
    """Texts in tokens, long ones cut; for a task of pairs each is two texts with a tab between them."""
    pairs = None
    if task is not None and workflow_of(task).reads_pairs:
        halves = [text.split("\t") for text in texts]
        if wrong := next((text for text, parts in zip(texts, halves, strict=True) if len(parts) != 2), None):
            raise DataError(
                f"{source}: task {task.name} reads pairs, so a line must be two texts with one tab between them, got "
                f"{wrong!r:.80}"
            )
        texts, pairs = [first for first, _ in halves], [second for _, second in halves]
    rows = tokenizer.encode_ragged(texts, pairs, max_length=max_length)
    unknown = 0.0 if tokenizer.unk_token_id is None else float((rows.ids == tokenizer.unk_token_id).mean())
    if unknown > MAX_UNKNOWN:
        raise DataError(
            f"{unknown:.0%} of the tokens of {source} are {tokenizer.unk_token}: the texts are in another language or "
            "script than the model's. Give texts of the kind that the model will read"
        )
    return Texts(rows, unknown)


def matrices_of(model: PackedModel) -> dict[str, Linear]:
    """The linear layers of the encoder by name: they take most of a model's time."""
    layers = {name: module for name, module in model.named_modules() if isinstance(module, EncoderLayer)}
    return {
        f"{name}.{part}": module
        for name, layer in layers.items()
        for part, module in layer.named_modules()
        if isinstance(module, Linear)
    }


def observe(model: PackedModel, rows: Ragged) -> dict[str, Inputs]:
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
    """One vector for each row, by the fastest arithmetic that this machine has for the model."""
    engine = InferenceEngine.of(model).encoder()
    return engine.row_outputs(rows, VECTORS, label=label)
