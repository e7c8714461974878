"""The ``bertkit`` command: one table; a command's module is imported only when the command is run.

Results go to stdout, messages to stderr. Exit codes: 0 ok, 1 a bug in bertkit, 2 usage, 3 data, 4 model or checkpoint,
5 resources (memory, disk, network, a missing package), 130 interrupted (143 by SIGTERM).
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import is_dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from bertkit import __version__
from bertkit.errors import (
    BertkitError,
    ConfigError,
    InputError,
    SettingsFileError,
    counted,
    did_you_mean,
    needs_bertkit,
)
from bertkit.habit_table import remedy
from bertkit.system.console import for_stream, set_wording
from bertkit.system.cyclic_garbage import no_collection_at_start_and_end

if TYPE_CHECKING:
    from cyclopts import App

#: Stands for a bare ``-`` (standard input or output) while the command line is parsed, where ``-`` would be an option.
STANDARD_STREAM = "<standard stream>"
#: Parameters of commands that may be ``-``, and those that hold several values, of which one may be.
READS_STREAM, READ_STREAM_AMONG = {"file", "context_file"}, {"text", "corpus", "file"}
#: Whole numbers that are no counts; all others are from 1 on, or from 0.
NO_COUNTS, MAY_BE_ZERO = (
    {"seed", "word_column", "tag_column", "layer"},
    {"every", "max_errors", "negatives", "passage_overlap", "port", "rows", "stride"},
)

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

#: group -> command -> one line of help. The function of a command stands in the module of its name, those of a command
#: of :data:`ACTIONS` in the modules of a package of its name.
COMMANDS: dict[str, dict[str, str]] = {
    "Start": {
        "demo": "fine-tune or pre-train a small BERT on text that ships with Python",
        "doctor": "show versions, devices and optional packages, for a bug report",
    },
    "Prepare": {
        "vocab": "learn a WordPiece vocabulary from text",
        "prepare": "tokenize text into a token store; resumable",
    },
    "Train": {
        "pretrain": "train a model of your own on a token store; resumable",
        "label": "label texts by hand, most informative first; resumable",
        "finetune": "train on labelled text, and evaluate the model",
        "adapt": "train on a task's text first, then fine-tune; compare both",
        "distill": "train a small model to imitate a large one; resumable",
        "evaluate": "score a finished run on labelled text",
        "compare": "compare two runs on the same rows",
        "predict": "label whole files with a finished run; resumable",
        "predict-status": "show how far a folder of predictions or vectors is",
        "merge": "make one file of a folder of predictions or vectors",
    },
    "Use": {
        "fill-mask": "guess the words behind [MASK]",
        "next-sentence": "does the second text follow the first?",
        "answer": "answer questions from a text of any length",
        "classify": "label texts, with probabilities",
        "rerank": "order documents by relevance to a query",
        "analyze": "run all heads of a run in one pass of the encoder",
        "tag": "find names and other entities in texts of any length",
        "generate": "summarize, translate or rewrite texts with BART or T5",
        "embed": "turn texts into vectors: .npy, .jsonl or .parquet",
        "similarity": "compare texts with one text",
        "search": "search texts by meaning, in an index on disk; resumable",
        "cluster": "group similar texts",
        "topics": "show what texts are about: clusters and their words",
        "duplicates": "find duplicate and near-duplicate texts",
        "serve": "serve models over HTTP, to the clients of many services",
        "mcp": "offer models as tools to a language model",
    },
    "Look": {
        "inspect": "show what a model or a token store holds",
        "visualize": "draw embeddings, attention, layers, explanations and runs",
        "word-vectors": "train, distill and query word vectors",
        "ablate": "repeat an experiment of the BERT paper in small; resumable",
        "convert": "turn a TensorFlow or pickled checkpoint into a model folder",
        "export": "write a model as ONNX, with tokenizer and labels; checked",
        "shrink": "make a model smaller without training: fewer tokens or layers",
        "quantize": "convert a model to 8 bits, if its answers stay the same",
        "benchmark": "measure speed on this machine, next to other runtimes",
    },
}
NAMES = [name for commands in COMMANDS.values() for name in commands]
#: command -> its second word -> one line of help.
ACTIONS: dict[str, dict[str, str]] = {
    "visualize": {
        "embeddings": "a map of texts: PCA, t-SNE or UMAP, colored by label",
        "tokens": "a map of the pieces of a few sentences",
        "attention": "what each head of a layer attends to in one text or pair",
        "heads": "what the heads of a model do, over many texts",
        "layers": "what each layer knows (linear probes), and how similar layers are",
        "explain": "which words of a text moved a prediction",
        "errors": "the most confident mistakes of a run, likely wrong labels, weak slices",
        "training": "curves of one or more runs: loss, learning rate, dev scores, speed",
        "confusion": "confusion matrix and calibration of an evaluated run",
        "senses": "whether vectors tell the senses of a word apart, per layer",
        "anisotropy": "how narrow the space of the vectors is, before and after whitening",
    },
    "word-vectors": {
        "train": "learn word vectors from a corpus: co-occurrence or skip-gram",
        "distill": "make word vectors out of a BERT: fast, small, without layers",
        "nearest": "the words that are nearest to a word",
        "analogy": "a is to b as c is to ...",
        "coverage": "words of texts that a word list has not, and a tokenizer reads",
    },
}
#: Its second word, where a command has some.
Command = tuple[str, ...]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code instead of raising. ``argv`` None takes ``sys.argv``."""
    if argv is None:  # the process runs this one command and ends
        with no_collection_at_start_and_end():
            return _main(sys.argv[1:])
    return _main(list(argv))


def _main(tokens: list[str]) -> int:
    # Before torch is loaded; see docs/decisions/0005-busy-machines.md.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    _fill_closed_streams()
    prefix = " ".join(["bertkit", *command_of(tokens)])
    try:
        code = copy_context().run(run_command, tokens)  # --quiet ends with the command
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _silence(sys.stdout)
        return 0  # the reader (head, less) had enough
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):
            return 0  # rich, which renders help pages, turns a closed pipe into an exit with status 1
        raise
    except KeyboardInterrupt as stop:
        _write_error(f"{prefix}: {stop}" if str(stop) else f"{prefix}: interrupted")
        return int(getattr(stop, "exit_code", 130))
    except BertkitError as error:
        _write_error(f"{prefix}: {error}")
        return error.exit_code
    except MemoryError:
        _write_error(f"{prefix}: out of memory: close other programs, or use smaller inputs or a smaller model")
        _silence(sys.stdout)  # what did not fit is not tried again at the end
        return 5
    except OSError as error:
        code = _exit_code(error)
        name = str(error.filename or "")
        shown = name if len(name) <= 200 else name[:197] + "..."
        _write_error(f"{prefix}: " + (f"{error.strerror or error}: {shown}" if name else str(error)))
        _silence(sys.stdout)
    return code


def build_app(command: Command = (), *, everything: bool = False, task: str | None = None) -> App:
    """The parser of one command, whose module is imported, or of a table of commands, which imports nothing."""
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
        for order, (name, summary) in enumerate(commands.items()):
            own = name.replace("-", "_")
            if not command and name not in ACTIONS:
                app.command(f"bertkit.cli.{own}:{own}", name=name, help=summary, group=group, sort_key=order)
            elif not command:
                app.command(App(name=name, help=summary, group=group, sort_key=order))
            elif command[0] == name and name in ACTIONS:
                app.command(_actions_app(command, everything=everything))
            elif command[0] == name:
                _add_command(app, name, f"bertkit.cli.{own}", name, everything=everything, task=task)
    return app


def _actions_app(command: Command, *, everything: bool) -> App:
    """The parser of one action of a command, or of the table of its actions."""
    from cyclopts import App, Group

    from bertkit.cli.help_pages import reflow

    package = f"bertkit.cli.{command[0].replace('-', '_')}"
    text, group = reflow(import_module(package).__doc__), Group("Commands")
    app = App(name=command[0], help=text, help_format="plaintext", version_flags=(), group_commands=group)
    for order, (name, summary) in enumerate(ACTIONS[command[0]].items()):
        own = name.replace("-", "_")
        if len(command) == 1:
            app.command(f"{package}.{own}:{own}", name=name, help=summary, sort_key=order)
        elif name == command[1]:
            _add_command(app, name, f"{package}.{own}", " ".join(command), everything=everything)
    return app


def _add_command(app: App, name: str, module: str, title: str, *, everything: bool, task: str | None = None) -> None:
    """Import a command and add it with its help page."""
    from bertkit.cli.help_pages import HelpPage

    function = getattr(import_module(module), name.replace("-", "_"))
    page = HelpPage(title, function, everything=everything, task=task)
    app.command(function, name=name, help=page.text, help_formatter=page)


def command_of(tokens: Sequence[str]) -> Command:
    """The words of a command line that name its command."""
    if not tokens or tokens[0] not in NAMES:
        return ()
    return tuple(tokens[: 2 if len(tokens) > 1 and tokens[1] in ACTIONS.get(tokens[0], ()) else 1])


def run_command(tokens: list[str]) -> int:
    """Run one command in the current context; returns its exit code, and leaves its errors to the caller."""
    from cyclopts import CycloptsError

    from bertkit.cli.help_pages import HelpPage, explain, typed_options, with_option_names
    from bertkit.cli.next_steps import tell_next

    set_wording(typed_options)
    name = command_of(tokens)
    program = " ".join(["bertkit", *name])
    known = NAMES if not name else ACTIONS.get(name[0], {}) if len(name) == 1 else {}
    if known and len(tokens) == len(name):
        tokens = [*tokens, "--help"]
    elif known and not tokens[len(name)].startswith("-"):
        given = tokens[len(name)]
        near = remedy("bertkit", given, known) if not name else did_you_mean(given, known)
        _write_error(f"{program}: unknown command {given!r}{near}; '{program} --help' lists all commands")
        return 2
    ends = tokens.index("--") if "--" in tokens else len(tokens)
    for option, value in pairwise(tokens[:ends]):
        if option in ("--out", "-o") and not value:
            raise ConfigError("--out is empty; name a file or folder")
    everything = "--help-all" in tokens[:ends]
    spelled = {"-": STANDARD_STREAM, "--help-all": "--help"}
    tokens[:ends] = [spelled.get(token, token) for token in tokens[:ends]]
    app = build_app(name, everything=everything, task=tokens[1] if "--help" in tokens[1:] else None)
    try:
        command, bound, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
        _refuse_stream(bound.arguments, lambda: _options_of(app, name))
        _check_counts(bound.arguments)
        with needs_bertkit("this command"):
            result: Any = command(*bound.args, **bound.kwargs)
        if not result:
            tell_next(name, bound.arguments)
    except CycloptsError as error:
        error.verbose = False
        options = _options_of(app, name)
        message = with_option_names(explain(error, options, " ".join(name[:1]), tokens), options).replace(
            STANDARD_STREAM, "-"
        )
        if name in (("finetune",), ("evaluate",)) and Path(given := next(iter(tokens[1:]), "")).is_file():
            message += f" {given} is a file; the task comes first: {program} csv --data {given} ..."
        elif message.startswith("Command") and "parameter TASK" in message:
            message += f" The task comes first: {program} csv --data FILE ..."
        _write_error(f"{program}: {message} See: {program} --help")
        return 2
    except BertkitError as error:
        told = typed_options(str(error))
        about_settings = isinstance(error, ConfigError | InputError) and not isinstance(error, SettingsFileError)
        error.args = (with_option_names(told, _options_of(app, name)) if about_settings else told,)
        raise
    page = _app_of(app, name).help_formatter
    if isinstance(page, HelpPage) and page.num_hidden:
        if page.tasks:
            print(f"Options of a task: {program} TASK --help")
        asked = f"{program} {page.task}".strip()
        print(f"{counted(page.num_hidden, 'more option')}: {asked} --help-all")
    return result if isinstance(result, int) else 0


def _app_of(app: App, name: Command) -> App:
    for word in name:
        app = app[word]
    return app


def _options_of(app: App, name: Command) -> list[str]:
    single = name and (len(name) == 2 or name[0] not in ACTIONS)
    arguments = _app_of(app, name).assemble_argument_collection() if single else ()
    return [each for argument in arguments for each in argument.names if each.startswith("--")]


def _refuse_stream(arguments: Mapping[str, Any], options: Callable[[], list[str]]) -> None:
    """``-`` means standard input for texts and files that are read, and nothing elsewhere."""
    for name, value in arguments.items():
        several = isinstance(value, tuple | list)
        if is_dataclass(value):
            _refuse_stream(vars(value), options)
        elif name in (READ_STREAM_AMONG if several else READS_STREAM):
            continue
        elif STANDARD_STREAM in map(str, value if several else [value]):
            option = f"--{name.replace('_', '-')}"
            if option not in options():
                raise ConfigError(f"{name.upper()} cannot be '-'; for the character itself, write: -- -")
            raise ConfigError(f"{option} cannot be '-'; name a file or folder, or write {option}=- for the character")


def _check_counts(arguments: Mapping[str, Any]) -> None:
    """Refuse a count below 1, or below 0 of :data:`MAY_BE_ZERO`, before any work; settings classes check themselves."""
    for name, value in arguments.items():
        least = 0 if name in MAY_BE_ZERO else 1
        if hasattr(value, "model_fields_set"):
            continue
        if is_dataclass(value):
            _check_counts(vars(value))
        elif isinstance(value, int) and not isinstance(value, bool) and name not in NO_COUNTS and value < least:
            raise ConfigError(f"--{name.replace('_', '-')} must be a whole number from {least}, got {value}")


def _write_error(message: str) -> None:
    """An error for the person at the terminal; shown even with ``--quiet``."""
    stream = sys.stderr
    if stream is None:
        return
    try:
        stream.write(for_stream(message + "\n", stream))
        stream.flush()
    except (OSError, ValueError):  # a full disk, a closed terminal: the exit code still says it
        _silence(stream)


def _exit_code(error: OSError) -> int:
    """5 for an exhausted machine, 2 for a path that the user got wrong; what must be a bug is raised again."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EROFS, errno.ENOMEM, errno.EIO):
        return 5
    named_by_user = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)
    if isinstance(error, named_by_user) or error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        return 2
    raise error


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
