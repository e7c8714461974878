"""Mends what checks of accessibility find in the HTML that Sphinx writes."""

from __future__ import annotations

import re
from typing import Any

#: A signature on several lines is a list of definitions without terms.
SIGNATURE = re.compile(r'<dl>\n((?:<dd><em class="(?:sig-param|property)">.*</dd>\n)+)</dl>')


def setup(app: Any) -> dict[str, bool]:
    """Connect with Sphinx."""
    app.connect("html-page-context", _on_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _on_page(app: Any, name: str, template: str, context: dict[str, Any], tree: object) -> None:
    if "body" in context:
        context["body"] = SIGNATURE.sub(_as_spans, context["body"])


def _as_spans(found: re.Match[str]) -> str:
    lines = found[1].replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>")
    return f'<span class="sig-lines">{lines}</span>'
