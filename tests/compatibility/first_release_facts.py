"""What the first release told that no processor changes: ids, examples, names, parameters, options.

``write_first_release.py`` runs this as a script inside the tree of that release; the tests call its functions in the
present one. So it uses ``bertkit.__all__``, the documented modules and the command line, and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import json
import os
import random
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import bertkit
from bertkit import classic, hub
from bertkit.cli import main

#: The documented modules.
MODULES = (
    "bertkit",
    "bertkit.classic",
    "bertkit.classic.create_pretraining_data",
    "bertkit.classic.modeling",
    "bertkit.classic.optimization",
    "bertkit.classic.run_classifier",
    "bertkit.classic.tokenization",
    "bertkit.errors",
    "bertkit.hub",
    "bertkit.inference.onnx_model",
    "bertkit.metrics",
    "bertkit.metrics_squad",
    "bertkit.model.resize",
)
COMMANDS = tuple(
    "demo doctor vocab prepare pretrain finetune adapt evaluate predict fill-mask next-sentence answer classify tag "
    "embed similarity inspect convert export".split()
)
METHODS = ("from_pretrained", "save_pretrained", "forward", "__call__", "fit", "predict", "predict_proba")


def ids(folder: Path) -> dict[str, Any]:
    """What the tokenizer of the artefacts makes of fixed texts.

    Args:
        folder: with ``tokenizer`` and ``data/texts.json``.
    """
    texts = json.loads((folder / "data" / "texts.json").read_text(encoding="utf-8"))
    tokenizer = bertkit.BertTokenizer.from_pretrained(folder / "tokenizer")
    pairs = tokenizer(
        texts, texts[::-1], truncation=True, max_length=24, padding=True, return_offsets_mapping=True,
        return_special_tokens_mask=True,
    )  # fmt: skip
    windows = tokenizer(
        ["was it?"] * len(texts), texts, truncation="only_second", max_length=24, stride=4,
        return_overflowing_tokens=True, return_offsets_mapping=True,
    )  # fmt: skip
    layer = hub.Preprocess(str(folder / "tokenizer"), seq_length=16)(texts)
    found = {
        "texts": tokenizer(texts)["input_ids"],
        "tokens": [tokenizer.tokenize(text) for text in texts],
        "decoded": [tokenizer.decode(row) for row in tokenizer(texts)["input_ids"]],
        "pairs": {key: pairs[key] for key in sorted(pairs)},
        "windows": {key: windows[key] for key in sorted(windows)},
        "hub": {key: value.tolist() for key, value in layer.items()},
        "original": [bertkit.FullTokenizer(str(folder / "tokenizer" / "vocab.txt")).tokenize(text) for text in texts],
    }
    return json.loads(json.dumps(found))  # tuples become lists


def examples(folder: Path) -> dict[str, Any]:
    """Masked-LM and next-sentence examples of the original procedure, and its features: hashes, and the first few."""
    tokenizer = classic.FullTokenizer(str(folder / "tokenizer" / "vocab.txt"), do_lower_case=True)
    found: dict[str, Any] = {}
    for whole_words in (False, True):
        made = classic.create_training_instances(
            [folder / "data" / "corpus.txt"], tokenizer, 24, 2, 0.1, 0.15, 4, random.Random(5),
            do_whole_word_mask=whole_words,
        )  # fmt: skip
        rows = [
            [one.tokens, one.segment_ids, one.is_random_next, one.masked_lm_positions, one.masked_lm_labels]
            for one in made
        ]
        digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
        found["whole words" if whole_words else "tokens"] = {"count": len(rows), "sha256": digest, "first": rows[:2]}
    texts = json.loads((folder / "data" / "texts.json").read_text(encoding="utf-8"))
    pairs = [classic.InputExample(str(n), text, texts[0], "b") for n, text in enumerate(texts)]
    found["features"] = [
        [one.input_ids, one.input_mask, one.segment_ids, one.label_id]
        for one in classic.convert_examples_to_features(pairs, ["a", "b"], 16, tokenizer)
    ]
    return json.loads(json.dumps(found))


def store_rows(store: Path) -> list[dict[str, Any]]:
    """The documents of a token store, as any reader of Parquet sees them."""
    return [row for path in sorted(store.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def names() -> dict[str, list[str]]:
    """The public names of each documented module."""
    return {module: sorted(_public(module)) for module in MODULES}


def parameters() -> dict[str, list[str]]:
    """The parameters of every public function, class and everyday method: ``"a b c"`` to the dotted names of all that
    take a, b and c, in this order."""
    found: dict[str, list[str]] = {}

    def note(name: str, thing: Any) -> None:
        found.setdefault(" ".join(_parameters_of(thing)), []).append(name)

    for module in MODULES:
        for name in _public(module):
            thing = getattr(import_module(module), name)
            if callable(thing):
                note(f"{module}.{name}", thing)
            if inspect.isclass(thing) and not issubclass(thing, Exception):
                for method in METHODS:
                    if str(getattr(getattr(thing, method, None), "__module__", "")).startswith("bertkit"):
                        note(f"{module}.{name}.{method}", getattr(thing, method))
    return found


def options(command: str) -> list[str]:
    """The options of a command, as its help names them."""
    found: set[str] = set()
    for page in ("--help", "--help-all"):
        for line in _told(command, page).splitlines():
            words = iter(line.strip("│ ").removeprefix("*").split())
            for word in words:
                if not word.startswith("-"):
                    break
                found.add(word)
    return sorted(found)


def _public(module: str) -> Iterator[str]:
    """``__all__``, or what is defined there."""
    loaded = import_module(module)
    if hasattr(loaded, "__all__"):
        yield from loaded.__all__
        return
    for name, thing in vars(loaded).items():
        if not name.startswith("_") and getattr(thing, "__module__", None) == module:
            yield name


def _parameters_of(thing: Any) -> list[str]:
    try:
        return [name for name in inspect.signature(thing).parameters if not name.startswith("_") and name != "self"]
    except (TypeError, ValueError):
        return []


def _told(*argv: str) -> str:
    told = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "200"
    try:
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(io.StringIO()):
            code = main(list(argv))
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
    return told.getvalue() if code == 0 else ""


def write(folder: Path) -> None:
    facts = {
        "ids": ids(folder),
        "examples": examples(folder),
        "store": store_rows(folder / "store"),
        "names": names(),
        "parameters": parameters(),
        "options": {command: options(command) for command in COMMANDS},
    }
    for name, value in facts.items():
        (folder / f"{name}.json").write_text(json.dumps(value, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
