"""What the first release gave its users is still there: ids, names, options, and everything that it wrote still opens.

Only what no processor changes is compared exactly; ``make same`` compares the rest with an earlier commit.
The golden files are written by ``write_first_release.py``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import first_release_facts as facts
import numpy as np
import pytest
import torch

from bertkit import AutoModelForSequenceClassification, BertForPreTraining, BertModel, BertTokenizer, pipeline
from bertkit.cli import main
from finetune_data import no_pictures

FIRST = Path(__file__).resolve().parent / "first_release"
REPOSITORY = Path(__file__).resolve().parents[2]
#: (command, option) of the first release to the option that took its place, or None where it went without one. The
#: changelog names each.
RENAMED_OPTIONS: dict[tuple[str, str], str | None] = {}
#: Dotted names of the first release to the name that took their place, or None, likewise.
RENAMED_NAMES: dict[str, str | None] = {
    "bertkit.classic.Sentence": None,
    "bertkit.classic.TokenizedDocument": None,
    "bertkit.classic.instances_from_documents": None,
    "bertkit.classic.create_pretraining_data.instances_from_documents": None,
}
#: (dotted name, parameter) to the parameter that took its place, or None, likewise.
RENAMED_PARAMETERS: dict[tuple[str, str], str | None] = {}

Run = Callable[..., list[dict[str, Any]]]


def golden(name: str) -> Any:
    return json.loads((FIRST / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def undrawn() -> Iterator[None]:
    """Pictures take as long as all else, and none are among the golden files."""
    with no_pictures():
        yield


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of all artefacts, which is the current folder: the commands that made them had relative paths."""
    shutil.copytree(FIRST, tmp_path / "first")
    monkeypatch.chdir(tmp_path / "first")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "first"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command, which must succeed, and return what it writes with ``--json``, one object per line."""

    def call(command: str, *more: object) -> list[dict[str, Any]]:
        code = main([*command.split(), *(str(part) for part in more)])
        captured = capsys.readouterr()
        assert code == 0, captured.err
        return [json.loads(line) for line in captured.out.splitlines() if line.startswith("{")]

    return call


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def assert_alike(now: Any, before: Any, where: str = "") -> None:
    """Equal, but for the last digits of floats."""
    if isinstance(before, dict):
        assert now.keys() >= before.keys(), where
        for key in before:
            assert_alike(now[key], before[key], f"{where}.{key}")
    elif isinstance(before, list):
        assert len(now) == len(before), where
        for number, (one, other) in enumerate(zip(now, before, strict=True)):
            assert_alike(one, other, f"{where}[{number}]")
    elif isinstance(before, float):
        assert now == pytest.approx(before, rel=1e-4, abs=1e-5), where
    else:
        assert now == before, where


def test_ids_of_texts_pairs_and_windows_are_the_same() -> None:
    assert facts.ids(FIRST) == golden("ids")


def test_examples_of_the_original_procedure_are_the_same() -> None:
    assert facts.examples(FIRST) == golden("examples")


def test_the_same_text_gives_the_same_vocabulary_and_the_same_store(first: Path, run: Run) -> None:
    run("vocab data/corpus.txt --size 120 --held-out 0 --out again/tokenizer -q")
    assert (first / "again/tokenizer/vocab.txt").read_bytes() == (first / "tokenizer/vocab.txt").read_bytes()
    assert facts.store_rows(first / "store") == golden("store")
    run("prepare data/corpus.txt --tokenizer tokenizer --workers 1 --out again/store -q")
    assert facts.store_rows(first / "again/store") == golden("store")


@pytest.mark.parametrize("module", facts.MODULES)
def test_public_names_are_still_there(module: str) -> None:
    for last in golden("names")[module]:
        name = f"{module}.{last}"
        successor = RENAMED_NAMES.get(name, name)
        if successor != name:
            assert_told(name)
        if successor is not None:
            where, _, called = successor.rpartition(".")
            assert hasattr(import_module(where), called), f"{name} is gone"


def assert_told(name: str) -> None:
    told = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    assert name in told, f"{name} is gone or renamed, and CHANGELOG.md does not name it"


def test_public_parameters_are_still_there() -> None:
    now = {name: words.split() for words, names in facts.parameters().items() for name in names}
    gone = []
    for words, names in golden("parameters").items():
        for name in names:
            called = RENAMED_NAMES.get(name, name)
            if called is None:  # the test of names has seen that the changelog says so
                continue
            takes = now.get(called, [])
            for word in set(words.split()) - {
                "args",
                "kwargs",
                "targets",
            }:  # names of **kwargs, which may be spelled out now
                successor = RENAMED_PARAMETERS.get((name, word), word)
                if successor != word:
                    assert_told(word)
                if successor is not None and successor not in takes and "kwargs" not in takes:
                    gone.append((name, word))
    assert gone == []


@pytest.mark.parametrize("command", facts.COMMANDS)
def test_options_are_still_there(command: str) -> None:
    before, now = golden("options")[command], facts.options(command)
    assert "--json" in before
    for option in before:
        successor = RENAMED_OPTIONS.get((command, option), option)
        if successor != option:
            assert_told(option)
        # The negation of a switch is accepted although the help names the switch alone; see the next test.
        listed = successor is None or {successor, successor.replace("--no-", "--", 1)} & set(now)
        assert listed, f"bertkit {command} {option} is gone"


def test_switches_can_still_be_negated(capsys: pytest.CaptureFixture[str]) -> None:
    for switch in ("--no-tensorboard", "--no-gradient-checkpointing"):
        assert main(["pretrain", "no-such-store", "--preset", "bert-mini", "--out", "no-such-run", switch]) != 0
        assert "no-such-store" in capsys.readouterr().err, switch
    assert main(["pretrain", "no-such-store", "--preset", "bert-mini", "--out", "no-such-run", "--no-such-switch"]) == 2
    assert "no-such-switch" in capsys.readouterr().err


def test_a_missing_option_would_be_noticed() -> None:
    assert "--no-such-option" not in facts.options("finetune")
    assert {"--epochs", "--no-baseline", "-m"} <= set(facts.options("finetune"))


@pytest.mark.parametrize(
    ("name", "task", "file"),
    [
        ("text", "csv --data data/reviews", "data/reviews/dev.csv"),
        ("ner", "ner --data data/ner", "data/ner/dev.conll"),
        ("squad", "squad2 --data data/squad", "data/squad/dev.json"),
        ("swag", "swag --data data/swag", "data/swag/val.csv"),
    ],
)
def test_a_finished_run_is_evaluated_and_predicts_as_it_did(
    name: str, task: str, file: str, first: Path, run: Run
) -> None:
    folder = first / "finetuned" / name
    told = json.loads((folder / "metrics.json").read_text())
    predicted = lines_of(folder / "predictions-dev.jsonl")
    (evaluated,) = run(f"evaluate {task} --model finetuned/{name} --json --device cpu -q")
    assert_alike(evaluated["scores"], told["scores"])
    assert_alike(lines_of(folder / "evaluation-predictions-dev.jsonl"), predicted)
    run(f"predict {file} --model finetuned/{name} --out out.jsonl --device cpu -q")
    assert [row["predicted"] for row in lines_of(first / "out.jsonl")] == [row["predicted"] for row in predicted]
    (seen,) = run(f"inspect finetuned/{name} --json")
    assert seen


def test_a_run_folder_is_a_model_for_commands_and_pipelines(first: Path, run: Run) -> None:
    rows = lines_of(first / "finetuned/text/predictions-dev.jsonl")
    short = [row for row in rows if len(row["text"].split()) < 12]
    (first / "short.txt").write_text("\n".join(row["text"] for row in short) + "\n")
    labelled = run("classify --model finetuned/text --file short.txt --json --device cpu")
    assert [row["label"] for row in labelled] == [row["predicted"] for row in short]
    assert [
        row["label"] for row in pipeline("text-classification", first / "finetuned/text")([r["text"] for r in short])
    ] == [row["label"] for row in labelled]
    model = AutoModelForSequenceClassification.from_pretrained(first / "finetuned/text")
    assert sorted(model.config.id2label.values()) == ["fine", "poor"]
    run("tag --model finetuned/ner --json --device cpu", "Ann Lee went to Rome")
    run("answer --model finetuned/squad --json --device cpu --context", "it was 7 in Rome", "what was it?")
    assert pipeline("multiple-choice", model=first / "finetuned/swag")("a good day", ["good", "bad"])["choice"] in (
        "good",
        "bad",
    )


@pytest.mark.campaign
def test_a_seed_is_added_to_a_finished_run(first: Path, run: Run) -> None:
    before = json.loads((first / "finetuned/text/metrics.json").read_text())
    (told,) = run(f"{FINETUNE_TEXT} --model start --out finetuned/text --seeds 2 --resume --json")
    assert [one["seed"] for one in told["seeds"]] == [0, 1]
    assert_alike(told["seeds"][0]["scores"], before["seeds"][0]["scores"])


FINETUNE_TEXT = (
    "finetune csv --data data/reviews --text body --label stars --epochs 4 --batch-size 8 --learning-rate 5e-3 "
    "--max-length 24 --device cpu --no-baseline --restarts 0 -q"
)


@pytest.mark.parametrize(("folder", "seed"), [("stopped/text", "seed-0/"), ("stopped/own", "")])
def test_a_stopped_run_goes_on_where_it_stopped(folder: str, seed: str, first: Path, run: Run) -> None:
    log = first / folder / f"{seed}log.jsonl"
    done = [row for row in lines_of(log) if "loss" in row and "step" in row]
    command = json.loads((first / "commands.json").read_text())[folder]
    run(command, *(["--resume"] if command.startswith("finetune") else []))
    now = [row for row in lines_of(log) if "loss" in row and "step" in row]
    steps = [row["step"] for row in now if "lr" in row]
    assert steps == list(range(1, steps[-1] + 1))
    assert steps[-1] == 40
    assert_alike(now[: len(done)], done)
    assert (first / folder / "metrics.json").is_file()


def test_a_model_of_its_own_pre_training_is_used(first: Path, run: Run) -> None:
    (seen,) = run("inspect own/model --json")
    assert_alike({key: seen[key] for key in golden("inspected")}, golden("inspected"))
    guesses = run("fill-mask --model own/model --top-k 3 --json --device cpu", "the river [MASK] the mill")
    assert_alike(guesses, golden("guesses"))
    model = BertForPreTraining.from_pretrained(first / "own/model")
    assert model.config.num_hidden_layers == 1
    run("pretrain store --model own/model --max-steps 2 --batch-size 4 --max-seq-length 16 --no-curve --out more -q")


def test_a_saved_model_and_its_tokenizer_load_to_the_bit(first: Path, tmp_path: Path) -> None:
    model = BertForPreTraining.from_pretrained(first / "start")
    model.save_pretrained(tmp_path / "again")
    again = BertForPreTraining.from_pretrained(tmp_path / "again").state_dict()
    for name, value in model.state_dict().items():
        assert torch.equal(value, again[name]), name
    contents = [path.read_bytes() for path in (tmp_path / "again/model.safetensors", first / "start/model.safetensors")]
    headers = [int.from_bytes(content[:8], "little") for content in contents]  # which has had a checksum since
    assert contents[0][8 + headers[0] :] == contents[1][8 + headers[1] :]
    tokenizer = BertTokenizer.from_pretrained(first / "start")
    assert tokenizer.model_max_length == 32
    output = BertModel.from_pretrained(first / "start")(**tokenizer(["the mill"], return_tensors="pt"))
    assert np.isfinite(output.last_hidden_state.detach().numpy()).all()


def test_a_store_is_shown_as_it_was(first: Path, run: Run) -> None:
    (seen,) = run("inspect store --json")
    assert_alike({key: seen[key] for key in golden("store_seen")}, golden("store_seen"))


def test_a_converted_checkpoint_computes_what_it_did(first: Path, run: Run) -> None:
    assert (first / "converted/fingerprint.json").is_file()
    run("inspect converted --verify --json --device cpu")
