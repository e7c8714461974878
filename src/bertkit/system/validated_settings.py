"""Base class of all settings: frozen, validated data."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import Signature
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from bertkit.errors import ConfigError
from bertkit.habit_table import remedy

#: Findings that a message names; a file with a list of junk has one for each of its values.
_MAX_FINDINGS = 10


class _Signature:
    """The fields as parameters, for ``help()``: pydantic gives them to a class when it makes its validators."""

    def __get__(self, instance: object, owner: type[BaseModel]) -> Signature:
        owner.model_rebuild()
        found: Signature = vars(owner)["__signature__"].__get__(None, owner)
        return found


class Settings(BaseModel):
    """Base class of all settings: frozen and validated; unknown fields and values out of bounds are ConfigErrors."""

    # Validators are made when they are first needed: for all classes that a command imports it took 35 ms.
    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=(), defer_build=True
    )

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__signature__ = _Signature()  # type: ignore[assignment]

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool):
            kind = cls.model_fields[str(info.field_name)].annotation
            if kind is not bool and bool not in get_args(kind):
                raise ValueError(f"{info.field_name} = {value}: expected {_expected(kind)}, got a boolean")
        return value

    def __init__(self, /, **values: Any) -> None:  # "self" may be a key of a file
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(explain_validation(error, type(self).model_fields)) from None


class FileSettings(Settings):
    """Settings that files of other software hold too, which write a number without quotes."""

    @field_validator("*", mode="before")
    @classmethod
    def _text_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str):
            kind = cls.model_fields[str(info.field_name)].annotation
            if not (_choices(kind) or str in (kind, *get_args(kind))):
                raise ValueError(f"{info.field_name} = {value!r:.80}: expected a value without quotes, got text")
        return value


def _choices(kind: object) -> list[str]:
    parts = (kind, *get_args(kind))
    return [str(name) for part in parts if get_origin(part) is Literal for name in get_args(part)]


def _expected(kind: object) -> str:
    kinds = get_args(kind) or (kind,)
    choices = _choices(kind)
    if choices:
        return f"one of {', '.join(choices)}"
    return "a number" if {int, float} & set(kinds) else "text" if str in kinds else "another type"


def explain_validation(error: ValidationError, fields: Iterable[str]) -> str:
    """Pydantic's findings, one clause each: field (or the nearest of ``fields``), given value, what is expected."""
    clauses = []
    for finding in error.errors(include_url=False)[:_MAX_FINDINGS]:
        field = ".".join(str(part)[:80] for part in finding["loc"])
        if finding["type"] == "extra_forbidden":
            clauses.append(f"unknown field {field!r}{remedy('settings', field, fields)}")
        elif finding["type"] == "value_error":
            clauses.append(str(finding["ctx"]["error"]))
        else:
            got = repr(finding["input"])
            clauses.append(f"{field} = {got if len(got) < 80 else got[:77] + '...'}: {finding['msg'].lower()}")
    more = error.error_count() - len(clauses)
    return "; ".join([*clauses, f"and {more:,} more"] if more else clauses)
