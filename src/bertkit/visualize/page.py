"""The frame of every HTML page: self-contained, no request to anywhere, light and dark."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files

#: What JSON can hold.
Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]

#: Nothing is loaded from anywhere; styles and scripts are those in the document.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def document(title: str, body: str, *, data: Json = None, script: str | None = None) -> str:
    """An HTML document.

    Args:
        title: plain text, also the heading.
        body: HTML; whatever comes from users is escaped by the caller.
        data: what the script reads, from ``JSON.parse(document.getElementById("data").textContent)``.
        script: the name of a file in ``assets/``; it comes after ``page.js``.
    """
    name, style = html.escape(title), asset("page.css")
    parts = [
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{name}</title>',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>\n{style}</style>\n</head>\n<body>\n<h1>{name}</h1>\n{body}",
    ]
    if script is not None:
        # "<" would end the element early if a text says "</script>".
        content = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
        parts.append(f'<script type="application/json" id="data">{content}</script>')
        parts.append(f"<script>\n{asset('page.js')}{asset(script)}</script>")
    return "\n".join([*parts, "</body>\n</html>\n"])


def asset(name: str) -> str:
    """A style sheet or script of this package."""
    return files("bertkit.visualize").joinpath("assets", name).read_text(encoding="utf-8")
