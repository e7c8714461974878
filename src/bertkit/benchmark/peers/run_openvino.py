"""OpenVINO on transformers' graph; see ``peer.py``."""

from __future__ import annotations

import openvino

import onnx_files
from peer import Floats, Ints, PaddedRunner, Setup, main

#: Without the hint OpenVINO computes in bfloat16 wherever the processor can.
HINTS = {"fp32": "f32", "bf16": "bf16"}


def prepare(setup: Setup) -> None:
    """Convert the model."""
    onnx_files.graph_of(setup)


def load(setup: Setup) -> PaddedRunner:
    """Open the model."""
    settings = {
        "INFERENCE_NUM_THREADS": setup.threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": HINTS[setup.precision],
    }
    compiled = openvino.Core().compile_model(str(onnx_files.graph_of(setup)), "CPU", settings)
    names = {name for found in compiled.inputs for name in found.names}
    inputs = [name for name in onnx_files.INPUTS if name in names]
    request = compiled.create_infer_request()

    def encode(ids: Ints, mask: Ints, segments: Ints) -> Floats:
        given = dict(zip(onnx_files.INPUTS, (ids, mask, segments), strict=True))
        request.infer({name: given[name] for name in inputs}, share_inputs=True, share_outputs=True)
        states: Floats = request.get_output_tensor(0).data
        return states

    return PaddedRunner(encode, setup.config.get("pad_token_id") or 0)


if __name__ == "__main__":
    main(load, prepare)
