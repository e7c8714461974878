"""The shape of the source: sizes, annotations, documentation, what an import brings along."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from bertkit import tasks
from bertkit.errors import counted

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = REPOSITORY / "src" / "bertkit"
FILES = sorted(SOURCE.rglob("*.py"))
#: The scripts of benchmarks, which no test runs, and where they import from.
SCRIPTS = sorted((REPOSITORY / "benchmarks").glob("*.py"))
IMPORTED = (REPOSITORY / "benchmarks", REPOSITORY / "tests", REPOSITORY / "src")
TORCH_FREE = ["bertkit", "bertkit.errors", "bertkit.config", "bertkit.config.presets", "bertkit.config.config_aliases",
              "bertkit.system.model_sources", "bertkit.system.console", "bertkit.system.atomic_files",
              "bertkit.tokenization", "bertkit.metrics", *tasks._NAMES, "bertkit.cli"]  # fmt: skip


class Function(NamedTuple):
    where: str
    lines: int
    is_typed: bool


class Facts(NamedTuple):
    """What the tests ask of a module."""

    lines: int
    is_documented: bool
    functions: list[Function]
    calls: list[str]
    #: Counts before a noun, and the beginning of what follows.
    counts: list[str]


def facts_of(path):
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    found = Facts(text.count("\n"), bool(ast.get_docstring(tree)) or not text.strip(), [], [], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            is_typed = all(a.annotation is not None for a in arguments if a.arg not in ("self", "cls"))
            lines = (node.end_lineno or 0) - node.lineno + 1
            found.functions.append(Function(f"{path}:{node.lineno} {node.name}", lines, is_typed))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.calls.append(node.func.id)
        elif isinstance(node, ast.JoinedStr):
            found.counts.extend(counts_in(node))
    return found


NOUNS = re.compile(r" ((bad|labelled|training|more) )?(rows|texts|labels|examples|documents|files|steps|seeds)\b")


def counts_in(node):
    parts = [None, *node.values]
    for before, number, after in zip(parts, parts[1:], parts[2:], strict=False):
        opens = before is None or (isinstance(before, ast.Constant) and before.value.endswith(("(", ": ")))
        if opens and isinstance(number, ast.FormattedValue) and isinstance(after, ast.Constant):
            shown, form = ast.unparse(number.value), number.format_spec and ast.unparse(number.format_spec)
            if NOUNS.match(after.value) and not shown.isupper() and form in (None, "f','"):
                yield f"{shown}{after.value[:30]}"


@pytest.fixture(scope="session")
def facts(once):
    """Of every module: reading all of them takes seconds."""
    return once("facts-of-modules", lambda folder: {path: facts_of(path) for path in FILES})


@pytest.mark.slow
@pytest.mark.parametrize("room", sorted({path.relative_to(SOURCE).parts[0] for path in FILES}))
def test_files_are_small_typed_and_documented(room, facts):
    for path in (path for path in FILES if path.relative_to(SOURCE).parts[0] == room):
        assert facts[path].lines <= 400, path
        assert path.name not in ("utils.py", "helpers.py", "common.py"), path
        assert facts[path].is_documented, path
        for function in facts[path].functions:
            assert function.lines <= 80, function.where
            assert function.is_typed, function.where


@pytest.mark.slow
def test_functions_are_short(facts):
    lengths = sorted(function.lines for each in facts.values() for function in each.functions)
    assert lengths[len(lengths) * 95 // 100] <= 45


def test_bert_is_read_in_five_short_files():
    files = ("embeddings", "attention", "encoder", "heads", "models")
    assert sum((SOURCE / "model" / f"{name}.py").read_text().count("\n") for name in files) <= 700


@pytest.mark.slow
def test_numbers_and_nouns_agree(facts):
    """Where a message begins or a bracket opens with a count, :func:`bertkit.errors.counted` says "1 row"."""
    paths = (path for path in FILES if path.name != "battery.py")  # for people who write a kind of task
    assert [f"{path.relative_to(SOURCE)}: {count}" for path in paths for count in facts[path].counts] == []


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [(1, "row", "1 row"), (0, "row", "0 rows"), (2000, "bad row", "2,000 bad rows"), (2, "query", "2 queries"),
     (1, "query", "1 query"), (2, "class", "2 classes"), (2, "batch", "2 batches")],
)  # fmt: skip
def test_counted(number, noun, said):
    assert counted(number, noun) == said


@pytest.mark.slow
def test_one_place_makes_trainers(facts):
    makers = {"Trainer", "LoopOptions"}
    calls = [(path.name, name) for path in FILES for name in facts[path].calls if name in makers]
    assert sorted(calls) == [("assembly.py", "LoopOptions"), ("assembly.py", "Trainer")]


@cache
def names_of(path):
    """The names at the top level of a module."""
    return frozenset(top_names(path))


def top_names(path):
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        else:
            yield from (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_benchmarks_import_what_there_is(script):
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            files = [folder / f"{str(node.module).replace('.', '/')}.py" for folder in IMPORTED]
            for file in filter(Path.is_file, files):
                assert {alias.name for alias in node.names} <= names_of(file), (node.lineno, file)


def test_imports_do_not_bring_torch():
    """One after the other in one process: the first that brings it is named."""
    check = "assert not {'torch', 'transformers', 'sklearn'} & set(sys.modules), 'after %s'"
    code = "import sys\n" + "\n".join(f"import {module}\n{check % module}" for module in TORCH_FREE)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there():
    import bertkit

    for package in (bertkit, tasks):
        for name in package.__all__:
            assert getattr(package, name) is not None
        assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="BertModle"):
        bertkit.BertModle  # noqa: B018
