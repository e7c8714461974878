"""Writes each tutorial as a notebook: ``python docs/_ext/notebooks.py``.

``examples/notebooks/NAME.ipynb`` has the text of ``docs/tutorials/NAME.md``, its blocks as cells, and below them what
they printed when they were run (``run_blocks.py``). Nothing else is in it: change the page, and run ``make docs``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from os.path import relpath
from pathlib import Path

from check_pages import LINK, is_generated
from run_blocks import DATA, DOCS, blocks_of, kept, pages, stale

#: A block between fences: its language, and what it holds.
FENCED = re.compile(r"^```(\w+)\n(.*?)^```", flags=re.M | re.S)
NOTEBOOKS = DOCS.parent / "examples" / "notebooks"
FORMAT = {
    "metadata": {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    },
    "nbformat": 4,
    "nbformat_minor": 5,
}


def notebooks() -> dict[Path, str]:
    """The text of every notebook, by its path."""
    return {
        _path(page): json.dumps({"cells": list(_cells(page)), **FORMAT}, indent=1, ensure_ascii=False) + "\n"
        for page in pages()
        if page.startswith("tutorials/")
    }


def write_notebooks() -> None:
    """Write all notebooks, and remove those whose page is no more."""
    made = notebooks()
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path in {*NOTEBOOKS.rglob("*.ipynb")} - {*made}:
        path.unlink()


def _path(page: str) -> Path:
    return NOTEBOOKS / Path(page).relative_to("tutorials").with_suffix(".ipynb")


def _cells(page: str) -> Iterator[dict[str, object]]:
    """The cells of a page: its title, its data, and then text and blocks in turn."""
    text, outputs = (DOCS / page).read_text(encoding="utf-8"), kept(page)
    for block in stale(page):
        raise SystemExit(f"docs/{page}:{block.line}: no output is kept of this block; run 'make docs'")
    if directive := re.search(r"^(:::|```\{)", text, flags=re.M):
        line = text.count("\n", 0, directive.start()) + 1
        raise SystemExit(f"docs/{page}:{line}: notebooks cannot show a directive of Sphinx; write plain Markdown")

    title, _, _ = text.partition("\n")
    yield from _text(f"{title}\n\n*The page [docs/{page}]({Path(page).name}) as a notebook.*", page, "title")
    if (data := DATA / Path(page).stem).is_dir():
        copy = f'from shutil import copytree\n\ncopytree("{_from_notebook(page, data)}", ".", dirs_exist_ok=True)'
        yield _code(copy, "data", None, "")
    blocks = {block.line: (number, block) for number, block in enumerate(blocks_of(page), 1)}
    end, variables = len(title), list[str]()
    for each in FENCED.finditer(text):
        number, block = blocks.get(text.count("\n", 0, each.start()) + 2, (0, None))
        if block is not None:
            yield from _text(text[end : each.start()], page, f"text-{number}")
            end, source = each.end(), block.text
            if block.language == "bash":
                source = "".join(["%%bash -e\n", *variables, source])
                variables += re.findall(r"(?m)^[A-Z]+=.*\n", block.text)  # as in run_blocks.py
            yield _code(source, block.key, number, str(outputs[block.key]["output"]))
    yield from _text(text[end:], page, "end")


def _text(text: str, page: str, name: str) -> Iterator[dict[str, object]]:
    """A cell of text, unless there is none, with links as they are from the notebook's folder."""
    if text.strip():
        source = LINK.sub(lambda found: _link(page, *found.groups()), text.strip())
        yield {"cell_type": "markdown", "id": name, "metadata": {}, "source": source.splitlines(keepends=True)}


def _link(page: str, picture: str, said: str, target: str) -> str:
    """A link as it is from the notebook's folder. To pages that are made when the site is built there is none."""
    path, mark, anchor = target.partition("#")
    found = (DOCS / page).parent.joinpath(path).resolve()
    if is_generated(found):
        return said
    if found.is_file():
        target = f"{_from_notebook(page, found)}{mark}{anchor}"
    return f"{picture}[{said}]({target})"


def _from_notebook(page: str, path: Path) -> str:
    return Path(relpath(path, _path(page).parent)).as_posix()


def _code(source: str, name: str, number: int | None, output: str) -> dict[str, object]:
    stream = {"name": "stdout", "output_type": "stream", "text": output.splitlines(keepends=True)}
    return {
        "cell_type": "code",
        "execution_count": number,
        "id": name,
        "metadata": {},
        "outputs": [stream] if output else [],
        "source": source.rstrip("\n").splitlines(keepends=True),
    }


if __name__ == "__main__":
    write_notebooks()
