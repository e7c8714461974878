"""The description of all routes in OpenAPI 3.1, made from the routes."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic.json_schema import models_json_schema

from bertkit import __version__
from bertkit.server.dialects.route import JSON, NDJSON, STATUS, Dialect, Route
from bertkit.server.failures import Failure, Kind
from bertkit.server.openapi.operations import MCP, OPERATIONS

Choices = Sequence[tuple[Dialect, Route, frozenset[str]]]
_REFERENCE = "#/components/schemas/{model}"
#: What a request may fail by: any; one with a body; one that asks about a model; one whose form depends on a model.
_ANY: frozenset[Kind] = frozenset({"unauthorized", "forbidden", "fault"})
_COMPUTED: frozenset[Kind] = frozenset(STATUS) - {"no_route", "method", "missing_package"}
_LINES: frozenset[Kind] = _ANY | {"media_type", "empty", "invalid", "overloaded"}
_OF_A_MODEL: frozenset[Kind] = _ANY | {"unknown_model"}
_FORM_OF_A_MODEL: frozenset[Kind] = _OF_A_MODEL | {"wrong_task", "damaged_model", "not_ready"}
#: What a failure is, for people.
_WORDS: Mapping[Kind, str] = {
    "malformed": "the body is not JSON",
    "invalid": "a field that the route does not have, or a value that it does not take",
    "empty": "there is no text",
    "too_long": "more tokens than the model reads",
    "too_many": "more inputs than one request may have",
    "body_too_large": "the body is too large",
    "media_type": "another type of body",
    "unauthorized": "a key is needed",
    "forbidden": "a Host or Origin that is not allowed",
    "unknown_model": "no such model",
    "wrong_task": "the model does not do this",
    "missing_package": "a package is not installed",
    "damaged_model": "the model cannot be loaded, or its numbers are not finite",
    "overloaded": "the queue is full, or the key has used up what it may ask for in a minute",
    "timeout": "no answer in time",
    "not_ready": "the model is being loaded, or the server is shutting down",
    "fault": "a fault of the server",
}
_STRING = {"type": "string"}
_HEADERS = {
    "Retry-After": {"description": "seconds after which a new try makes sense", "schema": _STRING},
    "retry-after-ms": {"description": "the same in milliseconds", "schema": _STRING},
    "WWW-Authenticate": {"description": "Bearer", "schema": _STRING},
    "X-Truncated": {"description": "how many inputs were not read to their end, if any", "schema": _STRING},
    "X-Request-Id": {"description": "the id that was sent, or a new one", "schema": _STRING},
}
_PARAMETERS = {
    "timeout": {
        "name": "X-Request-Timeout",
        "in": "header",
        "description": "seconds, or milliseconds with `ms`, after which the answer is not wanted any more",
        "schema": {"type": "string", "pattern": "^[1-9][0-9]{0,3}(ms|s)?$", "examples": ["30", "500ms"]},
    },
    "wait": {
        "name": "X-Queue-Wait",
        "in": "header",
        "description": "how long to wait for room where the queue is full, in place of 429: seconds, or `500ms`",
        "schema": {"type": "string", "pattern": "^[1-9][0-9]{0,3}(ms|s)?$", "examples": ["5", "500ms"]},
    },
    "id": {
        "name": "X-Request-Id",
        "in": "header",
        "description": "comes back, and stands in the log",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
    },
    "model": {"name": "model", "in": "path", "required": True, "description": "its name", "schema": _STRING},
}
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "a key of --api-key, --api-keys-file or --admin-key"},
    "key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "the same"},
}


def describe(routes: Mapping[tuple[str, str], Choices], *, keys: bool = False, mcp: bool = False) -> dict[str, Any]:
    """The document. A path that several dialects share has each of their bodies.

    keys: requests need a key. mcp: ``/mcp`` is there.
    """
    bodies = {route.body for found in routes.values() for _, route, _ in found if route.body}
    keyed, definitions = models_json_schema([(body, "validation") for body in bodies], ref_template=_REFERENCE)
    schemas = {body: schema for (body, _), schema in keyed.items()}
    failures = _Failures()
    paths: dict[str, dict[str, Any]] = {}
    for (method, path), found in routes.items():
        operation = {**_operation(path, found, failures), "operationId": f"{method.lower()} {path}"}
        listed = [schemas[route.body] for _, route, _ in found if route.body]
        if listed:
            schema = listed[0] if len(listed) == 1 else {"anyOf": listed}
            kind = NDJSON if found[0][1].lines else JSON
            operation["requestBody"] = {"required": True, "content": {kind: {"schema": schema}}}
        paths.setdefault(path, {})[method.lower()] = operation
    for (method, path), given in {**OPERATIONS, **(MCP if mcp else {})}.items():
        paths.setdefault(path, {})[method.lower()] = {
            "operationId": f"{method.lower()} {path}",
            "security": [{}],
            **given,
        }
    with_key: list[dict[str, Any]] = [{name: []} for name in _SCHEMES]
    return {
        "openapi": "3.1.0",
        "info": {"title": "bertkit", "version": __version__, "description": "BERT models behind HTTP."},
        "security": with_key if keys else [{}, *with_key],
        "paths": paths,
        "components": {
            "schemas": definitions.get("$defs", {}),
            "responses": failures.responses,
            "parameters": _PARAMETERS,
            "headers": _HEADERS,
            "securitySchemes": _SCHEMES,
        },
    }


def _operation(path: str, found: Choices, failures: _Failures) -> dict[str, Any]:
    first = found[0][1]
    parameters = [
        "id",
        *(["timeout"] if first.body else []),
        *(["wait"] if first.body and not first.lines else []),
        *(["model"] if "{model}" in path else []),
    ]
    return {
        "summary": first.summary,
        "tags": list(dict.fromkeys(dialect.name for dialect, _, _ in found)),
        "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in parameters],
        "responses": {"200": _good(found), **failures.of(found, kinds_of(path, found))},
    }


def kinds_of(path: str, found: Choices) -> frozenset[Kind]:
    """What requests of a path may fail by."""
    if any(route.lines for _, route, _ in found):
        return _LINES
    if any(route.body for _, route, _ in found):
        return _COMPUTED | {kind for _, route, _ in found for kind in route.fails}
    if any(route.needs_facts for _, route, _ in found):
        return _FORM_OF_A_MODEL
    return _OF_A_MODEL if "{model}" in path else _ANY


def _good(found: Choices) -> dict[str, Any]:
    first = found[0][1]
    good: dict[str, Any] = {"description": "The answer.", "headers": _headers("X-Request-Id", "X-Truncated")}
    content: dict[str, Any] = {}
    if examples := {dialect.name: {"value": route.answer} for dialect, route, _ in found if route.answer is not None}:
        content["examples"] = examples
    schemas = [route.schema or _like(route.answer) for _, route, _ in found]
    if not first.lines and None not in schemas:
        content["schema"] = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    if content:
        good["content"] = {NDJSON if first.lines else JSON: content}
    if any(route.binary for _, route, _ in found):
        good["content"]["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
    return good


def _like(example: Any) -> Mapping[str, Any] | None:
    """What an example says of all answers: an array, or an object with these fields."""
    if isinstance(example, list):
        return {"type": "array"}
    return {"type": "object", "required": list(example)} if isinstance(example, dict) else None


def _headers(*names: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


class _Failures:
    """Responses to what cannot be answered, each described once."""

    def __init__(self) -> None:
        self.responses: dict[str, Any] = {}

    def of(self, found: Choices, kinds: Collection[Kind]) -> dict[str, Any]:
        """By status a reference to a response."""
        by_status: dict[int, list[tuple[Dialect, Kind]]] = {}
        for kind in STATUS:
            for dialect, _, _ in found if kind in kinds else ():
                by_status.setdefault(dialect.status.get(kind, STATUS[kind]), []).append((dialect, kind))
        names = "-".join(dict.fromkeys(dialect.name for dialect, _, _ in found))
        return {
            str(status): {"$ref": f"#/components/responses/{self._kept(f'{names}-{status}', given)}"}
            for status, given in sorted(by_status.items())
        }

    def _kept(self, name: str, given: Sequence[tuple[Dialect, Kind]]) -> str:
        response = _failed(given)
        number, own = 1, name
        while self.responses.setdefault(own, response) != response:
            number += 1
            own = f"{name}-{number}"
        return own


def _failed(given: Sequence[tuple[Dialect, Kind]]) -> dict[str, Any]:
    headers, examples, schemas = ["X-Request-Id"], {}, []
    for dialect, kind in given:
        reply = dialect.refusal(Failure(kind, _WORDS[kind], retry_after=1.0 if kind in _LATER else None))
        headers += [name for name in _HEADERS if name.lower() in reply.headers and name not in headers]
        if reply.body:
            examples[f"{dialect.name}: {kind}"] = {"value": json.loads(reply.body)}
        schemas.append(dialect.failed)
    said = "; ".join(dict.fromkeys(_WORDS[kind] for _, kind in given))
    response: dict[str, Any] = {"description": f"{said[0].upper()}{said[1:]}.", "headers": _headers(*headers)}
    if examples:
        response["content"] = {JSON: {"examples": examples}}
        if all(schema is not None and schema == schemas[0] for schema in schemas):
            response["content"][JSON]["schema"] = schemas[0]
    return response


#: Kinds that say when to try again.
_LATER: frozenset[Kind] = frozenset({"overloaded", "not_ready"})
