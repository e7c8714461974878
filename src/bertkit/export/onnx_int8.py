"""Matrices in 8 bits as nodes of a graph: what :class:`~bertkit.model.kernels.byte_linear.ByteLinear` computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertkit.engine.module_views import module_view
from bertkit.export.onnx_weights import LinearLayer, LinearNodes
from bertkit.model.kernels.byte_linear import SIGNED_STEPS, UNSIGNED_STEPS, ByteLinear
from bertkit.model.kernels.linear import Linear
from bertkit.model.padded import PackedModel

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

#: In place of a row's scale that is 0, which nothing can be divided by.
SMALLEST_STEP = 1e-30


def float_stand_in(model: PackedModel) -> PackedModel:
    """The model with float matrices of the same shapes, which the exporter can follow; their values do not matter."""

    def replacement(module: nn.Module) -> nn.Module | None:
        if not isinstance(module, ByteLinear):
            return None
        made = Linear(module.in_features, module.out_features)
        with torch.no_grad():
            made.weight.copy_(module.weight * module.scale[:, None] + 1e-3)  # distinct, so that none is shared
            made.bias.copy_(module.bias + 1e-3)
        return made

    return module_view(model, replacement)


def byte_layers(model: PackedModel) -> dict[str, ByteLinear]:
    """The linear layers in 8 bits, by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, ByteLinear)}


def byte_nodes(layers: Mapping[str, ByteLinear]) -> LinearNodes:
    """For the linear layers of the stand-in: the nodes that compute what those of the model do."""

    def nodes_of(layer: LinearLayer) -> tuple[Sequence[NodeProto], Sequence[TensorProto]] | None:
        module = layers.get(layer.name)
        return None if module is None else _nodes(layer, module)

    return nodes_of


def _nodes(layer: LinearLayer, module: ByteLinear) -> tuple[list[NodeProto], list[TensorProto]]:
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[NodeProto] = []
    arrays: list[TensorProto] = []

    def array(name: str, values: NDArray[np.generic]) -> str:
        # By the result as well: a layer may be used twice, and a runtime may change each of its weights once only.
        arrays.append(numpy_helper.from_array(values, f"{layer.name}.{layer.y}.{name}"))
        return arrays[-1].name

    def node(kind: str, *inputs: str, result: str | None = None, **attributes: Any) -> str:
        place = result or f"{layer.y}_{len(nodes)}_{kind}"
        nodes.append(helper.make_node(kind, list(inputs), [place], **attributes))
        return place

    values, zero = node("Mul", layer.x, array("smooth", module.smooth.numpy())), 0
    if module.shift is None:
        size, steps, zero = node("Abs", values), SIGNED_STEPS, 128
    else:
        values = size = node("Relu", node("Add", values, array("shift", module.shift.numpy())))
        steps = UNSIGNED_STEPS
    last = array("last_axis", np.array([-1], np.int64))
    step = node("Div", node("ReduceMax", size, last, keepdims=1), array("steps", np.array(steps, np.float32)))
    step = node("Max", step, array("smallest", np.array(SMALLEST_STEP, np.float32)))
    whole = node("Round", node("Div", values, step))
    if zero:  # the runtime is fast for bytes without a sign only
        whole = node("Add", whole, array("zero", np.array(zero, np.float32)))
    weight = array("weight", np.ascontiguousarray(module.weight.numpy().T))
    places = [node("Cast", whole, to=TensorProto.UINT8), weight, array("zero_byte", np.array(zero, np.uint8))]
    sums = node("MatMulInteger", *places)
    products = node("Mul", node("Cast", sums, to=TensorProto.FLOAT), step)
    scaled = node("Mul", products, array("scale", module.scale.numpy()))
    if len(module.apart):
        apart = node("Gather", layer.x, array("apart", module.apart.numpy()), axis=1)
        scaled = node("Add", scaled, node("MatMul", apart, array("apart_weight", module.apart_weight.numpy())))
    node("Add", scaled, array("bias", module.bias.numpy()), result=layer.y)
    return nodes, arrays
