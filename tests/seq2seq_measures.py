"""Every way in which an encoder-decoder is compared with that of ``transformers``: padded, packed, trained, saved."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertkit.batch import pack
from bertkit.checkpoints.seq2seq_names import table_of
from parity_measures import Parity, comes_back, error, gradient_error, largest
from seq2seq_helpers import Pair, batch_of, decoder_ids, pair

#: Tokens of the usual rows.
LENGTHS = (17, 1, 2, 9)
_OUTPUTS = ("logits", "last_hidden_state", "start_logits", "end_logits", "encoder_last_hidden_state")
_INPUTS = ("input_ids", "attention_mask")
#: Of the config; what transformers must find again in what is saved here.
FIELDS = (
    "d_model", "encoder_layers", "decoder_layers", "encoder_ffn_dim", "decoder_ffn_dim", "encoder_attention_heads",
    "decoder_attention_heads", "max_position_embeddings", "activation_function", "scale_embedding", "init_std",
    "dropout", "attention_dropout", "activation_dropout", "classifier_dropout", "vocab_size", "pad_token_id",
    "bos_token_id", "eos_token_id", "decoder_start_token_id", "forced_eos_token_id", "d_kv", "d_ff", "num_layers",
    "num_decoder_layers", "num_heads", "relative_attention_num_buckets", "relative_attention_max_distance",
    "dropout_rate", "layer_norm_epsilon", "feed_forward_proj", "id2label", "label2id",
)  # fmt: skip


def measure(
    kind: str, head: str, folder: Path, *, batches: Sequence[Sequence[int]] = (LENGTHS,), **changes: Any
) -> Parity:
    """Compare one class of one kind in every way.

    Args:
        kind: of model.
        head: ending of the class.
        folder: for what is saved.
        batches: lengths of the inputs of each batch.
        **changes: values of the config.
    """
    both = pair(kind, head, folder / "theirs", **changes)
    found: dict[str, list[float]] = {name: [] for name in ("forward", "packed", "loss", "gradient")}
    for lengths in batches:
        both.ids, both.mask = batch_of(lengths, both.ours.config.pad_token_id, 3)
        for call in calls(both, head):
            for mode in ("eval", "train"):
                for name, errors in compare(both, call, mode):
                    found[name] += errors
    return Parity(
        max(found["forward"]),
        largest(found["packed"]),
        largest(found["loss"]),
        max(found["gradient"]),
        comes_back(both.ours, both.peer, folder, FIELDS),
    )


def calls(both: Pair, head: str) -> list[dict[str, Tensor]]:
    """The arguments of the calls that show all that a class does."""
    rows, width = both.ids.shape
    given = {"input_ids": both.ids, "attention_mask": both.mask}
    chance = torch.Generator().manual_seed(4)
    ids = decoder_ids(rows, max(1, 2 * width // 3))
    if head == "EncoderModel":
        return [given]
    if head == "Model":
        return [{**given, "decoder_input_ids": ids}, *([] if "T5" in type(both.ours).__name__ else [given])]
    if head == "ForConditionalGeneration":
        labels = ids.clone()
        labels[1::2, labels.shape[1] // 3 + 1 :] = -100
        return [{**given, "labels": labels}]
    if head == "ForSequenceClassification":
        ends = both.ids.clone()
        ends[torch.arange(rows), both.mask.sum(dim=1) - 1] = both.ours.config.eos_token_id
        labels = torch.randint(0, both.peer.config.num_labels, (rows,), generator=chance)
        return [{**given, "input_ids": ends, "labels": labels}]
    assert head == "ForQuestionAnswering"
    places = {name: torch.randint(0, width, (rows,), generator=chance) for name in ("start_positions", "end_positions")}
    # theirs lets padding into the softmax of its loss
    return [given, {**given, "attention_mask": torch.ones_like(both.mask), **places}]


def compare(both: Pair, call: dict[str, Tensor], mode: str) -> Iterator[tuple[str, list[float]]]:
    """The errors of one call in one mode, by the names of :class:`Parity`."""
    table = table_of(both.ours.config)
    theirs = getattr(both.peer, mode)()(**call)
    ours = getattr(both.ours, mode)()(**call)
    mask = call["attention_mask"].bool()
    expected, found = dict(real_values(theirs, mask)), dict(real_values(ours, mask))
    assert expected.keys() <= found.keys(), (expected.keys(), found.keys())
    yield "forward", [error(found[name], expected[name]) for name in expected]
    if ours.loss is not None:
        yield "loss", [error(ours.loss, theirs.loss)]
    both.peer.zero_grad()
    score(theirs, mask, expected).backward()
    outs = [ours]
    if "decoder_input_ids" not in call:  # otherwise it reads what was packed
        batch = pack([row[real].tolist() for row, real in zip(call["input_ids"], mask, strict=True)])
        for name in call.keys() - {*_INPUTS}:
            batch = batch.with_target(name, call[name])
        outs.append(both.ours.forward_packed(batch))
        yield "packed", list(packed_errors(outs[-1], theirs, mask))
    for out in outs[: 1 if outs[-1].loss is None else 2]:
        both.ours.zero_grad()
        score(out, mask, expected).backward()
        yield "gradient", [gradient_error(both.peer, both.ours, table)]


def packed_errors(out: Any, theirs: Any, mask: Tensor) -> Iterator[float]:
    """How far what a packed batch gives is from what a padded one gives in transformers."""
    for name in ("loss", *_OUTPUTS):
        value, expected = getattr(out, name, None), getattr(theirs, name, None)
        if value is not None and expected is not None:
            yield error(value, expected[mask] if expected.shape[:2] == mask.shape else expected)


def real_values(out: Any, mask: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Outputs by name; of the encoder and of answers, those of real tokens."""
    alone = getattr(out, "encoder_last_hidden_state", None) is None
    for name in _OUTPUTS:
        value = getattr(out, name, None)
        if value is not None:
            reads = name.startswith(("encoder", "start", "end")) or (alone and name == "last_hidden_state")
            yield name, value[mask] if reads else value


def score(out: Any, mask: Tensor, names: Collection[str]) -> Tensor:
    """What gradients are taken of: the loss, or a mean that every value of these outputs takes part in."""
    if getattr(out, "loss", None) is not None:
        return out.loss  # type: ignore[no-any-return]
    return torch.stack([(value**2).mean() for name, value in real_values(out, mask) if name in names]).sum()


# --- controls: what a mistake looks like ------------------------------------------------------------------------------


def other_distances(folder: Path) -> float:
    """Error of a T5 with another bias for one distance."""
    both = pair("t5", "Model", folder)
    with torch.no_grad():
        both.ours.model.decoder.distances.weight[1] += 0.5
        call = calls(both, "Model")[0]
        return error(both.ours(**call).last_hidden_state, both.peer(**call).last_hidden_state)


#: By what is wrong; each takes a folder.
CONTROLS = {"T5: another bias for one distance": other_distances}
