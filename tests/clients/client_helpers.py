"""What the programs of this folder share: their arguments, and a line for each call.

Each program asks a running server by one official client, unmodified, in every shape that the client has:

    python tests/clients/openai_client.py http://127.0.0.1:8080 --vectors NAME --labels NAME

A model's name is needed for each task that the program asks for; by default those of tests/server_helpers.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

DOCUMENTS = ["the film was good", "a bad film", "the man went to the bank"]


def arguments() -> argparse.Namespace:
    """The address, and the names of models by task."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url", type=lambda given: given.rstrip("/"))
    for name in ("vectors", "labels", "tags", "answers", "masks", "ranks", "nli"):
        parser.add_argument(f"--{name}", default=name)
    return parser.parse_args()


def shown(call: str, value: Any) -> None:
    """One line: a call and the beginning of what it gave."""
    print(f"{call}: {str(value).replace(chr(10), ' ')[:100]}", flush=True)


def check_vectors(call: str, vectors: Any, count: int) -> list[list[float]]:
    """So many vectors of one width, of finite numbers that are not all the same."""
    found = [list(map(float, vector)) for vector in vectors]
    assert len(found) == count, f"{call}: {len(found)} vectors, expected {count}"
    assert len({len(vector) for vector in found}) == 1, call
    for vector in found:
        assert all(abs(number) < 1e3 for number in vector), call
        assert len(set(vector)) > 1, call
    shown(call, f"{count} vectors of {len(found[0])}")
    return found


def check_scores(call: str, scores: Any) -> None:
    """Probabilities, best first."""
    found = list(map(float, scores))
    assert found, call
    assert all(0 <= score <= 1 for score in found), f"{call}: {found}"
    assert found == sorted(found, reverse=True), f"{call}: {found}"
    shown(call, found)


def refused(what: str, kind: type[Exception], call: Callable[..., Any], *given: Any, **keywords: Any) -> Any:
    """The error that a call raises."""
    try:
        answer = call(*given, **keywords)
    except kind as error:
        shown(what, f"{type(error).__name__}: {error}")
        return error
    raise AssertionError(f"{what} was answered: {answer}")
