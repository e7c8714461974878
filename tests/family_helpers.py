"""Tiny random encoders of every family, in the class of ``transformers`` and in ours, with inputs and targets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from bertkit.checkpoints.names import TABLES
from bertkit.config.families import FAMILIES
from bertkit.model.auto import MODEL_CLASSES

V, C = 97, 3
#: Tokens of the usual rows: full length, padding on the right, a single token.
LENGTHS = (17, 9, 1, 17, 12)
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
#: What no size is a power of two or a multiple of eight in: width 36, 3 heads, 5 layers.
_ODD = {
    "hidden_size": 36, "num_attention_heads": 3, "num_hidden_layers": 5, "intermediate_size": 50,
    "max_position_embeddings": 140,
}  # fmt: skip
#: Texts as long as ModernBERT's published window of 128, 64 to each side, and a little longer and shorter.
EDGES = (63, 64, 65, 66, 127, 128, 129, 130)
CASES = [(shape, head) for shape, (family, _) in SHAPES.items() for head in TABLES[family].classes]


def odd(shape: str) -> dict[str, Any]:
    """The values of a config with which a kind of model has odd sizes, and windows as published."""
    family, values = SHAPES[shape]
    if family == "distilbert":
        return {"dim": 36, "n_heads": 3, "n_layers": 5, "hidden_dim": 50, "max_position_embeddings": 140}
    same_width = {"embedding_size": 36} if values.get("embedding_size") == _COMMON["hidden_size"] else {}
    windows = {"local_attention": 128} if family == "modernbert" else {}
    return {**_ODD, **same_width, **windows}


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


def inputs(shape: str, head: str, lengths: Sequence[int] = LENGTHS, *, padded: bool = True) -> dict[str, Tensor]:
    """Rows of these lengths, or all as long as the longest; segments where the family has them; no id is padding's."""
    generator = torch.Generator().manual_seed(3)
    longest = max(lengths)
    choices = (2,) if head == "BertForMultipleChoice" else ()
    size = (len(lengths), *choices, longest)
    if padded and head != "BertForQuestionAnswering":  # theirs lets padding into the softmax of its loss
        row_mask = (torch.arange(longest) < torch.tensor(lengths)[:, None]).to(torch.int64)
        mask = row_mask.view(len(lengths), *(1 for _ in choices), longest).expand(size).contiguous()
    else:
        mask = torch.ones(size, dtype=torch.int64)
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
    """Random targets of every kind for the rows of a mask; at least one token has one."""
    generator = torch.Generator().manual_seed(4)
    rows, longest = len(mask), mask.shape[-1]

    def draw(high: int, size: Any) -> Tensor:
        return torch.randint(0, high, size, generator=generator)

    chosen = (torch.rand(mask.shape, generator=generator) < 0.4) & mask.bool()
    chosen.view(-1)[0] = True
    words = torch.where(chosen, draw(V, mask.shape), -100)
    pair_label = FAMILIES[SHAPES[shape][0]].pair_label
    return {
        "BertModel": {},
        "BertForPreTraining": {"labels": words, str(pair_label): draw(2, (rows,))},
        "BertForMaskedLM": {"labels": words},
        "BertForNextSentencePrediction": {"labels": draw(2, (rows,))},
        "BertForSequenceClassification": {"labels": draw(C, (rows,))},
        "BertForTokenClassification": {"labels": torch.where(chosen, draw(C, mask.shape), -100)},
        "BertForQuestionAnswering": {
            "start_positions": draw(longest, (rows,)),
            "end_positions": draw(longest, (rows,)),
        },
        "BertForMultipleChoice": {"labels": draw(2, (rows,))},
        "ElectraForPreTraining": {"labels": draw(2, mask.shape)},
    }[head]
