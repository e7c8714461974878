"""What the estimators for scikit-learn share: names of other libraries, typed out of habit, are answered with ours."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import Parameter, signature
from typing import Any, ClassVar, Self

from bertkit.errors import ConfigError
from bertkit.habit_table import habits, remedy


class NamedParameters:
    """A parameter or method that there is not is an error that says what to write; see :mod:`bertkit.habit_table`."""

    #: Entry of the table for the parameters; with a full stop behind it, for attributes and methods.
    entry: ClassVar[str] = "estimator"

    def __new__(cls, *args: Any, **parameters: Any) -> Self:
        for name in parameters:
            cls._refuse(name)
        return super().__new__(cls)

    def set_params(self, **params: Any) -> Self:
        """As in scikit-learn; ConfigError for a parameter that there is not."""
        for name in params:
            self._refuse(name.partition("__")[0])
        done: Self = super().set_params(**params)  # type: ignore[misc]
        return done

    def __getattr__(self, name: str) -> Any:
        kind = type(self).__name__
        habit = habits().get((f"{self.entry}.", name))
        more = "" if habit is None else f"; write {habit.ours}"
        raise AttributeError(f"{kind!r} object has no attribute {name!r}{more}", name=name, obj=self)

    def _refuse_arguments(self, method: str, arguments: Iterable[str]) -> None:
        """ConfigError for a keyword that a method does not take, with where it belongs."""
        for name in arguments:
            known, kind = self._parameters(), type(self).__name__
            more = f"; write {kind}({name}=...)" if name in known else remedy(f"{self.entry}.{method}", name, ())
            raise ConfigError(f"{method} of {kind} takes no {name!r}{more}")

    @classmethod
    def _parameters(cls) -> list[str]:
        given = signature(cls.__init__).parameters.values()
        return [each.name for each in given if each.kind != Parameter.VAR_KEYWORD and each.name != "self"]

    @classmethod
    def _refuse(cls, name: str) -> None:
        if name not in (known := cls._parameters()):
            more = remedy(cls.entry, name, known)
            raise ConfigError(
                f"Invalid parameter {name!r} for estimator {cls.__name__}{more}; it takes {', '.join(known)}"
            )
