"""What people type out of habit from other libraries, and what it means here: one table for every entry.

A row is what is typed (``entry``: where; ``name``: an import, a keyword, an attribute or an option), the libraries that
have it, and its meaning here: ``same`` (it works with the meaning it has there), ``nothing`` (it is accepted and has no
effect here; the last column says why) or ``otherwise`` (it is refused; the last column is what to write instead).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, get_args

from bertkit.errors import InputError, did_you_mean

P = ParamSpec("P")
T = TypeVar("T")
Meaning = Literal["same", "nothing", "otherwise"]

#: One row a line, sorted by entry and name. Worlds: tf transformers, st sentence-transformers, setfit, sk scikit-learn,
#: keras, other (several tools). Entries: ``import`` (from bertkit), ``command`` (an option of any command, said where
#: the command has ours), ``settings`` (a field of any settings class), ``pipeline`` (a keyword of it or of its calls),
#: ``from_pretrained``, ``tokenizer``, ``forward`` and ``generate`` (a keyword), ``estimator`` and ``vectorizer`` (a
#: parameter of those for scikit-learn), a class or function (a keyword of it); with a dot at the end: an attribute.
#: ``finetune``: the name of a task of it. ``result.``, ``hits.``: an attribute of what a call gives back.
#: ``return_tensors``: a value of it. ``hub module``: a name of :mod:`bertkit.hub`.
#: ``hub``: a keyword of all that load a model or tokenizer, :data:`LOADERS`.
TABLE = Path(__file__).with_suffix(".txt")
LOADERS = (
    *("from_pretrained", "tokenizer", "pipeline", "SentenceTransformer", "CrossEncoder", "SparseEncoder"),
    *("SetFitModel", "model_kwargs", "tokenizer_kwargs"),
)


class Habit(NamedTuple):
    """One row of the table."""

    entry: str
    name: str
    worlds: tuple[str, ...]
    meaning: Meaning
    ours: str


@cache
def habits() -> dict[tuple[str, str], Habit]:
    """All rows by entry and name."""
    found: dict[tuple[str, str], Habit] = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        entry, name, worlds, meaning, ours = (*(cell.strip() for cell in line.split(" | ", maxsplit=4)), "")[:5]
        assert meaning in get_args(Meaning), line
        assert (entry, name) not in found, line
        found[entry, name] = Habit(entry, name, tuple(worlds.split()), meaning, ours)  # type: ignore[arg-type]
    return found


def habit_of(entry: str, name: str) -> Habit | None:
    """The row of a name at an entry; None without."""
    return habits().get((entry, name)) or (habits().get(("hub", name)) if entry in LOADERS else None)


def instead_of(entry: str, name: str) -> str | None:
    """What the table says to write for a name at an entry; None: it does not have the name."""
    habit = habit_of(entry, name)
    return None if habit is None else habit.ours


def remedy(entry: str, name: str, known: Iterable[str]) -> str:
    """What to write instead of ``name``: what the table says, else the nearest of ``known`` by spelling, else nothing.

    The result follows the name in a message: ``; write batch_size=`` or `` (did you mean 'x'?)``.
    """
    habit, known = habit_of(entry, name), list(known)
    one = _one_setting(habit.ours) if entry == "settings" and habit is not None else None
    is_there = one is None or not known or one[0] in known
    if habit is not None and habit.meaning == "otherwise" and is_there:
        return f"; write {habit.ours}"
    if entry == "settings" and "epochs" in known and ("TrainingArguments", name) in habits():
        return f"; write TrainingArguments({name}=...), for bertkit.Trainer"
    return did_you_mean(name, known)


def _one_setting(ours: str) -> tuple[str, str] | None:
    """Name and value of what the table says, where it is one setting alone, as ``epochs=``."""
    one = re.fullmatch(r"(\w+)=(\S*)", ours)
    return one and (one[1], one[2].strip('"'))


def option_for(name: str, options: Collection[str]) -> str | None:
    """The one of ``options`` that the table has for an option of other tools; None without."""
    habit = habits().get(("command", name.replace("_", "-")))
    if habit is not None:
        return next((ours for ours in habit.ours.split(" or ") if ours.partition(" ")[0] in options), None)
    one = _one_setting(instead_of("settings", name.lstrip("-").replace("-", "_")) or "")
    ours = f"--{one[0].replace('_', '-')}" if one else ""
    return f"{ours} {one[1]}".rstrip() if one and ours in options else None


@cache
def without_meaning(entry: str) -> frozenset[str]:
    """Names that an entry accepts and ignores."""
    return frozenset(habit.name for habit in habits().values() if (habit.entry, habit.meaning) == (entry, "nothing"))


def has_no_effect(entry: str, name: str, value: object) -> bool:
    """Whether a keyword of an entry is accepted and ignored: always, or because None or False leave it out."""
    habit = habit_of(entry, name)
    return habit is not None and (habit.meaning == "nothing" or value is None or value is False)


def refuse_others(entry: str, given: Mapping[str, object], known: Iterable[str] = ()) -> None:
    """Refuse (InputError) keywords of an entry that are neither ``known`` nor accepted without an effect."""
    known = list(known)
    for name, value in given.items():
        if name not in known and not has_no_effect(entry, name, value):
            raise InputError(f"{entry} has no argument {name!r}{remedy(entry, name, known)}")


def says_what_it_needs(example: str, entry: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorator of a function: without an argument that it needs, an InputError with ``example``, a line to copy.

    Keywords that were typed in its place are answered by the table at ``entry``.
    """

    def decorate(call: Callable[P, T]) -> Callable[P, T]:
        parameters = signature(call).parameters
        of_places = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        needed = [name for name, one in parameters.items() if one.default is one.empty and one.kind in of_places]

        @wraps(call)
        def checked(*args: P.args, **given: P.kwargs) -> T:
            if missing := [name for name in needed[len(args) :] if name not in given]:
                others = {name: instead_of(entry, name) for name in given if name not in parameters}
                instead = [f"for {name}= write {ours}" for name, ours in others.items() if ours]
                named = ", ".join(f"{name}=" for name in missing)
                raise InputError("; ".join([f"{call.__name__} needs {named}", *instead]) + f", as in {example}")
            return call(*args, **given)

        return checked

    return decorate


def saving_folder(folder: str | Path | None, given: dict[str, Any]) -> str | Path:
    """The folder of ``save_pretrained``, also as ``save_directory=``; InputError for keywords without a meaning."""
    chosen: str | Path | None = given.pop("save_directory", folder)
    refuse_others("save_pretrained", given, ("folder", "save_directory"))
    if chosen is None:
        raise InputError("save_pretrained needs a folder: save_pretrained('FOLDER')")
    return chosen


def no_attribute(owner: object, entry: str, name: str, more: Iterable[str] = ()) -> AttributeError:
    """The error about an attribute that ``owner`` does not have; ``entry`` is that of its kind, such as ``model.``."""
    known = [each for each in dir(type(owner)) if not each.startswith("_")]
    hint = "" if name.startswith("_") else remedy(entry, name, [*known, *more])
    return AttributeError(f"{type(owner).__name__} has no attribute {name!r}{hint}", name=name)


class AnsweringClass(type):
    """Of a class whose missing attributes are answered, as ``SearchIndex.load``."""

    def __getattr__(cls, name: str) -> Any:
        known = [each for each in dir(cls) if not each.startswith("_")]
        raise AttributeError(f"{cls.__name__} has no {name!r}{remedy(f'{cls.__name__}.', name, known)}", name=name)
