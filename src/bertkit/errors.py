"""Every error a user of bertkit can cause, in one tree.

::

    BertkitError
    ├── ConfigError        (ValueError)    a setting or a command-line value is wrong          exit code 2
    │   └── SettingsFileError              one in a file of settings                           exit code 2
    ├── InputError         (ValueError)    a call's arguments or texts are wrong                exit code 2
    │   └── TextError      (ValueError)    a text is empty, or lacks its mask                   exit code 3
    │       └── LongTextError              a text has more tokens than are read                 exit code 3
    ├── DataError          (ValueError)    a corpus, data file, row or label is wrong           exit code 3
    ├── CheckpointError    (ValueError)    a model, tokenizer or run folder does not fit        exit code 4
    ├── TrainingError      (RuntimeError)  training cannot go on (a loss that is not finite)    exit code 4
    ├── MissingExtraError  (ImportError)   an optional package is not installed                 exit code 5
    └── ResourceError      (RuntimeError)  disk, memory or network ran out                      exit code 5

Each class also inherits from the built-in error that fits, so that callers may catch either. A message says what went
wrong, where (file and line, row, tensor), what was found, what was expected, and what to do next. ``assert`` is kept
for faults of bertkit itself; those, and any other exception, end a command with exit code 1 and a traceback.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import ClassVar


class BertkitError(Exception):
    """Root of every error a user can cause. ``exit_code`` is what the command line returns for it."""

    exit_code: ClassVar[int] = 2


class ConfigError(BertkitError, ValueError):
    """A setting is wrong: an unknown field, a value out of bounds, settings that contradict each other."""


class SettingsFileError(ConfigError):
    """A setting in a file is wrong, or the file; settings are named as in the file, on the command line too."""


class InputError(BertkitError, ValueError):
    """A call is wrong: an empty batch, settings that exclude each other, tensors of the wrong shape or type."""


class WidthError(InputError):
    """The number of dimensions asked for is not between 1 and the ``width`` of the vectors."""

    def __init__(self, message: str, width: int) -> None:
        super().__init__(message)
        self.width = width

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        return type(self), (str(self), self.width)


class TextError(InputError):
    """A text is right for the call and wrong in content: too long, empty, without a mask. The message names it."""

    exit_code = 3


class LongTextError(TextError):
    """A text has ``num_tokens`` tokens, special tokens included, and ``limit`` are read at most."""

    def __init__(self, message: str, num_tokens: int, limit: int) -> None:
        super().__init__(message)
        self.num_tokens, self.limit = num_tokens, limit

    def __reduce__(self) -> tuple[type, tuple[str, int, int]]:
        return type(self), (str(self), self.num_tokens, self.limit)


class DataError(BertkitError, ValueError):
    """A data file is wrong. The message names the file and the row or line."""

    exit_code = 3


class CheckpointError(BertkitError, ValueError):
    """A checkpoint, tokenizer or run folder is missing, damaged, unsafe, or does not fit the model."""

    exit_code = 4


class TrainingError(BertkitError, RuntimeError):
    """Training cannot go on, for example because the loss is no longer finite."""

    exit_code = 4


class MissingExtraError(BertkitError, ImportError):
    """An optional package is not installed. The message has the command that installs it."""

    exit_code = 5


class ResourceError(BertkitError, RuntimeError):
    """The machine cannot do it: disk full, out of memory, no network."""

    exit_code = 5


def require(module: str, *, extra: str | None, needed_for: str) -> ModuleType:
    """Import an optional package, or say which extra brings it; None: it is installed by itself.

    Raises:
        MissingExtraError: the package, or the module in it, is not there. What they lack themselves is their own error.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise
        package = module if extra is None else f"'bertkit[{extra}]'"
        raise MissingExtraError(
            f"{needed_for} needs {module!r}, which is not installed. Run: pip install {package}"
        ) from None


#: What the distribution ``bertkit`` requires and ``bertkit-lite`` does without, by the names of the imports.
NOT_IN_LITE = frozenset(
    {"torch", "pyarrow", "scipy", "sklearn", "threadpoolctl", "nupunkt", "mwparserfromhell", "charset_normalizer"}
)


@contextmanager
def needs_bertkit(what: str) -> Iterator[None]:
    """In the block, a missing package of :data:`NOT_IN_LITE` is a MissingExtraError; ``what`` is what needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in NOT_IN_LITE:
            raise
        raise MissingExtraError(
            f"{what} needs {error.name!r}, which bertkit-lite does without. Run: pip install bertkit"
        ) from None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` when a known name is close to ``name``, else an empty string."""
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def counted(number: int, noun: str) -> str:
    """A number with its noun: ``1 row``, ``2,000 rows``."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Several of a noun: rows, queries, probabilities, classes."""
    return (
        f"{noun[:-1]}ies" if noun.endswith(("ry", "ity")) else f"{noun}es" if noun.endswith(("s", "ch")) else f"{noun}s"
    )


def shorten(names: Iterable[object], *, limit: int = 5) -> str:
    """At most ``limit`` names, comma separated, then ``and N more``."""
    listed = list(names)
    shown = ", ".join(repr(name) for name in listed[:limit])
    return shown if len(listed) <= limit else f"{shown} and {len(listed) - limit} more"
