"""The weights of exported graphs: in one file beside them, and linear layers in another arithmetic.

A runtime maps such a file into memory, where it would have to parse and copy weights inside a graph: a session opens in
less than half the time (``docs/decisions/0115-onnx.md``). Graphs of the same model share the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bertkit.ragged import Floats

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TensorProto

#: Arrays of fewer bytes stay in the graph.
SMALLEST = 1024
#: Where an array may begin: a page, so that it can be mapped.
ALIGNMENT = 4096


class WeightsFile:
    """A file of arrays, each distinct one stored once; filled graph by graph."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._places: dict[bytes, tuple[int, int]] = {}

    def take(self, graph: GraphProto) -> None:
        """Move the large arrays of a graph into the file; the graph then says where they are."""
        import hashlib

        with self.path.open("ab") as file:
            for tensor in graph.initializer:
                data = tensor.raw_data
                if len(data) < SMALLEST:
                    continue
                digest = hashlib.sha256(data).digest()
                if digest not in self._places:
                    file.write(b"\0" * (-file.tell() % ALIGNMENT))
                    self._places[digest] = file.tell(), len(data)
                    file.write(data)
                _point(tensor, self.path.name, *self._places[digest])


def _point(tensor: TensorProto, file: str, offset: int, length: int) -> None:
    from onnx import TensorProto

    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", file), ("offset", offset), ("length", length)):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, str(value)


class LinearLayer(NamedTuple):
    """A linear layer of a graph, ``y = x @ weight.T + bias``: a Gemm node.

    name: of the layer in the model, such as ``encoder.layer.0.ffn_up``.
    weight: float32 ``(out, in)``.
    x, y: names of values in the graph, ``(T, in)`` and ``(T, out)``.
    bias: name of the bias ``(out,)``; None where it is 0, which the exporter leaves out.
    """

    name: str
    weight: Floats
    x: str
    y: str
    bias: str | None


#: From a linear layer to nodes that compute it otherwise, and their arrays; None leaves it as it is.
LinearNodes = Callable[[LinearLayer], "tuple[Sequence[NodeProto], Sequence[TensorProto]] | None"]


def replace_linears(graph: GraphProto, nodes_of: LinearNodes) -> set[str]:
    """Compute the linear layers of a graph as ``nodes_of`` says; the names of those that it replaced."""
    from onnx import numpy_helper

    arrays = {tensor.name: tensor for tensor in graph.initializer}
    nodes: list[NodeProto] = []
    replaced: set[str] = set()
    for node in graph.node:
        new = None
        if node.op_type == "Gemm" and node.input[1].endswith(".weight"):
            x, weight, *bias = node.input
            name = weight.removeprefix("model.").removesuffix(".weight")
            values = numpy_helper.to_array(arrays[weight])
            new = nodes_of(LinearLayer(name, values, x, node.output[0], bias[0] if bias else None))
        if new is None:
            nodes.append(node)
            continue
        replaced.add(name)
        nodes.extend(new[0])
        graph.initializer.extend(new[1])
    del graph.node[:]
    graph.node.extend(nodes)
    used = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return replaced
