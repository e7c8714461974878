"""Shows below a block what it printed when it was run (``run_blocks.py``), or that it printed nothing."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util import logging

from run_blocks import DOCS, LANGUAGES, blocks_of, kept, pages

#: Pages whose blocks are run on data that the reader does not see: outputs would say nothing.
QUIET = ("index.md",)


def setup(app: Any) -> dict[str, bool]:
    """Connect with Sphinx."""
    app.connect("doctree-read", _on_page)
    app.connect("env-get-outdated", _outdated)
    return {"parallel_read_safe": True}


def _sources(page: str) -> list[str]:
    """The page itself, or the part that it includes, whichever has blocks that are run."""
    included = {"index.md": ["_generated/chooser.md"]}
    return [*included.get(page, []), page]


@cache
def _pages_with_blocks() -> frozenset[str]:
    return frozenset(pages())


def _outdated(app: Any, env: Any, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """Pages with blocks are read again: their outputs may have changed."""
    return [page.removesuffix(".md") for page in pages() if page.removesuffix(".md") in env.found_docs] + ["index"]


def _on_page(app: Any, tree: nodes.document) -> None:
    page = Path(str(tree["source"])).resolve().relative_to(DOCS).as_posix()
    outputs = {
        (block.language, block.text.rstrip("\n")): (block, kept(source).get(block.key))
        for source in _sources(page)
        if source in _pages_with_blocks()
        for block in blocks_of(source)
    }
    for node in list(tree.findall(nodes.literal_block)):
        language = node.get("language")
        block, found = outputs.get((str(language), node.astext().rstrip("\n")), (None, None))
        if language in LANGUAGES and block is not None and found is None:
            logging.getLogger(__name__).warning("no output is kept of this block; run 'make docs'", location=node)
        elif found is not None and str(found["output"]).strip() and page not in QUIET:
            _show(node, str(found["output"]))


def _show(node: nodes.literal_block, output: str) -> None:
    shown = nodes.literal_block(output.rstrip(), output.rstrip(), language="text", classes=["block-output"])
    box = nodes.container("", shown, classes=["block-output"])
    node.parent.insert(node.parent.index(node) + 1, box)
