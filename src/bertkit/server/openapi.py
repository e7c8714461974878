"""The description of all routes in OpenAPI 3.1, made from the routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic.json_schema import models_json_schema

from bertkit import __version__
from bertkit.server.dialects.route import JSON, NDJSON, STATUS, Dialect, Route

_REFERENCE = "#/components/schemas/{model}"
_WAIT: Mapping[str, Any] = {
    "name": "X-Queue-Wait",
    "in": "header",
    "description": "How long to wait for room where the queue is full, in place of 429: seconds, or 500ms.",
    "schema": {"type": "string", "examples": ["5", "500ms"]},
}


def describe(routes: Mapping[tuple[str, str], Sequence[tuple[Dialect, Route, frozenset[str]]]]) -> dict[str, Any]:
    """The document. A path that several dialects share has each of their bodies."""
    bodies = {route.body for found in routes.values() for _, route, _ in found if route.body}
    keyed, definitions = models_json_schema([(body, "validation") for body in bodies], ref_template=_REFERENCE)
    schemas = {body: schema for (body, _), schema in keyed.items()}
    paths: dict[str, dict[str, Any]] = {}
    for (method, path), found in routes.items():
        first = found[0][1]
        operation: dict[str, Any] = {
            "summary": first.summary,
            "operationId": f"{method.lower()} {path}",
            "tags": list(dict.fromkeys(dialect.name for dialect, _, _ in found)),
            "responses": _responses(found),
        }
        listed = [schemas[route.body] for _, route, _ in found if route.body]
        if listed:
            schema = listed[0] if len(listed) == 1 else {"anyOf": listed}
            kind = NDJSON if first.lines else JSON
            operation["requestBody"] = {"required": True, "content": {kind: {"schema": schema}}}
        parameters: list[Mapping[str, Any]] = [_WAIT] if listed and not first.lines else []
        if "{model}" in path:
            parameters = [{"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}, *parameters]
        if parameters:
            operation["parameters"] = parameters
        paths.setdefault(path, {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "bertkit", "version": __version__, "description": "BERT models behind HTTP."},
        "paths": paths,
        "components": {"schemas": definitions.get("$defs", {})},
    }


def _responses(found: Sequence[tuple[Dialect, Route, frozenset[str]]]) -> dict[str, Any]:
    examples = {dialect.name: {"value": route.answer} for dialect, route, _ in found if route.answer is not None}
    good: dict[str, Any] = {"description": "The answer."}
    if examples:
        good["content"] = {NDJSON if found[0][1].lines else JSON: {"examples": examples}}
    if any(route.binary for _, route, _ in found):
        good["content"]["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
    statuses = {dialect.status.get(kind, usual) for dialect, _, _ in found for kind, usual in STATUS.items()}
    known = {str(status): {"description": "A failure."} for status in sorted(statuses)}
    return {"200": good, **known}
