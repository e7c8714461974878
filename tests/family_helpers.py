"""Tiny random models of every family, in their class and in ours, and how far apart they are.

The oracle is ``transformers``. Errors are ``max |ours - theirs| / max(1, max |theirs|)``: absolute where values are
small, relative to the largest of a tensor where they are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from bertkit.batch import Batch, pack
from bertkit.checkpoints.apply import to_theirs
from bertkit.checkpoints.names import TABLES
from bertkit.config.families import FAMILIES
from bertkit.model.auto import MODEL_CLASSES

V, B, S, C = 97, 5, 17, 3
#: 0.2, not 0.02: with the usual small values all outputs look alike, and a wrong model would pass.
_COMMON = {
    "vocab_size": V, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 40, "initializer_range": 0.2, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
_DISTIL = {
    "vocab_size": V, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 40,
    "initializer_range": 0.2, "dropout": 0.0, "attention_dropout": 0.0, "qa_dropout": 0.0, "seq_classif_dropout": 0.0,
}  # fmt: skip
_ALBERT = {"embedding_size": 12, "classifier_dropout_prob": 0.0}
_ELECTRA = {"embedding_size": 12, "summary_last_dropout": 0.0}
_DEBERTA = {
    "type_vocab_size": 0, "relative_attention": True, "position_buckets": 6, "norm_rel_ebd": "layer_norm",
    "share_att_key": True, "pos_att_type": "p2c|c2p", "position_biased_input": False, "max_relative_positions": -1,
}  # fmt: skip
_MODERN = {
    **{name: value for name, value in _COMMON.items() if "dropout" not in name},
    "pad_token_id": 0, "local_attention": 8, "global_attn_every_n_layers": 3, "bos_token_id": 1, "eos_token_id": 2,
    "cls_token_id": 1, "sep_token_id": 2,
}  # fmt: skip
#: Name of a kind of model: (model_type, what its config has).
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert", _COMMON),
    "roberta": ("roberta", _COMMON),
    "camembert": ("camembert", {**_COMMON, "bos_token_id": 5, "eos_token_id": 6, "type_vocab_size": 1}),
    "xlm-roberta": ("xlm-roberta", {**_COMMON, "type_vocab_size": 1, "layer_norm_eps": 1e-5}),
    "distilbert": ("distilbert", _DISTIL),
    "albert": ("albert", {**_COMMON, **_ALBERT}),
    "albert, 2 groups of 2": (
        "albert", {**_COMMON, **_ALBERT, "num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2},
    ),
    "electra": ("electra", {**_COMMON, **_ELECTRA}),
    "electra, E = D": ("electra", {**_COMMON, **_ELECTRA, "embedding_size": 32, "hidden_act": "relu"}),
    "mpnet": ("mpnet", {**_COMMON, "max_position_embeddings": 40}),
    "deberta-v3": ("deberta-v2", {**_COMMON, **_DEBERTA}),
    "deberta-v2, own matrices": (
        "deberta-v2",
        {**_COMMON, **_DEBERTA, "share_att_key": False, "norm_rel_ebd": "none", "position_biased_input": True,
         "type_vocab_size": 2, "position_buckets": -1},
    ),
    "deberta-v2, c2p alone": (
        "deberta-v2",
        {**_COMMON, **_DEBERTA, "pos_att_type": ["c2p"], "share_att_key": False, "max_relative_positions": 9},
    ),
    "deberta-v2, p2c alone": ("deberta-v2", {**_COMMON, **_DEBERTA, "pos_att_type": "p2c", "position_buckets": 4}),
    "modernbert": ("modernbert", _MODERN),
    "modernbert, mean": ("modernbert", {**_MODERN, "classifier_pooling": "mean", "num_hidden_layers": 5}),
    "modernbert, biases, untied": (
        "modernbert",
        {**_MODERN, "norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True,
         "decoder_bias": False, "tie_word_embeddings": False, "local_attention": 12, "classifier_activation": "relu"},
    ),
}  # fmt: skip
CASES = [(shape, head) for shape, (family, _) in SHAPES.items() for head in TABLES[family].classes]
_OUTPUTS = (
    "loss", "logits", "start_logits", "end_logits", "prediction_logits", "seq_relationship_logits", "sop_logits",
    "pooler_output", "last_hidden_state",
)  # fmt: skip


@dataclass(frozen=True)
class Parity:
    """Largest errors of one class: padded forward, packed forward, loss, gradients; eval and training mode.

    round_trip: whether transformers loads what we saved with nothing missing, and has the same bits again.
    """

    forward: float
    packed: float
    loss: float | None
    gradient: float
    round_trip: bool

    @property
    def worst(self) -> float:
        return max(self.forward, self.packed, self.loss or 0.0, self.gradient)


def their_model(shape: str, head: str, *, attention: str = "eager", seed: int = 7, **changes: Any) -> Any:
    """A random model of transformers in which nothing is 0 or 1, not even biases and LayerNorms."""
    family, values = SHAPES[shape]
    labels = 2 if head in ("BertForQuestionAnswering", "BertForPreTraining") else C
    config = transformers.AutoConfig.for_model(family, **{**values, "num_labels": labels, **changes})
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        their_class = getattr(transformers, FAMILIES[family].their_class(head))
        model = their_class._from_config(config, attn_implementation=attention).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    nn.init.normal_(parameter, mean=float(parameter.mean()), std=0.2)
    return model


def pair(shape: str, head: str, folder: Path, **options: Any) -> tuple[Any, Any]:
    """The same random weights in their class and in ours, by way of a checkpoint."""
    theirs = their_model(shape, head, **options)
    theirs.save_pretrained(folder)
    return theirs, MODEL_CLASSES[head].from_pretrained(folder)


def inputs(shape: str, head: str, *, padded: bool = True) -> dict[str, Tensor]:
    """Full length, padding on the right, a single token; segments where the family has them; no id is padding's."""
    generator = torch.Generator().manual_seed(3)
    size = (B, 2, S) if head == "BertForMultipleChoice" else (B, S)
    mask = torch.ones(size, dtype=torch.int64)
    if padded and head != "BertForQuestionAnswering":  # theirs lets padding into the softmax of its loss
        mask[1, ..., 9:] = 0
        mask[2, ..., 1:] = 0
        mask[4, ..., 12:] = 0
    given = {"input_ids": torch.randint(2, V, size, generator=generator), "attention_mask": mask}
    segments = MODEL_TYPES_WITH_SEGMENTS.get(shape, 0)
    if segments:
        given["token_type_ids"] = torch.randint(0, segments, size, generator=generator)
    return given


MODEL_TYPES_WITH_SEGMENTS = {
    shape: int(values.get("type_vocab_size", 2))
    for shape, (family, values) in SHAPES.items()
    if family not in ("distilbert", "mpnet", "modernbert")
}


def targets(shape: str, head: str, mask: Tensor) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(4)

    def draw(high: int, size: Any) -> Tensor:
        return torch.randint(0, high, size, generator=generator)

    chosen = (torch.rand(mask.shape, generator=generator) < 0.4) & mask.bool()
    words = torch.where(chosen, draw(V, mask.shape), -100)
    pair_label = FAMILIES[SHAPES[shape][0]].pair_label
    return {
        "BertModel": {},
        "BertForPreTraining": {"labels": words, str(pair_label): draw(2, (B,))},
        "BertForMaskedLM": {"labels": words},
        "BertForNextSentencePrediction": {"labels": draw(2, (B,))},
        "BertForSequenceClassification": {"labels": draw(C, (B,))},
        "BertForTokenClassification": {"labels": torch.where(chosen, draw(C, mask.shape), -100)},
        "BertForQuestionAnswering": {"start_positions": draw(S, (B,)), "end_positions": draw(S, (B,))},
        "BertForMultipleChoice": {"labels": draw(2, (B,))},
        "ElectraForPreTraining": {"labels": draw(2, mask.shape)},
    }[head]


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


@torch.no_grad()
def error(ours: Tensor, theirs: Tensor) -> float:
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1.0)) if ours.numel() else 0.0


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


def score(out: Any, mask: Tensor) -> Tensor:
    """What gradients are taken of: the loss, or without targets a mean that every value takes part in."""
    loss, pooled = getattr(out, "loss", None), getattr(out, "pooler_output", None)
    if loss is not None:
        return loss  # type: ignore[no-any-return]
    states = (out.last_hidden_state[mask.bool()] ** 2).mean()
    return states if pooled is None else states + pooled.sum(1).mean()


def measure(shape: str, head: str, folder: Path, *, attention: str = "eager") -> Parity:
    """Compare one class of one family in every way."""
    theirs, ours = pair(shape, head, folder / "theirs", attention=attention)
    given = inputs(shape, head)
    mask = given["attention_mask"]
    wanted = targets(shape, head, mask)
    forward, packed, losses, gradients = [], [], [], []
    for mode in ("eval", "train"):
        more = {"output_hidden_states": True, "output_attentions": attention == "eager"}
        a = getattr(theirs, mode)()(**given, **wanted, **more)
        b = getattr(ours, mode)()(**given, **wanted, **more)
        values, expected = dict(real_values(b, mask)), dict(real_values(a, mask))
        names = {name for name in expected if name != "sop_logits"} if "sop_logits" not in values else expected.keys()
        assert values.keys() - {"sop_logits", "seq_relationship_logits"} == names - {
            "sop_logits", "seq_relationship_logits",
        }, (values.keys(), names)  # fmt: skip
        assert ("loss" in expected) == bool(wanted)
        forward += [error(values[name], expected[name]) for name in names if name != "loss"]
        losses += [error(values["loss"], expected["loss"])] if wanted else []
        for out, model in ((a, theirs), (b, ours)):
            model.zero_grad()
            score(out, mask).backward()
        gradients.append(gradient_error(theirs, ours))
        flat = ours.forward_packed(as_packed(given, wanted))
        packed += [error(x, y) for x, y in packed_values(flat, a, mask)]
    return Parity(
        max(forward), max(packed), max(losses) if losses else None, max(gradients), comes_back(ours, theirs, folder)
    )


def packed_values(flat: Any, padded: Any, mask: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Each output of a packed call beside theirs."""
    real = mask.bool().flatten(0, -2)
    for name in _OUTPUTS:
        value, other = getattr(flat, name, None), getattr(padded, name, None)
        if value is not None and other is not None:
            yield value, other[real] if other.shape[:2] == real.shape else other


def gradient_error(theirs: Any, ours: Any) -> float:
    """Largest error over all parameters, by their names; both must have gradients at the same ones."""
    table = TABLES[ours.config.model_type]
    spec = table.classes[type(ours).__name__]
    expected = {name: parameter.grad for name, parameter in theirs.named_parameters() if parameter.grad is not None}
    found = {name: parameter.grad for name, parameter in ours.named_parameters() if parameter.grad is not None}
    got = dict(to_theirs(found, ours.config, spec, table))
    ties = dict(table.ties) if ours.config.tie_word_embeddings else {}
    renamed = {ties.get(name.removeprefix(table.prefix), name): value for name, value in expected.items()}
    prefixed = {name if name in got else table.prefix + name: value for name, value in renamed.items()}
    assert got.keys() == prefixed.keys(), got.keys() ^ prefixed.keys()
    return max(error(got[name], prefixed[name]) for name in got)


def comes_back(ours: Any, theirs: Any, folder: Path) -> bool:
    """Save ours; does their software load it, with nothing missing or left over, and with the same bits?"""
    ours.save_pretrained(folder / "ours")
    again, info = type(theirs).from_pretrained(folder / "ours", output_loading_info=True)
    whole = not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    auto = transformers.AutoConfig.from_pretrained(folder / "ours")
    same_shape = auto.architectures == [type(theirs).__name__] and all(
        getattr(auto, name) == getattr(theirs.config, name) for name in SHAPES_FIELDS if hasattr(theirs.config, name)
    )
    state, before = again.state_dict(), theirs.state_dict()
    return whole and same_shape and all(torch.equal(state[name], before[name]) for name in before)


SHAPES_FIELDS = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "max_position_embeddings", "pad_token_id",
    "type_vocab_size", "embedding_size", "num_hidden_groups", "inner_group_num", "hidden_act", "activation",
    "layer_norm_eps", "classifier_dropout_prob", "summary_last_dropout", "qa_dropout", "seq_classif_dropout",
    "initializer_range", "id2label", "label2id",
)  # fmt: skip
