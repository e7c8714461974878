"""The files of the playground, as replies of the server."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from bertkit.server.dialects.route import Reply

#: By path, the file in this package.
PATHS: Mapping[str, str] = {
    "/playground": "index.html",
    **{
        f"/playground/{name}": name
        for name in ("playground.css", "playground.js", "tasks.js", "samples.js", "views.js", "pictures.js", "dom.js")
    },
}
_MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
#: Scripts and styles of this server alone; no frame around the page, and no form that is sent anywhere.
_HEADERS = {
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "object-src 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def playground() -> Mapping[str, Reply]:
    """By path."""
    folder = files("bertkit.server.playground")
    return {
        path: Reply(
            folder.joinpath(name).read_bytes(),
            media_type=f"{_MEDIA_TYPES[name.rpartition('.')[2]]}; charset=utf-8",
            headers=_HEADERS,
        )
        for path, name in PATHS.items()
    }
