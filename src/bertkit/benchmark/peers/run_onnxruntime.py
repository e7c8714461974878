"""ONNX Runtime on transformers' graph with its own fusions for BERT; see ``peer.py``."""

from __future__ import annotations

import onnxruntime

import onnx_files
from peer import Floats, Ints, PaddedRunner, Setup, main

GRAPHS = {"fp32": onnx_files.fused_graph_of, "int8": onnx_files.int8_graph_of}


def prepare(setup: Setup) -> None:
    """Convert the model."""
    GRAPHS[setup.precision](setup)


def load(setup: Setup) -> PaddedRunner:
    """Open the model."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = setup.threads
    path = str(GRAPHS[setup.precision](setup))
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    inputs = [found.name for found in session.get_inputs()]

    def encode(ids: Ints, mask: Ints, segments: Ints) -> Floats:
        given = dict(zip(onnx_files.INPUTS, (ids, mask, segments), strict=True))
        states: Floats = session.run([onnx_files.OUTPUT], {name: given[name] for name in inputs})[0]
        return states

    return PaddedRunner(encode, setup.config.get("pad_token_id") or 0)


if __name__ == "__main__":
    main(load, prepare)
