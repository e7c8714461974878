"""The command line's frame: table, help, exit codes, streams. No model is loaded here."""

from __future__ import annotations

import errno
import io
import json
import subprocess
import sys
import time
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from bertkit import cli, errors
from bertkit.cli import COMMANDS, main
from bertkit.system.interrupts import Interrupted

REPOSITORY = Path(__file__).resolve().parents[3]
NAMES = [name for commands in COMMANDS.values() for name in commands]


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(list(argv))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_without_arguments_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    for name in NAMES:
        assert name in out
    assert run(capsys, "--help") == (0, out, "")


@pytest.mark.parametrize("name", NAMES)
def test_every_command_teaches_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, name, "--help")
    assert code == 0
    assert "For example:" in out
    assert f"bertkit {name} " in out.partition("For example:")[2] or name in ("doctor", "demo")
    for option in ("--json", "--seed", "--device"):
        assert option in out


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
    assert run(capsys, "--version") == (0, "0.1.0\n", "")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["clasify", "x"], "unknown command 'clasify' (did you mean 'classify'?)"),
        (["xyzzy"], "unknown command 'xyzzy'; 'bertkit --help' lists all commands"),
        (["--nope"], "--nope"),
        (["classify", "--modl", "x", "text"], "Did you mean --model?"),
        (["classify", "text"], "parameter --model requires an argument"),
        (["classify", "--model"], "--model"),
        (["embed", "--model", "x", "--pooling", "mena", "text"], 'Choose from: "mean", "cls", "max"'),
        (["embed", "--model", "x", "--seed", "one", "text"], 'unable to convert "one" into int'),
        (["finetune", "sst2", "--data", "d", "--model", "m", "--out", "o", "--seeds", "0"], "seeds = '0'"),
        (["finetune", "sst2", "--data", "d", "--model", "m", "--out", "o", "--protocol", "new"], "protocol = 'new'"),
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
    assert report["bertkit"] == "0.1.0"
    assert report["packages"]["torch"]
    assert report["torch"]["threads"] >= 1
    assert report["torch"]["devices"][0] == "cpu"
    # All that pyproject.toml declares, so that no package is forgotten.
    declared = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(report["extras"]) == declared["optional-dependencies"].keys() - {"dev"}
    assert list(report["packages"]) == [requirement.partition(">=")[0] for requirement in declared["dependencies"]]
    code, out, _ = run(capsys, "doctor")
    assert "onednn" in out


def test_doctor_notices_a_missing_package(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    look = import_module("bertkit.cli.doctor")
    monkeypatch.setattr(look, "REQUIRED", ("torch", "no-such-package"))
    code, _, err = run(capsys, "doctor")
    assert code == 5
    assert "missing: no-such-package" in err


def lines_of(data: bytes, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    options = import_module("bertkit.cli.common_options")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    return list(options.read_texts((cli.STANDARD_STREAM,), None))


def test_standard_input_is_one_text_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines_of("\ufeffa b\r\n\nc\u2028d\nlast".encode(), monkeypatch) == ["a b", "", "c\u2028d", "last"]
    with pytest.raises(errors.DataError, match=r"standard input, line 2: not UTF-8 \(byte 0xe9 at 3\)"):
        lines_of(b"ok\ncaf\xe9\n", monkeypatch)


def test_texts_come_from_one_place(tmp_path: Path) -> None:
    options = import_module("bertkit.cli.common_options")
    file = tmp_path / "texts.txt"
    file.write_text("a\nb\n")
    assert options.read_texts(("a", "b"), None) == ["a", "b"]
    assert list(options.read_texts((), file)) == ["a", "b"]
    for texts, path, told in (
        ((), None, "no text"),
        (("a",), file, "not both"),
        (("a", cli.STANDARD_STREAM), None, "- stands alone"),
    ):
        with pytest.raises(errors.ConfigError, match=told):
            options.read_texts(texts, path)
    with pytest.raises(errors.DataError, match="is not a file"):
        list(options.read_texts((), tmp_path / "nothing"))


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
