"""Runs what people type: each snippet with bertkit and, with only the import changed, in the library it comes from."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import math
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.cli import main
from bertkit.errors import BertkitError

SNIPPETS = Path(__file__).parent / "snippets"
#: World (file of snippets) to the package that has the names at home; None: a way of working without one library.
HOMES = {
    "transformers": "transformers",
    "sentence_transformers": "sentence_transformers",
    "scikit_learn": None,
    "setfit": "setfit",
    "spreadsheet": None,
}


@dataclass(frozen=True)
class Snippet:
    """One thing that is typed.

    Attributes:
        world: of :data:`HOMES`.
        name: unique in its world.
        chapter: of the documentation of that library, whose first page has the call.
        code: Python that leaves its answer in ``result``; bertkit is imported where the library was.
        home: the code at home, where changing the import is not enough.
        check: an expression over ``result`` that is true if it is right, in place of the answer at home.
        error: a regular expression that our error must match: what runs there and is refused here, with ours named.
        tolerance: absolute, of numbers.
    """

    world: str
    name: str
    chapter: str
    code: str
    home: str = ""
    check: str = ""
    error: str = ""
    tolerance: float = 2e-4


def read_snippets(world: str) -> list[Snippet]:
    """The snippets of one world."""
    rows = tomllib.loads((SNIPPETS / f"{world}.toml").read_text(encoding="utf-8"))["snippet"]
    return [Snippet(world, **row) for row in rows]


def run(code: str, given: Mapping[str, Any], folder: Path) -> Any:
    """Run one snippet in ``folder``; returns its ``result``."""
    folder.mkdir(parents=True, exist_ok=True)
    names: dict[str, Any] = {**given, "TMP": folder}
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        exec(compile(code, "<snippet>", "exec"), names)
    assert "result" in names, "the snippet leaves no result"
    return names["result"]


def typed(line: str) -> str:
    """What a line of a shell prints, run in this process; a BertkitError with the message where it fails."""
    program, *words = shlex.split(line)
    assert program == "bertkit"
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    if code:
        raise BertkitError(err.getvalue())
    return out.getvalue()


def answer_at_home(snippet: Snippet, given: Mapping[str, Any], folder: Path) -> Any:
    """What the library itself answers; LookupError where it is not installed."""
    package = HOMES[snippet.world]
    if package is None and not snippet.home:
        raise LookupError("this world has no library of its own: give a check")
    if package is not None and importlib.util.find_spec(package) is None:
        raise LookupError(f"{package} is not installed")
    code = snippet.home or re.sub(rf"\bbertkit(\.{package})?\b", str(package), snippet.code)
    return run(code, given, folder)


def differences(ours: Any, theirs: Any, tolerance: float, where: str = "result") -> list[str]:
    """Where two answers differ: arrays, tensors, numbers, texts, and lists and mappings of them."""
    ours, theirs = _plain(ours), _plain(theirs)
    if isinstance(ours, np.ndarray) or isinstance(theirs, np.ndarray):
        ours, theirs = np.asarray(ours), np.asarray(theirs)
        if ours.shape != theirs.shape:
            return [f"{where}: shape {ours.shape}, there {theirs.shape}"]
        if ours.dtype.kind in "fc" or theirs.dtype.kind in "fc":
            far = not np.allclose(ours, theirs, rtol=0, atol=tolerance, equal_nan=True)
            return [f"{where}: numbers differ by up to {np.abs(ours - theirs).max()}"] if far else []
        return [] if np.array_equal(ours, theirs) else [f"{where}: {ours!r:.80}, there {theirs!r:.80}"]
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        if set(ours) != set(theirs):
            return [f"{where}: keys {sorted(map(str, ours))}, there {sorted(map(str, theirs))}"]
        return [line for key in theirs for line in differences(ours[key], theirs[key], tolerance, f"{where}[{key!r}]")]
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return [f"{where}: {len(ours)} items, there {len(theirs)}"]
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [line for place, pair in pairs for line in differences(*pair, tolerance, f"{where}[{place}]")]
    if isinstance(ours, float) or isinstance(theirs, float):
        near = isinstance(ours, int | float) and isinstance(theirs, int | float)
        near = near and (
            math.isclose(ours, theirs, rel_tol=0, abs_tol=tolerance) or (ours != ours and theirs != theirs)
        )
        return [] if near else [f"{where}: {ours!r}, there {theirs!r}"]
    return [] if ours == theirs else [f"{where}: {ours!r:.80}, there {theirs!r:.80}"]


def _plain(value: Any) -> Any:
    if hasattr(value, "detach"):
        return value.detach().cpu().numpy()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return list(value)
    if hasattr(value, "keys") and not isinstance(value, Mapping):
        return {key: value[key] for key in value.keys()}  # noqa: SIM118
    return value
