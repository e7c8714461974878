"""A GPU has the next pack before the one before is read, and nothing in a pack makes the host wait for it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bertkit import BertConfig, BertModel
from bertkit.engine import torch_backend
from bertkit.engine.backend import Pack, Values, Wanted
from bertkit.engine.inference_engine import InferenceEngine, vectors_of
from bertkit.engine.rows import WindowSize, stream
from bertkit.engine.torch_backend import TorchBackend
from bertkit.errors import CheckpointError
from bertkit.model.kernels import varlen_attention
from bertkit.model.models import BertForSequenceClassification
from bertkit.ragged import Floats, Ragged
from no_wait import NoNewTensor, NoWait, WaitError

SHAPE = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
VECTORS = Wanted(("last_hidden_state",), ("mean",))


class Late(Mapping[str, Floats]):
    """Values that note when they are read."""

    def __init__(self, value: Floats, name: str, told: list[str]) -> None:
        self.value, self.name, self.told = value, name, told

    def __getitem__(self, name: str) -> Floats:
        self.told.append(f"read {self.name}")
        return self.value

    def __iter__(self) -> Iterator[str]:
        return iter(["last_hidden_state"])

    def __len__(self) -> int:
        return 1


class Ahead:
    """A back-end that says of each pack the sum of its ids, later."""

    max_tokens, dtype, model_class, place = 4, "float32", "BertModel", "cuda:0"

    def __init__(self, packs_ahead: int) -> None:
        self.packs_ahead, self.told = packs_ahead, list[str]()

    def compute(self, pack: Pack, wanted: Wanted) -> Values:
        name = str(sum(f.startswith("begin") for f in self.told))
        self.told.append(f"begin {name}")
        value = np.array([[ids.sum()] for ids in pack.split(pack.ids)], np.float32)
        return Late(np.where(value == 99, np.nan, value), name, self.told)

    def num_threads(self, lengths: Any) -> int:
        return 1

    def in_thread(self, alone: bool) -> nullcontext[None]:
        return nullcontext()


def rows_of(*ids: int) -> Ragged:
    found = np.array(ids, np.int32)
    count = len(ids)
    return Ragged(found, np.arange(count + 1), np.zeros(count, np.int8), np.ones(count, np.int64))


@pytest.mark.parametrize("packs_ahead", [0, 1, 2])
def test_so_many_packs_are_begun_before_one_is_read(packs_ahead: int) -> None:
    backend = Ahead(packs_ahead)
    advanced: list[int] = []
    found = InferenceEngine(backend).matrix(rows_of(*range(1, 13)), VECTORS, vectors_of, advanced.append)
    assert found[:, 0].tolist() == list(range(1, 13))
    assert sum(advanced) == 12
    order = list(dict.fromkeys(backend.told))
    for number in range(3):
        begun_before = sum(each.startswith("begin") for each in order[: order.index(f"read {number}")])
        assert begun_before == min(3, number + packs_ahead + 1)


def test_the_last_packs_are_checked_too() -> None:
    with pytest.raises(CheckpointError, match="not finite"):
        InferenceEngine(Ahead(1)).matrix(rows_of(1, 2, 3, 4, 5, 99), VECTORS, vectors_of)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (BertModel, VECTORS),
        (BertModel, Wanted(("last_hidden_state",), ("cls",))),
        (BertModel, Wanted(("last_hidden_state",), ("max", "weightedmean"), 1)),
        (BertModel, Wanted(("last_hidden_state",))),
        (BertForSequenceClassification, Wanted(("logits",))),
    ],
)
def test_nothing_waits_in_a_pack(kind: Any, wanted: Wanted, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a pretended GPU, up to the copy of what was wanted."""
    monkeypatch.setattr(varlen_attention, "varlen_capability", lambda device: {"meta": (9, 0)}.get(device.type))
    seen: list[Tensor] = []
    outputs = torch_backend._outputs

    def watched(*args: Any) -> Mapping[str, Tensor]:
        found = outputs(*args)
        seen.extend(found.values())
        return {name: torch.zeros(x.shape) for name, x in found.items()}  # nothing can be read of the real ones

    monkeypatch.setattr(torch_backend, "_outputs", watched)
    monkeypatch.setattr(TorchBackend, "_autocast", lambda backend: nullcontext())  # which knows no such device
    backend = TorchBackend.of(kind(BertConfig(**SHAPE)).to(torch.bfloat16).to("meta"))
    ids = np.arange(1, 30)
    with NoWait(), NoNewTensor():
        backend.compute(Pack(ids, np.zeros_like(ids), (5, 4, 20)), wanted)
    assert {x.device.type for x in seen} == {"meta"}


def test_what_waits_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: places of a word that the GPU has to tell."""
    ids = torch.zeros(5, dtype=torch.int64, device="meta")
    with pytest.raises(WaitError), NoWait():
        (ids == 3).nonzero()


def test_texts_are_encoded_one_window_ahead_and_answered_in_order() -> None:
    told: list[str] = []

    def encode(window: list[int], first: int) -> Any:
        told.append(f"encode {first}")
        if 7 in window:
            raise ValueError("a bad text")
        return rows_of(*window), list

    def run(rows: Ragged, advance: Any) -> list[int]:
        while f"encode {int(rows.ids[0]) - 1 + 3}" not in told and int(rows.ids[0]) < 4:
            time.sleep(0.001)  # the next window is encoded by another thread meanwhile, or this never ends
        advance(len(rows))
        return rows.ids.tolist()

    windows = WindowSize(items=3, first=3, characters=1000)
    answers = stream(range(1, 10), encode, run, size=windows, weight=lambda item: 1, lazy=False, ahead=True)
    found = []
    with pytest.raises(ValueError, match="a bad text"):
        found.extend(answers)
    assert found == [1, 2, 3, 4, 5, 6]
