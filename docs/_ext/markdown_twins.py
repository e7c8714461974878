"""A Markdown twin beside every page, and ``llms.txt`` and ``llms-full.txt``, which list and hold them.

The twin is written from the parsed page, so that what is generated (docstrings, options, outputs of blocks) is in it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx_markdown_builder.translator import MarkdownTranslator

ABOUT = """# bertkit

> BERT in one Python package: tokenizers, packed encoder, strict loading, pre-training, fine-tuning, pipelines, search,
> a server and a command line.

Every page is also Markdown, at its address with .md in place of .html. All in one file: llms-full.txt
"""


class _Translator(MarkdownTranslator):
    """With the stars of signatures, which are marked as abbreviations, and with links within a page."""

    def _fetch_ref_uri(self, node: Any) -> str:
        return f"#{node['refid']}" if "refid" in node else str(super()._fetch_ref_uri(node))

    def visit_abbreviation(self, node: Any) -> None:
        """Only what it holds is written."""

    def depart_abbreviation(self, node: Any) -> None:
        """Nothing stands after it."""

    def visit_raw(self, node: Any) -> None:
        """HTML is for browsers only."""
        raise nodes.SkipNode

    def visit_caption(self, node: Any) -> None:
        """The caption of a block is written as a line above it."""
        self.ensure_eol(2)

    def depart_caption(self, node: Any) -> None:
        """The block begins on a line of its own."""
        self.ensure_eol(2)


def setup(app: Any) -> dict[str, bool]:
    """Connect with Sphinx."""
    app.setup_extension("sphinx_markdown_builder")
    app.connect("build-finished", _on_end)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _on_end(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.name == "html":
        write_twins(app, Path(app.outdir))


def write_twins(app: Any, folder: Path) -> None:
    """Write the twins of all pages, in the order of the contents."""
    from sphinx_markdown_builder.builder import MarkdownBuilder

    builder = MarkdownBuilder(app, app.env)
    builder.init()
    listed, whole = [ABOUT], []
    for name in _in_order(app.env):
        builder.current_doc_name = builder.current_docname = name
        builder.sec_numbers = {}
        tree = app.env.get_and_resolve_doctree(name, builder)
        translator = _Translator(tree, builder)
        tree.walkabout(translator)
        text = re.sub(r"(\]\((?!\w+:)[^)\s]*)\.html(?=[#)])", r"\1.md", str(translator.astext()))
        path = folder / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        listed.append(f"- [{app.env.titles[name].astext()}]({name}.md)")
        whole.append(f"<!-- {name}.md -->\n\n{text}")
    (folder / "llms.txt").write_text("\n".join(listed) + "\n", encoding="utf-8")
    (folder / "llms-full.txt").write_text("\n\n".join(whole), encoding="utf-8")


def _in_order(env: Any) -> list[str]:
    """Pages as the contents list them."""
    order, left = [], [env.config.root_doc]
    while left:
        name = left.pop(0)
        if name not in order:
            order.append(name)
            left[:0] = env.toctree_includes.get(name, [])
    return order
