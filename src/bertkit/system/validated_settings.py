"""Base class of all settings: frozen, validated data."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import field as dataclass_field
from dataclasses import fields, is_dataclass, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, Self, TypeVar, get_args, get_origin

from bertkit.errors import ConfigError
from bertkit.system.typed_values import MISSING, Check, Finding, WrongValueError, checker

if TYPE_CHECKING:
    from inspect import Signature

MadeT = TypeVar("MadeT")


class FieldInfo:
    """A field of a class of settings: its default, its description, and the bounds of its values.

    ``annotation`` is the type, ``metadata`` what else its annotation says; they are evaluated when first asked for.
    """

    def __init__(self, default: Any, description: str | None, alias: str | None, **bounds: Any) -> None:
        self.default, self.description, self.alias = default, description, alias
        self.bounds = {name: bound for name, bound in bounds.items() if bound is not None}
        self._hint: Any = None
        self._module = ""
        self._check: Check | None = None

    def bound_to(self, hint: Any, module: str) -> FieldInfo:
        """Itself, with the annotation that it has in a module."""
        self._hint, self._module = hint, module
        return self

    @property
    def hint(self) -> Any:
        """The whole annotation."""
        if isinstance(self._hint, str):
            self._hint = eval(self._hint, dict(vars(sys.modules[self._module])))
        return self._hint

    @property
    def annotation(self) -> Any:
        """The type alone."""
        return get_args(self.hint)[0] if get_origin(self.hint) is Annotated else self.hint

    @property
    def metadata(self) -> tuple[Any, ...]:
        """What stands beside the type in ``Annotated``."""
        return tuple(get_args(self.hint)[1:]) if get_origin(self.hint) is Annotated else ()

    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is MISSING

    def get_default(self) -> Any:
        """The default; a list or dictionary is a new one every time."""
        return self.default.copy() if isinstance(self.default, list | dict) else self.default

    def checked(self, value: Any, finite: bool) -> Any:
        """The value in the field's type and within its bounds, or a WrongValueError; ``finite``: no NaN, infinity."""
        if self._check is None:
            self._check = checker(self.hint, finite=finite, bounds=self.bounds)
        return self._check(value)


def Field(  # noqa: N802  (it stands where a class of fields would)
    default: Any = MISSING,
    *,
    description: str | None = None,
    alias: str | None = None,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    min_length: int | None = None,
    max_length: int | None = None,
    pattern: str | None = None,
) -> Any:
    """The default of a field with what else is known of it; without a default it must be given.

    The default is not checked; a list or dictionary is copied for every instance. ``description`` is for ``--help`` and
    the reference, ``alias`` the name in files, where that is no name in Python. ``ge``, ``gt``, ``le`` and ``lt`` bound
    numbers, the lengths texts and lists; ``pattern`` is searched in texts.
    """
    lengths = {"min_length": min_length, "max_length": max_length}
    return FieldInfo(default, description, alias, ge=ge, gt=gt, le=le, lt=lt, **lengths, pattern=pattern)


class _OfClass(Generic[MadeT]):
    """An attribute of every class of settings, made of its fields when it is first asked for."""

    def __init__(self, make: Callable[[Any], MadeT]) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}_of_class"

    def __get__(self, instance: object, owner: type[Settings]) -> MadeT:
        if self._name not in vars(owner):
            setattr(owner, self._name, self._make(owner))
        found: MadeT = vars(owner)[self._name]
        return found


def _all_fields(owner: type[Settings]) -> dict[str, FieldInfo]:
    found: dict[str, FieldInfo] = {}
    for base in reversed(owner.__mro__):
        found |= vars(base).get("_own_fields", {})
    return found


def _signature(owner: type[Settings]) -> Signature:
    from inspect import Parameter, Signature, signature

    _, *given = signature(owner.__init__).parameters.values()  # a class may have a constructor of its own
    own = {each.name: each for each in given if each.kind is not Parameter.VAR_KEYWORD}
    made = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=field.annotation, default=_default(field, Parameter.empty))
        for name, field in owner.model_fields.items()
        if name not in own
    ]
    return Signature([*own.values(), *made])


def _default(field: FieldInfo, missing: Any) -> Any:
    return missing if field.is_required() else field.get_default()


def _as_dataclass_fields(owner: type[Settings]) -> dict[str, Any]:
    """The fields as those of a dataclass, of which the command line makes its options."""
    made = []
    for name, info in owner.model_fields.items():
        default: Any = {} if info.is_required() else {"default_factory": info.get_default}
        made.append((name, info.hint, dataclass_field(metadata={"help": info.description}, kw_only=True, **default)))
    found: dict[str, Any] = vars(make_dataclass(owner.__name__, made))["__dataclass_fields__"]
    return found


class Settings:
    """Base class of all settings: frozen and validated; unknown fields and values out of bounds are ConfigErrors.

    A subclass has annotated fields, with defaults or :func:`Field`; their types are those that
    :func:`bertkit.system.typed_values.typed` reads. It may extend :meth:`_prepared` and :meth:`_check`.
    """

    __slots__ = ("__dict__", "__weakref__", "_given")
    _given: frozenset[str]

    model_fields = _OfClass(_all_fields)
    __signature__ = _OfClass(_signature)
    __dataclass_fields__ = _OfClass(_as_dataclass_fields)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own: dict[str, FieldInfo] = {}
        for name, hint in vars(cls).get("__annotations__", {}).items():
            if name.startswith("_") or "ClassVar" in str(hint):
                continue
            default = vars(cls).get(name, MISSING)
            field = default if isinstance(default, FieldInfo) else FieldInfo(default, None, None)
            own[name] = field.bound_to(hint, cls.__module__)
            if default is not MISSING:
                delattr(cls, name)
        cls._own_fields = own  # type: ignore[attr-defined]

    def __init__(self, /, **values: Any) -> None:  # "self" may be a key of a file
        try:
            self._fill(values)
        except WrongValueError as error:
            raise ConfigError(str(error)) from None

    @classmethod
    def _of(cls, values: Mapping[str, Any]) -> Self:
        """As the constructor, for a part of other data: WrongValueError in place of ConfigError."""
        made = cls.__new__(cls)
        made._fill(values)
        return made

    def _fill(self, values: Mapping[str, Any]) -> None:
        known, findings = type(self).model_fields, list[Finding]()
        found: dict[str, Any] = {}
        try:
            values = self._prepared(dict(values))
        except ValueError as error:
            raise WrongValueError([Finding((), values, str(error), whole=True)]) from None
        unknown = dict(values)
        for name, field in known.items():
            given = unknown.pop(field.alias or name, MISSING)
            if given is not MISSING:
                self._take(name, field, given, found, findings)
            elif field.is_required():
                findings.append(Finding((name,), values, "field required"))
            else:
                found[name] = field.get_default()
        names = [field.alias or name for name, field in known.items()]
        findings += [Finding((name,), value, "", known=names) for name, value in unknown.items()]
        if findings:
            raise WrongValueError(findings)
        self.__dict__.update(found)
        given_names = (name for name, field in known.items() if (field.alias or name) in values)
        object.__setattr__(self, "_given", frozenset(given_names))
        try:
            self._check()
        except ValueError as error:
            raise WrongValueError([Finding((), values, str(error), whole=True)]) from None

    def _take(self, name: str, field: FieldInfo, given: Any, found: dict[str, Any], findings: list[Finding]) -> None:
        if (why := self._refusal(name, field.annotation, given)) is not None:
            findings.append(Finding((name,), given, why, whole=True))
            return
        try:
            found[name] = field.checked(given, finite=True)
        except WrongValueError as error:
            findings += [each._replace(place=(name, *each.place)) for each in error.findings]

    @classmethod
    def _refusal(cls, name: str, kind: Any, value: Any) -> str | None:
        """Why a value is not even converted to the type of a field."""
        if isinstance(value, bool) and kind is not bool and bool not in get_args(kind):
            return f"{name} = {value}: expected {_expected(kind)}, got a boolean"
        return None

    @classmethod
    def _prepared(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Values by field, of the values that are given; a ValueError or ConfigError refuses them."""
        return values

    def _check(self) -> None:
        """Raise a ValueError where fields contradict each other."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise ConfigError(
            f"{type(self).__name__} is frozen: {name} cannot be set; make another, with {name}={value!r:.80}"
        )

    def __delattr__(self, name: str) -> None:
        raise ConfigError(f"{type(self).__name__} is frozen: {name} cannot be deleted")

    @property
    def model_fields_set(self) -> set[str]:
        """Names of the fields that were given."""
        return set(self._given)

    def model_dump(
        self,
        *,
        mode: Literal["python", "json"] = "python",
        include: Collection[str] | None = None,
        exclude: Collection[str] | None = None,
        exclude_unset: bool = False,
        exclude_none: bool = False,
        exclude_defaults: bool = False,
    ) -> dict[str, Any]:
        """The fields as plain data, settings in them too; ``mode`` json: with lists for tuples."""
        leaving = {"exclude_unset": exclude_unset, "exclude_none": exclude_none, "exclude_defaults": exclude_defaults}
        found = {}
        for name, field in type(self).model_fields.items():
            value = self.__dict__[name]
            left = (include is not None and name not in include) or name in (exclude or ())
            unset, none = exclude_unset and name not in self._given, exclude_none and value is None
            if left or unset or none or (exclude_defaults and value == field.default):
                continue
            found[name] = _plain(value, mode, leaving)
        return found

    def model_dump_json(self, *, indent: int | None = None, exclude: Collection[str] | None = None) -> str:
        """The fields as JSON."""
        separators = (",", ":") if indent is None else None
        plain = self.model_dump(mode="json", exclude=exclude)
        return json.dumps(plain, indent=indent, separators=separators, ensure_ascii=False)

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """A copy with some fields changed, which are not checked."""
        made, changes = type(self).__new__(type(self)), update or {}
        made.__dict__.update({**self.__dict__, **changes})
        object.__setattr__(made, "_given", self._given | changes.keys())
        return made

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def _values(self) -> tuple[Any, ...]:
        return tuple(self.__dict__[name] for name in type(self).model_fields)

    def __repr__(self) -> str:
        shown = (f"{name}={self.__dict__[name]!r}" for name in type(self).model_fields)
        return f"{type(self).__name__}({', '.join(shown)})"

    def __getstate__(self) -> tuple[dict[str, Any], frozenset[str]]:
        return self.__dict__, self._given

    def __setstate__(self, state: tuple[dict[str, Any], frozenset[str]]) -> None:
        self.__dict__.update(state[0])
        object.__setattr__(self, "_given", state[1])


def _plain(value: Any, mode: str, leaving: Mapping[str, bool]) -> Any:
    if isinstance(value, Settings):
        return value.model_dump(mode=mode, **leaving)  # type: ignore[arg-type]
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name), mode, leaving) for each in fields(value)}
    if isinstance(value, list | tuple):
        made = [_plain(item, mode, leaving) for item in value]
        return made if mode == "json" or isinstance(value, list) else tuple(made)
    if isinstance(value, Mapping):
        return {str(key) if mode == "json" else key: _plain(item, mode, leaving) for key, item in value.items()}
    return value


class FileSettings(Settings):
    """Settings that files of other software hold too, which write a number without quotes."""

    __slots__ = ()

    @classmethod
    def _refusal(cls, name: str, kind: Any, value: Any) -> str | None:
        if isinstance(value, str) and not (_choices(kind) or str in (kind, *get_args(kind))):
            return f"{name} = {value!r:.80}: expected a value without quotes, got text"
        return super()._refusal(name, kind, value)


def _choices(kind: object) -> list[str]:
    parts = (kind, *get_args(kind))
    return [str(name) for part in parts if get_origin(part) is Literal for name in get_args(part)]


def _expected(kind: object) -> str:
    kinds = get_args(kind) or (kind,)
    choices = _choices(kind)
    if choices:
        return f"one of {', '.join(choices)}"
    return "a number" if {int, float} & set(kinds) else "text" if str in kinds else "another type"
