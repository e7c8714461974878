"""What is told of an error of ONNX Runtime."""

from __future__ import annotations

import onnxruntime
import pytest
from onnx import TensorProto, helper

from bertkit.engine.onnx_backend import reason_of

pytestmark = pytest.mark.slow


def graph(ir_version: int) -> bytes:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    model = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:]))
    model.ir_version = ir_version
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (graph(99), "Unsupported model IR version: 99, max supported IR version: "),
        (b"junk", "Failed to load model because protobuf parsing failed."),
        (b"", "No graph was found in the protobuf."),
    ],
)
def test_a_reason_is_told_without_the_runtimes_own_source(content: bytes, told: str) -> None:
    with pytest.raises(Exception, match="ONNXRuntimeError") as caught:
        onnxruntime.InferenceSession(content)
    assert reason_of(caught.value).startswith(told)
