"""Pages of the API: every public name of ``bertkit`` on the page of its subject, from its docstring.

Below each name stand the pages and examples whose Python uses it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import bertkit

DOCS = Path(__file__).parents[1]
#: Pages that are made, lists of notes, and what is no page.
NOT_USING = ("_generated/", "data/", "decisions/", "measurements/", "reference/", "changelog", "contributing")
#: Pages that are named below a name; of more, the rest is counted.
MOST_USES = 6


class Subject(NamedTuple):
    """A page of the API: the names of these modules (of modules below them too), as ``bertkit._NAMES`` has them."""

    title: str
    about: str
    modules: tuple[str, ...]


#: File name -> page. A public name of a module that no page has makes the build red.
SUBJECTS = {
    "pipelines": Subject("Pipelines", "From text to answers.", ("inference",)),
    "tables": Subject("Tables", "Answers for tables of any engine.", ("bulk",)),
    "training": Subject("Fine-tuning and estimators", "From labelled text to a model.", ("training", "optim")),
    "models": Subject("Models", "The encoder and its heads; names are those of `transformers`.", ("model",)),
    "tokenizers": Subject("Tokenizers", "Text to ids and back.", ("tokenization", "tokenizers")),
    "configs": Subject("Configs", "The shape of a model as plain data.", ("config",)),
    "errors": Subject("Errors", "Everything that a user can cause, in one tree.", ("errors",)),
    "habits": Subject("Names of transformers", "What code written for `transformers` imports.", ("habits",)),
    "sentence-transformers": Subject(
        "Names of sentence-transformers", "`import bertkit.sentence_transformers`.", ("sentence_transformers",)
    ),
    "setfit": Subject("Names of SetFit", "`from bertkit.setfit import ...`.", ("setfit",)),
    "static": Subject("Word vectors", "One vector a word, wherever it stands.", ("static",)),
    "visualize": Subject("Pictures", "`bertkit.visualize`: what is inside a model.", ("visualize",)),
}


def api_pages() -> dict[str, str]:
    """Path of each page -> its Markdown."""
    found = {f"reference/api/{name}.md": page(name) for name in SUBJECTS}
    lines = "\n".join(f"| [{each.title}]({name}.md) | {each.about} |" for name, each in SUBJECTS.items())
    tree = "\n".join(SUBJECTS)
    found["reference/api/index.md"] = (
        "# API\n\nAll public names, from their docstrings. `import bertkit` is quick: a name is loaded when it is "
        f"first used.\n\n| page | what it has |\n|---|---|\n{lines}\n\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n"
    )
    return found


def page(name: str) -> str:
    """One page: what the subject is, then each name, classes with their public methods."""
    subject = SUBJECTS[name]
    names = sorted(_names(subject), key=lambda each: inspect.isclass(_find(each)))  # what is called first
    parts = [f"# {subject.title}", subject.about]
    if others := _same_classes([each.rpartition(".")[2] for each in names]):
        parts.append("Names of the same classes in other software:\n\n| name | here |\n|---|---|\n" + "\n".join(others))
    earlier = {
        id(_find(each)) for other in list(SUBJECTS)[: list(SUBJECTS).index(name)] for each in _names(SUBJECTS[other])
    }
    return "\n\n".join([*parts, *(_directive(each, again=id(_find(each)) in earlier) for each in names)]) + "\n"


def missing_docstrings() -> Iterator[str]:
    """Every public name, and every public member of a class, that says nothing of itself; and those on no page."""
    shown = [each for subject in SUBJECTS.values() for each in _names(subject)]
    found_there = {id(_find(each)) for each in shown}
    for short in bertkit._MODULE_OF:
        value = getattr(bertkit, short)
        if id(value) not in found_there and not inspect.ismodule(value):
            yield f"bertkit.{short}: on no page of the reference; add its module to SUBJECTS in docs/_ext/api_pages.py"
    for each in shown:
        found = _find(each)
        if not inspect.getdoc(found):
            yield f"{each}: no docstring"
        if inspect.isclass(found):
            yield from (f"{each}.{member}: no docstring" for member in _members(found) if not _is_told(found, member))


def _names(subject: Subject) -> Iterator[str]:
    for module, names in bertkit._NAMES.items():
        short = module.removeprefix("bertkit.").partition(".")[0]
        if short in subject.modules and short != "sentence_transformers":
            yield from (f"bertkit.{name}" for name in names.split() if name not in bertkit._ALIASES)
    for module in subject.modules:
        if module in bertkit._MODULES:
            yield from _names_of_module(f"bertkit.{module}", set())


def _names_of_module(path: str, seen: set[int]) -> Iterator[str]:
    """The public names of a module and of the modules that it gives; each object once."""
    module = _find(path)
    for name in sorted(getattr(module, "__all__", ())):
        value = getattr(module, name)
        if name.startswith("_") or id(value) in seen or not (callable(value) or inspect.ismodule(value)):
            continue
        seen.add(id(value))
        if inspect.ismodule(value):
            yield from _names_of_module(f"{path}.{name}", seen)
        else:
            yield f"{path}.{name}"


def _find(path: str) -> object:
    first, *rest = path.split(".")
    found: object = {"bertkit": bertkit}[first]
    for name in rest:
        found = getattr(found, name)
    return found


def _members(found: type) -> list[str]:
    kinds = (property, classmethod, staticmethod)
    return [
        name
        for name, value in vars(found).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, kinds))
    ]


def _is_told(found: type, member: str) -> bool:
    return bool(inspect.getdoc(getattr(found, member)))


def _directive(path: str, *, again: bool) -> str:
    """The directive of autodoc for a name, with a heading, by which the page's contents list it.

    again: it is on an earlier page too, to which links go.
    """
    found = _find(path)
    kind = "class" if inspect.isclass(found) else "function" if callable(found) else "data"
    if inspect.isclass(found) and issubclass(found, BaseException):
        kind = "exception"
    lines = [f".. auto{kind}:: {path}"]
    if inspect.isclass(found) and found.__module__.startswith("bertkit"):
        own = [name for name in _members(found) if name not in _FIELDS]
        lines += [f"   :members: {', '.join(own)}"] if own else []
        lines += ["   :show-inheritance:"] if kind == "exception" else []
    lines += ["   :no-index:"] if again else []
    text = "\n".join(lines)
    used = [] if again else uses(path)
    rest = f" and {len(used) - MOST_USES} more" if len(used) > MOST_USES else ""
    said = f"\n\nUsed in: {', '.join(used[:MOST_USES])}{rest}." if used else ""
    return f"## {path.rpartition('.')[2]}\n\n```{{eval-rst}}\n{text}\n```{said}"


def uses(path: str) -> list[str]:
    """Links to the pages, and names of the examples, whose Python uses a public name."""
    module, _, name = path.rpartition(".")
    word, room = re.compile(rf"(?<![\w/-]){name}(?![\w/-])"), module.rpartition(".")[2]
    return [link for link, code in _programs().items() if word.search(code) and (room == "bertkit" or room in code)]


@cache
def _programs() -> dict[str, str]:
    """Link of a page, or name of an example -> its Python."""
    found = {}
    for path in sorted(DOCS.rglob("*.md")):
        page, text = path.relative_to(DOCS).as_posix(), path.read_text(encoding="utf-8")
        if not page.startswith(NOT_USING) and (blocks := re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)):
            title = text.partition("\n")[0].lstrip("# ")
            found[f"[{title}](../../{page})"] = "\n".join(blocks)
    for path in sorted((DOCS.parent / "examples").glob("*.py")):
        found[f"`examples/{path.name}`"] = path.read_text(encoding="utf-8")
    return found


#: What pydantic adds to a class of settings.
_FIELDS = {"model_config", "model_fields", "model_post_init"}


def _same_classes(names: list[str]) -> list[str]:
    here: dict[str, list[str]] = {}
    for alias, name in bertkit._ALIASES.items():
        if name in names:
            here.setdefault(name, []).append(alias)
    return [f"| {', '.join(f'`{alias}`' for alias in found)} | `{name}` |" for name, found in here.items()]
