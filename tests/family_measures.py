"""Every way in which an encoder is compared with that of ``transformers``: padded, packed, in training, in C, saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertkit.batch import Batch, pack
from bertkit.checkpoints.names import TABLES
from bertkit.engine.backend import Precision, Wanted
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.engine.native.library import native_library
from bertkit.ragged import Ragged, boundaries_of
from bertkit.weights.head_weights import KINDS
from family_helpers import LENGTHS, inputs, odd, pair, targets
from parity_measures import Parity, comes_back, error, gradient_error, largest

_OUTPUTS = (
    "loss", "logits", "start_logits", "end_logits", "prediction_logits", "seq_relationship_logits", "sop_logits",
    "pooler_output", "last_hidden_state",
)  # fmt: skip
FIELDS = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "max_position_embeddings", "pad_token_id",
    "type_vocab_size", "embedding_size", "num_hidden_groups", "inner_group_num", "hidden_act", "activation",
    "layer_norm_eps", "classifier_dropout_prob", "summary_last_dropout", "qa_dropout", "seq_classif_dropout",
    "initializer_range", "id2label", "label2id",
)  # fmt: skip


def measure(
    shape: str,
    head: str,
    folder: Path,
    *,
    attention: str = "eager",
    batches: Sequence[Sequence[int]] = (LENGTHS,),
    **changes: Any,
) -> Parity:
    """Compare one class of one family in every way.

    Args:
        shape: a kind of model.
        head: our class.
        folder: for what is saved.
        attention: how transformers computes attention; only with "eager" does it return the probabilities.
        batches: lengths of the rows of each batch.
        **changes: values of the config.
    """
    theirs, ours = pair(shape, head, folder / "theirs", attention=attention, **changes)
    engines: dict[Precision, InferenceEngine] = {}
    if native_library() is not None:
        precisions: tuple[Precision, ...] = ("fp32", "auto")
        engines = {
            name: InferenceEngine.load(folder / "theirs", head, precision=name, threads=1) for name in precisions
        }
    found: dict[str, list[float]] = {name: [] for name in ("forward", "packed", "loss", "gradient", *engines)}
    for lengths in batches:
        given = inputs(shape, head, lengths)
        wanted = targets(shape, head, given["attention_mask"])
        for mode in ("eval", "train"):
            for name, errors in compare(theirs, ours, given, wanted, mode, attentions=attention == "eager"):
                found[name] += errors
            if mode == "eval":
                for precision, engine in engines.items():
                    found[precision] += engine_errors(engine, theirs, given)
    return Parity(
        max(found["forward"]),
        max(found["packed"]),
        largest(found["loss"]),
        max(found["gradient"]),
        comes_back(ours, theirs, folder, FIELDS),
        largest(found.get("fp32", ())),
        largest(found.get("auto", ())),
    )


def compare(
    theirs: Any, ours: Any, given: dict[str, Tensor], wanted: dict[str, Tensor], mode: str, *, attentions: bool
) -> Iterator[tuple[str, list[float]]]:
    """The errors of one batch in one mode, by the names of :class:`Parity`."""
    mask, table = given["attention_mask"], TABLES[ours.config.model_type]
    more = {"output_hidden_states": True, "output_attentions": attentions}
    a = getattr(theirs, mode)()(**given, **wanted, **more)
    b = getattr(ours, mode)()(**given, **wanted, **more)
    values, expected = dict(real_values(b, mask)), dict(real_values(a, mask))
    names = {name for name in expected if name != "sop_logits"} if "sop_logits" not in values else expected.keys()
    assert values.keys() - {"sop_logits", "seq_relationship_logits"} == names - {
        "sop_logits", "seq_relationship_logits",
    }, (values.keys(), names)  # fmt: skip
    assert ("loss" in expected) == bool(wanted)
    yield "forward", [error(values[name], expected[name]) for name in names if name != "loss"]
    yield "loss", [error(values["loss"], expected["loss"])] if wanted else []
    flat = ours.forward_packed(as_packed(given, wanted))
    yield "packed", [error(x, y) for x, y in packed_values(flat, a, mask)]
    theirs.zero_grad()
    score(a, mask).backward()
    for out, its_mask in ((b, mask), (flat, None)):
        ours.zero_grad()
        score(out, its_mask).backward()
        yield "gradient", [gradient_error(theirs, ours, table)]


def engine_errors(engine: InferenceEngine, theirs: Any, given: dict[str, Tensor]) -> list[float]:
    """How far the inference engine is from theirs in eval mode, all outputs; it must be the library that computes."""
    by_library = engine.backend.weight_type is not None  # type: ignore[attr-defined]
    assert by_library or engine.model_class not in KINDS, "torch computed it"
    mask = given["attention_mask"]
    with torch.inference_mode():
        out = theirs(**given)
    rows, found = as_rows(given), []
    for name, expected in real_values(out, mask):
        of_tokens = getattr(out, name).shape[:2] == mask.flatten(0, -2).shape
        read = engine.token_outputs if of_tokens else engine.row_outputs
        values = torch.from_numpy(read(rows, Wanted((name.replace("sop_", "seq_relationship_"),))))
        found.append(error(values.reshape(expected.shape), expected))
    return found


def as_rows(given: dict[str, Tensor]) -> Ragged:
    """The same sequences without padding, for the engine."""
    real = given["attention_mask"].bool()
    lengths = real.flatten(0, -2).sum(dim=1).numpy()
    ids = given["input_ids"][real].numpy().astype(np.int32)
    segments = (
        given["token_type_ids"][real].numpy().astype(np.int8)
        if "token_type_ids" in given
        else np.zeros_like(ids, np.int8)
    )
    return Ragged(ids, boundaries_of(lengths), segments, lengths)


def as_packed(given: dict[str, Tensor], wanted: dict[str, Tensor]) -> Batch:
    """The same sequences without padding."""
    flat = {name: value.flatten(0, -2) for name, value in given.items()}
    lengths = flat["attention_mask"].sum(1).tolist()

    def cut(rows: Tensor) -> list[list[int]]:
        return [row[:n].tolist() for row, n in zip(rows, lengths, strict=True)]

    batch = pack(cut(flat["input_ids"]), cut(flat["token_type_ids"]) if "token_type_ids" in flat else None)
    for name, target in wanted.items():
        real = given["attention_mask"].bool()
        plain = "next_sentence_label" if name == "sentence_order_label" else name
        batch = batch.with_target(plain, target[real] if target.shape == real.shape else target)
    return batch


def real_values(out: Any, mask: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Outputs by name; of those with a value for each token, the values of real tokens."""
    real = mask.bool().flatten(0, -2)
    for name in _OUTPUTS:
        value = getattr(out, name, None)
        if value is not None:
            yield name, value[real] if value.shape[:2] == real.shape else value
    for number, state in enumerate(out.hidden_states or ()):
        yield f"hidden_states[{number}]", state[real]
    both = real[:, None, :, None] & real[:, None, None, :]
    for number, attention in enumerate(out.attentions or ()):
        yield f"attentions[{number}]", attention * both


def score(out: Any, mask: Tensor | None) -> Tensor:
    """What gradients are taken of: the loss, or without targets a mean that every value takes part in.

    mask: None: the outputs are packed.
    """
    loss, pooled = getattr(out, "loss", None), getattr(out, "pooler_output", None)
    if loss is not None:
        return loss  # type: ignore[no-any-return]
    real = out.last_hidden_state if mask is None else out.last_hidden_state[mask.bool()]
    states = (real**2).mean()
    return states if pooled is None else states + pooled.sum(1).mean()


def packed_values(flat: Any, padded: Any, mask: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Each output of a packed call beside theirs."""
    real = mask.bool().flatten(0, -2)
    for name in _OUTPUTS:
        value, other = getattr(flat, name, None), getattr(padded, name, None)
        if value is not None and other is not None:
            yield value, other[real] if other.shape[:2] == real.shape else other


# --- controls: what a mistake looks like ------------------------------------------------------------------------------


def swapped_rows(folder: Path, *, in_c: bool = False) -> float:
    """Error of a model with two rows of a matrix swapped; a wrong tensor name would cause a larger one."""
    theirs, ours = pair("roberta", "BertModel", folder)
    with torch.no_grad():
        weight = ours.encoder.layer[0].attention.qkv.weight
        weight[[0, 1]] = weight[[1, 0]]
    given = inputs("roberta", "BertModel")
    if in_c:
        return max(engine_errors(InferenceEngine.of(ours, threads=1), theirs, given))
    real = given["attention_mask"].bool()
    with torch.no_grad():
        return error(ours(**given).last_hidden_state[real], theirs(**given).last_hidden_state[real])


def wider_window(folder: Path, length: int = 66) -> float:
    """Error of a ModernBERT whose windows reach one token further than 64; in 66 tokens one pair sees each other."""
    theirs, ours = pair("modernbert", "BertModel", folder, **odd("modernbert"))
    for layer in ours.encoder.layer:
        if layer.attention.reach is not None:
            layer.attention.attend = type(layer.attention.attend)(layer.attention.reach + 1)
    given = inputs("modernbert", "BertModel", (length,))
    with torch.no_grad():
        return error(ours(**given).last_hidden_state, theirs(**given).last_hidden_state)


#: By what is wrong; each takes a folder.
CONTROLS: dict[str, Callable[[Path], float]] = {
    "encoder: two rows of a matrix swapped": swapped_rows,
    "ModernBERT: windows one token wider, 66 tokens": wider_window,
}
if native_library() is not None:
    CONTROLS["encoder in C: two rows of a matrix swapped"] = partial(swapped_rows, in_c=True)
