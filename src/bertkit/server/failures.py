"""What can go wrong with a request: kinds with a cause and advice. Statuses and bodies belong to the dialects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

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
#: Why a request is not answered, as those who run a server count it: the kinds, and for "overloaded" what is used up.
Cause = Kind | Literal["queue_tokens", "queue_requests", "key_requests", "key_tokens", "memory"]
#: Those that end by themselves once the queue is shorter.
NO_ROOM = ("queue_tokens", "queue_requests")


class Failure(Exception):  # noqa: N818  (what a client gets, not what went wrong in the code)
    """A request that cannot be answered.

    kind: what a client's program needs to know.
    param: the field that is wrong.
    retry_after: seconds after which a new try makes sense.
    details: numbers that some clients' messages hold: ``num_tokens`` and ``limit``, ``num_items``, ``width``.
    cause: by default the kind.
    """

    def __init__(
        self,
        kind: Kind,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
        details: Mapping[str, int] | None = None,
        cause: Cause | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.message, self.param, self.retry_after = message, param, retry_after
        self.details = details or {}
        self.cause: Cause = cause or kind
        #: What was asked of a model, once that is known.
        self.task: Any = None
        #: Whose client asked, where one path has several dialects.
        self.dialect: Any = None
