"""Builds the page "try it here": the included model in the reader's browser.

    python docs/try/build.py [FOLDER]

FOLDER (default ``build/try``) then has everything the page needs, and ``python -m http.server --directory FOLDER``
shows it:

``index.html``, ``try.css``, ``try.js``
    the page; what is between its two comments ``try`` is the fragment for other pages, also as ``fragment.html``.
``bertkit.wasm``
    the engine and the tokenizer in C, compiled by ``zig cc`` for WebAssembly with 128-bit vectors.
``bertkit-tiny-en.bin.gz``
    weights and vocabulary of the included model; ``engine/native/browser/model.h`` describes the file.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from bertkit.engine.native.build import FOLDER as SOURCES
from bertkit.engine.native.build import NEUTRAL, VARIANT

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
MODEL = REPOSITORY / "src" / "bertkit" / "included" / "bertkit-tiny-en"
PAGE = ("index.html", "try.css", "try.js", "engine.js")
PROGRAM, WEIGHTS, FRAGMENT = "bertkit.wasm", "bertkit-tiny-en.bin.gz", "fragment.html"
#: As in :mod:`bertkit.engine.native.build`; math functions set no errno, so that roots are instructions.
FLAGS = ("-O3", "-std=gnu11", "-ffp-contract=fast", "-fno-math-errno", "-fvisibility=hidden")
#: A reactor is a library; what it does not export is left out. A tile has as many rows as on x86 with 16 registers,
#: which is what most readers' browsers compile for.
WASM = (
    *("--target=wasm32-wasi", "-mexec-model=reactor", "-msimd128", "-DTILE_ROWS=6"),
    *("-DBERTKIT_VARIANT=wasm", "-DBERTKIT_VARIANTS=X(wasm)", "-Wl,--gc-sections", "-Wl,--strip-all"),
    *("-Wl,-z,stack-size=1048576",),
)
MAGIC = b"BERTKIT1"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
#: The fragment is between them.
START, END = "<!-- try -->", "<!-- /try -->"

Arrays = Mapping[str, np.ndarray[Any, Any]]


def sources() -> list[str]:
    """All C files of the program."""
    browser = sorted(str(path.relative_to(SOURCES)) for path in (SOURCES / "browser").glob("*.c"))
    return [*NEUTRAL, VARIANT, *browser]


def compile_program(target: Path) -> None:
    """Compile the engine for WebAssembly.

    Raises:
        SystemExit: the compiler fails; it has said why.
    """
    command = [sys.executable, "-m", "ziglang", "cc", *FLAGS, *WASM, "-o", str(target)]
    done = subprocess.run([*command, *(str(SOURCES / name) for name in sources()), "-lm"], check=False)
    if done.returncode:
        raise SystemExit(f"{PROGRAM} was not compiled; the compiler is the package ziglang: pip install ziglang")


def model_file(folder: Path) -> bytes:
    """Weights and vocabulary as ``model.h`` describes them; halves are stored as they are in the checkpoint."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    entries = (folder / "vocab.txt").read_bytes()
    lines = entries.decode().splitlines()
    dense = load_file(folder / "2_Dense" / "model.safetensors")
    limit = json.loads((folder / "sentence_bert_config.json").read_text(encoding="utf-8"))["max_seq_length"]
    sizes = (
        *(config[name] for name in ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")),
        *(config[name] for name in ("vocab_size", "max_position_embeddings", "type_vocab_size")),
        *(len(dense["linear.bias"]), limit, *map(lines.index, SPECIAL), len(entries)),
    )
    assert len(lines) == config["vocab_size"]
    assert entries.endswith(b"\n")
    assert config["hidden_act"] == "gelu"
    header = MAGIC + struct.pack(f"<{len(sizes)}if", *sizes, config["layer_norm_eps"])
    arrays = {**load_file(folder / "model.safetensors"), **dense}
    weights = [array.astype("<f2") for array in ordered(arrays, config["num_hidden_layers"])]
    assert all(np.isfinite(array).all() for array in weights)
    assert sum(array.size for array in weights) == sum(array.size for array in arrays.values())
    return header + b"".join(array.tobytes() for array in weights) + entries


def ordered(arrays: Arrays, layers: int) -> Iterator[np.ndarray[Any, Any]]:
    """The arrays of a checkpoint in the order of the file."""
    base = "bert.embeddings."
    yield from (arrays[f"{base}{name}_embeddings.weight"] for name in ("word", "position", "token_type"))
    yield from both(arrays, f"{base}LayerNorm")
    for number in range(layers):
        layer = f"bert.encoder.layer.{number}."
        for part in ("weight", "bias"):
            heads = ("query", "key", "value")
            yield np.concatenate([arrays[f"{layer}attention.self.{name}.{part}"] for name in heads])
        for name in ("attention.output.dense", "intermediate.dense", "output.dense"):
            yield from both(arrays, layer + name)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            yield from both(arrays, layer + name)
    yield from both(arrays, "cls.predictions.transform.dense")
    yield from both(arrays, "cls.predictions.transform.LayerNorm")
    yield arrays["cls.predictions.bias"]
    yield from both(arrays, "linear")


def both(arrays: Arrays, name: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Weight and bias."""
    return arrays[f"{name}.weight"], arrays[f"{name}.bias"]


def write_page(target: Path) -> None:
    """The page's files, with the sizes of what it loads."""
    loaded = sum((target / name).stat().st_size for name in (PROGRAM, WEIGHTS))
    for name in PAGE:
        shutil.copy(HERE / name, target / name)
    page = (target / "index.html").read_text(encoding="utf-8")
    page = page.replace("{{bytes}}", str(loaded)).replace("{{megabytes}}", f"{loaded / 1e6:.1f}")
    (target / "index.html").write_text(page, encoding="utf-8")
    (target / FRAGMENT).write_text(page.partition(START)[2].partition(END)[0].strip() + "\n", encoding="utf-8")


def main() -> None:
    """Build everything and say how large it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=REPOSITORY / "build" / "try", metavar="FOLDER")
    target = parser.parse_args().folder
    target.mkdir(parents=True, exist_ok=True)
    compile_program(target / PROGRAM)
    (target / WEIGHTS).write_bytes(gzip.compress(model_file(MODEL), 9, mtime=0))
    write_page(target)
    for path in sorted(target.iterdir()):
        print(f"{path.stat().st_size:>12,} bytes  {path}")


if __name__ == "__main__":
    main()
