"""Which back-end answers which model: ``python tests/backends_page.py > docs/backends.md``."""

from __future__ import annotations

import sys

from bertkit.checkpoints.names import TABLES
from bertkit.config.any_config import COUNTERPARTS
from bertkit.config.bert_config import BertConfig
from bertkit.config.families import FAMILIES
from bertkit.engine.native.packed_model import WEIGHT_TYPES
from bertkit.weights.checkpoint_weights import why_not_computed

HEAD = """# Which back-end answers

On a CPU a checkpoint folder is answered by the **C library**: without torch, without an export. **torch** answers what
the library does not compute, models on a GPU, model objects with changed parts, and hidden states of lower layers.
A folder that `bertkit export` wrote is answered by **ONNX Runtime** (`pip install onnxruntime`), whatever its family.
Without torch, `bertkit-lite` refuses what only torch answers, and says so.

This page is made from the code: `python tests/backends_page.py > docs/backends.md`; a test compares.

## Families and heads

"C": the C library; "torch": torch alone; "-": the family has no such head.
"""
REST = """
Not by the C library, in any family: models that read one way (`attention_direction`), activations other than GELU (both
forms) and ReLU, models without layers.

Adapters (LoRA) are folded into the weights when a folder is loaded, so the library computes them. Of a run with several
heads (`heads/NAME`), each head is a model of its own for the library, and `analyze` asks all at once.

## Precisions

| precision | C library keeps matrices as | sums | torch | ONNX Runtime |
|--|--|--|--|--|
"""
TORCH = {
    "auto": "by the C library, in float24", "fp32": "float32", "fp16": "CPU: by the C library; GPU: autocast",
    "bf16": "CPU: by the C library; GPU: autocast", "int8": "folders of `quantize`, slowly without the C library",
}  # fmt: skip
ONNX = {"auto": "as exported", "fp32": "exports in float32", "int8": "exports of a model in 8 bits"}


def page() -> str:
    """The page, from the tables of families and classes."""
    heads = list(dict.fromkeys(head for table in TABLES.values() for head in table.classes))
    lines = ["| family | " + " | ".join(head.removeprefix("BertFor") for head in heads) + " |"]
    lines += ["|--" * (len(heads) + 1) + "|"]
    for family in FAMILIES:
        config = BertConfig(model_type=family)
        cells = [_answered(family, config, head) for head in heads]
        lines.append(f"| {family} | " + " | ".join(cells) + " |")
    lines += [f"| {family} | " + " | ".join(_decoder(family, head) for head in heads) + " |" for family in COUNTERPARTS]
    kept = {"auto": "float24, or float32 where they stay in the cache", "int8": "int8, the rest in float24"}
    rows = [
        f"| {name} | {kept.get(name, kind)} | float32{', int32 of bytes' if name == 'int8' else ''} | {TORCH[name]} | "
        f"{ONNX.get(name, '-')} |"
        for name, kind in WEIGHT_TYPES.items()
    ]
    return HEAD + "\n" + "\n".join(lines) + "\n" + REST + "\n".join(rows) + "\n"


def _answered(family: str, config: BertConfig, head: str) -> str:
    if head not in TABLES[family].classes:
        return "-"
    return "C" if why_not_computed(config, head) is None else "torch"


def _decoder(family: str, head: str) -> str:
    return "torch" if head in COUNTERPARTS[family] else "-"


if __name__ == "__main__":
    sys.stdout.write(page())
