"""oneDNN's products of float32 matrices against torch's in float64: results, gradients, gradients of gradients."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F

from bertkit.model.kernels import linear as linear_module
from bertkit.model.kernels import products
from bertkit.model.kernels.linear import Linear
from bertkit.model.kernels.products import linear

pytestmark = pytest.mark.skipif(products.onednn() is None, reason="this torch has no oneDNN")
#: Rows, inputs, outputs: few rows, more than are summed at a time, wide to narrow, narrow to wide, square.
SHAPES = [(300, 64, 96), (1700, 96, 64), (2305, 32, 256), (800, 256, 8), (769, 128, 128)]


@pytest.fixture(autouse=True)
def on_every_processor(monkeypatch):
    """The operation runs on every processor, though not on every one is it faster."""
    monkeypatch.setattr(products, "_plain_product", lambda: products.onednn()._linear_pointwise)


def layer(shape: tuple[int, int, int], *, bias: bool = True) -> list[Tensor]:
    """Input, weight and bias in float32, which want gradients, and a factor of the output."""
    torch.manual_seed(5)
    rows, width, num_out = shape
    x, weight, offset = torch.randn(rows, width), torch.randn(num_out, width) / width**0.5, torch.randn(num_out)
    given = [x, weight, offset] if bias else [x, weight]
    return [*(tensor.requires_grad_() for tensor in given), torch.randn(rows, num_out)]


def gradients(function, given: list[Tensor]) -> tuple[Tensor, ...]:
    *inputs, factor = given
    out = function(*inputs)
    return out, *torch.autograd.grad((out * factor).sum(), inputs)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_results_and_gradients_are_those_of_float64(shape, bias):
    given = layer(shape, bias=bias)
    found, plain = gradients(linear, given), gradients(F.linear, given)
    exact = gradients(F.linear, [tensor.detach().double().requires_grad_() for tensor in given])
    assert type(found[0].grad_fn).__name__ == "_LinearBackward"  # control: it is not torch's product
    for ours, theirs, right in zip(found, plain, exact, strict=True):
        assert ours.shape == right.shape
        unit = right.abs().max()
        # Not further from the truth than torch's own product, except for the order of the sums.
        assert (ours - right).abs().max() / unit <= max(2e-6, 3 * (theirs - right).abs().max() / unit)


def test_gradients_of_gradients():
    def twice(function, given: list[Tensor]) -> tuple[Tensor, ...]:
        x, weight, bias, factor = given
        (slope,) = torch.autograd.grad((function(x, weight, bias).tanh() * factor).sum(), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), (x, weight, bias))

    given = layer((600, 64, 64))
    exact = twice(F.linear, [tensor.detach().double().requires_grad_() for tensor in given])
    for ours, right in zip(twice(linear, given), exact, strict=True):
        assert (ours - right).abs().max() <= 1e-5 * right.abs().max()


def test_what_is_frozen_gets_no_gradient():
    x, weight, bias, _ = layer((700, 64, 64))
    linear(x, weight.detach(), bias).sum().backward()  # the gradient of a sum has strides of 0
    assert weight.grad is None
    assert torch.allclose(x.grad, weight.sum(dim=0).expand_as(x), atol=1e-5)
    assert torch.allclose(bias.grad, torch.full_like(bias, len(x)))


def test_layers_with_more_axes_and_a_shared_weight():
    torch.manual_seed(6)
    first = Linear(64, 128)
    plain = nn.Linear(64, 128)
    plain.load_state_dict(first.state_dict())
    x = torch.randn(4, 200, 64)
    for made in (first, plain):
        out = made(x)
        assert out.shape == (4, 200, 128)
        F.linear(out, made.weight.t()).square().mean().backward()
    assert torch.allclose(first.weight.grad, plain.weight.grad, atol=1e-6)
    assert torch.allclose(first.bias.grad, plain.bias.grad, atol=1e-6)


@pytest.mark.parametrize("case", ["small", "double", "autocast"])
def test_torch_s_own_product_where_it_is_as_good(case):
    x, weight = torch.randn(1000, 64), torch.randn(64, 64, requires_grad=True)
    if case == "small":
        x = x[:4]
    if case == "double":
        x, weight = x.double(), weight.detach().double().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=case == "autocast"):
        out = linear(x, weight)
    assert "_Linear" not in type(out.grad_fn).__name__
    assert out.dtype == {"small": torch.float32, "double": torch.float64, "autocast": torch.bfloat16}[case]


@pytest.mark.slow
def test_torch_func_and_compiled_code():
    x, weight, bias, _ = layer((400, 64, 64))
    slope = torch.func.grad(lambda w: linear(x, w, bias).square().sum())(weight)
    (right,) = torch.autograd.grad(F.linear(x, weight, bias).square().sum(), weight)
    assert torch.allclose(slope, right, rtol=1e-4, atol=1e-3)
    many = torch.stack([x, 2.0 * x]).detach()
    with torch.no_grad():
        both = torch.func.vmap(lambda each: linear(each, weight, bias))(many)
        assert torch.allclose(both[1], F.linear(many[1], weight, bias), atol=1e-4)
        _, moved = torch.func.jvp(lambda each: linear(each, weight, bias), (many[0],), (many[1],))
        assert torch.allclose(moved, F.linear(many[1], weight), atol=1e-4)
    with forward_ad.dual_level():
        dual = linear(forward_ad.make_dual(many[0], many[1]), weight.detach(), bias.detach())
        assert torch.allclose(forward_ad.unpack_dual(dual).tangent, F.linear(many[1], weight), atol=1e-4)


@pytest.mark.parametrize("name", ["later", "none"])
def test_the_later_name_of_the_operations(name, monkeypatch):
    operations, x = products.onednn(), torch.randn(50, 64)
    looked_for = products.onednn.__wrapped__  # not the answer that is kept
    for module in (products, linear_module):
        monkeypatch.setattr(module, "onednn", looked_for)
    plain = Linear(64, 32).eval()
    expected = plain(x)
    names = SimpleNamespace(mkldnn=SimpleNamespace(), onednn=operations if name == "later" else SimpleNamespace())
    monkeypatch.setattr(torch, "ops", names)
    plain.prepack()
    assert (plain._packed is not None) == (name == "later")
    with torch.no_grad():
        assert torch.allclose(plain(x), expected, atol=1e-6)


@pytest.mark.campaign
@pytest.mark.slow
def test_every_product_is_torch_s_if_the_user_says_so():
    """Asked for in a process of its own, because the answer is kept."""
    script = (
        "import dataclasses; from bertkit.system import processor; from bertkit.model.kernels import products;"
        "wide = dataclasses.replace(processor.find_processor(), instruction_sets=('AVX-512',), vendor='another');"
        "products.find_processor = lambda: wide; print(products._plain_product() is not None)"
    )
    for switch, expected in (("0", "False"), ("1", "True")):
        environment = {**os.environ, "BERTKIT_NATIVE": switch}
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
        assert done.stdout.strip() == expected, done.stderr
