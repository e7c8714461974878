"""The ``bertkit`` command: one table, and nothing imported until a command is chosen.

Results go to stdout, talk to stderr. Exit codes: 0 ok, 1 a bug in bertkit, 2 usage, 3 data, 4 model or checkpoint,
5 resources (memory, disk, network, a missing package), 130 interrupted (143 by SIGTERM).
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bertkit import __version__
from bertkit.errors import BertkitError, did_you_mean

if TYPE_CHECKING:
    from cyclopts import App, CycloptsError

#: Stands for a bare ``-`` (standard input or output) while the command line is parsed, where ``-`` would be an option.
STANDARD_STREAM = "<standard stream>"

HELP = """BERT, whole: make one from your own text, fine-tune one on your labels, see honestly how good it is, use it.

See it work, in minutes, without a network:

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

What a command can do, with examples: bertkit COMMAND --help"""

#: group -> command -> (where its function is, one line of help)
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "demo": (
            "demo.demo:demo",
            "fine-tune or pre-train a small BERT on text that ships with Python; a few minutes",
        ),
        "doctor": ("doctor:doctor", "versions, threads, devices and optional packages, for a bug report"),
    },
    "Prepare": {
        "vocab": ("vocab:vocab", "learn a tokenizer (a WordPiece vocabulary) from text"),
        "prepare": ("prepare:prepare", "tokenise text once, into a token store; resumable"),
    },
    "Train": {
        "pretrain": ("pretrain:pretrain", "train a BERT of your own on a token store; resumable"),
        "finetune": ("finetune:finetune", "train a classifier or regressor on labelled text"),
        "adapt": ("adapt:adapt", "train on a task's own text first, then fine-tune; with and without, compared"),
        "evaluate": ("evaluate:evaluate", "score a finished run on labelled text"),
        "predict": ("predict:predict", "label a whole file with a finished run; resumable"),
    },
    "Use": {
        "fill-mask": ("fill_mask:fill_mask", "what may stand in place of [MASK]"),
        "next-sentence": ("next_sentence:next_sentence", "does the second text follow the first?"),
        "answer": ("answer:answer", "answers to questions, as pieces of a text of any length"),
        "classify": ("classify:classify", "labels of texts, with probabilities"),
        "tag": ("tag:tag", "names and other entities in texts of any length"),
        "embed": ("embed:embed", "texts to vectors: .npy, .jsonl or .parquet"),
        "similarity": ("similarity:similarity", "how near texts are to one another"),
    },
    "Look": {
        "inspect": ("inspect:inspect", "what a model or a token store holds"),
        "convert": ("convert:convert", "a TensorFlow or pickled checkpoint into a folder that loads"),
        "export": ("export:export", "a model as ONNX, checked, with its tokenizer and labels"),
    },
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code instead of raising.

    Args:
        argv: the arguments after the program's name; None takes ``sys.argv``.
    """
    # Before torch is loaded; see docs/decisions/0005-busy-machines.md.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    tokens = list(sys.argv[1:] if argv is None else argv)
    name = tokens[0] if tokens else ""
    prefix = f"bertkit {name}" if _is_command(name) else "bertkit"
    try:
        code = _run(tokens)
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()
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
        return exhausted
    return code


def build_app(command: str | None = None) -> App:
    """The parser: of one command, whose module is imported, or of the whole table, importing nothing."""
    from cyclopts import App, Group

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
                module, _, function = place.partition(":")
                app.command(getattr(import_module(f"bertkit.cli.{module}"), function), name=name)
    return app


def _run(tokens: list[str]) -> int:
    from cyclopts import CycloptsError

    if not tokens:
        tokens = ["--help"]
    if not tokens[0].startswith("-") and not _is_command(tokens[0]):
        names = [name for commands in COMMANDS.values() for name in commands]
        _tell(
            f"bertkit: unknown command {tokens[0]!r}{did_you_mean(tokens[0], names)}; "
            "'bertkit --help' lists all commands"
        )
        return 2
    app = build_app(tokens[0] if _is_command(tokens[0]) else None)
    ends = tokens.index("--") if "--" in tokens else len(tokens)
    tokens[:ends] = [STANDARD_STREAM if token == "-" else token for token in tokens[:ends]]
    try:
        command, bound, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        error.verbose = False
        name = tokens[0] if _is_command(tokens[0]) else ""
        program = f"bertkit {name}".strip()
        _tell(f"{program}: {_usage_message(error)} See: {program} --help")
        return 2
    result: Any = command(*bound.args, **bound.kwargs)
    return result if isinstance(result, int) else 0


def _usage_message(error: CycloptsError) -> str:
    """One sentence; the settings' own words where one of them was refused."""
    findings = getattr(error.__cause__, "errors", None)
    if callable(findings):
        return "; ".join(str(finding.get("ctx", {}).get("error", finding["msg"])) for finding in findings()) + "."
    return str(error).replace(STANDARD_STREAM, "-")


def _is_command(name: str) -> bool:
    return any(name in commands for commands in COMMANDS.values())


def _tell(message: str) -> None:
    """An error for the person at the terminal; shown even when talk is off."""
    stream = sys.stderr
    if stream is not None:
        text = message + "\n"
        encoding = getattr(stream, "encoding", None) or "utf-8"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()


def _resource_exit_code(error: BaseException) -> int | None:
    """5 for an exhausted machine, 2 for a path that the user got wrong, None for what must be a bug."""
    if isinstance(error, MemoryError):
        return 5
    assert isinstance(error, OSError)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EROFS, errno.ENOMEM, errno.EIO):
        return 5
    named_by_user = isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError | NotADirectoryError)
    return 2 if named_by_user or isinstance(error, FileExistsError) else None


def _describe(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "out of memory: use smaller inputs, or --truncate with a smaller --max-length"
    assert isinstance(error, OSError)
    return f"{error.strerror or error}: {error.filename}" if error.filename else str(error)


def _silence_stdout() -> None:
    """Python flushes stdout once more at exit; let that go nowhere instead of complaining about the closed pipe."""
    with contextlib.suppress(OSError, ValueError):  # stdout is no real file, for example under a test
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
