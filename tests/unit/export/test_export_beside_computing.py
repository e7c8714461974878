"""A model that is exported answers as before to whoever uses it meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bertkit
from bertkit.engine.module_views import eval_view, own_view
from bertkit.export.onnx_export import export_onnx
from bertkit.export.onnx_graph import traceable
from pipeline_helpers import save_tiny

pytestmark = pytest.mark.slow
IDS = torch.arange(2, 40).view(2, 19)


def attributes(model: nn.Module) -> dict[tuple[str, str], Any]:
    """All that its modules hold, tables of parameters by what is in them."""
    found: dict[tuple[str, str], Any] = {}
    for name, module in model.named_modules():
        found |= {(name, key): value for key, value in vars(module).items() if not isinstance(value, dict)}
        for table in (module._parameters, module._buffers, module._modules):
            found |= {(name, key): value for key, value in table.items()}
    return found


def changed(before: dict[tuple[str, str], Any], after: dict[tuple[str, str], Any]) -> set[tuple[str, str]]:
    """What was put in place of something else."""
    return {key for key in before.keys() | after.keys() if before.get(key) is not after.get(key)}


@pytest.fixture(params=["plain", "prepacked"])
def model(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """A model in eval mode."""
    found = bertkit.BertForSequenceClassification.from_pretrained(
        save_tiny(tmp_path / "model", bertkit.BertForSequenceClassification, num_hidden_layers=1)
    )
    return found.prepack() if request.param == "prepacked" else found


@pytest.mark.parametrize("view", [eval_view, own_view])
def test_tracing_changes_a_view(model: Any, view: Callable[[Any], Any]) -> None:
    """A control: what is a view only of a model in training mode is not enough."""
    before = attributes(model)
    seen = view(model)
    with traceable(seen):
        for module in seen.modules():
            for name in module._parameters:
                module._parameters[name] = None
        assert bool(changed(before, attributes(model))) == (view is eval_view)


@pytest.mark.campaign
def test_another_thread_computes_meanwhile(model: Any, tmp_path: Path) -> None:
    def answer() -> Tensor:
        with torch.inference_mode():
            logits: Tensor = model(IDS).logits
        return logits

    expected, before, wrong, ended = answer(), attributes(model), set[Any](), Event()

    def compute() -> None:
        while not ended.wait(0.005):
            try:
                # While torch traces, products are those that can be traced: other by rounding.
                torch.testing.assert_close(answer(), expected, rtol=1e-5, atol=1e-5)
            except Exception as error:
                wrong.add(str(error))
            wrong.update(changed(before, attributes(model)))

    other = Thread(target=compute)
    other.start()
    try:
        export_onnx(model, None, tmp_path / "onnx", check=False)
    finally:
        ended.set()
        other.join()
    assert not wrong
