"""OpenVINO on transformers' graph; see ``peer.py``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino

import onnx_files
from peer import Floats, Ints, PaddedRunner, Setup, main

#: Without the hint OpenVINO computes in bfloat16 wherever the processor can; int8 graphs keep the rest in float32.
HINTS = {"fp32": "f32", "bf16": "bf16", "int8": "f32"}


def prepare(setup: Setup) -> None:
    """Convert the model."""
    if setup.precision == "int8":
        int8_graph_of(setup)
    else:
        onnx_files.graph_of(setup)


def int8_graph_of(setup: Setup) -> Path:
    """The graph after training-free quantization of weights and activations, as NNCF does it for transformers."""
    path = setup.work / "openvino_int8.xml"
    if not path.exists():
        import nncf

        texts = setup.calibration
        graph = openvino.Core().read_model(str(onnx_files.graph_of(setup)))
        names = {name for found in graph.inputs for name in found.names}
        rows = [
            {name: array[None] for name, array in given_of(ids, np.ones_like(ids), segments).items() if name in names}
            for ids, segments in zip(texts.rows(texts.ids), texts.rows(texts.segments), strict=True)
        ]
        quantized = nncf.quantize(
            graph, nncf.Dataset(rows), model_type=nncf.ModelType.TRANSFORMER, subset_size=len(rows)
        )
        openvino.save_model(quantized, str(path), compress_to_fp16=False)
    return path


def given_of(ids: Ints, mask: Ints, segments: Ints) -> dict[str, Ints]:
    """Inputs by the names that they have in the graph."""
    return dict(zip(onnx_files.INPUTS, (ids, mask, segments), strict=True))


def load(setup: Setup) -> PaddedRunner:
    """Open the model."""
    path = int8_graph_of(setup) if setup.precision == "int8" else onnx_files.graph_of(setup)
    settings = {
        "INFERENCE_NUM_THREADS": setup.threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": HINTS[setup.precision],
    }
    compiled = openvino.Core().compile_model(str(path), "CPU", settings)
    names = {name for found in compiled.inputs for name in found.names}
    inputs = [name for name in onnx_files.INPUTS if name in names]
    request = compiled.create_infer_request()

    def encode(ids: Ints, mask: Ints, segments: Ints) -> Floats:
        given = given_of(ids, mask, segments)
        request.infer({name: given[name] for name in inputs}, share_inputs=True, share_outputs=True)
        states: Floats = request.get_output_tensor(0).data
        return states

    return PaddedRunner(encode, setup.config.get("pad_token_id") or 0)


if __name__ == "__main__":
    main(load, prepare)
