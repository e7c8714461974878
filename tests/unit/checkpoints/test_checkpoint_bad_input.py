"""Folders that are damaged, hostile or of another kind: our own error, quickly, and no memory taken."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertkit import AutoModel, AutoModelForMaskedLM, BertConfig, BertForPreTraining, BertModel
from bertkit.errors import CheckpointError
from forked_interpreter import run_forked
from hostile_helpers import bounded

CONFIG = BertConfig(
    vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
    max_position_embeddings=16,
)  # fmt: skip
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    BertForPreTraining(CONFIG).save_pretrained(tmp_path / "m")
    (tmp_path / "m" / "vocab.txt").write_text("".join(f"word{number}\n" for number in range(30)))
    return tmp_path / "m"


def shard(folder: Path) -> dict[str, str]:
    """Turn the checkpoint into two shards with an index; returns the weight_map."""
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    names = sorted(tensors)
    weight_map = {name: f"part-{number % 2}.safetensors" for number, name in enumerate(names)}
    for part in set(weight_map.values()):
        save_file({name: tensors[name] for name in names if weight_map[name] == part}, folder / part)
    write_index(folder, weight_map)
    return weight_map


def write_index(folder: Path, weight_map: Any) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def config_with(**changes: Any) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        values = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**values, **changes}))

    return change


def weights_with(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        change(tensors)
        save_file(tensors, folder / WEIGHTS)

    return edit


def poison(name: str, value: float) -> Callable[[Path], object]:
    return weights_with(lambda tensors: tensors[name].view(-1)[3:4].fill_(value))


def shards_with(change: Callable[[Path, dict[str, str]], object]) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        weight_map = shard(folder)
        change(folder, weight_map)

    return edit


def first_shard_is(name: str) -> Callable[[Path], object]:
    """The index sends the first tensor to ``name``."""

    def change(folder: Path, weight_map: dict[str, str]) -> None:
        outside = folder.parent / "outside.safetensors"
        save_file({sorted(weight_map)[0]: torch.ones(8)}, outside)
        (folder / "link.safetensors").symlink_to(outside)
        write_index(folder, {**weight_map, sorted(weight_map)[0]: name.replace("OUTSIDE", str(outside))})

    return shards_with(change)


def replace(name: str, content: str | None) -> Callable[[Path], object]:
    """A file instead of what is there; None makes a folder of that name."""

    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_text(content)

    return change


def tokenizer_json(content: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        (folder / "vocab.txt").unlink()
        (folder / "tokenizer.json").write_text(content)

    return change


def only_pickle(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))


class Bomb:
    """Would make a file if anybody unpickled it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("/tmp/bertkit-unpickled-a-file",)


def wrong_shard(folder: Path, weight_map: dict[str, str]) -> None:
    name = sorted(weight_map)[0]
    other = {"part-0.safetensors": "part-1.safetensors", "part-1.safetensors": "part-0.safetensors"}
    write_index(folder, {**weight_map, name: other[weight_map[name]]})


CASES: dict[str, tuple[Callable[[Path], object], str]] = {
    # the list of the requirements
    "pickle": (only_pickle, r"pytorch_model\.bin is a pickle.*can run any code.*convert --trust-pickle"),
    "pickles": (
        lambda f: (f / WEIGHTS).rename(f / "pytorch_model.bin.index.json"),
        r"bin\.index\.json names pickles.*can run any code.*convert --trust-pickle",
    ),
    "truncated": (lambda f: os.truncate(f / WEIGHTS, 5000), r"model\.safetensors is not a whole .* cut off"),
    "corrupt": (lambda f: (f / WEIGHTS).write_bytes(os.urandom(5000)), r"model\.safetensors is not a whole"),
    "NaN": (
        poison("bert.pooler.dense.weight", float("nan")),
        r"'bert\.pooler\.dense\.weight' has values that are not finite in .*32 \(the first at \[0, 3\] is nan\)",
    ),
    "infinite": (
        poison("bert.pooler.dense.bias", float("-inf")),
        r"'bert\.pooler\.dense\.bias' has values .* at \[3\] is -inf",
    ),
    "NaN in one of three": (
        poison("bert.encoder.layer.1.attention.self.key.weight", float("nan")),
        r"layer\.1\.attention\.self\.key\.weight' has values",
    ),
    "wrong shape": (
        weights_with(lambda t: t.update({"bert.pooler.dense.weight": torch.ones(8, 9)})),
        r"bert\.pooler\.dense\.weight  the file has \[8, 9\], the config asks for \[8, 8\]",
    ),
    "missing layer": (
        weights_with(lambda t: [t.pop(n) for n in list(t) if ".layer.0." in n]),
        r"missing \(16\).*file has 1 layer",
    ),
    "vocabulary": (lambda f: (f / "vocab.txt").write_text("x\n" * 31), r"vocab\.txt has 31 tokens.* only 30 rows"),
    "weight_map ../": (first_shard_is("../outside.safetensors"), r"names the file '\.\./outside\.safetensors'"),
    "weight_map absolute": (first_shard_is("OUTSIDE"), r"only the bare name"),
    "weight_map link": (first_shard_is("link.safetensors"), r"link\.safetensors, a link out of the folder"),
    "model_type": (config_with(model_type="gpt2"), r"model_type is 'gpt2'; this version of bertkit reads bert"),
    "absurd size": (config_with(hidden_size=10**9), r"hidden_size"),
    # config.json
    "no config": (lambda f: (f / "config.json").unlink(), r"config\.json does not exist"),
    "config a folder": (replace("config.json", None), r"config\.json"),
    "config not JSON": (replace("config.json", "{"), r"config\.json is not a readable JSON"),
    "config not UTF-8": (
        lambda f: (f / "config.json").write_bytes(b"\xff\xfe"),
        r"config\.json is not a readable JSON",
    ),
    "config nested too deep": (replace("config.json", "[" * 200_000), r"config\.json is not a readable"),
    "config a list": (replace("config.json", "[]"), r"config\.json holds a list"),
    "unknown field": (config_with(hiden_size=8), r"unknown field 'hiden_size' \(did you mean 'hidden_size'"),
    "sizes within bounds that the file has not": (
        config_with(hidden_size=65_536, vocab_size=4_000_000, num_hidden_layers=512, intermediate_size=262_144),
        r"missing \(8160\).*mis-shaped.*num_hidden_layers=512, but the file has 2 layers",
    ),
    "heads that do not divide": (config_with(num_attention_heads=3), r"multiple of num_attention_heads"),
    "another position embedding": (config_with(position_embedding_type="relative_key"), r"position_embedding_type"),
    # the weights file
    "empty file": (lambda f: (f / WEIGHTS).write_bytes(b""), r"it has 0 bytes"),
    "a folder": (replace(WEIGHTS, None), r"model\.safetensors is a folder"),
    "a dead link": (
        lambda f: [(f / WEIGHTS).unlink(), (f / WEIGHTS).symlink_to("gone")],
        r"model\.safetensors is a link to a file that does not exist",
    ),
    "nothing": (lambda f: (f / WEIGHTS).unlink(), r"has neither model\.safetensors nor .*; it contains 'config\.json'"),
    "another name": (lambda f: (f / WEIGHTS).rename(f / "x.safetensors"), r"but 'x\.safetensors': give the path"),
    "TensorFlow": (
        lambda f: (f / WEIGHTS).rename(f / "bert_model.ckpt.index"),
        r"has a TensorFlow checkpoint.*bertkit convert",
    ),
    "Keras": (
        lambda f: (f / WEIGHTS).rename(f / "tf_model.h5"),
        r"Keras or Flax \('tf_model\.h5'\).*does not read.*save_pre",
    ),
    "Flax": (lambda f: (f / WEIGHTS).rename(f / "flax_model.msgpack"), r"Keras or Flax \('flax_model\.msgpack'\)"),
    "integers": (
        weights_with(lambda t: t.update({"bert.pooler.dense.bias": torch.ones(8, dtype=torch.int64)})),
        r"of a wrong type \(1\):\n    bert\.pooler\.dense\.bias  the file has I64",
    ),
    "truth values": (
        weights_with(lambda t: t.update({"cls.predictions.bias": torch.ones(30).bool()})),
        r"the file has BOOL",
    ),
    # shards
    "index not JSON": (shards_with(lambda f, m: replace(INDEX, "{")(f)), r"index\.json is not a readable JSON"),
    "index nested too deep": (shards_with(lambda f, m: replace(INDEX, "[" * 10**5)(f)), r"nested too deep"),
    "index without map": (shards_with(lambda f, m: replace(INDEX, "{}")(f)), r"has no weight_map"),
    "index with an empty map": (shards_with(lambda f, m: write_index(f, {})), r"has no weight_map"),
    "map of numbers": (shards_with(lambda f, m: write_index(f, {"a": 1})), r"gives '1' as the file of 'a'"),
    "map to a pickle": (shards_with(lambda f, m: write_index(f, {"a": "x.bin"})), r"names the file 'x\.bin'"),
    "map with a NUL": (shards_with(lambda f, m: write_index(f, {"a": "x\0.safetensors"})), r"only the bare name"),
    "map with a backslash": (
        shards_with(lambda f, m: write_index(f, {"a": "..\\x.safetensors"})),
        r"only the bare name",
    ),
    "map of 2000 files": (
        shards_with(lambda f, m: write_index(f, {str(n): f"{n}.safetensors" for n in range(2000)})),
        r"names 2,000 files",
    ),
    "missing shard": (
        shards_with(lambda f, m: (f / "part-1.safetensors").unlink()),
        r"names part-1\.safetensors, which does not exist",
    ),
    "wrong shard": (
        shards_with(wrong_shard),
        r"lists 'bert\.embeddings.*' in part-1\.safetensors, which does not contain it",
    ),
    "tensor not in the map": (
        shards_with(lambda f, m: write_index(f, {n: p for n, p in m.items() if "pooler" not in n})),
        r"contains 'bert\.pooler\.dense.*which model\.safetensors\.index\.json does not list",
    ),
    "cut shard": (
        shards_with(lambda f, m: os.truncate(f / "part-1.safetensors", 4000)),
        r"part-1\.safetensors is not a whole",
    ),
    # the tokenizer beside it
    "vocabulary as JSON": (tokenizer_json('{"model": {"vocab": {"a": 30}}}'), r"tokenizer\.json has 31 tokens"),
    "added tokens": (
        tokenizer_json('{"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 40}]}'),
        r"tokenizer\.json has 41 tokens",
    ),
    "tokenizer without words": (tokenizer_json('{"model": 1}'), r"has no vocabulary"),
    "vocabulary a folder": (replace("vocab.txt", None), r"vocab\.txt is a folder"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_bad_input(case: str, folder: Path) -> None:
    assert BertForPreTraining.from_pretrained(folder)  # control: before, it loads
    spoil, said = CASES[case]
    spoil(folder)
    with bounded(case), pytest.raises(CheckpointError, match=f"(?s){said}") as caught:
        BertForPreTraining.from_pretrained(folder)
    assert str(folder) in str(caught.value)
    assert len(str(caught.value)) < 6000
    for choose in (AutoModel, AutoModelForMaskedLM):
        if case not in ("truth values", "NaN", "infinite", "integers", "wrong shape"):  # the head or pooler only
            with pytest.raises(CheckpointError):
                choose.from_pretrained(folder)
    assert not Path("/tmp/bertkit-unpickled-a-file").exists()


def test_a_repository_without_safetensors(tmp_path: Path) -> None:
    """As the Hub cache keeps one, of which only the config was fetched."""
    snapshot = tmp_path / "models--tester--tiny-bert" / "snapshots" / "0123456789abcdef"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    with pytest.raises(
        CheckpointError, match=r"contains 'config\.json'\. (?s:.*)convert --trust-pickle tester/tiny-bert NEW_FOLDER"
    ):
        BertModel.from_pretrained(snapshot)


@pytest.mark.parametrize("name", ["m.bin", "m.pt", "m.ckpt"])
def test_a_pickle_given_by_name(name: str, folder: Path) -> None:
    (folder / name).write_bytes(b"")
    with pytest.raises(CheckpointError, match="is a pickle"):
        BertModel.from_pretrained(folder / name)


def test_some_other_file(folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"vocab\.txt is not a model"):
        BertModel.from_pretrained(folder / "vocab.txt")


def test_a_vocabulary_of_just_the_right_size_loads(folder: Path) -> None:
    (folder / "vocab.txt").write_text("\n".join("abcdefghijklmnopqrstuvwxyz1234"))  # 30, no end of the last line
    assert BertModel.from_pretrained(folder)
    (folder / "vocab.txt").write_text("x\n")
    assert BertModel.from_pretrained(folder)


def test_links_inside_the_folder_and_in_the_hub_cache_are_fine(folder: Path) -> None:
    shard(folder)
    (folder / "part-0.safetensors").rename(folder / "real.safetensors")
    (folder / "part-0.safetensors").symlink_to("real.safetensors")
    assert BertForPreTraining.from_pretrained(folder)
    cache = folder.parent / "models--a--b"
    (cache / "snapshots" / "abc").mkdir(parents=True)
    (cache / "blobs").mkdir()
    for number, file in enumerate(folder.glob("*")):
        (cache / "blobs" / str(number)).write_bytes(file.read_bytes())
        (cache / "snapshots" / "abc" / file.name).symlink_to(f"../../blobs/{number}")
    assert BertForPreTraining.from_pretrained(cache / "snapshots" / "abc")


def test_too_large_for_half_precision(folder: Path) -> None:
    poison("bert.pooler.dense.weight", 1e6)(folder)
    assert BertForPreTraining.from_pretrained(folder)
    with pytest.raises(CheckpointError, match=r"not finite in float16"):
        BertForPreTraining.from_pretrained(folder, dtype=torch.float16)


def test_values_whose_sum_overflows_are_finite(folder: Path) -> None:
    weights_with(lambda t: t["bert.pooler.dense.weight"].fill_(3e38))(folder)
    assert BertForPreTraining.from_pretrained(folder)


LIMITED = """
import resource, sys
import bertkit
from bertkit.model import loading as pretrained
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (192 << 20), -1))
try:
    bertkit.BertModel.from_pretrained(sys.argv[1])
except bertkit.CheckpointError as error:
    print("refused")
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    "sizes",
    [
        {"hidden_size": 65_536, "num_hidden_layers": 512, "intermediate_size": 262_144, "vocab_size": 4_000_000},
        {"max_position_embeddings": 1_000_000},
        {"vocab_size": 10**12},
    ],
    ids=str,
)
def test_absurd_sizes_take_no_memory(sizes: dict[str, int], folder: Path) -> None:
    """In a process that may take only 192 MiB more than the imports took."""
    config_with(**sizes)(folder)
    ran = run_forked(LIMITED, str(folder))
    assert ran.stdout.strip() == "refused", ran.stderr


@pytest.mark.slow
def test_a_header_that_claims_the_world_takes_no_memory(folder: Path) -> None:
    """Shapes and file agree (it is sparse), only the config does not: 1 TiB must not be allocated."""
    header = json.dumps(
        {"embeddings.word_embeddings.weight": {"dtype": "F32", "shape": [1 << 28, 1024], "data_offsets": [0, 1 << 40]}}
    ).encode()
    with (folder / WEIGHTS).open("wb") as stream:
        stream.write(len(header).to_bytes(8, "little") + header)
        stream.truncate(8 + len(header) + (1 << 40))
    ran = run_forked(LIMITED, str(folder))
    assert ran.stdout.strip() == "refused", ran.stderr
