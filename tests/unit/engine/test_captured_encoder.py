"""Graphs of small packs, without a GPU.

What a graph does is to compute again what was recorded, with whatever then lies in the same memory. So does a traced
function: of all Python around its operators nothing is left. It stands in for CUDA, as a plain implementation of the
kernel's contract does for the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing import assert_close

from bertkit import BertConfig, BertModel
from bertkit.batch import Layout, pack
from bertkit.engine import captured_encoder
from bertkit.engine.backend import Pack, Wanted
from bertkit.engine.captured_encoder import SIZES, SWITCH, can_be_recorded, fill_for, with_graphs
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.engine.torch_backend import TorchBackend
from bertkit.model.encoder import Encoder
from bertkit.model.kernels import varlen_attention
from varlen_contract import by_contract

import benchmark_scripts  # isort: skip  # noqa: F401
from gpu_correctness import graphs_beside  # isort: skip

SHAPE = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
VECTORS = Wanted(("last_hidden_state",), ("mean",))


@torch.library.custom_op("bertkit_tests::attend", mutates_args=())
def traced_kernel(q: Tensor, k: Tensor, v: Tensor, boundaries: Tensor, longest: int, scale: float) -> Tensor:
    each = varlen_attention.Sequences(boundaries, longest)
    return by_contract(q, k, v, each, each, 0.0, scale)


@pytest.fixture(autouse=True)
def standing_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU passes for a GPU with the kernel, which also takes float32."""

    def kernel(q, k, v, queries, keys, p, scale, window):
        return traced_kernel(q, k, v, keys.boundaries, keys.longest, scale)

    monkeypatch.setattr(varlen_attention, "attend_flash", kernel)
    monkeypatch.setattr(varlen_attention, "varlen_fits", lambda qkv: True)


class Recorder:
    """Records by tracing; counts how often."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, compute: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], Any]]:
        self.count += 1
        found, again = compute(), make_fx(compute)()
        return found, lambda: found.copy_(again())


def model_of(**more: Any) -> BertModel:
    torch.manual_seed(0)
    return BertModel(BertConfig(**SHAPE, **more)).eval()


def texts(*lengths: int, seed: int = 0) -> list[list[int]]:
    numbers = np.random.default_rng(seed)
    return [numbers.integers(1, 50, length).tolist() for length in lengths]


def hidden(model: BertModel, rows: list[list[int]]) -> Tensor:
    with torch.inference_mode():
        return model.forward_packed(pack(rows)).last_hidden_state


MODEL = model_of()
RECORDER = Recorder()
VIEW = with_graphs(MODEL, RECORDER)


@settings(max_examples=12)
@given(packs=st.lists(st.lists(st.integers(1, 70), min_size=1, max_size=9), min_size=1, max_size=6))
def test_replayed_answers_are_those_without_a_graph(packs: list[list[int]]) -> None:
    for lengths in packs:
        rows = texts(*lengths, seed=sum(lengths))
        assert_close(hidden(VIEW, rows), hidden(MODEL, rows), atol=2e-6, rtol=1e-5)
    assert RECORDER.count <= len(SIZES)


def test_a_size_is_recorded_when_it_comes_again() -> None:
    recorder = Recorder()
    view = with_graphs(MODEL, recorder)
    for lengths, recorded in (((7,), 0), ((20, 30), 0), ((9, 9), 1), ((32,), 1), ((40,), 2), ((3, 3, 3), 2)):
        hidden(view, texts(*lengths))
        assert recorder.count == recorded


def test_what_a_graph_does_not_read_from_memory_it_gets_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: attention that takes lengths from Python. The stand-in for CUDA would find such a thing."""
    monkeypatch.setattr(varlen_attention, "varlen_fits", lambda qkv: False)
    view = with_graphs(MODEL, Recorder())
    for _ in range(2):
        found = hidden(view, texts(9, 20))
    assert (found - hidden(MODEL, texts(9, 20))).abs().max() > 1e-3


@pytest.mark.parametrize("lengths", [(1025,), (600, 425), (1,) * 5, (3,) * 60])
def test_large_packs_and_many_texts_have_no_graph(lengths: tuple[int, ...]) -> None:
    assert fill_for(Layout(lengths)) is None
    recorder = Recorder()
    view = with_graphs(model_of(max_position_embeddings=1100), recorder)
    for _ in range(3):
        hidden(view, texts(*lengths))
    assert recorder.count == 0


def test_sizes_fit_what_is_filled_up_to_them() -> None:
    for size in SIZES:
        fill = fill_for(Layout((size,)))
        assert fill is not None
        assert (fill.tokens, fill.longest) == (size, size)
        room = fill.sequences
        assert fill_for(Layout((size // room,) * room)) == fill
        assert fill_for(Layout((1,) * (room - 1) + (size - room + 1,))) == fill


def test_the_first_tokens_alone_and_several_threads() -> None:
    view = with_graphs(MODEL, Recorder())
    encoder = view.encoder
    rows = [texts(*lengths, seed=n) for n, lengths in enumerate([(5, 9), (20,), (3, 3, 20), (31,)] * 8)]
    assert not isinstance(encoder, Encoder)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda each: hidden(view, each), rows))
    for mine, each in zip(found, rows, strict=True):
        assert_close(mine, hidden(MODEL, each), atol=2e-6, rtol=1e-5)
    batch = pack(texts(5, 9))
    with torch.inference_mode():
        first = view.forward_packed(batch, rows="first").last_hidden_state
        assert_close(first, MODEL.forward_packed(batch).last_hidden_state[[0, 5]], atol=2e-6, rtol=1e-5)


# In the back-end.


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """The CPU is a GPU for the back-end too."""
    found = Recorder()
    monkeypatch.setattr(captured_encoder, "varlen_capability", lambda device: (9, 0))
    monkeypatch.setattr(captured_encoder, "cuda_graph", found)
    return found


def pack_of(*lengths: int) -> Pack:
    rows = texts(*lengths)
    ids = np.concatenate(rows)
    return Pack(ids, np.zeros_like(ids), lengths)


def test_the_back_end_follows_the_model(recorder: Recorder) -> None:
    model = model_of().to(torch.bfloat16)
    backend, asked = TorchBackend.of(model), pack_of(7, 12)
    before = [backend.compute(asked, VECTORS)["last_hidden_state"] for _ in range(3)]
    assert recorder.count == 1
    assert_close(before[2], before[0], atol=0.02, rtol=0.02)
    with torch.no_grad():
        model.encoder.layer[1].ffn_norm.weight.mul_(3.0)
    changed = [backend.compute(asked, VECTORS)["last_hidden_state"] for _ in range(3)]
    assert recorder.count == 2
    assert_close(changed[2], changed[0], atol=0.02, rtol=0.02)
    assert np.abs(changed[2] - before[2]).max() > 0.5
    model.train()  # dropout is off all the same
    assert_close(backend.compute(asked, VECTORS)["last_hidden_state"], changed[0], atol=0.02, rtol=0.02)


def test_who_has_graphs(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    half = model_of().to(torch.bfloat16)
    assert can_be_recorded(half)
    assert not can_be_recorded(model_of())  # float32 has no kernel
    assert not can_be_recorded(model_of(attention_direction="left-to-right").to(torch.bfloat16))
    hooked = model_of().to(torch.bfloat16)
    hooked.encoder.layer[0].register_forward_hook(lambda *args: None)
    assert not can_be_recorded(hooked)
    monkeypatch.setenv(SWITCH, "0")
    assert not can_be_recorded(half)


def test_a_graph_that_cannot_be_made_costs_no_answer(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(compute: Callable[[], Tensor]) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(captured_encoder, "cuda_graph", refuse)
    backend = TorchBackend.of(model_of().to(torch.bfloat16))
    found = [backend.compute(pack_of(7, 12), VECTORS)["last_hidden_state"] for _ in range(3)]
    assert_close(found[2], found[0], atol=0, rtol=0)
    assert "no CUDA graphs" in capsys.readouterr().err


# In the script that measures a GPU.


def engines(monkeypatch: pytest.MonkeyPatch) -> tuple[InferenceEngine, InferenceEngine]:
    """One that may record graphs, one that may not."""
    model = model_of(max_position_embeddings=1100).to(torch.bfloat16)
    may = InferenceEngine.of(model)
    with monkeypatch.context() as patch:
        patch.setenv(SWITCH, "0")
        return may, InferenceEngine.of(model)


@pytest.mark.campaign
def test_the_check_of_graphs_holds_if_all_sizes_were_recorded(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = graphs_beside(*engines(monkeypatch), wanted=len(SIZES))
    assert found["holds"]
    assert recorder.count == found["recorded"] == len(SIZES)
    assert found["recorded_without"] == 0


@pytest.mark.campaign
def test_the_check_of_graphs_does_not_hold_if_none_was_recorded(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors are the same then: launched one by one, because recording fails, or because it was not asked for."""

    def refuse(compute: Callable[[], Tensor]) -> Any:
        if recorder.count == 3:
            raise RuntimeError("operation not permitted when stream is capturing")
        return recorder(compute)

    may, may_not = engines(monkeypatch)
    assert not graphs_beside(may_not, may_not, wanted=len(SIZES))["holds"]
    monkeypatch.setattr(captured_encoder, "cuda_graph", refuse)
    found = graphs_beside(may, may_not, wanted=len(SIZES))
    assert (found["recorded"], found["holds"]) == (0, False)  # those that were made are not used any more
    assert found["cosine"] > 0.999
