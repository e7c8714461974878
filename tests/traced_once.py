"""torch's exporter, which takes seconds a graph, traces each model once in a run of the tests, in whatever process.

What it has written is kept by content: the class, the configuration and the weights of the model, the variant of the
graph and the options of the exporter. What bertkit makes of it, the checks included, runs each time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


def content(graph: Any, arguments: Any, options: dict[str, Any]) -> str:
    """The name under which the graph is kept; how labels are called makes no difference to it."""
    config = {**graph.model.config.to_dict(), "id2label": None, "label2id": None}
    options = {name: value for name, value in options.items() if name != "dynamic_shapes"}
    facts = [repr(graph), json.dumps(config, sort_keys=True, default=str), repr(options)]
    facts += [f"{x.dtype} {tuple(x.shape)}" for x in arguments]
    facts += [f"{name} {value}" for name, value in vars(graph).items() if isinstance(value, str | int | list | tuple)]
    digest = hashlib.sha256("\n".join(facts).encode())
    for name, tensor in graph.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()[:20]


@contextmanager
def traced_once(once: Callable[[str, Callable[[Path], Any]], Any]) -> Iterator[None]:
    import onnx_ir
    import torch

    export: Any = torch.onnx.export

    def kept(graph: Any, arguments: Any, **options: Any) -> Any:
        def traced(folder: Path) -> Path:
            program = export(graph, arguments, **options)
            program.save(folder / "graph.onnx")
            return folder / "graph.onnx"

        path = once(f"traced-{content(graph, arguments, options)}", traced)
        return torch.onnx.ONNXProgram(onnx_ir.load(path), None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.onnx, "export", kept)
        yield
