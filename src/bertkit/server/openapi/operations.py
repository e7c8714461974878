"""The routes for those who run the server, as OpenAPI describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertkit.server.dialects.route import JSON

_TEXT = {"type": "string"}


def _object(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields)}


def _said(description: str, schema: Any, kind: str = JSON) -> dict[str, Any]:
    return {"description": description, "content": {kind: {"schema": schema}}}


_FAILED = _object(error=_object(type=_TEXT, message=_TEXT))
_READY = _object(ready={"type": "boolean"}, reason={"type": ["string", "null"]})
_RELOADED = _object(reloaded={"type": "object", "additionalProperties": {"type": "boolean"}})
#: What every route may say before it is asked.
GUARDED: Mapping[str, str] = {
    "403": "The Host or the Origin is not allowed; see --allowed-hosts and --allowed-origins.",
    "500": "A fault of the server; its log has more.",
}


def _operation(summary: str, tag: str, responses: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    guarded = {status: _said(description, _FAILED) for status, description in GUARDED.items()}
    return {"summary": summary, "tags": [tag], "responses": dict(sorted({**guarded, **responses}.items())), **more}


def _admin(summary: str, responses: Mapping[str, Any]) -> dict[str, Any]:
    refused = {
        "401": _said("The admin key is needed.", _FAILED),
        "404": _said("The server was started without --admin-key.", _FAILED),
    }
    return _operation(summary, "admin", {**refused, **responses}, security=[{"bearer": []}, {"key": []}])


#: By method and path.
OPERATIONS: Mapping[tuple[str, str], dict[str, Any]] = {
    ("GET", "/health"): _operation(
        "Whether the models compute. Also 200 while they are loaded, because restarting would not help.",
        "operations",
        {
            "200": _said("They do, or are being loaded.", _object(status={"const": "ok"})),
            "503": _said(
                "A batch hangs, or a question of our own was not answered.", _object(error=_TEXT, error_type=_TEXT)
            ),
        },
    ),
    ("GET", "/ready"): _operation(
        "Whether requests should be sent here.",
        "operations",
        {
            "200": _said("They should.", _READY),
            "503": _said("Loading, full, shutting down, or a model failed.", _READY),
        },
    ),
    ("GET", "/metrics"): _operation(
        "Numbers for Prometheus.", "operations", {"200": _said("The numbers.", _TEXT, "text/plain")}
    ),
    ("GET", "/openapi.json"): _operation(
        "This description.",
        "operations",
        {"200": _said("The description.", _object(openapi=_TEXT, paths={"type": "object"}))},
    ),
    ("POST", "/admin/reload"): _admin(
        "Load all models again; the old ones answer until the new ones do.",
        {
            "200": _said("All were loaded.", _RELOADED),
            "422": _said("There are several workers: send SIGHUP to the supervisor.", _FAILED),
            "424": _said("Some could not be loaded: the old ones stay.", _RELOADED),
        },
    ),
    ("GET", "/admin/models"): _admin(
        "All that is known of the models, also where they lie.",
        {"200": _said("The models.", _object(models={"type": "array", "items": {"type": "object"}}))},
    ),
}
_REFUSED = {"type": "object"}
#: With ``--mcp``.
MCP: Mapping[tuple[str, str], dict[str, Any]] = {
    ("POST", "/mcp"): _operation(
        "The Model Context Protocol over HTTP, without sessions and streams.",
        "mcp",
        {
            "200": _said("The answer to a call.", _object(jsonrpc={"const": "2.0"})),
            "202": {"description": "A notification was taken."},
            "400": _said("No JSON-RPC.", _REFUSED),
            "401": _said("A key is needed.", _FAILED),
            "406": _said("The client does not accept JSON.", _REFUSED),
            "413": _said("The body is too large.", _FAILED),
            "415": _said("Another type of body.", _REFUSED),
            "429": _said("The key has used up what it may ask for in a minute.", _FAILED),
        },
        requestBody={
            "required": True,
            "content": {JSON: {"schema": _object(jsonrpc={"const": "2.0"}, method=_TEXT)}},
        },
    ),
}
