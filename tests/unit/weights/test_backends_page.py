"""The page that says which back-end answers which model, beside the code, and beside engines that are loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends_page import page
from bertkit.checkpoints.names import TABLES
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.engine.native.library import native_library
from family_helpers import SHAPES, pair

REPOSITORY = Path(__file__).parents[3]


def test_the_page_is_made_from_the_code() -> None:
    written = (REPOSITORY / "docs" / "backends.md").read_text(encoding="utf-8")
    assert written == page(), "run: python tests/backends_page.py > docs/backends.md"


@pytest.mark.slow
@pytest.mark.skipif(native_library() is None, reason="there is no C compiler")
@pytest.mark.parametrize("shape", [family for family, (name, _) in SHAPES.items() if name == family])
def test_what_it_says_is_so(shape: str, tmp_path: Path) -> None:
    heads = next(line for line in page().splitlines() if line.startswith("| family")).split(" | ")[1:]
    cells = next(line for line in page().splitlines() if line.startswith(f"| {shape} ")).split(" | ")[1:]
    said = dict(zip([head.strip(" |") for head in heads], [cell.strip(" |") for cell in cells], strict=True))
    for head in TABLES[shape].classes:
        pair(shape, head, tmp_path / head)
        backend = InferenceEngine.load(tmp_path / head, head, device="cpu").backend
        name = {"NativeBackend": "C", "TorchBackend": "torch"}[type(backend).__name__]
        assert said[head.removeprefix("BertFor")] == name, head
