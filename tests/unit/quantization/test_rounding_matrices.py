"""A matrix in 8 bits: beside the float one, and beside rounding without precautions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from bertkit.errors import InputError
from bertkit.model.kernels.byte_linear import ByteEmbedding, ByteLinear
from bertkit.model.kernels.linear import Linear
from bertkit.quantization.byte_matrices import Inputs, Scheme, byte_embedding, byte_linear, rounded_weights

WIDTH, OUTPUTS, TOKENS = 48, 20, 400


@pytest.fixture
def linear() -> Linear:
    torch.manual_seed(0)
    return Linear(WIDTH, OUTPUTS)


@pytest.fixture
def inputs() -> Tensor:
    """Correlated inputs, two of them far larger than the others, as in BERT."""
    torch.manual_seed(1)
    x = torch.randn(TOKENS, WIDTH) @ (torch.eye(WIDTH) + 0.3 * torch.randn(WIDTH, WIDTH))
    x[:, 7] *= 40.0
    x[:, 31] = 25.0 + x[:, 31]
    return x


def seen(x: Tensor) -> Inputs:
    made = Inputs(x.shape[1])
    made.see(x[:100])
    made.see(x[100:])
    return made


def error(made: ByteLinear, linear: Linear, x: Tensor) -> float:
    expected = F.linear(x, linear.weight, linear.bias).detach()
    return float((made(x) - expected).norm() / expected.norm())


def test_what_was_seen_does_not_depend_on_the_pieces(inputs: Tensor) -> None:
    found = seen(inputs)
    wide = inputs.double()
    torch.testing.assert_close(found.mean, wide.mean(dim=0), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.covariance, wide.T.cov(correction=0), rtol=1e-4, atol=1e-3)
    assert torch.equal(found.largest, inputs.abs().amax(dim=0))


def test_each_precaution_brings_the_result_nearer(linear: Linear, inputs: Tensor) -> None:
    plain = error(byte_linear(linear, seen(inputs), Scheme(apart=0, smoothing=0)), linear, inputs)
    apart = error(byte_linear(linear, seen(inputs), Scheme(apart=2, smoothing=0)), linear, inputs)
    assert apart < plain / 5
    assert apart < 0.01
    smooth = error(byte_linear(linear, seen(inputs), Scheme(apart=0, smoothing=0.5)), linear, inputs)
    assert smooth < plain / 2


def test_the_inputs_kept_apart_are_the_largest_and_exact(linear: Linear, inputs: Tensor) -> None:
    made = byte_linear(linear, seen(inputs), Scheme(apart=2))
    assert made.apart.tolist() == [7, 31]
    assert not made.weight[:, made.apart].any()
    alone = torch.zeros(1, WIDTH)
    alone[0, 7] = 1000.0
    torch.testing.assert_close(made(alone) - made(torch.zeros(1, WIDTH)), 1000.0 * linear.weight[:, 7][None].detach())


def test_inputs_behind_gelu_use_all_of_the_range(linear: Linear, inputs: Tensor) -> None:
    inner = F.gelu(inputs / inputs.std(dim=0))
    scheme = Scheme(apart=0)
    two_sided = error(byte_linear(linear, seen(inner), scheme), linear, inner)
    one_sided = error(byte_linear(linear, seen(inner), scheme, least=-0.17), linear, inner)
    assert one_sided < 0.75 * two_sided


def test_the_error_of_one_weight_is_taken_over_by_the_others(inputs: Tensor) -> None:
    torch.manual_seed(2)
    weight = torch.randn(OUTPUTS, WIDTH, dtype=torch.float64)
    covariance = seen(inputs).covariance
    scale, whole = rounded_weights(weight, covariance, bits=8)
    nearest = (weight / scale[:, None]).round() * scale[:, None]

    def output_error(found: Tensor) -> float:
        off = found - weight
        return float(((off @ covariance) * off).sum())

    assert output_error(whole * scale[:, None]) < 0.6 * output_error(nearest)


@pytest.mark.parametrize(("bits", "most"), [(8, 127), (7, 63)])
def test_weights_stay_in_their_range(linear: Linear, inputs: Tensor, bits: int, most: int) -> None:
    made = byte_linear(linear, seen(inputs), Scheme(bits=bits))
    assert int(made.weight.abs().max()) == most


@pytest.mark.parametrize("width", [1, 2, 8])
def test_a_narrow_matrix_keeps_inputs_to_round(width: int) -> None:
    torch.manual_seed(4)
    linear, x = Linear(width, OUTPUTS), torch.randn(TOKENS, width)
    made = byte_linear(linear, seen(x), Scheme(apart=8))
    assert len(made.apart) == width // 2
    assert error(made, linear, x) < 0.02


def test_a_row_of_zeros_gives_the_bias(linear: Linear, inputs: Tensor) -> None:
    made = byte_linear(linear, seen(inputs), Scheme())
    assert torch.equal(made(torch.zeros(2, WIDTH))[0], made.bias)


def test_a_row_does_not_depend_on_its_neighbours(linear: Linear, inputs: Tensor) -> None:
    made = byte_linear(linear, seen(inputs), Scheme())
    torch.testing.assert_close(made(inputs)[5:6], made(inputs[5:6]))


def test_a_table_with_large_columns(linear: Linear) -> None:
    torch.manual_seed(3)
    table = torch.randn(100, 32)
    table[:, 4] *= 50.0
    made = byte_embedding(table)
    ids = torch.tensor([[3, 99], [0, 3]])
    assert isinstance(made, ByteEmbedding)
    torch.testing.assert_close(made(ids)[0, 0], made.weight[3] * made.scale[3] * made.column_scale)
    off = ((made(ids) - table[ids]) / table.square().mean(dim=0).sqrt()).abs().max()
    assert float(off) < 0.03


def test_bytes_cannot_be_trained(linear: Linear, inputs: Tensor) -> None:
    made = byte_linear(linear, seen(inputs), Scheme())
    assert made.eval() is made
    with pytest.raises(InputError, match="cannot be trained"):
        made.train()
