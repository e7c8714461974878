"""Classes of settings: what they take, refuse and say. pydantic, which the server's bodies use, is the oracle."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pydantic
import pytest

from bertkit.errors import ConfigError
from bertkit.system.typed_values import WrongValueError, typed
from bertkit.system.validated_settings import Field, FileSettings, Settings


@dataclasses.dataclass
class Point:
    """A dataclass of two numbers."""

    x: int
    y: float = 1.0


class Pair(NamedTuple):
    """A named tuple."""

    left: str
    right: int


KINDS: list[Any] = [
    *(int, float, bool, str, int | None, float | None, str | None, bool | Literal["never"], int | str, int | float),
    *(
        list[int],
        tuple[int, ...],
        tuple[str, int],
        dict[str, int],
        dict[int, str],
        Mapping[str, float],
        list[str | int],
    ),
    *(Literal["a", "b"], Literal[1, 2] | None, int | tuple[int, ...] | None, bool | int | float | str, Any, Path),
    *(Point, list[Point], Pair, dict[str, dict[str, float] | str], str | list[str] | dict[str, str] | None),
    *(list[str | int],),
]
VALUES: list[Any] = [
    *(None, True, False, 0, 1, 2, -7, 3.0, 2.5, math.inf, "", "a", "b", "3", " 4 ", "2.5", "x", "never", "true", "off"),
    *([], [1], [1, 2], ["a"], [1, "a"], ["a", 1], ["a", "b"], [[1]], (), (1, 2), ("a", 3), {}, {"a": 1}, {"1": "x"}),
    *({1: "x"}, {"x": 1}, {"x": 1, "y": 2}, {"x": "1", "z": 0}, {"y": 2.0}, [{"x": 1}, {"x": None}], 10**30, object()),
    *({"a": {"b": 1}}, {"a": "b"}, Point(1, 2.0), Pair("a", 1), Path("a"), {"left": "a", "right": 1}),
]


def holds_bool(value: object) -> bool:
    """Whether a boolean is in it, which is no number here."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return isinstance(value, bool) or any(map(holds_bool, parts))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_same_values_are_taken_as_by_pydantic(kind: Any) -> None:
    adapter, taken = pydantic.TypeAdapter(kind), 0
    for value in VALUES:
        try:
            right = adapter.validate_python(value)
        except pydantic.ValidationError:
            right = WrongValueError
        try:
            found = typed(value, kind)
        except WrongValueError:
            found = WrongValueError
        taken += found is not WrongValueError
        if right is not WrongValueError and found is WrongValueError:
            stricter = holds_bool(value) or (kind is Pair and isinstance(value, dict))
            assert stricter, (kind, value, right)
        else:
            assert (type(found), found) == (type(right), right), (kind, value)
    assert 0 < taken <= len(VALUES)


class Small(Settings):
    """Some settings."""

    size: int = Field(4, ge=1, le=8, description="how large")
    rate: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    name: str | None = Field(None, pattern="^[a-z]+$")
    parts: list[Annotated[int, Field(ge=0)]] = Field([], max_length=2)


class Whole(FileSettings):
    """Settings in settings, and what must be given."""

    small: Small
    kind: Literal["new", "old"] = "new"
    version: int = Field(1, alias="__version__")

    def _check(self) -> None:
        if self.kind == "old" and self.small.size > 4:
            raise ValueError(f"size = {self.small.size} is for kind = new")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"size": 9}, "size = 9: input should be less than or equal to 8"),
        ({"size": 0}, "size = 0: input should be greater than or equal to 1"),
        ({"size": None}, "size = None: input should be a valid integer"),
        ({"size": 2.5}, "size = 2.5: input should be a valid integer, got a number with a fractional part"),
        ({"size": True}, "size = True: expected a number, got a boolean"),
        ({"rate": math.nan}, "rate = nan: input should be a finite number"),
        ({"rate": 1}, "rate = 1: input should be less than 1.0"),
        ({"name": "A"}, r"name = 'A': string should match pattern '\^\[a-z\]\+\$'"),
        ({"parts": [1, -1]}, r"parts.1 = -1: input should be greater than or equal to 0"),
        ({"parts": [1, 2, 3]}, r"parts = \[1, 2, 3\]: input should have at most 2 items, not 3"),
        (
            {"sise": 1, "rate": 2},
            r"rate = 2: input should be less than 1.0; unknown field 'sise' \(did you",
        ),
    ],
)
def test_findings_name_the_field_the_value_and_what_is_expected(values: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=f"^{told}"):
        Small(**values)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, "small = {}: field required"),
        ({"small": {"size": 9}}, "small.size = 9: input should be less than or equal to 8"),
        ({"small": {"many": 1}}, "unknown field 'small.many'"),
        ({"small": {}, "kind": "neu"}, "kind = 'neu': input should be 'new' or 'old'"),
        ({"small": {}, "__version__": "1"}, "version = '1': expected a value without quotes, got text"),
        ({"small": {"size": 8}, "kind": "old"}, "size = 8 is for kind = new"),
    ],
)
def test_settings_in_settings_of_a_file(values: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=f"^{told}"):
        Whole(**values)


def test_they_are_values() -> None:
    one, other = Small(size=3), Small(size=3, rate=0.5)
    assert one == other != Small()
    assert one.model_fields_set == {"size"}
    assert other.model_fields_set == {"size", "rate"}
    for copied in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one)), one.model_copy()):
        assert copied == one
        assert copied.model_fields_set == {"size"}
    with pytest.raises(ConfigError, match="Small is frozen: size cannot be set"):
        one.size = 4
    assert one.parts is not Small().parts


def test_they_become_plain_data_again() -> None:
    whole = Whole(small={"size": 8, "parts": (1, 2)})
    plain = {"small": {"size": 8, "rate": 0.5, "name": None, "parts": [1, 2]}, "kind": "new", "version": 1}
    assert whole.model_dump() == plain
    assert whole.model_dump(exclude_unset=True) == {"small": {"size": 8, "parts": [1, 2]}}
    assert whole.model_dump(exclude_defaults=True, exclude={"kind"}) == {"small": {"size": 8, "parts": [1, 2]}}
    assert whole.model_dump_json(exclude={"small"}) == '{"kind":"new","version":1}'


def test_what_is_read_of_the_class() -> None:
    assert list(Whole.model_fields) == ["small", "kind", "version"]
    assert Whole.model_fields["small"].is_required()
    assert list(inspect.signature(Small).parameters) == ["size", "rate", "name", "parts"]
    assert dataclasses.fields(Small)[0].metadata["help"] == "how large"  # type: ignore[arg-type]
