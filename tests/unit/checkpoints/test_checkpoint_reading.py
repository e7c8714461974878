"""Values as they come out of the file: mapped or read, checked, and safe from what happens to the file later."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from bertkit import BertConfig, BertForMaskedLM, BertModel, CheckpointError
from bertkit.checkpoints.apply import DTYPES, to_ours
from bertkit.checkpoints.huggingface import find_weights
from bertkit.checkpoints.match import match
from bertkit.checkpoints.names import BERT
from bertkit.checkpoints.read_values import _OwnPages, as_bfloat16, drop_pages, read_values
from bertkit.checkpoints.safetensors_format import first_not_finite
from bertkit.system import untrusted_files

CONFIG = BertConfig(
    vocab_size=40_000, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
    max_position_embeddings=16,
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint whose word embeddings (5 MB) are checked in several blocks."""
    BertModel(CONFIG).save_pretrained(tmp_path)
    return tmp_path


def read(folder: Path, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    weights = find_weights(folder)
    return to_ours(match(weights.tensors, CONFIG, BERT.classes["BertModel"], BERT), weights.tensors, dtype)


def check(state: dict[str, Tensor], folder: Path) -> None:
    """The oracle is the library of the format."""
    file = load_file(folder / "model.safetensors")
    for name in ("embeddings.word_embeddings.weight", "pooler.dense.bias"):
        assert torch.equal(state[name], file[name])
    stacked = [file[f"encoder.layer.1.attention.self.{n}.weight"] for n in ("query", "key", "value")]
    assert torch.equal(state["encoder.layer.1.attention.qkv.weight"], torch.cat(stacked))


def test_values_are_those_of_the_file(folder: Path) -> None:
    check(read(folder), folder)


@pytest.mark.parametrize("of", DTYPES)
@pytest.mark.parametrize("to", DTYPES)
def test_types_are_converted_as_torch_does(of: str, to: str, tmp_path: Path) -> None:
    """Values between two numbers of the narrower type, halfway between them, and below the smallest."""
    exact = torch.cat([torch.randn(5000, generator=torch.Generator().manual_seed(0)) * 3, torch.tensor([0.0, 1e-7])])
    halfway = 1 + torch.arange(64) * 2.0**-9
    values = torch.cat([exact, halfway, -halfway]).to(DTYPES[of])
    state = BertModel(CONFIG).to(DTYPES[of])
    with torch.no_grad():
        state.embeddings.word_embeddings.weight.view(-1)[: len(values)] = values
    state.save_pretrained(tmp_path)
    found = read(tmp_path, DTYPES[to])["embeddings.word_embeddings.weight"].view(-1)[: len(values)]
    assert torch.equal(found, values.to(DTYPES[to]))


def test_nan_stays_nan_as_bfloat16() -> None:
    odd = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001], np.uint32).view(np.float32)
    assert first_not_finite(as_bfloat16(odd[:1]).view(np.uint8), "BF16") == 0
    assert torch.from_numpy(as_bfloat16(odd)).view(torch.bfloat16).isnan().all()


def test_without_maps_all_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(19, "No such device")

    monkeypatch.setattr(mmap, "mmap", refuse)
    check(read(folder), folder)


def test_a_system_without_positioned_reads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has no ``os.preadv``; several threads share one file there all the same."""
    monkeypatch.delattr(os, "preadv")
    for dtype in (torch.float32, torch.float64):  # mapped and checked, and read to be converted
        state = read(folder, dtype)
        check({name: value.float() for name, value in state.items()}, folder)
    weights = find_weights(folder)
    os.truncate(folder / "model.safetensors", 5000)
    with pytest.raises(CheckpointError, match=r"model\.safetensors was cut off while '.*' was being read"):
        to_ours(match(weights.tensors, CONFIG, BERT.classes["BertModel"], BERT), weights.tensors, torch.float64)


def test_reads_are_cut_into_pieces_the_system_takes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS refuses 2 GiB at once."""
    sizes = []
    preadv = os.preadv

    def recorded(handle: int, buffers: list[memoryview], start: int) -> int:
        sizes.append(len(buffers[0]))
        return preadv(handle, buffers, start)

    monkeypatch.setattr(os, "preadv", recorded)
    monkeypatch.setattr(untrusted_files, "_MAX_READ_BYTES", 1000)
    check(read(folder), folder)
    assert max(sizes) == 1000


def test_a_file_whose_values_are_not_aligned(folder: Path) -> None:
    """The format allows a header of any length; a map needs whole multiples of the value's size."""
    file = folder / "model.safetensors"
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + length].rstrip() + b" "
    header += b" " * ((3 - len(header)) % 4)
    file.write_bytes(len(header).to_bytes(8, "little") + header + content[8 + length :])
    check(read(folder), folder)


def test_replacing_the_file_leaves_the_model_alone(folder: Path) -> None:
    model = BertModel.from_pretrained(folder)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    BertModel(CONFIG).save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_changing_the_model_leaves_the_file_alone(folder: Path) -> None:
    before = (folder / "model.safetensors").read_bytes()
    model = BertModel.from_pretrained(folder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    assert (folder / "model.safetensors").read_bytes() == before
    model.save_pretrained(folder)  # over the very file it was loaded from
    again = BertModel.from_pretrained(folder)
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in model.state_dict().items())


def test_a_file_cut_off_after_its_header_was_read(folder: Path) -> None:
    weights = find_weights(folder)
    table = match(weights.tensors, CONFIG, BERT.classes["BertModel"], BERT)
    os.truncate(folder / "model.safetensors", (folder / "model.safetensors").stat().st_size // 2)
    with pytest.raises(CheckpointError, match="was cut off while"):
        to_ours(table, weights.tensors, torch.float32)


@pytest.mark.parametrize("row", [0, 20_000, 39_999])
@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
def test_the_place_of_a_bad_value_is_named(row: int, kind: torch.dtype, folder: Path) -> None:
    model = BertModel(CONFIG).to(kind)
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[row, 7] = float("inf")
    model.save_pretrained(folder)
    for wanted in (torch.float32, torch.float16):
        with pytest.raises(
            CheckpointError, match=rf"'embeddings\.word_embeddings\.weight'.*first at \[{row}, 7\] is inf"
        ):
            read(folder, wanted)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "every"),
    [
        ("F16", 97),
        pytest.param("F16", 1, marks=pytest.mark.campaign),
        pytest.param("BF16", 1, marks=pytest.mark.campaign),
        ("F32", 1),
        ("F64", 1),
    ],
)
def test_finite_against_torch(dtype: str, every: int) -> None:
    """All 65,536 half-precision values or one in so many, and the edges of the others, one by one."""
    kind = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}[dtype]
    if dtype in ("F16", "BF16"):
        values = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(kind)
    else:
        edge = torch.finfo(kind)
        values = torch.tensor([0.0, -0.0, 1, edge.max, edge.min, edge.tiny, edge.smallest_normal / 2], dtype=kind)
        values = torch.cat([values, torch.tensor([float("inf"), -float("inf"), float("nan")], dtype=kind)])
    for value in values[::every]:
        found = first_not_finite(value.view(1).view(torch.uint8).numpy(), dtype)
        assert (found is None) == bool(torch.isfinite(value)), value
    whole = values.view(torch.uint8).numpy()
    assert first_not_finite(whole, dtype) == int((~torch.isfinite(values)).nonzero()[0])


def test_large_but_finite_sums() -> None:
    values = np.full(100, 3e38, dtype=np.float32)
    assert first_not_finite(values.view(np.uint8), "F32") is None
    values[60] = np.nan
    assert first_not_finite(values.view(np.uint8), "F32") == 60
    assert first_not_finite(np.ones(8, np.uint8), "I64") is None
    assert first_not_finite(np.ones(0, np.uint8), "BF16") is None


def test_a_masked_lm_with_a_copy_in_half_precision(tmp_path: Path) -> None:
    model = BertForMaskedLM(CONFIG.replace(vocab_size=30)).half()
    model.save_pretrained(tmp_path)
    assert BertForMaskedLM.from_pretrained(tmp_path, dtype="float16").dtype == torch.float16


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell what is in memory")
def test_pages_are_given_back_and_read_again(folder: Path) -> None:
    def mapped() -> int:
        return int(Path("/proc/self/status").read_text().split("RssFile:")[1].split()[0])  # kB

    weights = find_weights(folder)
    values = read_values(match(weights.tensors, CONFIG, BERT.classes["BertModel"], BERT), weights.tensors)
    words = values["embeddings.word_embeddings.weight"]
    before = words.copy()
    there = mapped()
    drop_pages(words)
    assert there - mapped() > 4000  # of 5,000
    np.testing.assert_array_equal(words, before)
    drop_pages(before)  # which is not mapped
    drop_pages(before[1:, 1:])


def test_arrays_of_one_block_are_apart() -> None:
    pages, dtype = _OwnPages(), np.dtype(np.float32)
    shapes = [(600, 700), (3,), (1000, 5000), (600, 701)]  # the third has a block of its own
    arrays = [pages.array(shape, dtype) for shape in shapes]
    for number, array in enumerate(arrays):
        array[...] = number + 1
    drop_pages(arrays[0])
    assert [(array.shape, float(array.min()), float(array.max())) for array in arrays[1:]] == [
        (shape, number, number) for number, shape in enumerate(shapes[1:], 2)
    ]
