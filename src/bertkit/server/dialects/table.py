"""All dialects, and their routes by method and path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bertkit.server.dialects import (
    bertkit,
    cohere,
    huggingface,
    infinity,
    jina,
    lemonade,
    ollama,
    openai,
    sagemaker,
    tei,
    vertex,
    vllm,
)
from bertkit.server.dialects.route import Dialect, Route

ALL: Sequence[Dialect] = tuple(
    module.DIALECT
    for module in (
        bertkit,
        openai,
        tei,
        huggingface,
        cohere,
        jina,
        vllm,
        infinity,
        lemonade,
        ollama,
        sagemaker,
        vertex,
    )
)


def routes() -> Mapping[tuple[str, str], Sequence[tuple[Dialect, Route, frozenset[str]]]]:
    """By method and path: the routes, and the keys of a body that choose among several.

    A body that has none of those keys belongs to the first; one with keys of two routes to neither.
    """
    found: dict[tuple[str, str], list[tuple[Dialect, Route, frozenset[str]]]] = {}
    for dialect in ALL:
        for route in dialect.routes:
            place = found.setdefault((route.method, route.path), [])
            place.insert(0 if route.usual else len(place), (dialect, route, route.keys))
    return found
