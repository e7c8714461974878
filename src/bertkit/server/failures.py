"""What can go wrong with a request: kinds with a cause and advice. Statuses and bodies belong to the dialects."""

from __future__ import annotations

from typing import Literal

Kind = Literal[
    "malformed",  # no JSON, or not of the form that the route reads
    "invalid",  # a field that the route does not have, or a value that it does not take
    "empty",  # nothing to compute: no text, or a blank one
    "too_long",  # more tokens than the model reads
    "too_many",  # more items than one request may have
    "body_too_large",
    "media_type",
    "unauthorized",
    "forbidden",  # a Host or Origin that is not allowed
    "no_route",
    "method",
    "unknown_model",
    "wrong_task",  # the model has no such head
    "missing_package",
    "damaged_model",  # its outputs are not finite, or its files cannot be read
    "overloaded",
    "timeout",
    "not_ready",  # loading, or shutting down
    "fault",  # of bertkit itself
]


class Failure(Exception):
    """A request that cannot be answered.

    kind: what a client's program needs to know.
    param: the field that is wrong.
    retry_after: seconds after which a new try makes sense.
    given, limit: of what was too long or too many: tokens or items, and how many there may be.
    """

    def __init__(
        self,
        kind: Kind,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
        given: int | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.message, self.param, self.retry_after = message, param, retry_after
        self.given, self.limit = given, limit
