"""All dialects, and their routes by method and path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bertkit.server.dialects import bertkit
from bertkit.server.dialects.route import Dialect, Route

ALL: Sequence[Dialect] = (bertkit.DIALECT,)


def routes() -> Mapping[tuple[str, str], Sequence[tuple[Dialect, Route, frozenset[str]]]]:
    """By method and path: the routes, and the keys of a body that choose among several."""
    return {(route.method, route.path): [(each, route, frozenset())] for each in ALL for route in each.routes}
