"""What a folder says of a model in 8 bits: read back, refused when it was edited, and where the model is slow."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from bertkit.checkpoints.inspect_int8 import Int8Report
from bertkit.checkpoints.int8_figures import DevScores, Measured, Speed
from bertkit.checkpoints.int8_folder import Bits, Quantization, best_bits, read_quantization, slow_here
from bertkit.errors import CheckpointError

Edit = Callable[[dict[str, Any]], object]


def facts(bits: Bits = 8) -> Quantization:
    scores = DevScores("accuracy", 0.91, 0.908, -0.004, 0.001, rows=2000)
    measured = Measured({"cosine_mean": 0.9998}, Speed(2.0, 1.0, 3.0, 1.0, "4 x Zen"), scores)
    return Quantization(1, "0.1", "BertModel", bits, 8, 0.5, [], 400, 0.01, measured)


def write(folder: Path, edit: Edit = lambda values: None) -> Path:
    values = asdict(facts())
    edit(values)
    (folder / "quantization.json").write_text(json.dumps(values), encoding="utf-8")
    (folder / "model.int8.safetensors").touch()
    return folder


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_quantization(write(tmp_path)) == facts()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda v: v["measured"]["closeness"].update(cosine_mean="good"), "closeness.cosine_mean = 'good'"),
        (lambda v: v["measured"]["dev"].pop("metric"), "dev.metric"),
        (lambda v: v["measured"]["speed"].update(one_quantized=0), "speed.one_quantized = 0"),
        (lambda v: v.update(measured=[]), "measured"),
        (lambda v: v.update(bits=-3), "bits = -3: input should be 8 or 7"),
        (lambda v: v.update(apart=-1), "apart = -1"),
        (lambda v: v.update(unknown=7), "unknown = 7"),
    ],
)
def test_edited_facts_are_refused(tmp_path: Path, edit: Edit, message: str) -> None:
    with pytest.raises(CheckpointError, match=rf"quantization.json is damaged: .*{message}"):
        read_quantization(write(tmp_path, edit))


def test_inspect_shows_all_figures() -> None:
    shown = Int8Report("folder", {}, ("a",), (), 10, 1000, facts()).render()
    assert "cosine mean 0.99980" in shown
    assert "2.00 times as fast for one text (1000.00 ms), 3.00 times for many, on 4 x Zen" in shown
    assert "accuracy 0.9080, original 0.9100" in shown


@dataclass
class Library:
    lanes: int
    fast_bytes: bool


@pytest.mark.parametrize(
    ("library", "bits", "message"),
    [
        (Library(16, True), 8, None),
        (Library(16, True), 7, None),
        (Library(8, False), 7, None),
        (Library(8, False), 8, "quantize the original model again with --bits 7, or use the original model"),
        (Library(4, False), 8, "on this processor: use the original model"),
        (Library(4, False), 7, "on this processor: use the original model"),
        (None, 8, "install a C compiler"),
    ],
)
def test_where_it_is_slow(library: Library | None, bits: Bits, message: str | None) -> None:
    found = slow_here(facts(bits), library)
    assert found is None if message is None else message in (found or "")


def test_the_bits_that_suit_a_processor() -> None:
    given = (None, Library(16, True), Library(8, False), Library(4, False))
    assert [best_bits(library) for library in given] == [8, 8, 7, 8]
