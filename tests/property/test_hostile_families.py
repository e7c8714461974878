"""Thousands of damaged and hostile files of ModernBERT, DeBERTa, MPNet, BART and T5; see :mod:`test_hostile_files`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertkit import AutoTokenizer
from bertkit.checkpoints.huggingface import find_weights
from bertkit.checkpoints.inspect import inspect
from bertkit.config.any_config import read_any_config
from bertkit.config.config_file import CONFIG
from bertkit.config.generation_settings import GENERATION
from family_folders import FAMILIES, WRITERS, load_model, make
from hostile_helpers import BYTES, FEW, HEADER, JSON, MANY, TEXT, Kind, attack, sharded, without

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By family: a small checkpoint with a tokenizer."""
    parent = tmp_path_factory.mktemp("families")
    for family in FAMILIES:
        make(family, parent / family, parent)
    return {family: parent / family for family in FAMILIES}


def look(folder: Path) -> object:
    """What ``bertkit inspect`` does, and loading before it builds a model."""
    inspect(folder, hash_files=False)
    read_any_config(folder / CONFIG)
    return find_weights(folder).tensors


def load_tokenizer(folder: Path) -> object:
    loaded = AutoTokenizer.from_pretrained(folder)
    found = [loaded(text, return_offsets_mapping=True) for text in ("the river ran fast", "The <mask>  [MASK]")]
    return [{key: list(values) for key, values in one.items()} for one in found], loaded.get_vocab()


def kinds() -> dict[str, Kind]:
    """Every file of every family."""
    originals = {
        "modernbert": (), "deberta-v2": ("spm.model",), "mpnet": ("vocab.txt",), "bart": ("vocab.json", "merges.txt"),
        "t5": ("spiece.model",),
    }  # fmt: skip
    mutations = {"spm.model": BYTES, "spiece.model": BYTES, "vocab.json": JSON}
    found = {}
    for family in FAMILIES:
        rest = [name for name in originals[family]]
        found |= {
            f"{family}: weights": Kind(family, WEIGHTS, without(), (*TEXT, *HEADER), load_model),
            f"{family}: index": Kind(family, INDEX, sharded, JSON, look),
            f"{family}: config": Kind(family, CONFIG, without(), JSON, load_model),
            f"{family}: tokenizer.json": Kind(family, "tokenizer.json", without(*rest), JSON, load_tokenizer),
            f"{family}: tokenizer_config": Kind(family, "tokenizer_config.json", without(), JSON, load_tokenizer),
        }
        for name in rest:
            change = without("tokenizer.json")
            found[f"{family}: {name}"] = Kind(family, name, change, mutations.get(name, TEXT), load_tokenizer)
        if family in WRITERS:
            found[f"{family}: generation"] = Kind(family, GENERATION, without(), JSON, load_model)
    return found


KINDS = kinds()
#: Lists of words: another word is another vocabulary, not a fault.
WORDS = ("vocab.txt", "merges.txt")
#: The files with most of a family's own code behind them are tried in every run.
USUAL = ("modernbert: config", "deberta-v2: config", "t5: generation")


@pytest.mark.parametrize("kind", USUAL)
def test_some_hostile_files(kind: str, sources: dict[str, Path], tmp_path: Path) -> None:
    assert attack(KINDS[kind], sources, tmp_path, FEW, seed=1) >= FEW // 4


@pytest.mark.campaign
@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_hostile_files(kind: str, sources: dict[str, Path], tmp_path: Path) -> None:
    """32 kinds x 500: 16,000 files."""
    refused = attack(KINDS[kind], sources, tmp_path, MANY, seed=2)
    print(f"{kind}: {refused} of {MANY} refused")
    assert refused >= (0 if kind.endswith(WORDS) else MANY // 4)
