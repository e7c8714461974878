"""The line of what to do next: every command that it names exists, and it is for people at a terminal only."""

from __future__ import annotations

import io
import json
import shlex
import sys
from pathlib import Path

import pytest

from bertkit.cli import build_app, command_of, main
from bertkit.cli.next_steps import NEXT, _flat, next_line
from bertkit.tasks.registry import KINDS
from everyday import some
from pipeline_helpers import save_tiny

#: A command line for each line of the table.
TYPED = {
    "vocab": "vocab 'my text.txt' --out tok",
    "prepare": "prepare text.txt --tokenizer tok --out store",
    "pretrain": "pretrain store --out own",
    "label": "label mails.txt --labels a,b --out labels.jsonl",
    "finetune text": "finetune csv --data a.csv --model m --out 'my run'",
    "finetune span": "finetune squad --data a --model m --out run",
    "finetune token": "finetune ner --data a --model m --out run",
    "finetune choice": "finetune swag --data a --model m --out run",
    "finetune rerank": "finetune rerank --data a --model m --out run",
    "finetune seq2seq": "finetune summarize --data a --model m --out run",
    "finetune embedding": "finetune pairs --data a --model m --out run",
    "finetune sparse": "finetune sparse-pairs --data a --model m --out run",
    "finetune multi": "finetune multi --data a --model m --out run",
    "distill task": "distill task --teacher run --out small",
    "distill vectors": "distill vectors --teacher m --data a.txt --out small",
    "distill corpus": "distill distilbert --teacher m --data store --out small",
    "classify": "classify --file a.csv --model run --out b.csv",
    "predict": "predict a.csv --model run --out b.csv",
    "evaluate": "evaluate csv --data a.csv --model run",
    "search build": "search build index a.csv --model m",
    "search add": "search add index a.csv",
    "search update": "search update index a.csv",
    "search delete": "search delete index id7",
    "cluster": "cluster a.csv --model m --out b.csv",
    "topics": "topics a.csv --model m --out b.csv",
    "quantize": "quantize m --calibrate a.txt --out small",
    "export": "export m --out onnx",
    "convert": "convert m folder",
    "shrink": "shrink m --keep-layers 3 --out small",
    "word-vectors train": "word-vectors train a.txt --out a.vec",
    "word-vectors distill": "word-vectors distill --model m --out words",
}
#: Lines that end without: nothing was written, or there is nothing that follows.
SILENT = [
    "predict a.csv --model run",
    "classify 'A text' --model run",
    "search query index word",
    "search info index",
    "cluster a.csv --model m",
    "doctor",
]
SILENT += ["finetune glue --data GLUE --model m --out runs", "tag --model run text --out a.csv"]


def said_after(line: str) -> str | None:
    tokens = shlex.split(line)
    name = command_of(tokens)
    _, bound, _ = build_app(name).parse_args(tokens, exit_on_error=False, print_error=False)
    return next_line(name, dict(_flat(bound.arguments)))


def make_run(folder: Path) -> None:
    folder.mkdir()
    row = {"gold": "a", "predicted": "a", "probabilities": {"a": 0.9, "b": 0.1}}
    (folder / "predictions-dev.jsonl").write_text(json.dumps(row) + "\n")


def test_every_line_of_the_table_has_a_case() -> None:
    assert set(TYPED) == {*NEXT, *(f"finetune {form}" for form in KINDS)}
    assert all(kind.next_steps for kind in KINDS.values())


#: Where one word of a command has several lines, and where there are several steps; the other lines: in the campaign.
ALWAYS = ("finetune text", "distill task", "search build", "evaluate")


@pytest.mark.parametrize("key", some(TYPED, ALWAYS))
def test_the_commands_that_are_named_can_be_parsed(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for run in ("run", "my run"):
        make_run(tmp_path / run)
    said = said_after(TYPED[key])
    assert said is not None
    kind = KINDS.get(key.removeprefix("finetune "))
    steps = kind.next_steps if kind is not None else [NEXT[key]]
    assert said.startswith(f"next, {steps[0][0]}: bertkit ")
    assert "\n" not in said
    parts = said.removeprefix("next, ").split("; or ")
    assert len(parts) == len(steps)
    for part in parts:
        program, *tokens = shlex.split(part.partition(": ")[2])
        assert program == "bertkit"
        app = build_app(command_of(tokens))
        command, _, ignored = app.parse_args(tokens, exit_on_error=False, print_error=False)
        assert command.__name__ == command_of(tokens)[-1].replace("-", "_")
        assert not ignored
        assert key != "finetune text" or "my run" in tokens
    with pytest.raises(Exception, match="no-such-option"):  # the control: the parser does refuse
        app.parse_args([*tokens, "--no-such-option"], exit_on_error=False, print_error=False)


@pytest.mark.parametrize("line", SILENT)
def test_nothing_is_said_where_nothing_follows(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert said_after(line) is None


def test_mistakes_are_named_only_of_runs_that_have_a_list_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said_after(TYPED["predict"]) is None
    assert "errors" not in str(said_after(TYPED["finetune text"]))
    make_run(tmp_path / "run")
    assert str(said_after(TYPED["predict"])).endswith("bertkit visualize errors run")
    rows = tmp_path / "run" / "predictions-dev.jsonl"
    rows.write_text(json.dumps({"gold": 1.5, "predicted": 1.4}) + "\n")  # a score
    assert said_after(TYPED["predict"]) is None


def test_results_of_adapting_are_those_of_its_better_half() -> None:
    assert "--model out/with" in str(said_after("adapt csv --data a.csv --model m --out out"))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("options", "stream", "count"),
    [([], Terminal, 1), ([], io.StringIO, 0), (["--quiet"], Terminal, 0), (["--json"], Terminal, 0)],
)
def test_the_line_is_for_people_at_a_terminal(
    options: list[str], stream: type[io.StringIO], count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = str(save_tiny(tmp_path / "m"))
    Path("a.txt").write_text("a good film\nthe end\n")
    shown = stream()
    monkeypatch.setattr(sys, "stderr", shown)
    assert main(["search", "build", "index", "a.txt", "--model", model, *options]) == 0
    expected = 'next, search it: bertkit search query index "Your question" --out found.xlsx'
    assert shown.getvalue().splitlines().count(expected) == count
    assert main(["search", "query", "index", "good", *options]) == 0
    assert main(["search", "query", "nowhere", "good", *options]) != 0  # no line after an error
    assert shown.getvalue().count("next, ") == count
