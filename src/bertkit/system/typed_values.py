"""Plain data, as JSON and TOML have it, checked against the types of annotations.

Numbers are converted without loss (``3`` is a float, ``3.0`` an int, ``"3"`` either), lists become tuples, and mappings
become dataclasses and settings. A boolean is no number. Everything that is wrong is found, not only the first.
"""

from __future__ import annotations

import math
import operator
import re
import types
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING as NO_DEFAULT
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from bertkit.habit_table import remedy

T = TypeVar("T")
Check = Callable[[Any], Any]
#: What has no default.
MISSING: Any = Ellipsis
#: Findings that a message names, and those of one field; a file with a list of junk has one for each of its values.
_MAX_FINDINGS, _MAX_OF_FIELD = 10, 3
_YES, _NO = frozenset(("1", "true", "t", "yes", "y", "on")), frozenset(("0", "false", "f", "no", "n", "off"))


class Finding(NamedTuple):
    """What is wrong: at which place, with which value, and what is expected or known there.

    whole: the text says all of it, place and value too. known: nothing has this name here; these are the names.
    """

    place: tuple[Any, ...]
    value: Any
    expected: str
    whole: bool = False
    known: Collection[str] | None = None


class WrongValueError(ValueError):
    """All findings about a value."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__(findings)
        self.findings = findings

    def __str__(self) -> str:  # a list of junk raises one for each value
        return explain(self.findings)


def explain(findings: Sequence[Finding]) -> str:
    """Findings, one clause each: field (or the nearest one that is known), given value, what is expected."""
    clauses: list[str] = []
    of_field: Counter[Any] = Counter()
    for each in findings:
        of_field[each.place[:1]] += 1
        if len(clauses) == _MAX_FINDINGS or of_field[each.place[:1]] > _MAX_OF_FIELD:
            continue
        field = ".".join(str(part)[:80] for part in each.place)
        if each.known is not None:
            clauses.append(f"unknown field {field!r}{remedy('settings', str(each.place[-1]), each.known)}")
        elif each.whole:
            clauses.append(each.expected)
        elif each.value is MISSING:
            clauses.append(f"{field}: {each.expected}")
        else:
            got = repr(each.value)
            clauses.append(f"{field} = {got if len(got) < 80 else got[:77] + '...'}: {each.expected}")
    more = len(findings) - len(clauses)
    return "; ".join([*clauses, f"and {more:,} more"] if more else clauses)


def typed(value: object, kind: type[T]) -> T:
    """Plain data as a ``kind``: any type of an annotation. WrongValueError says all that does not fit."""
    found: T = checker(kind)(value)
    return found


def checker(kind: Any, *, finite: bool = False, bounds: Mapping[str, Any] = types.MappingProxyType({})) -> Check:
    """What checks and converts values of a type; types are looked into once, not for every value.

    finite: no NaN, no infinity. bounds: ``ge``, ``gt``, ``le``, ``lt``, ``min_length``, ``max_length`` and ``pattern``,
    as also the object beside a type in ``Annotated`` may have them, in an attribute of that name.
    """
    return _within(bounds, _checker(kind, finite))


_BOUNDS: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    "ge": (operator.ge, "greater than or equal to"),
    "gt": (operator.gt, "greater than"),
    "le": (operator.le, "less than or equal to"),
    "lt": (operator.lt, "less than"),
}


def _within(bounds: Mapping[str, Any], check: Check) -> Check:
    if not bounds:
        return check

    def checked(value: Any) -> Any:
        found = check(value)
        for name, bound in bounds.items():
            if name in _BOUNDS and isinstance(found, int | float) and not _BOUNDS[name][0](found, bound):
                raise _wrong(value, f"input should be {_BOUNDS[name][1]} {bound}")
            if name == "pattern" and isinstance(found, str) and not re.search(bound, found):
                raise _wrong(value, f"string should match pattern '{bound}'")
            sized = isinstance(found, str | Sequence | Mapping)
            if name == "min_length" and sized and len(found) < bound:
                raise _wrong(value, f"input should have at least {bound} {_units(found)}, not {len(found)}")
            if name == "max_length" and sized and len(found) > bound:
                raise _wrong(value, f"input should have at most {bound} {_units(found)}, not {len(found)}")
        return found

    return checked


def _units(found: Any) -> str:
    return "characters" if isinstance(found, str) else "items"


def _wrong(value: Any, expected: str) -> WrongValueError:
    return WrongValueError([Finding((), value, expected)])


def _checker(kind: Any, finite: bool) -> Check:
    origin, parts = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        return _finite(_PLAIN[kind]) if finite and kind is float else _PLAIN[kind]
    if kind in (Any, object):
        return lambda value: value
    if origin is Annotated:
        bounds: dict[str, Any] = {}
        for part in parts[1:]:
            bounds |= getattr(part, "bounds", {})
        return _within(bounds, _checker(parts[0], finite))
    if origin in (Union, types.UnionType):
        return _one_of(parts, finite)
    if origin is Literal:
        return _choice(parts)
    for base, check in _CONTAINERS.items():
        if kind is base or origin is base:
            return check(parts, finite)
    if hasattr(kind, "_fields"):
        return _named_tuple(kind, finite)
    if hasattr(kind, "_of"):  # a class of settings
        return lambda value: value if isinstance(value, kind) else kind._of(_mapping(value))
    if hasattr(kind, "__dataclass_fields__"):
        return _dataclass(kind, finite)
    raise TypeError(f"no values are read as {kind!r}")


def _int(value: Any) -> int:
    if isinstance(value, bool):
        raise _wrong(value, "input should be a valid integer, got a boolean")
    if isinstance(value, float):
        if value.is_integer():
            return int(value)
        raise _wrong(value, "input should be a valid integer, got a number with a fractional part")
    try:
        return int(value) if isinstance(value, str) else operator.index(value)
    except (TypeError, ValueError):
        raise _wrong(value, "input should be a valid integer") from None


def _float(value: Any) -> float:
    try:
        if not isinstance(value, bool | bytes):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise _wrong(value, "input should be a valid number")


def _finite(check: Check) -> Check:
    def checked(value: Any) -> Any:
        if not math.isfinite(found := check(value)):
            raise _wrong(value, "input should be a finite number")
        return found

    return checked


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    said = value.lower() if isinstance(value, str) else str(value) if type(value) is int else ""
    if said not in _YES | _NO:
        raise _wrong(value, "input should be a valid boolean")
    return said in _YES


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(value, "input should be a valid string")
    return value


def _path(value: Any) -> Path:
    if not isinstance(value, str | Path):
        raise _wrong(value, "input should be a valid path")
    return Path(value)


def _none(value: Any) -> None:
    if value is not None:
        raise _wrong(value, "input should be none")


_PLAIN: Mapping[Any, Check] = {
    int: _int,
    float: _float,
    bool: _bool,
    str: _str,
    Path: _path,
    types.NoneType: _none,
    None: _none,
}


def _one_of(kinds: Sequence[Any], finite: bool) -> Check:
    """The type that a value has already, else the first that it can be converted to."""
    checks = [_checker(kind, finite) for kind in kinds]
    named = [get_args(kind)[0] if get_origin(kind) is Annotated else kind for kind in kinds]
    nullable = types.NoneType in named
    exact = {kind: check for kind, check in zip(named, checks, strict=True) if isinstance(kind, type)}
    tried = [check for kind, check in zip(named, checks, strict=True) if kind is not types.NoneType]

    def checked(value: Any) -> Any:
        if value is None and nullable:
            return None
        findings: list[Finding] = []
        first = exact.get(type(value))
        for check in tried if first is None else [first, *tried]:
            try:
                return check(value)
            except WrongValueError as error:
                findings += error.findings
        deep = [each for each in findings if each.place or each.whole]
        if deep or len(findings) == 1:
            raise WrongValueError(deep or findings)
        said = dict.fromkeys(each.expected.removeprefix("input should be ") for each in findings)
        raise _wrong(value, f"input should be {' or '.join(said)}")

    return checked


def _choice(choices: Sequence[Any]) -> Check:
    flat = [each for choice in choices for each in (get_args(choice) or (choice,))]
    shown = [*map(repr, flat)]
    expected = f"input should be {' or '.join([', '.join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)}"

    def checked(value: Any) -> Any:
        for choice in flat:  # of which True is not 1
            alike = isinstance(value, str) if isinstance(choice, str) else type(value) is type(choice)
            if alike and value == choice:
                return choice
        raise _wrong(value, expected)

    return checked


def _at(place: Any, check: Check, value: Any, findings: list[Finding]) -> Any:
    """The value checked, or None with what is wrong added to the findings."""
    try:
        return check(value)
    except WrongValueError as error:
        findings += [each._replace(place=(place, *each.place)) for each in error.findings]
    except ValueError as error:  # of a check after all fields
        findings.append(Finding((place,), value, str(error), whole=True))
    return None


def _items(what: str, make: Callable[[Iterable[Any]], Any]) -> Callable[[Sequence[Any], bool], Check]:
    def checker(parts: Sequence[Any], finite: bool) -> Check:
        several = not parts or len(parts) == 1 or parts[-1] is Ellipsis
        checks = [_checker(part, finite) for part in parts if part is not Ellipsis]

        def checked(value: Any) -> Any:
            if not isinstance(value, list | tuple | set | frozenset):
                raise _wrong(value, f"input should be a valid {what}")
            if not several and len(value) != len(checks):
                raise _wrong(value, f"input should have {len(checks)} items, not {len(value)}")
            if not checks:
                return make(value)
            findings: list[Finding] = []
            pairs = ((item, checks[0 if several else place]) for place, item in enumerate(value))
            found = [_at(place, check, item, findings) for place, (item, check) in enumerate(pairs)]
            if findings:
                raise WrongValueError(findings)
            return make(found)

        return checked

    return checker


def _mapping(value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(value, "input should be a valid dictionary")
    return value


def _entries(parts: Sequence[Any], finite: bool) -> Check:
    if not parts:
        return lambda value: dict(_mapping(value))
    of_key, of_value = (_checker(part, finite) for part in parts)

    def checked(value: Any) -> Any:
        findings: list[Finding] = []
        found = {
            _at(key, of_key, key, findings): _at(key, of_value, item, findings) for key, item in _mapping(value).items()
        }
        if findings:
            raise WrongValueError(findings)
        return found

    return checked


_CONTAINERS: Mapping[Any, Callable[[Sequence[Any], bool], Check]] = {
    list: _items("list", list),
    tuple: _items("tuple", tuple),
    frozenset: _items("set", frozenset),
    Sequence: _items("list", list),
    dict: _entries,
    Mapping: _entries,
}


def _named_tuple(kind: Any, finite: bool) -> Check:
    whole = _items("tuple", tuple)([*get_type_hints(kind, include_extras=True).values()], finite)
    return lambda value: value if isinstance(value, kind) else kind(*whole(value))


def _dataclass(kind: Any, finite: bool) -> Check:
    """Of a mapping; unknown names are ignored, because newer versions may write them, unless the class forbids them."""
    checks: dict[str, Check] = {}

    def checked(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        if not checks:  # at the first value, because the class may name itself
            checks.update({name: _checker(hint, finite) for name, hint in _hints(kind).items()})
        given, findings = dict(_mapping(value)), list[Finding]()
        fields = {name: field for name, field in kind.__dataclass_fields__.items() if name in checks and field.init}
        found = {name: _at(name, checks[name], given[name], findings) for name in fields if name in given}
        for name, field in fields.items():
            if name not in given and field.default is NO_DEFAULT and field.default_factory is NO_DEFAULT:
                findings.append(Finding((name,), given, "field required"))
        if getattr(kind, "forbids_unknown", False):
            findings += [Finding((name,), given[name], "", known=fields) for name in given if name not in fields]
        if findings:
            raise WrongValueError(findings)
        return kind(**found)

    return checked


def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True).items()
    return {name: hint for name, hint in hints if "ClassVar" not in str(get_origin(hint) or hint)}
