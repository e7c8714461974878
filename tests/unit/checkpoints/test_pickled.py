"""Pickles: tensors come out bit for bit through another process, and nothing else ever runs."""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from bertkit import BertConfig, BertForMaskedLM, BertForPreTraining
from bertkit.checkpoints import pickled
from bertkit.checkpoints.huggingface import PICKLE_SUFFIXES, find_weights
from bertkit.checkpoints.pickled import find_pickles, unpickle
from bertkit.errors import CheckpointError, ResourceError
from bertkit.model.convert import convert

CONFIG = BertConfig(
    vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
    max_position_embeddings=16,
)  # fmt: skip


class Bomb:
    """Would make a folder if anybody unpickled it without care."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


def state(folder: Path) -> dict[str, torch.Tensor]:
    """A state dict as older software saved it: old endings, buffers, copies of tied tensors, shared memory."""
    model = BertForPreTraining(CONFIG)
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    old = {".LayerNorm.weight": ".LayerNorm.gamma", ".LayerNorm.bias": ".LayerNorm.beta"}
    for new, ending in old.items():
        tensors = {name.replace(new, ending): value for name, value in tensors.items()}
    tensors["bert.embeddings.position_ids"] = torch.arange(16)[None]
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"]
    return OrderedDict(tensors)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m").mkdir()
    torch.save(state(tmp_path / "m"), tmp_path / "m" / "pytorch_model.bin")
    (tmp_path / "m" / "vocab.txt").write_text("".join(f"word{number}\n" for number in range(30)))
    return tmp_path / "m"


@pytest.mark.slow
def test_a_pickle_is_converted_only_when_trusted(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"is a pickle.*--trust-pickle"):
        convert(folder, tmp_path / "new")
    done = convert(folder, tmp_path / "new", trust_pickle=True)
    assert done.dropped == {"buffers": 1, "copies of tied tensors": 1}
    assert any(line.startswith("outputs of BertForPreTraining") for line in done.compared)
    wanted = torch.load(folder / "pytorch_model.bin", weights_only=True)
    written = load_file(tmp_path / "new" / "model.safetensors")
    today = {name.replace("gamma", "weight").replace("beta", "bias"): value for name, value in wanted.items()}
    assert written.keys() == today.keys() - {"bert.embeddings.position_ids", "cls.predictions.decoder.weight"}
    assert all(torch.equal(value, today[name]) for name, value in written.items())
    assert (tmp_path / "new" / "vocab.txt").read_bytes() == (folder / "vocab.txt").read_bytes()
    assert BertForMaskedLM.from_pretrained(tmp_path / "new").load_report.unused
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "new"]


@pytest.mark.parametrize("suffix", PICKLE_SUFFIXES)
def test_what_a_message_advises_to_convert_is_converted(suffix: str, folder: Path, tmp_path: Path) -> None:
    file = (folder / "pytorch_model.bin").rename(folder / f"other{suffix}")
    with pytest.raises(CheckpointError, match=r"is a pickle.*\n  bertkit convert --trust-pickle"):
        find_weights(file)
    assert find_pickles(file) == (file,)


@pytest.mark.slow
def test_code_in_a_pickle_does_not_run(folder: Path, tmp_path: Path) -> None:
    bomb = Bomb(tmp_path / "ran")
    torch.save({"a": torch.ones(2), "b": bomb}, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"it wants to use '(posix|nt)\.mkdir', which bertkit does not run"):
        convert(folder, tmp_path / "new", trust_pickle=True)
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "new").exists()
    pickle.loads(pickle.dumps(bomb))
    assert (tmp_path / "ran").exists()  # control: opened without care, it runs


BAD: dict[str, tuple[Any, str]] = {
    "nothing": (b"", "cannot be read as a pickle of tensors: EOFError"),
    "rubbish": (b"\x93rubbish" * 100, "cannot be read as a pickle of tensors"),
    "a list": ([torch.ones(2)], "ValueError: it contains a list, expected tensors by name"),
    "a number beside tensors": ({"a": torch.ones(2), "b": 1}, "it contains more than tensors: 'b'"),
    "sparse": ({"a": torch.ones(2).to_sparse()}, "sparse"),
    "protocol 4": (pickle.dumps({"a": 1}, 4), "cannot be read as a pickle of tensors: "),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_pickle_of_tensors(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the other process says; here, for want of time, without another process and so without its bounds."""
    monkeypatch.setattr(pickled, "_bound", lambda size: None)
    file, (content, said) = tmp_path / "pytorch_model.bin", BAD[case]
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        torch.save(content, file)
    assert pickled._main(str(file), str(tmp_path / "out")) == 0
    answer = json.loads(capsys.readouterr().out)["error"]
    assert said in answer
    assert "weights_only" not in answer  # torch's advice to switch its care off is not passed on
    assert not (tmp_path / "out").exists()


def test_a_process_that_dies_is_told(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ResourceError, match="ended early: exit code 1"):
        unpickle((folder / "pytorch_model.bin",), tmp_path)


@pytest.mark.campaign
@pytest.mark.slow
def test_shards_nested_and_spread_over_gpus(folder: Path, tmp_path: Path) -> None:
    tensors = torch.load(folder / "pytorch_model.bin", weights_only=True)
    names = sorted(name for name in tensors if "decoder" not in name)
    weight_map = {name: f"pytorch_model-0000{1 + number % 2}-of-00002.bin" for number, name in enumerate(names)}
    for shard in set(weight_map.values()):
        part = {f"module.{name}": tensors[name] for name in names if weight_map[name] == shard}
        torch.save({"state_dict": part, "epoch": 3}, folder / shard)
    (folder / "pytorch_model.bin").unlink()
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    done = convert(folder, tmp_path / "new", trust_pickle=True)
    assert done.num_tensors == len(names) - 1
    written = load_file(tmp_path / "new" / "model.safetensors")
    assert torch.equal(written["bert.pooler.dense.weight"], tensors["bert.pooler.dense.weight"])


@pytest.mark.parametrize("name", ["../x.bin", "/x.bin", "x.safetensors", "a\\b.bin", "gone.bin"])
def test_an_index_names_only_files_beside_it(name: str, folder: Path) -> None:
    (folder / "pytorch_model.bin").unlink()
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(CheckpointError, match=r"only the bare name|which does not exist"):
        find_pickles(folder)
