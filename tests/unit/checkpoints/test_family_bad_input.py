"""Damaged folders of ModernBERT, DeBERTa, MPNet, BART and T5: our own error with a clear sentence, quickly.

What is said of BERT's is in :mod:`test_checkpoint_bad_input`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertkit import AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer
from bertkit.config.config_file import CONFIG, MAX_CONFIG_BYTES
from bertkit.config.generation_settings import GENERATION, GenerationSettings
from bertkit.errors import BertkitError
from bertkit.system.untrusted_files import read_object
from family_folders import FAMILIES, WRITERS, make
from hostile_helpers import bounded, sharded

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
Spoil = Callable[[Path], object]


def first_matrix(tensors: dict[str, torch.Tensor]) -> str:
    """The name of a matrix of a layer."""
    return min(name for name, values in tensors.items() if ".0." in name and values.ndim == 2)


def weights_with(change: Callable[[dict[str, torch.Tensor], str], object]) -> Spoil:
    def spoil(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        change(tensors, first_matrix(tensors))
        save_file(tensors, folder / WEIGHTS)

    return spoil


def shards_with(change: Callable[[Path, dict[str, str]], object]) -> Spoil:
    def spoil(folder: Path) -> None:
        sharded(folder)
        change(folder, json.loads((folder / INDEX).read_text())["weight_map"])

    return spoil


def file_with(file: str, **changes: Any) -> Spoil:
    """Other values in a JSON file."""

    def spoil(folder: Path) -> None:
        values = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps({**values, **changes}))

    return spoil


def config_with(**changes: Any) -> Spoil:
    return file_with(CONFIG, **changes)


def generation_with(**changes: Any) -> Spoil:
    return file_with(GENERATION, **changes)


def in_wrong_shard(folder: Path, weight_map: dict[str, str]) -> None:
    name = min(weight_map)
    other = next(part for part in weight_map.values() if part != weight_map[name])
    (folder / INDEX).write_text(json.dumps({"weight_map": {**weight_map, name: other}}))


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": [value]}
    return value


#: What -> (the families, what is done to the folder, what the error says).
DAMAGE: dict[str, tuple[tuple[str, ...], Spoil, str]] = {
    "cut weights": (FAMILIES, lambda f: os.truncate(f / WEIGHTS, 4000), r"is not a whole safetensors file"),
    "wrong shape": (
        FAMILIES, weights_with(lambda t, name: t.update({name: torch.ones(3, 5)})),
        r"mis-shaped \(1\):(?s:.*)the file has \[3, 5\], the config asks for",
    ),
    "NaN": (FAMILIES, weights_with(lambda t, name: t[name].view(-1)[3:4].fill_(torch.nan)), r"are not finite"),
    "missing": (FAMILIES, weights_with(lambda t, name: t.pop(name)), r"missing \(1\):"),
    "unexpected": (
        FAMILIES, weights_with(lambda t, name: t.update({name.replace("weight", "extra"): torch.ones(2)})),
        r"unexpected \(1\):\n.*extra",
    ),
    "integers": (
        FAMILIES, weights_with(lambda t, name: t.update({name: t[name].to(torch.int32)})),
        r"of a wrong type \(1\):(?s:.*)the file has I32",
    ),
    "missing shard": (
        FAMILIES, shards_with(lambda f, m: (f / "part-1.safetensors").unlink()),
        r"names part-1\.safetensors, which does not exist",
    ),
    "cut shard": (
        FAMILIES, shards_with(lambda f, m: os.truncate(f / "part-1.safetensors", 2500)),
        r"part-1\.safetensors is not a whole",
    ),
    "wrong shard": (FAMILIES, shards_with(in_wrong_shard), r"lists '.*, which does not contain it"),
    "unknown field": (FAMILIES, config_with(vocab_sice=7), r"unknown field 'vocab_sice' \(did you mean 'vocab_size'"),
    "a number as text": (FAMILIES, config_with(vocab_size="40"), r"vocab_size = '40': expected a value without quotes"),
    "junk for a number": (FAMILIES, config_with(vocab_size=deep(20)), r"vocab_size = \{'a': "),
    "true for a number": (FAMILIES, config_with(vocab_size=True), r"vocab_size = True: expected a number"),
    "a list for true": (FAMILIES, config_with(tie_word_embeddings=[1]), r"tie_word_embeddings"),
    "nested too deep": (FAMILIES, config_with(name=deep(200)), r"nested too deeply"),
    "absurd size": (FAMILIES, config_with(vocab_size=10**12), r"vocab_size = 1000000000000: "),
    "quantized": (FAMILIES, config_with(quantization_config={"bits": 4}), r"quantization_config is \{'bits': 4\}"),
    "pad_token_id": (FAMILIES, config_with(pad_token_id=10**6), r"pad_token_id(=| is )1000000"),
    "model_type a list": (FAMILIES, config_with(model_type=[]), r"model_type is \[\]; .* (read|write)"),
    "labels": (FAMILIES, config_with(id2label={"0": []}), r"id2label"),
    "half a character": (
        FAMILIES, lambda f: (f / CONFIG).write_text('{"model_type": "\\ud800"}'), r"half of a character"
    ),
    "a cut tokenizer": (
        FAMILIES, lambda f: os.truncate(f / "tokenizer.json", 300), r"tokenizer\.json:\d+ is not JSON"
    ),
    "a tokenizer of another kind": (
        FAMILIES, file_with("tokenizer.json", model={"type": "WordLevel", "vocab": {"a": 0}}), r"holds a WordLevel"
    ),
    "a normalizer of another kind": (
        FAMILIES, file_with("tokenizer.json", normalizer={"type": "Prepend", "prepend": "x"}), r"normaliz"
    ),
    "a class of another kind": (FAMILIES, file_with("tokenizer_config.json", tokenizer_class="NoTokenizer"), "NoToken"),
    "a special token that is a list": (FAMILIES, file_with("tokenizer_config.json", pad_token=[1]), "pad_token must"),
    "a side that is not there": (
        FAMILIES, file_with("tokenizer_config.json", padding_side="top" * 9999), r"_config\.json: padding_side must be"
    ),
    # ModernBERT
    "stretched positions": (
        ("modernbert",), config_with(rope_scaling={"type": "yarn", "factor": 4.0}), r"rope_scaling is \{'type': 'yarn'"
    ),
    "stretched positions, newer": (
        ("modernbert",), config_with(rope_parameters={"full_attention": {"rope_type": "yarn", "rope_theta": 1e4}}),
        r"rope_parameters has .* for full_attention; bertkit only supports rope_type='default'",
    ),
    "rope_parameters of one kind": (
        ("modernbert",), config_with(rope_parameters={"rope_theta": 1e4}), r"rope_parameters must be an object with"
    ),
    "rope_parameters a list": (("modernbert",), config_with(rope_parameters=[[]]), r"rope_parameters must be an"),
    "rope_parameters of lists": (
        ("modernbert",), config_with(rope_parameters={"full_attention": [1]}), r"rope_parameters has \[1\]"
    ),
    "rope_theta junk": (
        ("modernbert",), config_with(rope_parameters={"full_attention": {"rope_theta": deep(5)}}), r"global_rope_theta"
    ),
    "rope_theta twice": (
        ("modernbert",), config_with(global_rope_theta=9.0), r"rope_theta 160000\.0 for full_attention, but .* is 9\.0"
    ),
    "layers of an unknown type": (
        ("modernbert",), config_with(layer_types=["full_attention"] * 3 + ["chunked"]), r"layer_types"
    ),
    "layers of junk": (("modernbert",), config_with(layer_types=[deep(9), [], {}, None]), r"layer_types"),
    "too few types of layers": (
        ("modernbert",), config_with(layer_types=["full_attention"]), r"layer_types names 1 layers"
    ),
    "many types of layers": (
        ("modernbert",), config_with(num_hidden_layers=150_000, layer_types=["full_attention", "x"] * 75_000),
        r"num_hidden_layers = 150000",
    ),
    "no window": (("modernbert",), config_with(local_attention=0), r"local_attention = 0"),
    "heads of an odd width": (("modernbert",), config_with(hidden_size=6), r"rotary positions need heads of an even"),
    "an activation that is not there": (("modernbert",), config_with(hidden_activation="silu"), r"hidden_act"),
    # DeBERTa
    "a convolution": (("deberta-v2",), config_with(conv_kernel_size=3), r"conv_kernel_size is 3"),
    "no relative positions": (("deberta-v2",), config_with(relative_attention=False), r"relative_attention is False"),
    "scores that are not there": (("deberta-v2",), config_with(pos_att_type="c2p|p2p"), r"pos_att_type"),
    "no scores of positions": (("deberta-v2",), config_with(pos_att_type="none"), r"pos_att_type is empty"),
    "scores of junk": (("deberta-v2",), config_with(pos_att_type=[deep(3)]), r"pos_att_type"),
    "no heads": (("deberta-v2",), config_with(num_attention_heads=0), r"num_attention_heads = 0"),
    "a head of another width": (("deberta-v2",), config_with(attention_head_size=3), r"attention_head_size is 3"),
    "a width of junk": (("deberta-v2",), config_with(pooler_hidden_size=deep(3)), r"pooler_hidden_size is \{"),
    "a norm that is not there": (("deberta-v2",), config_with(norm_rel_ebd="batch"), r"norm_rel_ebd"),
    "buckets": (("deberta-v2",), config_with(position_buckets=10**7), r"position_buckets = 10000000"),
    # MPNet
    "other buckets": (("mpnet",), config_with(relative_attention_num_buckets=64), r"num_buckets is 64"),
    "padding elsewhere": (("mpnet",), config_with(pad_token_id=0), r"pad_token_id is 0; in the mpnet family"),
    "padding of another type": (("mpnet",), config_with(pad_token_id=[1]), r"pad_token_id"),
    "segments": (("mpnet",), config_with(type_vocab_size=2), r"type_vocab_size"),
    "no position": (("mpnet",), config_with(max_position_embeddings=2), r"leaves no position"),
    # BART and T5
    "another decoder": (("bart",), config_with(decoder_layers=3), r"missing \(\d+\):\n.*decoder\.layers\.2"),
    "norms first": (("bart",), config_with(normalize_before=True), r"normalize_before is True"),
    "a last norm": (("bart",), config_with(add_final_layer_norm=True), r"add_final_layer_norm is True"),
    "layers left out": (("bart",), config_with(encoder_layerdrop=0.1), r"encoder_layerdrop is 0\.1"),
    "heads that do not divide": (("bart",), config_with(decoder_attention_heads=3), r"must be a multiple"),
    "another activation": (("bart",), config_with(activation_function="swish"), r"activation_function"),
    "layers twice": (("bart",), config_with(num_hidden_layers=3), r"num_hidden_layers is 3"),
    "another feed-forward": (("t5",), config_with(feed_forward_proj="gated-silu"), r"feed_forward_proj"),
    "a feed-forward of junk": (("t5",), config_with(feed_forward_proj=deep(3)), r"feed_forward_proj|is_gated_act"),
    "a gate that is not there": (("t5",), config_with(is_gated_act=True), r"is_gated_act is True"),
    "no heads at all": (("t5",), config_with(num_heads=0), r"num_heads = 0"),
    "too few buckets": (("t5",), config_with(relative_attention_num_buckets=1), r"num_buckets = 1"),
    "an output that is not there": (("t5",), config_with(tie_word_embeddings=False), r"missing \(1\):\n.*lm_head"),
    "a first token outside": (WRITERS, config_with(decoder_start_token_id=10**6), r"start_token_id=1000000 is outside"),
    "a first token of text": (WRITERS, config_with(decoder_start_token_id="2"), r"decoder_start_token_id = '2'"),
    "tasks of junk": (WRITERS, config_with(task_specific_params=[1]), r"task_specific_params must name settings"),
    "a task of junk": (
        WRITERS, config_with(task_specific_params={"summarization": {"prefix": {}, "num_beams": 2}}),
        r"task_specific_params must name settings",
    ),
    "a task that is not implemented": (
        WRITERS, config_with(task_specific_params={"summarization": {"num_beam_groups": 3}}), r"num_beam_groups is 3"
    ),
    "unknown setting": (WRITERS, generation_with(num_beam=3), r"generation_config\.json: unknown field 'num_beam'"),
    "a setting that is not implemented": (
        WRITERS, generation_with(bad_words_ids=[[3]]), r"generation_config\.json: bad_words_ids is \[\[3\]\]; bertkit"
    ),
    "a setting as text": (WRITERS, generation_with(num_beams="4"), r"generation_config\.json: num_beams = '4'"),
    "a setting of junk": (WRITERS, generation_with(top_k=deep(3)), r"generation_config\.json: top_k = \{"),
    "a setting out of bounds": (WRITERS, generation_with(temperature=-1), r"generation_config\.json: temperature = -1"),
    "settings that contradict": (
        WRITERS, generation_with(min_new_tokens=9, max_new_tokens=3), r"generation_config\.json: at least 9 new tokens"
    ),
    "settings cut off": (WRITERS, lambda f: os.truncate(f / GENERATION, 9), r"generation_config\.json is not a read"),
    "settings a list": (WRITERS, lambda f: (f / GENERATION).write_text("[]"), r"generation_config\.json holds a list"),
    "settings a folder": (
        WRITERS, lambda f: [(f / GENERATION).unlink(), (f / GENERATION).mkdir()], r"generation_config\.json is a folder"
    ),
    "settings a link to nothing": (
        WRITERS, lambda f: [(f / GENERATION).unlink(), (f / GENERATION).symlink_to("gone")],
        r"generation_config\.json is a link to a file that does not exist",
    ),
    "an end outside": (WRITERS, generation_with(forced_eos_token_id=10**6), r"forced_eos_token_id=1000000 is outside"),
}  # fmt: skip


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By family: a small checkpoint with a tokenizer."""
    parent = tmp_path_factory.mktemp("families")
    for family in FAMILIES:
        make(family, parent / family, parent)
        use(parent / family)  # control: before, all goes well
    return {family: parent / family for family in FAMILIES}


def use(folder: Path) -> None:
    """All that a user does with a folder: tokenizer, model, a few tokens, what the config says of a task."""
    ids = torch.tensor([AutoTokenizer.from_pretrained(folder)("the river").input_ids])
    config = read_object(folder / CONFIG, max_bytes=MAX_CONFIG_BYTES)
    if config["model_type"] in [*WRITERS]:
        GenerationSettings.of_task(config, "summarization")
        AutoModelForSeq2SeqLM.from_pretrained(folder).generate(ids, max_new_tokens=2, min_new_tokens=1)
    else:
        AutoModelForMaskedLM.from_pretrained(folder)(ids)


@pytest.mark.parametrize("case", DAMAGE)
def test_what_is_said(case: str, sources: dict[str, Path], tmp_path: Path) -> None:
    families, spoil, said = DAMAGE[case]
    for family in families:
        folder = shutil.copytree(sources[family], tmp_path / family)
        spoil(folder)
        with bounded(f"{family}: {case}"), pytest.raises(BertkitError, match=said) as caught:
            use(folder)
        assert len(str(caught.value)) < 4_000
