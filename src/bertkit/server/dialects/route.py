"""What a dialect is made of: routes, the bodies that they read, and what it says of a failure."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bertkit.server.calls import Answer, Call, Look, ModelFacts, Overflow, ServerFacts, Task
from bertkit.server.failures import Failure, Kind

JSON = "application/json"
#: A JSON value a line.
NDJSON = "application/x-ndjson"


class Body(BaseModel):
    """The JSON object that a route reads. A field that it does not have is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())


class LenientBody(Body):
    """The same for clients that send more than is read."""

    model_config = ConfigDict(extra="ignore")


Text = Annotated[str, Field(examples=["The bank of the river."])]
#: The ids of a text's tokens, which some clients send in its place.
Ids = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, fail_fast=True)]
#: Validation stops at the first fault: one for each of a million items would take minutes and gigabytes.
ListOfTexts = Annotated[list[str], Field(fail_fast=True)]
ListOfIds = Annotated[list[Ids], Field(fail_fast=True)]
Texts = Annotated[str | ListOfTexts, Field(examples=[["The bank of the river.", "A loan from the bank."]])]
TextsOrIds = Annotated[str | ListOfTexts | Ids | ListOfIds, Field(examples=[["The bank of the river."]])]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes back: bytes, and headers that this answer has beside the usual ones."""

    body: bytes
    status: int = 200
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: its body (of the route's class; None without one), and the name of the model in its path.

    facts: for a route that needs them: of the model in the path, else of the one that the body's ``model`` names, else
        of the first model.
    """

    body: Any
    model: str | None = None
    facts: ModelFacts | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """What to ask of the service, and what to make of the answer."""

    call: Call | Look
    render: Callable[[Any], Reply]


@dataclass(frozen=True, slots=True)
class Route:
    """One path of a dialect.

    path: ``{model}`` in it stands for the name of a model, which may have slashes.
    body: the class of its body; None: it has none.
    plan: from a request to a call, and to its reply. May raise :class:`Failure`.
    answer: an example of a reply's body. schema: what every good one is, as JSON Schema.
    fails: kinds of failure that other routes do not have.
    needs_facts: the call depends on what the model is: ``plan`` reads :attr:`Asked.facts`.
    binary: its reply may also be bytes, if the body asks for them.
    keys: where several dialects have this method and path, this route is meant if the body has one of these.
    usual: of those it is meant if the body has none of their keys; otherwise the first of :data:`table.ALL` is.
    lines: it reads any number of such bodies, one a line, and answers each with a line.
    """

    method: Literal["GET", "POST"]
    path: str
    plan: Callable[[Asked], Planned]
    summary: str
    body: type[Body] | None = None
    answer: Any = None
    schema: Mapping[str, Any] | None = None
    fails: frozenset[Kind] = frozenset()
    needs_facts: bool = False
    keys: frozenset[str] = frozenset()
    usual: bool = False
    binary: bool = False
    lines: bool = False


@dataclass(frozen=True, slots=True)
class Dialect:
    """The routes of a family of clients, and how it says that something went wrong.

    status: by kind of failure, where it is not the usual one.
    error: the body for a failure and its status; None: an empty body.
    headers: of a good answer.
    failed: what ``error`` makes, as JSON Schema.
    """

    name: str
    routes: Sequence[Route]
    error: Callable[[Failure, int], Any]
    status: Mapping[Kind, int] = field(default_factory=dict)
    headers: Callable[[Answer], Mapping[str, str]] = lambda answer: {}
    failed: Mapping[str, Any] | None = None

    def refusal(self, failure: Failure) -> Reply:
        """What a client of this dialect expects to read of a failure."""
        status = self.status.get(failure.kind, STATUS[failure.kind])
        headers = {}
        if failure.retry_after is not None:
            headers["retry-after"] = str(max(1, round(failure.retry_after)))
            headers["retry-after-ms"] = str(max(1, round(failure.retry_after * 1000)))
        if failure.kind == "unauthorized":
            headers["www-authenticate"] = "Bearer"
        body = self.error(failure, status)
        return Reply(b"" if body is None else dumps(body), status, headers=headers)


#: The usual status of each kind of failure.
STATUS: Mapping[Kind, int] = {
    "malformed": 400,
    "invalid": 422,
    "empty": 422,
    "too_long": 422,
    "too_many": 422,
    "body_too_large": 413,
    "media_type": 415,
    "unauthorized": 401,
    "forbidden": 403,
    "no_route": 404,
    "method": 405,
    "unknown_model": 404,
    "wrong_task": 424,
    "missing_package": 501,
    "damaged_model": 424,
    "overloaded": 429,
    "timeout": 504,
    "not_ready": 503,
    "fault": 500,
}


def dumps(value: Any) -> bytes:
    """JSON; arrays of numpy as lists."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS, default=_plain)


def _plain(value: Any) -> Any:
    """Subclasses of arrays, dictionaries, lists and numbers, which orjson does not take."""
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value).view(np.ndarray)
    kinds: tuple[type[Any], ...] = (dict, list, float, int, str)
    for kind in kinds:
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


def json_reply(value: Any, **headers: str) -> Reply:
    """A reply of JSON."""
    return Reply(dumps(value), headers=headers)


def as_base64(vector: npt.NDArray[Any]) -> str:
    """The numbers of a vector, little-endian, in base64."""
    return base64.b64encode(np.ascontiguousarray(vector, vector.dtype.newbyteorder("<")).tobytes()).decode()


def listed(given: Any) -> tuple[list[Any], bool]:
    """Texts, or texts as ids, as a list; and whether it was one alone."""
    alone = isinstance(given, str) or (bool(given) and isinstance(given[0], int))
    return ([given] if alone else list(given)), alone


def facts_of(found: ServerFacts) -> ModelFacts:
    """The one model that was asked for."""
    return found.models[0]


_Read = TypeVar("_Read", bound=Body)


def read(kind: type[_Read], given: Any) -> _Read:
    """A body from parsed JSON; Failure says which field is wrong."""
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        field = next((str(part) for part in found[0]["loc"]), None)
        causes = dict.fromkeys(one["msg"] for one in found if field is None or str(one["loc"][0]) == field)
        said = "; or ".join(list(causes)[:3])
        raise Failure("invalid", said if field is None else f"`{field}`: {said}", param=field) from None


def call_of(
    task: Task, items: Sequence[Any], model: str | None = None, overflow: Overflow | None = None, **options: Any
) -> Call:
    """A call without the options that are None."""
    given = {name: value for name, value in options.items() if value is not None}
    return Call(task=task, items=items, model=model, options=given, overflow=overflow)


def some(items: Collection[Any], name: str) -> None:
    """Failure if a list is empty."""
    if not items:
        raise Failure("empty", f"`{name}` cannot be empty", param=name)


def new_id(prefix: str) -> str:
    """A name for an answer that no other has."""
    return prefix + uuid.uuid4().hex


def now() -> int:
    """Seconds since 1970."""
    return int(time.time())


def usage_of(answer: Answer) -> dict[str, int]:
    """Tokens, as OpenAI and those after it say them."""
    tokens = sum(answer.tokens)
    return {"prompt_tokens": tokens, "total_tokens": tokens}


Unit = Literal["codepoint", "utf16", "utf8"]


def in_units(
    text: str, spans: Sequence[dict[str, Any]], unit: Unit, names: Sequence[str] = ("start", "end")
) -> list[dict[str, Any]]:
    """Spans whose places count code units of UTF-16, or bytes of UTF-8, in place of code points.

    names: of their fields that are places in the text, or None.
    """
    if unit == "codepoint" or text.isascii():
        return list(spans)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    bounds = (0xFFFF,) if unit == "utf16" else (0x7F, 0x7FF, 0xFFFF)
    sizes = 1 + sum((codes > bound).astype(np.int64) for bound in bounds)
    places = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    return [{**each, **{name: places[each[name]] for name in names if each[name] is not None}} for each in spans]


class TextObject(LenientBody):
    """A text in an object, as some clients send it."""

    text: Text


def text_of(given: str | TextObject) -> str:
    """The text alone."""
    return given if isinstance(given, str) else given.text
