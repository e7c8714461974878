"""The command line's frame: table, help, exit codes, streams. No model is loaded here."""

from __future__ import annotations

import errno
import io
import json
import re
import runpy
import shlex
import subprocess
import sys
import textwrap
import time
from dataclasses import is_dataclass
from functools import reduce
from importlib import import_module
from importlib.metadata import metadata, requires
from operator import getitem
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from packaging.requirements import Requirement

from bertkit import __version__, cli, errors
from bertkit.cli import NAMES, main
from bertkit.cli.help_pages import with_option_names
from bertkit.cli.task_options import TextColumns
from bertkit.system.interrupts import Interrupted
from bertkit.system.processor import find_processor
from bertkit.tasks.registry import KINDS

REPOSITORY = Path(__file__).resolve().parents[3]
#: Every command that does something, and the tables of commands.
SINGLE = [name for name in NAMES if name not in cli.ACTIONS]
SINGLE += [f"{name} {action}" for name, actions in cli.ACTIONS.items() for action in actions]
EVERY = [*SINGLE, *cli.ACTIONS]
#: A folder with a model.
RUN = str(Path(cli.__file__).parents[1] / "included" / "bertkit-tiny-en")
FINETUNE = ["finetune", "sst2", "--data", "d", "--model", "m", "--out", "o"]


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(list(argv))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_worker_processes_import_the_command_of_an_editable_installation() -> None:
    """They import the script that their parent runs, under another name, and must not run it again."""
    script = str(REPOSITORY / "packaging" / "bertkit")
    assert runpy.run_path(script, run_name="__mp_main__")["main"] is main
    with pytest.raises(SystemExit):  # the control: as the command it runs
        runpy.run_path(script, run_name="__main__")


def test_without_arguments_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    for name in NAMES:
        assert name in out
    assert run(capsys, "--help") == (0, out, "")


def help_page(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    """The page of a command on a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run(capsys, *name.split(), *(more or ("--help",)))
    assert (code, err) == (0, "")
    return out


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_examples_can_be_pasted(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """At 80 columns: no line is broken without a backslash, none ends in prose, and the parser takes all of them."""
    page = help_page(name, monkeypatch, capsys).partition("For example:\n\n")[2].partition("\n\n")[0]
    lines = page.splitlines()
    assert all(line.startswith("    ") and len(line) <= 80 for line in lines)
    whole = help_page(name, monkeypatch, capsys)
    # Elsewhere the options are on the pages of the tasks, or of the actions.
    if f"bertkit {name} TASK" not in whole and name not in cli.ACTIONS:
        shown = set(re.findall(r"--[\w-]+", whole.partition("\u256d")[2]))
        used = re.findall(r"--[\w-]+", " ".join(line for line in lines if f"bertkit {name} " in line))
        assert set(used) - {"--", "--nproc-per-node"} <= shown
    commands = [shlex.split(line) for line in textwrap.dedent(page).replace("\\\n", " ").splitlines()]
    assert any(f"bertkit {name}" in " ".join(command) for command in commands)
    for command in commands:
        words = command[command.index("bertkit") + 1 :]
        words = [cli.STANDARD_STREAM if word == "-" else word for word in words]
        cli.build_app(cli.command_of(words)).parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("name", EVERY)
def test_help_fits_and_is_not_wrapped_twice(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = help_page(name, monkeypatch, capsys)
    assert max(map(len, page.splitlines())) <= 80
    prose = page.partition("\n\n")[2].partition("For example:")[0]
    for paragraph in prose.strip().split("\n\n"):
        *full, _ = paragraph.splitlines()
        following = paragraph.splitlines()[1:]
        for line, after in zip(full, following, strict=True):
            assert len(line.rstrip()) + 1 + len(after.split()[0]) > 80, (line, after)


@pytest.mark.slow
@pytest.mark.parametrize("name", SINGLE)
def test_all_options_are_on_the_second_screen(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = help_page(name, monkeypatch, capsys)
    whole = help_page(name, monkeypatch, capsys, "--help-all")
    for option in ("--json", "--seed", "--device"):
        assert option in whole
    named = [set(re.findall(r"(?m)^\u2502 \*? *(--[\w-]+)", page)) for page in (first, whole)]
    options = [names - {"--no-feature-cache"} for names in named]
    assert options[0] < options[1]
    hidden = int(re.search(rf"(\d+) more options?: bertkit {name} --help-all\n$", first)[1])  # type: ignore[index]
    assert hidden == len(options[1]) - len(options[0])
    assert "more option" not in whole


@pytest.mark.parametrize(
    "name",
    [
        "fill-mask",
        "next-sentence",
        "answer",
        "classify",
        "tag",
        "generate",
        "embed",
        "similarity",
        "search",
        "cluster",
        "topics",
        "duplicates",
        "finetune csv",
        "finetune ner",
        "adapt csv",
        "evaluate csv",
        "predict",
    ],
)
def test_whatever_reads_texts_reads_them_in_any_encoding(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--encoding STR" in help_page(*name.split()[:1], monkeypatch, capsys, *name.split()[1:], "--help")


@pytest.mark.parametrize("command", ["finetune", "evaluate", "adapt"])
def test_without_a_task_the_tasks_are_listed_on_one_screen(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = help_page(command, monkeypatch, capsys)
    assert len(page.splitlines()) < 60
    for kind in KINDS.values():
        for task in (*kind.built_in, *kind.from_files):
            assert re.search(rf"(?m)^\u2502 {task} +\w", page), task
    assert f"bertkit {command} TASK --help" in page
    assert "--batch-size" not in page.partition("Tasks")[2]
    assert ("glue" in page) == (command == "finetune")


@pytest.mark.parametrize(
    ("task", "own", "others"),
    [
        (
            "csv",
            "--text --label --pooling --tune-thresholds --few-shot",
            "--word-column --doc-stride --loss --negatives --source",
        ),
        ("sst2", "--encoding --class-weights", "--text --label --label-all-pieces"),
        ("ner", "--word-column --label-all-pieces", "--text --pooling --rank-loss --few-shot"),
        ("squad2", "--doc-stride", "--encoding --pooling --long-texts"),
        ("swag", "--batch-size", "--encoding --pooling --class-weights"),
        ("pairs", "--text --negative --matryoshka", "--score --label --class-weights --query-flops"),
        ("scored-pairs", "--score --loss", "--negative"),
        ("sparse-pairs", "--negative --query-flops", "--pooling --matryoshka"),
        ("text2text", "--source --num-beams", "--text --pooling"),
        ("rerank", "--label --negatives --rank-loss --pooling", "--multi-label --loss"),
        ("multi", "--label-all-pieces --doc-stride --pooling", "--text --rank-loss"),
    ],
)
def test_the_page_of_a_task_has_its_options_alone(
    task: str, own: str, others: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = help_page("finetune", monkeypatch, capsys, task, "--help-all")
    options = set(re.findall(r"(?m)^\u2502 \*? *(--[\w-]+)", page))
    assert {*own.split(), "--data", "--epochs"} <= options
    assert not options & {*others.split()}
    assert f"Task {task}: " in page
    assert f"bertkit finetune {task} " in page
    first = help_page("finetune", monkeypatch, capsys, task, "--help")
    fewer = set(re.findall(r"(?m)^\u2502 \*? *(--[\w-]+)", first))
    assert first.endswith(f"{len(options) - len(fewer)} more options: bertkit finetune {task} --help-all\n")


def test_what_may_be_repeated_has_its_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert "bertkit classify --model STR [OPTIONS] [TEXT...]" in help_page("classify", monkeypatch, capsys)
    assert "bertkit vocab --out PATH [OPTIONS] [CORPUS...]" in help_page("vocab", monkeypatch, capsys)


@pytest.mark.slow
def test_help_is_quick_and_imports_no_torch() -> None:
    script = (
        "import sys, bertkit\n"
        "assert 'torch' not in sys.modules\n"
        "from bertkit.cli import main\n"
        "for argv in (['--help'], ['classify', '--help'], ['finetune', '--help'], ['demo', '--help'], ['nope']):\n"
        "    main(argv)\n"
        "    assert 'torch' not in sys.modules, argv\n"
        "    assert 'transformers' not in sys.modules, argv\n"
    )
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    print(f"five answers in {time.perf_counter() - started:.2f} s")
    assert done.returncode == 0, done.stderr


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"{__version__}\n", "")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["clasify", "x"], "unknown command 'clasify' (did you mean 'classify'?)"),
        (["xyzzy"], "unknown command 'xyzzy'; 'bertkit --help' lists all commands"),
        (["--nope"], "--nope"),
        (["classify", "--model", "x", "--tpo-k", "2", "text"], "Unknown option: --tpo-k (did you mean '--top-k'?)."),
        ([*FINETUNE, "--lr", "1e-4"], "Unknown option: --lr. Did you mean --learning-rate?"),
        ([*FINETUNE, "--batch=8"], "Unknown option: --batch. Did you mean --batch-size?"),
        (["classify", "--model", "x", "--lr", "1"], "Unknown option: --lr (did you mean '--all'?)."),
        (["predict", "--model", "x", "--file", "a.csv"], "Unknown option: --file; write bertkit predict FILE --model"),
        (
            ["search", "query", "i", "--file", "a.csv"],
            "--file; write bertkit search build INDEX FILE --model MODEL, or",
        ),
        (["search", "query", "i", "a", "-k", "3"], "Unknown option: -k. Did you mean --top-k?"),
        (["cluster", "a.csv", "--model", "x", "-k", "3"], "Unknown option: -k. Did you mean --k?"),
        (["cluster", "a.csv", "--model", "x", "--clusters", "3"], "Unknown option: --clusters. Did you mean --k?"),
        (["classify", "--model", "x", "--input", "a.csv"], "Unknown option: --input. Did you mean --file?"),
        ([*FINETUNE, "--input", "a.csv"], "Unknown option: --input. Did you mean --data?"),
        (
            ["finetune", "csv", "--input", "a.csv", "--model", "x", "--out", "y"],
            "option: --input. Did you mean --data?",
        ),
        (["finetune", "csv", "--data", "a.csv", "--model=x", "--output_dir=y"], "--output_dir. Did you mean --out?"),
        (
            ["finetune", "--data", "a.csv", "--model", "x", "--out", "y"],
            "The task comes first: bertkit finetune csv --data",
        ),
        (["finetune", "csv", "--data", "a", "--model", "x", "--out", "y", "--target", "b"], "--target; write --label"),
        (["finetune", "csv", "--data", "a.csv"], "--model requires an argument"),
        (["version"], "unknown command 'version'; write bertkit --version"),
        (["classify", "--model", "x", "--file", "a", "--column", "b"], "--column. Did you mean --text?"),
        (["compare", "a", "b", "--data", "c"], "--data; write bertkit evaluate TASK --data FILE --model RUN for both"),
        (["zero-shot", "x"], "unknown command 'zero-shot'; write bertkit classify --labels \"good, bad\" --model"),
        (["label", "a.csv", "--labels", "a", "b", "--out", "c"], "'b' is one text too many; several values of an"),
        (["classify", "--model", "x", __file__], f"{__file__!r} is the name of a file; to read the texts in it, write"),
        (["embed", "--model", "x", __file__, "--out", "e.npy"], f"write --file {__file__}; to read the name itself"),
        (["tag", "--model", "x", __file__], f"write --file {__file__}; to read the name itself"),
        (["similarity", "--model", "x", "a", __file__], f"write --file {__file__}; to read the name itself"),
        (["search", "query", "i", __file__], f"write bertkit search query i - < {__file__}, which takes each line"),
        (["classify", "--model", "x", "-5 stars"], "put such texts after --, as in: -- '-5 stars'"),
        (
            [*FINETUNE, "--text", "body"],
            "task sst2 does not take --text, but task csv does; leave it out, or use task",
        ),
        (["convert", "a", "b", "--config", "-"], "--config cannot be '-'; name a file"),
        ([*FINETUNE, "--joiner", "-"], "or write --joiner=- for the character"),
        (["similarity", "--model", "x", "-", "a"], "the first text cannot be '-'"),
        (["answer", "--model", "x", "-", "--context", "a"], "QUESTION cannot be '-'; for the character itself"),
        (["answer", "--model", "x", "--file", "-"], "--file cannot be '-': name a file"),
        (["fill-mask", "--model", "x", "--targets", "-", "a"], "--targets cannot be '-'"),
        (["adapt", *FINETUNE[1:], "--texts", "-"], "--texts cannot be '-'"),
        ([*FINETUNE, "--metric-for-best", "-"], "--metric-for-best cannot be '-'"),
        (["classify", "text"], "parameter --model requires an argument"),
        (["topics", "a.txt", "--model", "x", "--num-topics", "3"], "--num-topics. Did you mean --k?"),
        (["duplicates", "a.csv"], "bertkit-tiny-en (included)."),
        (["predict", RUN, "new.csv"], f"Write --model {RUN}."),
        (["finetune", "csv", __file__, "--model", "x", "--out", "y"], f"Write --data {__file__}."),
        (["search", "manuals", "refunds?"], 'Write bertkit search query INDEX "a question", or first bertkit search'),
        (["classify", "--model"], "--model"),
        (["embed", "--model", "x", "--pooling", "mena", "text"], 'Choose from: "model", "mean", "cls", "max"'),
        (["embed", "--model", "x", "--seed", "one", "text"], 'unable to convert "one" into int'),
        ([*FINETUNE, "--seeds", "0"], "finetune: --seeds 0: "),
        ([*FINETUNE, "--protocol", "new"], 'finetune: Invalid value "new" for --protocol'),
        (["inspect"], "MODEL"),
    ],
)
def test_usage_errors_end_with_2_and_a_hint(argv: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert told in err
    assert err.startswith("bertkit")
    assert "Traceback" not in err


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let ``bertkit doctor`` raise."""

    def doctor() -> None:
        raise error

    monkeypatch.setattr(import_module("bertkit.cli.doctor"), "doctor", doctor)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("m"), 2),
        (errors.InputError("m"), 2),
        (errors.DataError("m"), 3),
        (errors.CheckpointError("m"), 4),
        (errors.TrainingError("m"), 4),
        (errors.MissingExtraError("m"), 5),
        (errors.ResourceError("m"), 5),
        (MemoryError("m"), 5),
        (OSError(errno.ENOSPC, "No space left on device", "m"), 5),
        (FileNotFoundError(errno.ENOENT, "No such file", "m"), 2),
        (KeyboardInterrupt("m"), 130),
        (Interrupted("m", 2), 130),
        (Interrupted("m", 15), 143),
    ],
)
def test_every_kind_of_error_has_its_exit_code(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(monkeypatch, error)
    assert main(["doctor"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("bertkit doctor: ")
    assert len(err.splitlines()) == 1


def test_a_bug_keeps_its_traceback_and_ends_with_1() -> None:
    script = (
        "import sys\n"
        "from bertkit.cli import doctor as module, main\n"
        "def doctor(): assert False, 'our fault'\n"
        "module.doctor = doctor\n"
        "sys.exit(main(['doctor']))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "our fault" in done.stderr


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("max_length=512 but the model has 128 positions", "--max-length 512 but the model has 128 positions"),
        ("tune_thresholds=True needs dev rows", "--tune-thresholds needs dev rows"),
        ("baseline=False is odd", "--no-baseline is odd"),
        ("layer_decay and freeze_encoder: not both", "--layer-decay and --freeze-encoder: not both"),
        ("seeds must be from 1, and seeds must", "--seeds must be from 1, and seeds must"),
        ("x.max_length=5, freeze_encoder.py, my_seeds=3", "x.max_length=5, freeze_encoder.py, my_seeds=3"),
    ],
)
def test_settings_are_named_as_options(message: str, told: str) -> None:
    options = ["--max-length", "--tune-thresholds", "--baseline", "--layer-decay", "--freeze-encoder", "--seeds"]
    assert with_option_names(message, options) == told


def test_errors_of_a_command_name_its_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def doctor(*, seed: int = 0) -> None:
        raise errors.ConfigError(f"seed={seed} is below 0")

    monkeypatch.setattr(import_module("bertkit.cli.doctor"), "doctor", doctor)
    assert main(["doctor", "--seed", "-1"]) == 2
    assert capsys.readouterr().err == "bertkit doctor: --seed -1 is below 0\n"


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """Run a shell line in which ``bertkit`` is this package."""
    bertkit = f"{shlex.quote(sys.executable)} -m bertkit"
    line = command.replace("bertkit", bertkit)
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        ("bertkit doctor >&-", 5, "standard output is closed"),
        ("bertkit doctor --help >&-", 0, ""),
        ("bertkit prepare - --tokenizer vocab.txt --out store <&-", 2, "standard input is closed"),
        ("bertkit vocab - --out vocabulary <&-", 2, "standard input is closed"),
        ("bertkit nope 2>&-", 2, ""),
        ("bertkit nope 2>/dev/full", 2, ""),
        ("bertkit classify 2>/dev/full", 2, ""),
        ("bertkit doctor >/dev/full", 5, "No space left on device"),
    ],
)
def test_closed_and_full_streams(command: str, code: int, told: str, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    done = shell(f"cd {shlex.quote(str(tmp_path))} && {command}")
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert told in done.stderr


def test_messages_survive_a_terminal_that_is_not_utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, errors.DataError("row 3: 'naïve ☃'"))
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stderr", stream)
    assert main(["doctor"]) == 3
    assert stream.buffer.getvalue() == b"bertkit doctor: row 3: 'na\\xefve \\u2603'\n"  # type: ignore[attr-defined]


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor", "--json")
    assert code == 0
    report = json.loads(out)
    assert report["bertkit"] == __version__
    assert report["packages"]["torch"]
    assert report["torch"]["threads"] >= 1
    assert report["processor"] == find_processor().to_dict()
    assert report["torch"]["devices"][0] == "cpu"
    # All that the installed package declares, so that none is forgotten.
    declared = [Requirement(line) for line in requires("bertkit") or ()]
    assert list(report["packages"]) == [each.name for each in declared if each.marker is None]
    assert set(report["extras"]) == set(metadata("bertkit").get_all("Provides-Extra", [])) - {"dev"}
    code, out, _ = run(capsys, "doctor")
    assert "onednn" in out


def test_doctor_notices_a_missing_package(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    look = import_module("bertkit.cli.doctor")
    monkeypatch.setattr(look, "requires", lambda name: ["torch>=2", "no-such-package>=1; python_version > '3'"])
    code, _, err = run(capsys, "doctor")
    assert code == 5
    assert "missing: no-such-package" in err


COUNTS = {
    "answer q --model m --context c": "max_answer_len max_seq_len doc_stride top_k",
    "benchmark m": "threads rounds",
    "classify t --model m": "top_k max_length threads",
    "cluster f --model m": "k max_length",
    "compare a b": "rows-",
    "duplicates f --model m": "limit",
    "embed t --model m": "dimensions",
    "fill-mask t --model m": "top_k",
    "label f --labels a,b --out o": "every-",
    "predict f --model m --out o": "block_rows max_errors- workers",
    "prepare c --tokenizer t --out o": "workers",
    "rerank q d --model m": "top_k",
    "search build i f --model m": "passage_tokens passage_overlap-",
    "search query i q": "top_k",
    "evaluate csv --data d --model m": "min_rows",
    "export m --out o": "opset",
    "shrink m --out o": "min_count",
    "similarity t u --model m": "top_k",
    "tag t --model m": "stride-",
    "topics f --model m": "k words",
    "visualize explain t --model m": "max_length",
    "visualize layers f --model m": "examples max_length",
    "visualize embeddings f --model m": "points max_length",
    "visualize anisotropy f --model m": "points",
    "visualize attention t --model m": "head max_length",
    "visualize heads t --model m": "max_texts max_length",
    "visualize errors r": "top",
    "vocab c --out o": "workers size",
    "word-vectors distill --model m --out o": "dimensions",
    "word-vectors nearest w --vectors v": "top_k max_words",
    "word-vectors train c --out o": "window min_count max_vocabulary epochs",
}


@pytest.mark.parametrize("command", COUNTS)
def test_counts_are_counts(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in COUNTS[command].split():
        option, least = f"--{name.rstrip('-').replace('_', '-')}", 0 if name.endswith("-") else 1
        code, _, err = run(capsys, *command.split(), option, str(least - 1))
        assert (code, f"{option} must be a whole number from {least}, got {least - 1}" in err) == (2, True), err


def test_every_whole_number_of_a_command_is_checked() -> None:
    """Of a new option, too: whatever is in a command's own options or in a group of them."""
    seen = {option.rstrip("-") for options in COUNTS.values() for option in options.split()}
    for name in map(tuple, map(str.split, SINGLE)):
        function = reduce(getitem, name, cli.build_app(name)).default_command
        for found in whole_numbers(function):
            assert found in seen | cli.NO_COUNTS | cli.MAY_BE_ZERO, f"{name} has --{found}: a line in COUNTS"


def whole_numbers(of: Any) -> set[str]:
    """Names of the parameters or fields that hold a whole number, but for those of settings, which check themselves."""
    found = set()
    for name, kind in get_type_hints(of).items():
        if hasattr(kind, "model_fields"):
            continue
        if is_dataclass(kind):
            found |= whole_numbers(kind)
        elif (name != "return" and kind is int) or (get_origin(kind) in (Union, UnionType) and int in get_args(kind)):
            found.add(name)
    return found


def lines_of(data: bytes, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    options = import_module("bertkit.cli.common_options")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    return list(options.read_texts((cli.STANDARD_STREAM,), options.Source()))


def test_standard_input_is_one_text_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines_of("\ufeffa b\r\n\nc\u2028d\nlast".encode(), monkeypatch) == ["a b", "", "c\u2028d", "last"]
    with pytest.raises(errors.DataError, match=r"standard input, line 2: not UTF-8 \(byte 0xe9 at 3\)"):
        lines_of(b"ok\ncaf\xe9\n", monkeypatch)


def test_texts_come_from_one_place(tmp_path: Path) -> None:
    options = import_module("bertkit.cli.common_options")
    file = tmp_path / "texts.txt"
    file.write_text("a\nb\n")
    assert options.read_texts(("a", "b"), options.Source()) == ["a", "b"]
    assert list(options.read_texts((), options.Source(file))) == ["a", "b"]
    for texts, path, told in (
        ((), None, "no text"),
        (("a",), file, "not both"),
        (("a", cli.STANDARD_STREAM), None, "- must stand alone"),
    ):
        with pytest.raises(errors.ConfigError, match=told):
            options.read_texts(texts, options.Source(path))
    with pytest.raises(errors.DataError, match="nothing does not exist"):
        list(options.read_texts((), options.Source(tmp_path / "nothing")))
    with pytest.raises(errors.DataError, match="is not a file; give one of the files in it"):
        list(options.read_texts((), options.Source(tmp_path)))


def test_texts_in_another_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = import_module("bertkit.cli.common_options")
    file = tmp_path / "texts.txt"
    file.write_bytes("café\nthé\n".encode("cp1252"))
    assert list(options.read_texts((), options.Source(file, TextColumns(encoding="cp1252")))) == ["café", "thé"]
    assert list(options.read_texts((), options.Source(file))) == ["café", "thé"]
    file.write_bytes(b"caf\x81\n")
    with pytest.raises(errors.DataError, match=r"texts\.txt:1: .*0x81, is not UTF-8.*--encoding "):
        list(options.read_texts((), options.Source(file)))
    file.write_bytes("café\nthé\n".encode("cp1252"))
    with pytest.raises(errors.ConfigError, match="unknown encoding 'cp12'"):
        list(options.read_texts((), options.Source(file, TextColumns(encoding="cp12"))))
    file.write_text("café\nthé\n", encoding="utf-16")  # its mark says so
    assert list(options.read_texts((), options.Source(file))) == ["café", "thé"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("a\té".encode("cp1252"))))
    assert list(options.read_pairs((cli.STANDARD_STREAM,), options.Source(None, TextColumns(encoding="cp1252")))) == [
        ("a", "é")
    ]


def test_results_are_written_beside_their_texts_without_running_ahead() -> None:
    options = import_module("bertkit.cli.common_options")
    drawn: list[int] = []

    def texts() -> Any:
        for number in range(10_000):
            drawn.append(number)
            yield str(number)

    def twice(items: Any) -> Any:
        for item in items:
            yield item * 2

    pairs = options.with_texts(texts(), twice)
    assert next(pairs) == ("0", "00")
    assert drawn == [0]
    assert all(result == text * 2 for text, result in pairs)
    assert len(drawn) == 10_000


def test_a_demo_that_is_stopped_starts_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise Interrupted("saved. Run the same command with --resume to continue", 2)

    monkeypatch.setattr("bertkit.cli.demo.demo_script.fine_tune", stopped)
    assert main(["demo"]) == 130
    assert capsys.readouterr().err == "bertkit demo: stopped; run it again for the whole demo, it starts over\n"
