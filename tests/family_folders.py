"""Small checkpoints of ModernBERT, DeBERTa, MPNet, BART and T5 with tokenizers, and with configs as published ones are.

The configs hold older and newer keys of the family together.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from sentencepiece import sentencepiece_model_pb2
from tokenizers import pre_tokenizers

import bertkit
from bertkit import AutoModelForMaskedLM, AutoModelForSeq2SeqLM
from bertkit.config.config_file import CONFIG, MAX_CONFIG_BYTES
from bertkit.config.encoder_decoder_config import CONFIG_CLASSES
from bertkit.config.generation_settings import GENERATION, GenerationSettings
from bertkit.system.untrusted_files import read_object
from bertkit.tokenization import (
    AddedToken,
    DebertaV2Tokenizer,
    ModernBertTokenizer,
    MPNetTokenizer,
    PreTrainedTokenizer,
    RobertaTokenizer,
    T5Tokenizer,
)

LETTERS = "abdefhinorstuvwy"
_COMMON: dict[str, Any] = {
    "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12,
    "max_position_embeddings": 20,
}  # fmt: skip
_T5: dict[str, Any] = {"d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 2, "num_heads": 2}
_BART: dict[str, Any] = {
    "d_model": 8, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 12, "decoder_ffn_dim": 12, "max_position_embeddings": 20,
}  # fmt: skip
#: By family: what its config has, and further keys of published files.
CONFIGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "modernbert": (
        {**_COMMON, "local_attention": 8, "num_hidden_layers": 4},
        {
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 160000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
            "rope_scaling": None, "deterministic_flash_attn": False, "reference_compile": None,
            "position_embedding_type": "absolute", "cls_token_id": 1,
        },
    ),
    "deberta-v2": (
        {**_COMMON, "position_buckets": 6, "max_relative_positions": -1, "share_att_key": True,
         "norm_rel_ebd": "layer_norm", "position_biased_input": False},
        {"pooler_hidden_size": 8, "pooler_hidden_act": "gelu", "attention_head_size": 4, "pos_att_type": "p2c|c2p",
         "legacy": True, "conv_kernel_size": 0, "embedding_size": 8, "relative_attention": True},
    ),
    "mpnet": (_COMMON, {"relative_attention_num_buckets": 32, "bos_token_id": 0, "eos_token_id": 2}),
    "bart": (
        _BART,
        {
            "num_hidden_layers": 2, "classif_dropout": 0.0, "normalize_before": False, "normalize_embedding": True,
            "add_final_layer_norm": False, "encoder_layerdrop": 0.0, "static_position_embeddings": False,
            "force_bos_token_to_be_generated": False, "num_beams": 4, "early_stopping": True,
            "task_specific_params": {"summarization": {"num_beams": 4, "length_penalty": 2.0, "max_length": 19}},
        },
    ),
    "t5": (
        _T5,
        {
            "n_positions": 512, "is_gated_act": False, "dense_act_fn": "relu", "output_past": True,
            "task_specific_params": {"summarization": {"prefix": "so: ", "early_stopping": True, "num_beams": 4}},
        },
    ),
}  # fmt: skip
FAMILIES = tuple(CONFIGS)
WRITERS = ("bart", "t5")


def make(family: str, folder: Path, work: Path) -> None:
    """A checkpoint of random weights and a few tokens, with a config as published ones are."""
    made = tokenizer(family, work)
    values, more = CONFIGS[family]
    sizes = {**values, "vocab_size": len(made), "pad_token_id": made.pad_token_id}
    torch.manual_seed(0)
    if family in WRITERS:
        ends = {"eos_token_id": made.eos_token_id, "decoder_start_token_id": made.pad_token_id}
        config = CONFIG_CLASSES[family](**sizes, **ends)
        model: Any = {"bart": bertkit.BartForConditionalGeneration, "t5": bertkit.T5ForConditionalGeneration}[family]
        model(config).save_pretrained(folder)
        settings = {"num_beams": 2, "early_stopping": True, "no_repeat_ngram_size": 3, "temperature": 0.5, "top_k": 5}
        more_settings = {"pad_token_id": made.pad_token_id, "max_new_tokens": 4, "transformers_version": "4.6"}
        (folder / GENERATION).write_text(json.dumps({**settings, **ends, **more_settings}))
    else:
        bertkit.BertForMaskedLM(bertkit.BertConfig(model_type=family, **sizes)).save_pretrained(folder)
    written = json.loads((folder / CONFIG).read_text())
    if family == "modernbert":
        written = {key: value for key, value in written.items() if not key.endswith(("rope_theta", "every_n_layers"))}
    (folder / CONFIG).write_text(json.dumps({**written, **more}))
    made.save_pretrained(folder)


def tokenizer(family: str, work: Path) -> PreTrainedTokenizer:
    """A tokenizer of the family with a few pieces of words."""
    alphabet = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "th", "the", "\u0120r"]
    merges = [("t", "h"), ("th", "e"), ("\u0120", "r")]
    if family == "mpnet":
        words = ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", "the", "river", *LETTERS, *(f"##{x}" for x in LETTERS)]
        return MPNetTokenizer({word: number for number, word in enumerate([*words, "<mask>"])})
    if family == "bart":
        names = ["<s>", "<pad>", "</s>", "<unk>", *alphabet, "<mask>"]
        return RobertaTokenizer({token: number for number, token in enumerate(names)}, merges)
    if family == "modernbert":
        special = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
        first_id = len(alphabet)
        added = [AddedToken(name, first_id + number, lstrip=name == "[MASK]") for number, name in enumerate(special)]
        vocab = {token: number for number, token in enumerate(alphabet)}
        return ModernBertTokenizer(vocab, merges, added_tokens=tuple(added))
    first = {
        "deberta-v2": [("[PAD]", 3), ("[CLS]", 3), ("[SEP]", 3), ("[UNK]", 2)],
        "t5": [("<pad>", 3), ("</s>", 3), ("<unk>", 2)],
    }[family]
    model = sentencepiece_model_pb2.ModelProto()
    for piece, kind in [*first, *((piece, 1) for piece in ("\u2581", "\u2581the", "er", *LETTERS))]:
        model.pieces.add(piece=piece, score=0.0 if kind > 1 else -1.0 - len(model.pieces) / 8, type=kind)
    model.trainer_spec.model_type = 1
    model.trainer_spec.unk_id = len(first) - 1
    reader: Any = {"deberta-v2": DebertaV2Tokenizer, "t5": T5Tokenizer}[family]
    file = work / reader.kind.files[0]
    file.write_bytes(model.SerializeToString())
    return reader(file)  # type: ignore[no-any-return]


def load_model(folder: Path) -> object:
    """What is computed; names of classes and what changes nothing in it are left out."""
    if read_object(folder / CONFIG, max_bytes=MAX_CONFIG_BYTES).get("model_type") in [*WRITERS]:
        model: Any = AutoModelForSeq2SeqLM.from_pretrained(folder)
        task = GenerationSettings.of_task(read_object(folder / CONFIG, max_bytes=MAX_CONFIG_BYTES), "summarization")
        generation: object = (model.generation_settings, task)
    else:
        model, generation = AutoModelForMaskedLM.from_pretrained(folder), None
    shape = model.config.model_dump(exclude={"architectures"})
    return shape, {name: tensor.numpy().tobytes() for name, tensor in model.state_dict().items()}, generation
