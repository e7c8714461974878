"""An ONNX graph of a model as transformers computes it, for ONNX Runtime and OpenVINO; see ``peer.py``."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path

from peer import Setup

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUT = "last_hidden_state"


def graph_of(setup: Setup) -> Path:
    """``model.onnx`` in the folder of converted files, written if it is not there yet."""
    path = setup.work / "model.onnx"
    if not path.exists():
        draft = setup.work / "model.draft.onnx"
        _export(setup.model, draft)
        draft.rename(path)
    return path


def fused_graph_of(setup: Setup) -> Path:
    """The same after ONNX Runtime's fusions for BERT."""
    path = setup.work / "model_fused.onnx"
    if not path.exists():
        from onnxruntime.transformers.optimizer import optimize_model

        config = setup.config
        heads = config.get("num_attention_heads") or config["n_heads"]
        width = config.get("hidden_size") or config["dim"]
        fused = optimize_model(str(graph_of(setup)), model_type="bert", num_heads=heads, hidden_size=width, opt_level=0)
        draft = setup.work / "model_fused.draft.onnx"
        fused.save_model_to_file(str(draft))
        draft.rename(path)
    return path


def int8_graph_of(setup: Setup) -> Path:
    """The fused graph with int8 weights, one scale an output channel, and activations quantised as they come."""
    path = setup.work / "model_int8.onnx"
    if not path.exists():
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic

        info = Path("/proc/cpuinfo")
        # Without VNNI, sums of two products of 8 bits saturate; 7 bits of weights do not.
        saturates = "vnni" not in (info.read_text() if info.exists() else "")
        draft = setup.work / "model_int8.draft.onnx"
        quantize_dynamic(
            fused_graph_of(setup),
            draft,
            per_channel=True,
            weight_type=QuantType.QInt8,
            reduce_range=saturates,
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},  # of the outputs of fused operators
        )
        draft.rename(path)
    return path


def _export(model_folder: Path, path: Path) -> None:
    import torch
    from transformers import AutoModel

    class Graph(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            # With eager attention, in which ONNX Runtime's fusion finds its pattern.
            self.model = AutoModel.from_pretrained(model_folder, attn_implementation="eager")
            self.has_segments = "token_type_ids" in inspect.signature(self.model.forward).parameters

        def forward(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor | None = None) -> torch.Tensor:
            more = {"token_type_ids": segments} if self.has_segments else {}
            states: torch.Tensor = self.model(input_ids=ids, attention_mask=mask, **more)[0]
            return states

    # The wrapper itself must be in eval mode: the exporter puts its mode back on everything inside it.
    graph = Graph().eval()
    ids = torch.zeros((2, 9), dtype=torch.int64)
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    names = INPUTS if graph.has_segments else INPUTS[:2]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            graph,
            (ids, mask, torch.zeros_like(ids))[: len(names)],
            str(path),
            input_names=list(names),
            output_names=[OUTPUT],
            dynamic_axes={name: {0: "batch", 1: "sequence"} for name in (*names, OUTPUT)},
            opset_version=17,
            dynamo=False,  # the newer exporter's graph computes the same, but its attention is not fused
        )
