"""The variable-length kernel of a GPU, without one.

What it computes: a plain implementation of its contract takes its place, and the result must be that of the reference.
How it is called: torch's own operator on tensors without values, which checks arguments, shapes and the gradient.
When it is chosen: by a table, by a stand-in for the device, and through a whole model on a pretended GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from bertkit import BertConfig, BertModel
from bertkit.batch import Fill, Layout
from bertkit.engine.backend import Pack, Wanted
from bertkit.engine.torch_backend import TorchBackend
from bertkit.model.attention import SelfAttention, attend_reference
from bertkit.model.kernels import varlen_attention
from bertkit.model.kernels.bucketed_attention import (
    _moved_buckets,
    attend_bucketed,
    attend_fused,
    buckets,
)
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.model.kernels.varlen_attention import (
    BACKENDS,
    Sequences,
    attend_flash,
    attend_jagged,
    attend_packed,
    attend_varlen,
    backend_for,
    cu_seqlens_on,
    has_known_operator,
    varlen_capability,
    varlen_fits,
)
from bertkit.model.one_way_attention import OneWay
from no_wait import without_values
from varlen_contract import by_contract

RAGGED = (5, 1, 9, 9, 30, 2)
OPERATOR = "aten._flash_attention_forward.default"


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """What a pretended device left in the caches must not reach another test."""
    yield
    for cached in (varlen_capability, cu_seqlens_on, _moved_buckets):
        cached.cache_clear()


@pytest.fixture
def standing_in(monkeypatch: pytest.MonkeyPatch) -> list[torch.dtype]:
    """The CPU passes for a GPU with the kernel, :func:`by_contract` for the kernel; the type of each call to it."""
    seen = []

    def kernel(query, *args):
        seen.append(query.dtype)
        return by_contract(query, *args)

    monkeypatch.setattr(varlen_attention, "attend_flash", kernel)
    monkeypatch.setattr(varlen_attention, "varlen_capability", lambda device: (9, 0))
    return seen


def chosen(layout: Layout, *rows: int) -> ChosenRows:
    return ChosenRows.first_and(torch.tensor(rows, dtype=torch.int64), layout)


# What it computes.


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    width=st.sampled_from([8, 26]),
    spare=st.none() | st.integers(0, 70),
    seed=st.integers(0, 2**16),
    data=st.data(),
)
def test_equals_the_reference_forward_and_backward(lengths, width, spare, seed, data):
    """Also of head widths that are filled up, of chosen rows, and of batches that are filled up to a fixed shape."""
    generator = torch.Generator().manual_seed(seed)
    plain = layout = Layout(tuple(lengths))
    if spare is not None:
        layout = layout.with_offsets(Fill(layout.num_tokens + spare, len(lengths) + 71, 64))
    rows = data.draw(st.none() | st.lists(st.integers(0, layout.num_tokens - 1), max_size=9)) if spare is None else None
    some = None if rows is None else chosen(layout, *rows)
    qkv = torch.randn(layout.num_tokens, 3, 2, width, generator=generator)
    direction = torch.randn(layout.num_tokens if some is None else len(some.rows), 2, width, generator=generator)
    results = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(varlen_attention, "attend_flash", by_contract)
        for attend, given_layout in ((attend_reference, plain), (attend_varlen, layout), (attend_bucketed, layout)):
            leaf = qkv.clone().requires_grad_()
            fillers = leaf if given_layout is plain else F.pad(leaf, (0, 0) * 3 + (0, given_layout.num_fillers))
            out = attend(fillers, given_layout, 0.0, some)
            out[: len(direction)].mul(direction).sum().backward()
            results.append((out[: len(direction)].detach(), leaf.grad))
    for result in results[1:]:
        assert_close(result, results[0], rtol=0, atol=2e-5)


@pytest.mark.parametrize("rows", [None, (3, 20)])
def test_the_way_out_computes_the_same(rows):
    """Jagged tensors on a CPU: torch's public way to the kernel, for the day its private operator changes."""
    layout = Layout(RAGGED)
    some = None if rows is None else chosen(layout, *rows)
    qkv = torch.randn(layout.num_tokens, 3, 2, 8, generator=torch.Generator().manual_seed(4))
    results = []
    for jagged in (False, True):
        leaf = qkv.clone().requires_grad_()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(varlen_attention, "has_known_operator", lambda: False)
            out = (attend_varlen if jagged else attend_reference)(leaf, layout, 0.0, some)
        out.square().sum().backward()
        results.append((out.detach(), leaf.grad))
    assert_close(results[1], results[0], rtol=0, atol=1e-5)
    torch.manual_seed(5)
    ends = Sequences.of(layout, qkv.device)
    q, k, _ = qkv.unbind(1)
    dropped = attend_jagged(q, k, torch.ones_like(q), ends, ends, 0.5, 8**-0.5)
    assert not torch.allclose(dropped, torch.ones_like(dropped))  # rows of probabilities no longer sum to 1


def test_a_model_that_reads_left_to_right_asks_for_that_window(standing_in):
    """The same by the kernel of a GPU and by buckets; right-to-left, which the kernel does not promise, by buckets."""
    qkv, layout = torch.randn(sum(RAGGED), 3, 2, 8, generator=torch.Generator().manual_seed(0)), Layout(RAGGED)
    rows = chosen(layout, 3, 20)
    for direction in ("left-to-right", "right-to-left"):
        in_fp32 = OneWay(direction)(qkv, layout, 0.0, rows)  # which the kernel does not take
        assert_close(OneWay(direction)(qkv.half(), layout, 0.0, rows).float(), in_fp32, rtol=0, atol=1e-2)
    assert standing_in == [torch.float16]
    assert (in_fp32 - OneWay("left-to-right")(qkv, layout, 0.0, rows)).abs().max() > 0.1  # control


def test_other_boundaries_would_be_seen(standing_in):
    """Control of the comparison above: two sequences made one."""
    qkv = torch.randn(12, 3, 2, 8, generator=torch.Generator().manual_seed(0))
    apart, joined = (attend_varlen(qkv, Layout(lengths), 0.0) for lengths in ((5, 7), (12,)))
    assert (apart - joined).abs().max() > 1e-2


def test_boundaries_are_copied_to_the_device_once():
    """The device ``meta`` stands for a GPU. Training can save what an evaluation left."""
    device = torch.device("meta")
    with torch.inference_mode():
        made = cu_seqlens_on(RAGGED, device)
    assert cu_seqlens_on(RAGGED, device) is made
    assert made.device == device
    assert not made.is_inference()
    assert cu_seqlens_on(RAGGED, torch.device("cpu")).tolist() == [0, 5, 6, 15, 24, 54, 56]


# How it is called.


class Called(TorchDispatchMode):
    """The operators called inside the block, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("rows", [None, (3, 20)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_torch_s_operator_takes_the_arguments_and_has_a_gradient(dtype, rows):
    layout = Layout(RAGGED)
    some = None if rows is None else chosen(layout, *rows)
    if some is not None:
        some = ChosenRows(some.rows.to("meta"), some.lengths)
    qkv = torch.empty(layout.num_tokens, 3, 2, 26, dtype=dtype, device="meta", requires_grad=True)
    with Called() as called:
        out = attend_varlen(qkv, layout, 0.1, some)
        out.sum().backward()
    assert out.shape == (layout.num_tokens if some is None else sum(some.lengths), 2, 26)
    assert out.dtype == dtype
    assert qkv.grad is not None
    assert called.names.count(OPERATOR) == 1
    assert called.names.count("aten._flash_attention_backward.default") == 1


def test_the_private_operator_is_the_one_that_was_read(monkeypatch):
    """Fails when torch changes what it takes. Attention goes by the way out then, which is slower; adapt attend_flash.

    The order of what is given by place is part of it; so is what it gives back, of which the first is read.
    """
    assert has_known_operator()
    schema = torch.ops.aten._flash_attention_forward.default._schema
    assert [each.name for each in schema.returns][:3] == ["output", "softmax_logsumexp", "rng_state"]
    monkeypatch.setattr(varlen_attention, "_BY_NAME", ("scale", "window"))
    has_known_operator.cache_clear()
    assert not has_known_operator()  # control
    has_known_operator.cache_clear()
    assert attend_flash.__code__.co_varnames[:3] == ("q_RNH", "k_TNH", "v_TNH")


# When it is chosen.

#: Compute capability, type, head width, bias: what computes it. None: a CPU or an AMD GPU.
CASES = {
    ((9, 0), torch.bfloat16, 64, False): "variable-length",
    ((8, 0), torch.float16, 32, False): "variable-length",
    ((8, 0), torch.float16, 256, False): "variable-length",
    ((8, 0), torch.bfloat16, 26, False): "variable-length",  # TinyBERT: 312 values in 12 heads, filled up to 32
    ((8, 0), torch.bfloat16, 264, False): "fused buckets",
    ((9, 0), torch.bfloat16, 64, True): "fused buckets",  # DeBERTa, MPNet, T5
    ((9, 0), torch.float32, 64, False): "fused buckets",
    ((7, 5), torch.float16, 64, False): "fused buckets",
    (None, torch.bfloat16, 64, False): "products",
    (None, torch.float32, 64, True): "products",
}


def test_the_table_says_what_computes_each_case():
    print("\n", *(f"{each.name:16} {each.capability} {each.dtypes} {each.why}" for each in BACKENDS), sep="\n")
    for (capability, dtype, width, bias), name in CASES.items():
        found = backend_for(capability, dtype, width, bias=bias).name
        print(f"capability {capability}, {dtype}, heads of {width}, bias {bias}: {found}")
        assert found == name
    assert {each.name for each in BACKENDS} == set(CASES.values())  # nothing in the table is dead


def test_never_on_a_cpu():
    assert varlen_capability(torch.device("cpu")) is None
    assert not varlen_fits(torch.empty(4, 3, 2, 64, dtype=torch.bfloat16))


A_GPU = {"cuda": "13.0", "flash": True, "capability": (9, 0)}


@pytest.mark.parametrize(
    ("gpu", "fits"),
    [
        (A_GPU, True),
        (A_GPU | {"capability": (8, 0)}, True),
        (A_GPU | {"capability": (7, 5)}, False),
        (A_GPU | {"flash": False}, False),
        (A_GPU | {"cuda": None}, False),  # an AMD GPU
    ],
)
def test_which_devices_have_it(monkeypatch, gpu, fits):
    monkeypatch.setattr(torch.version, "cuda", gpu["cuda"])
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: gpu["flash"])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: gpu["capability"])
    found = varlen_capability(torch.device("cuda", 0))
    assert (backend_for(found, torch.bfloat16, 64).name == "variable-length") is fits


def test_no_plan_of_cudnn_for_each_shape(monkeypatch):
    """Where a GPU needs buckets their kernel is any but cuDNN's; afterwards the setting is as it was."""
    seen = []

    class OnGpu(torch.Tensor):
        is_cuda = True

    def kernel(q, *args, **settings):
        seen.append(torch.backends.cuda.cudnn_sdp_enabled())
        return q

    monkeypatch.setattr(F, "scaled_dot_product_attention", kernel)
    x = torch.zeros(1, 2, 3, 8)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    attend_fused(x.as_subclass(OnGpu), x, x, None, 0.1)
    assert seen == [False]
    assert torch.backends.cuda.cudnn_sdp_enabled() is before


def test_a_model_of_any_config_gets_the_choice():
    assert SelfAttention(BertConfig(hidden_size=16, num_attention_heads=2)).attend is attend_packed


@pytest.mark.parametrize("rows", [None, (3, 20)])
def test_where_it_does_not_fit_the_buckets_compute(standing_in, rows):
    layout = Layout(RAGGED)
    some = None if rows is None else chosen(layout, *rows)
    qkv = torch.randn(layout.num_tokens, 3, 2, 8, generator=torch.Generator().manual_seed(1))
    assert torch.equal(attend_packed(qkv, layout, 0.0, some), attend_bucketed(qkv, layout, 0.0, some))
    half = qkv.bfloat16()
    assert standing_in == []
    close = attend_packed(half, layout, 0.0, some)
    assert standing_in == [torch.bfloat16]
    assert_close(close.float(), attend_reference(half.float(), layout, 0.0, some), rtol=0, atol=2e-2)


def test_training_in_bf16(standing_in):
    """A whole encoder under autocasting: gradients as with the buckets, to the precision of bf16."""
    config = BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.3,
    )  # fmt: skip
    torch.manual_seed(3)
    model, layout = BertModel(config).train(), Layout(RAGGED)
    x = torch.randn(layout.num_tokens, 32)
    direction = torch.randn(layout.num_tokens, 32)
    gradients = []
    for attend in (attend_bucketed, attend_packed):
        for layer in model.encoder.layer:
            layer.attention.attend = attend
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            out = model.encoder(x, layout)[0]
        out.float().mul(direction).sum().backward()
        gradients.append(torch.cat([w.grad.flatten() for w in model.encoder.parameters()]))
    assert standing_in == [torch.bfloat16] * 2
    assert F.cosine_similarity(*gradients, dim=0) > 0.999


@pytest.mark.parametrize(
    ("precision", "pooling", "calls"),
    [("bf16", "mean", 2), ("bf16", "cls", 2), ("fp16", "mean", 2), ("fp32", "mean", 0)],
)
def test_the_engine_s_precision_decides_on_a_gpu(monkeypatch, precision, pooling, calls):
    """A whole request on a pretended GPU: torch's rules of autocasting for CUDA, and operators without values.

    To read a value is an error there, so this also shows that no layer waits for the device.
    """
    there = {"cuda": (9, 0)}
    monkeypatch.setattr(varlen_attention, "varlen_capability", lambda device: there.get(device.type))
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *args: True)
    monkeypatch.setattr(FakeTensor, "numpy", lambda x: np.zeros(x.shape, np.float32))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda x: x)  # there is no driver to do it
    monkeypatch.setattr(torch.cuda, "current_stream", Mock())
    config = BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    model = without_values(BertModel(config).requires_grad_(False), mode)
    backend = TorchBackend.of(model, precision=precision)
    buckets(RAGGED)  # laid out on the CPU, from values
    ids = np.arange(5, 5 + sum(RAGGED)) % 50
    pack = Pack(ids, np.zeros_like(ids), RAGGED)
    with Called() as called, mode:
        found = backend.compute(pack, Wanted(("last_hidden_state",), pooling=(pooling,)))
    assert found["last_hidden_state"].shape == (len(RAGGED), 32)
    assert called.names.count(OPERATOR) == calls
