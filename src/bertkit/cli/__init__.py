"""The ``bertkit`` command: one table; a command's module is imported only when the command is run.

Results go to stdout, messages to stderr. Exit codes: 0 ok, 1 a bug in bertkit, 2 usage, 3 data, 4 model or checkpoint,
5 resources (memory, disk, network, a missing package), 130 interrupted (143 by SIGTERM).
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from dataclasses import is_dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from bertkit import __version__
from bertkit.errors import BertkitError, ConfigError, InputError, did_you_mean

if TYPE_CHECKING:
    from cyclopts import App

#: Stands for a bare ``-`` (standard input or output) while the command line is parsed, where ``-`` would be an option.
STANDARD_STREAM = "<standard stream>"
#: Parameters of commands that may be ``-``.
READS_STREAM = {"file", "context_file"}

HELP = """BERT, complete: pre-train, fine-tune, evaluate honestly, use.

See it work in minutes, without a network:

    bertkit demo
    bertkit demo --pretrain

From labelled text to a classifier:

    bertkit finetune sst2 --data SST-2 --model bert-base-uncased --out run
    bertkit classify --model run "A film to remember."

From running text to a BERT of your own:

    bertkit vocab text.txt --size 8192 --out tokenizer
    bertkit prepare text.txt --tokenizer tokenizer --out store
    bertkit pretrain store --recipe mini --max-time 20m --out own
    bertkit fill-mask --model own/model "The [MASK] of the city."

Options and examples of a command: bertkit COMMAND --help"""

#: group -> command -> (where its function is, one line of help)
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "demo": (
            "demo.demo:demo",
            "fine-tune or pre-train a small BERT on text that ships with Python",
        ),
        "doctor": ("doctor:doctor", "versions, devices and optional packages, for a bug report"),
    },
    "Prepare": {
        "vocab": ("vocab:vocab", "learn a WordPiece vocabulary from text"),
        "prepare": ("prepare:prepare", "tokenise text into a token store; resumable"),
    },
    "Train": {
        "pretrain": ("pretrain:pretrain", "train a BERT of your own on a token store; resumable"),
        "finetune": ("finetune:finetune", "train on labelled text, and report how good it is"),
        "adapt": ("adapt:adapt", "train on a task's own text, then fine-tune; compare both"),
        "evaluate": ("evaluate:evaluate", "score a finished run on labelled text"),
        "predict": ("predict:predict", "label a whole file with a finished run; resumable"),
    },
    "Use": {
        "fill-mask": ("fill_mask:fill_mask", "guess the words behind [MASK]"),
        "next-sentence": ("next_sentence:next_sentence", "does the second text follow the first?"),
        "answer": ("answer:answer", "answer questions from a text of any length"),
        "classify": ("classify:classify", "label texts, with probabilities"),
        "tag": ("tag:tag", "find names and other entities in texts of any length"),
        "embed": ("embed:embed", "turn texts into vectors: .npy, .jsonl or .parquet"),
        "similarity": ("similarity:similarity", "how similar texts are to another"),
    },
    "Look": {
        "inspect": ("inspect:inspect", "show what a model or a token store holds"),
        "convert": ("convert:convert", "turn a TensorFlow or pickled checkpoint into a model folder"),
        "export": ("export:export", "write a model as ONNX, with tokenizer and labels; checked"),
    },
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code instead of raising.

    Args:
        argv: the arguments after the program's name; None takes ``sys.argv``.
    """
    # Before torch is loaded; see docs/decisions/0005-busy-machines.md.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    _fill_closed_streams()
    tokens = list(sys.argv[1:] if argv is None else argv)
    name = tokens[0] if tokens else ""
    prefix = f"bertkit {name}" if _is_command(name) else "bertkit"
    try:
        code = copy_context().run(_run, tokens)  # --quiet ends with the command
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _silence(sys.stdout)
        return 0  # the reader (head, less) had enough
    except KeyboardInterrupt as stop:
        _tell(f"{prefix}: {stop}" if str(stop) else f"{prefix}: interrupted")
        return int(getattr(stop, "exit_code", 130))
    except BertkitError as error:
        _tell(f"{prefix}: {error}")
        return error.exit_code
    except (MemoryError, OSError) as error:
        exhausted = _resource_exit_code(error)
        if exhausted is None:
            raise
        _tell(f"{prefix}: {_describe(error)}")
        _silence(sys.stdout)  # what did not fit is not tried again at the end
        return exhausted
    return code


def build_app(command: str | None = None, *, everything: bool = False) -> App:
    """The parser: of one command, whose module is imported, or of the whole table, importing nothing.

    Args:
        command: name of the command; None means the table.
        everything: whether the help page shows expert options too.
    """
    from cyclopts import App, Group

    from bertkit.cli.help_pages import HelpPage, reflow

    general = Group("General", sort_key=len(COMMANDS))
    app = App(
        name="bertkit",
        help=HELP,
        version=__version__,
        help_format="plaintext",
        result_action="return_value",
        group_commands=general,
    )
    for number, (title, commands) in enumerate(COMMANDS.items()):
        group = Group(title, sort_key=number)
        for order, (name, (place, summary)) in enumerate(commands.items()):
            if command is None:
                app.command(f"bertkit.cli.{place}", name=name, help=summary, group=group, sort_key=order)
            elif name == command:
                module, _, attribute = place.partition(":")
                function = getattr(import_module(f"bertkit.cli.{module}"), attribute)
                page = HelpPage(function, everything=everything)
                app.command(function, name=name, help=reflow(function.__doc__), help_formatter=page)
    return app


def _run(tokens: list[str]) -> int:
    from cyclopts import CycloptsError

    from bertkit.cli.help_pages import HelpPage
    from bertkit.cli.usage_errors import explain, with_option_names

    tokens = tokens or ["--help"]
    name = tokens[0] if _is_command(tokens[0]) else ""
    if not tokens[0].startswith("-") and not name:
        names = [name for commands in COMMANDS.values() for name in commands]
        _tell(
            f"bertkit: unknown command {tokens[0]!r}{did_you_mean(tokens[0], names)}; "
            "'bertkit --help' lists all commands"
        )
        return 2
    ends = tokens.index("--") if "--" in tokens else len(tokens)
    for option, value in pairwise(tokens[:ends]):
        if option in ("--out", "-o") and not value:
            raise ConfigError("--out is empty; name a file or folder")
    everything = "--help-all" in tokens[:ends]
    given = {"-": STANDARD_STREAM, "--help-all": "--help"}
    tokens[:ends] = [given.get(token, token) for token in tokens[:ends]]
    app = build_app(name or None, everything=everything)
    program = f"bertkit {name}".strip()
    options: list[str] = []
    try:
        if name:
            arguments = app[name].assemble_argument_collection()
            options = [each for argument in arguments for each in argument.names if each.startswith("--")]
        command, bound, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
        _refuse_stream(bound.arguments)
        result: Any = command(*bound.args, **bound.kwargs)
    except CycloptsError as error:
        error.verbose = False
        message = with_option_names(explain(error, options), options).replace(STANDARD_STREAM, "-")
        _tell(f"{program}: {message} See: {program} --help")
        return 2
    except (ConfigError, InputError) as error:
        error.args = (with_option_names(str(error), options),)
        raise
    page = app[name].help_formatter if name else None
    if isinstance(page, HelpPage) and page.num_hidden:
        print(f"{page.num_hidden} more option{'s' if page.num_hidden > 1 else ''}: {program} --help-all")
    return result if isinstance(result, int) else 0


def _is_command(name: str) -> bool:
    return any(name in commands for commands in COMMANDS.values())


def _refuse_stream(arguments: Mapping[str, Any]) -> None:
    """``-`` means standard input for texts and files that are read, and nothing elsewhere."""
    for name, value in arguments.items():
        if is_dataclass(value):
            _refuse_stream(vars(value))
        elif isinstance(value, str | Path) and str(value) == STANDARD_STREAM and name not in READS_STREAM:
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{option} cannot be '-'; name a file or folder, or write {option}=- for the character")


def _tell(message: str) -> None:
    """An error for the person at the terminal; shown even with ``--quiet``."""
    stream = sys.stderr
    if stream is None:
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        stream.write((message + "\n").encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except (OSError, ValueError):  # a full disk, a closed terminal: the exit code still tells
        _silence(stream)


def _resource_exit_code(error: BaseException) -> int | None:
    """5 for an exhausted machine, 2 for a path that the user got wrong, None for what must be a bug."""
    if isinstance(error, MemoryError):
        return 5
    assert isinstance(error, OSError)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EROFS, errno.ENOMEM, errno.EIO):
        return 5
    named_by_user = isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError | NotADirectoryError)
    wrong_name = isinstance(error, FileExistsError) or error.errno in (errno.ENAMETOOLONG, errno.ELOOP)
    return 2 if named_by_user or wrong_name else None


def _describe(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "out of memory: use smaller inputs, or --truncate with a smaller --max-length"
    assert isinstance(error, OSError)
    name = str(error.filename or "")
    shown = name if len(name) <= 200 else name[:197] + "..."
    return f"{error.strerror or error}: {shown}" if name else str(error)


def _fill_closed_streams() -> None:
    """Open what the caller has closed (``>&-``), so that no file of ours gets the number of a standard stream."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the system gives the lowest free number


def _silence(stream: TextIO | None) -> None:
    """Python flushes its streams once more at exit; let that go nowhere instead of failing again."""
    if stream is not None:
        with contextlib.suppress(OSError, ValueError):  # no real file, for example under a test
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
