"""Fine-tuning as a user does it: a model folder, a data file, a run folder, and what can be done with it."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertkit.bulk import compute
from bertkit.bulk.cuts import Size
from bertkit.bulk.planner import How, predict_file
from bertkit.cli import main
from bertkit.engine.rows import TEXTS
from bertkit.errors import CheckpointError, ConfigError, DataError, InputError
from bertkit.inference.evaluate import evaluate_run
from bertkit.inference.runs import load_run, predict_run
from bertkit.model.models import BertForSequenceClassification, BertModel
from bertkit.tasks import csv_task, get_task, load_split
from bertkit.tokenization import BertTokenizer
from bertkit.training.finetuning import finetune as finetune_module
from bertkit.training.finetuning.finetune import finetune, load_run_config
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from finetune_data import drawn, start_with_words
from forked_interpreter import Forked
from training_helpers import read_rows

GOOD = ["good", "fine", "great", "lovely", "nice", "happy"]
BAD = ["bad", "poor", "awful", "sad", "ugly", "broken"]
OTHER = ["the", "a", "film", "book", "day", "was", "is", "it", "very", "and", "not", "here", "we", "saw"]
QUICK = {"learning_rate": 3e-3, "epochs": 4, "precision": "fp32", "batch_size": 16, "max_length": 24}


@pytest.fixture(scope="module")
def start(once: Callable[..., Any]) -> Path:
    """A tiny random BERT with a vocabulary of whole words."""
    words = [*GOOD, *BAD, *OTHER]
    made: Path = once("start-for-labels", lambda folder: start_with_words(words, folder, width=32, layers=2, heads=4))
    return made


def texts(num_rows: int, seed: int) -> list[tuple[str, str]]:
    generator = np.random.default_rng(seed)
    rows = []
    for _ in range(num_rows):
        label = int(generator.integers(2))
        words = [*generator.choice(OTHER, generator.integers(2, 12)), *generator.choice([BAD, GOOD][label], 2)]
        generator.shuffle(words)
        rows.append((" ".join(words), ["bad", "good"][label]))
    return rows


def write_csv(path: Path, rows: list[tuple[Any, ...]], columns: tuple[str, ...] = ("text", "label")) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


def write_labelled(folder: Path) -> Path:
    write_csv(folder / "train.csv", texts(160, seed=1))
    write_csv(folder / "dev.csv", texts(60, seed=2))
    return folder


@pytest.fixture(scope="module")
def data(once: Callable[..., Any]) -> Path:
    made: Path = once("data-with-labels", write_labelled)
    return made


@pytest.fixture(scope="module")
def run(start: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two seeds, with its pictures."""
    out = tmp_path_factory.mktemp("runs") / "run"
    with drawn():
        finetune(csv_task(data), data, start, out, FinetuneConfig(**QUICK, seeds=2, keep="all"), cache=None)
    return out


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in ("seconds", "tokens_per_s", "rows_per_s")}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# ------------------------------------------------------------------------------------------- the run folder


def test_the_run_folder_holds_all_it_promises(run: Path) -> None:
    there = {path.name for path in run.iterdir()}
    assert there >= {
        "model.safetensors",
        "config.json",
        "vocab.txt",
        "README.md",
        "finetune.json",
        "metrics.json",
        "log.jsonl",
        "predictions-dev.jsonl",
        "loss.png",
        "confusion.png",
        "seed-0",
        "seed-1",
    }
    for seed in (0, 1):
        inside = {path.name for path in (run / f"seed-{seed}").iterdir()}
        assert inside >= {"best", "log.jsonl", "metrics.json", "predictions-dev.jsonl"}
        assert "checkpoints" not in inside
    assert not [path for path in run.rglob("*") if path.suffix in (".bin", ".pt", ".pkl") or path.name == ".lock"]


def test_rows_that_were_trained_on_are_counted(run: Path, data: Path, tmp_path: Path) -> None:
    """Whatever their case, white space, labels and file; as counted by comparing the texts themselves."""
    trained, new = texts(160, seed=1), texts(20, seed=77)
    known = {text for text, _ in trained}
    assert not any(text in known for text, _ in new)
    mixed = [(f" {text.upper()}  ", label) for text, label in trained[:3]] + new
    file = write_csv(tmp_path / "mixed.csv", mixed)
    found = evaluate_run(csv_task(data), file, run, write=False)
    assert found.protocol["rows_trained_on"] == 3
    assert found.notes[0].startswith(
        "TRAINED ON: 3 of 23 rows (13.0 %) have the texts of rows that this run was trained"
    )
    assert f"note: {found.notes[0]}" in found.render()
    clean = evaluate_run(csv_task(data), write_csv(tmp_path / "new.csv", new), run, write=False)
    assert (clean.protocol["rows_trained_on"], [note for note in clean.notes if "TRAINED" in note]) == (0, [])
    overlap = sum(text in known for text, _ in texts(60, seed=2))
    assert evaluate_run(csv_task(data), data, run, write=False).protocol["rows_trained_on"] == overlap
    assert evaluate_run(csv_task(data), data, run, "train", write=False).protocol["rows_trained_on"] == 160
    other = shutil.copytree(run, tmp_path / "other")
    (other / "trained-on.npy").write_bytes(b"no numbers")
    with pytest.raises(CheckpointError, match=r"trained-on\.npy is damaged"):
        evaluate_run(csv_task(data), file, other, write=False)
    (other / "trained-on.npy").unlink()  # as runs of earlier versions
    assert "rows_trained_on" not in evaluate_run(csv_task(data), file, other, write=False).protocol


def test_metrics_declare_their_protocol(run: Path, start: Path) -> None:
    metrics = read(run / "metrics.json")
    scores = [seed["scores"]["accuracy"] for seed in metrics["seeds"]]
    assert metrics["mean"]["accuracy"] == pytest.approx(np.mean(scores))
    assert metrics["sd"]["accuracy"] == pytest.approx(np.std(scores, ddof=1))
    assert metrics["scores"]["accuracy"] == max(scores)
    assert metrics["baseline"]["metrics"]["accuracy"] > 0.5
    protocol = metrics["protocol"]
    assert protocol["split"] == "dev"
    assert protocol["seeds"] == [0, 1]
    assert protocol["start_checkpoint"]["sha256"] == sha(start / "model.safetensors")
    assert protocol["data"]["train_rows"] == 160
    assert protocol["data"]["train_rows_not_drawn"] == 0
    assert protocol["data"]["max_length"] == 24
    assert protocol["data"]["truncated_share"] == {"train": 0.0, "dev": 0.0}
    assert (protocol["learning_rate"], protocol["epochs"], protocol["batch_size"]) == (3e-3, 4, 16)
    assert set(protocol["versions"]) == {"python", "bertkit", "torch", "numpy"}


def test_the_model_that_is_kept_is_the_one_that_was_scored(run: Path) -> None:
    """Predictions of the loaded folder, computed here, equal the file's, and their accuracy the reported one."""
    model = BertForSequenceClassification.from_pretrained(run)
    tokenizer = BertTokenizer.from_pretrained(run)
    assert model.config.id2label == {0: "bad", 1: "good"}
    rows = read_rows(run / "predictions-dev.jsonl")
    for row in rows[:20]:
        with torch.no_grad():
            probs = model(**tokenizer(row["text"], return_tensors="pt")).logits.softmax(-1)[0]
        assert row["probabilities"]["good"] == pytest.approx(probs[1].item(), abs=1e-5)
        assert row["predicted"] == model.config.id2label[int(probs.argmax())]
    right = np.mean([row["gold"] == row["predicted"] for row in rows])
    metrics = read(run / "metrics.json")
    assert right == pytest.approx(metrics["scores"]["accuracy"])
    assert sha(run / "model.safetensors") == sha(run / f"seed-{metrics['chosen_seed']}" / "best" / "model.safetensors")


def test_transformers_loads_the_run(run: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(run)
    ours = BertForSequenceClassification.from_pretrained(run)
    ids = torch.tensor([[2, 6, 13, 20, 3]])
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, ours(ids).logits, atol=1e-5, rtol=0)


def test_the_log_has_every_step_and_epoch(run: Path) -> None:
    records = read_rows(run / "log.jsonl")
    assert [r["step"] for r in records if "event" not in r] == list(range(1, 41))
    assert [r["epoch"] for r in records if r.get("event") == "epoch"] == [1, 2, 3, 4]


def test_the_card_has_the_numbers(run: Path) -> None:
    card, metrics = (run / "README.md").read_text(), read(run / "metrics.json")
    assert f"{metrics['mean']['accuracy']:.4f} ± {metrics['sd']['accuracy']:.4f} (2 seeds)" in card
    assert f"{metrics['baseline']['metrics']['accuracy']:.4f}" in card
    assert "`bad`, `good`" in card


@pytest.mark.campaign
def test_a_single_seed_is_the_same_run(run: Path, start: Path, data: Path, tmp_path: Path) -> None:
    config = FinetuneConfig(**QUICK, seed=1, baseline=False)
    result = finetune(csv_task(data), data, start, tmp_path / "one", config, cache=None)
    assert result.sd is None
    assert sha(tmp_path / "one" / "model.safetensors") == sha(run / "seed-1" / "best" / "model.safetensors")
    assert without_times(read(tmp_path / "one" / "seed-1" / "metrics.json")) == without_times(
        read(run / "seed-1" / "metrics.json")
    )


def test_the_last_epoch_is_kept_beside_the_best(start: Path, data: Path, tmp_path: Path) -> None:
    """Where labels are drawn by lot, the best epoch is the last one by chance only; both can be loaded and differ."""
    chance = np.random.default_rng(0)
    write_csv(tmp_path / "train.csv", [(text, str(chance.choice(["bad", "good"]))) for text, _ in texts(32, seed=1)])
    shutil.copy(data / "dev.csv", tmp_path)
    config = FinetuneConfig(**{**QUICK, "learning_rate": 0.02}, baseline=False, keep="all")
    for seed in range(20):
        out = tmp_path / str(seed)
        result = finetune(
            csv_task(data), tmp_path, start, out, config.model_copy(update={"seed": seed}), cache=None
        ).seeds[0]
        if result.best_epoch < result.epochs:
            break
    best = BertForSequenceClassification.from_pretrained(out / f"seed-{seed}" / "best")
    last = BertForSequenceClassification.from_pretrained(out / f"seed-{seed}" / "last")
    assert not torch.equal(best.classifier.weight, last.classifier.weight)


# ------------------------------------------------------------------------------------------------- refusals


def test_a_folder_that_holds_something_is_not_overwritten(run: Path, start: Path, data: Path, tmp_path: Path) -> None:
    before = sha(run / "metrics.json")
    with pytest.raises(ConfigError, match=r"already holds a run\. Run the same command with --resume"):
        finetune(csv_task(data), data, start, run, FinetuneConfig(**QUICK, seeds=2))
    with pytest.raises(CheckpointError, match=r"other settings \(epochs was 4, now 5\)"):
        finetune(csv_task(data), data, start, run, FinetuneConfig(**{**QUICK, "epochs": 5}, seeds=2), resume=True)
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(ConfigError, match=r"not empty and holds no run \(thesis.tex\)"):
        finetune(csv_task(data), data, start, tmp_path)
    assert sha(run / "metrics.json") == before


def test_a_finished_run_is_returned_as_it_is(run: Path, start: Path, data: Path) -> None:
    result = finetune(csv_task(data), data, start, run, load_run_config(run), resume=True)
    assert result.to_dict() == read(run / "metrics.json")
    assert "accuracy" in result.render()


def test_wrong_input_leaves_no_run_behind(start: Path, tmp_path: Path) -> None:
    data = write_csv(tmp_path / "bad.csv", [*texts(40, seed=0), ("film", "unheard of")])
    task = csv_task(write_csv(tmp_path / "good.csv", texts(40, seed=0)))
    with pytest.raises(DataError, match="unheard of"):
        finetune(task, data, start, tmp_path / "run", FinetuneConfig(**QUICK))
    assert not (tmp_path / "run").exists()
    with pytest.raises(CheckpointError):
        finetune("sst2", tmp_path, tmp_path / "no-model", tmp_path / "run2", FinetuneConfig(**QUICK))
    finetune(task, tmp_path / "good.csv", start, tmp_path / "run", FinetuneConfig(**{**QUICK, "epochs": 1}), cache=None)


def test_two_processes_cannot_train_into_one_folder(start: Path, data: Path, tmp_path: Path) -> None:
    with (
        finetune_module.FinetuneFolder(tmp_path / "run").claimed(),
        pytest.raises(ConfigError, match="another process is training"),
    ):
        finetune(csv_task(data), data, start, tmp_path / "run", FinetuneConfig(**QUICK))


# --------------------------------------------------------------------------------------------------- resume

SCRIPT = """
import os
import sys
sys.path.append(os.environ["PYTHONPATH"])
import torch
torch.set_num_threads(1)
from bertkit.tasks import csv_task, get_task, load_split
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from finetune_data import no_pictures
data, start, out, resume = sys.argv[1:]
config = FinetuneConfig(learning_rate=1e-3, epochs=6, batch_size=16, max_length=24, seeds=2, baseline=False,
                        keep="all", checkpoint_every_s=float(sys.stdin.readline()))
try:
    with no_pictures():
        finetune(csv_task(data), data, start, out, config, resume=resume == "resume", cache=None)
except KeyboardInterrupt as stop:
    print(stop, file=sys.stderr)
    sys.exit(stop.exit_code)
"""


def launch(data: Path, start: Path, out: Path, *, resume: bool, every_s: float = 120.0) -> Forked:
    arguments = [str(data), str(start), str(out), "resume" if resume else "new"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    return Forked(SCRIPT, *arguments, given=f"{every_s}\n", env=env, cwd=".")


def wait_for_lines(log: Path, count: int, process: Forked) -> None:
    for _ in range(60_000):
        if log.exists() and log.read_bytes().count(b"\n") >= count:
            return
        assert process.is_running(), process.wait()
        time.sleep(0.001)
    raise AssertionError(f"{log} never got {count} lines")


@pytest.fixture(scope="module")
def uninterrupted(start: Path, data: Path, once: Callable[..., Any]) -> Path:
    def made(folder: Path) -> Path:
        status, _, told = launch(data, start, folder / "run", resume=False).wait()
        assert status == 0, told
        return folder / "run"

    out: Path = once("uninterrupted", made)
    return out


def assert_same_run(out: Path, expected: Path) -> None:
    for seed in (0, 1):
        for name in ("best/model.safetensors", "predictions-dev.jsonl"):
            assert sha(out / f"seed-{seed}" / name) == sha(expected / f"seed-{seed}" / name), (seed, name)
        logs = [without_times(read_rows(folder / f"seed-{seed}" / "log.jsonl")) for folder in (out, expected)]
        assert logs[0] == logs[1]
    assert without_times(read(out / "metrics.json")) == without_times(read(expected / "metrics.json"))


@pytest.mark.parametrize(
    ("number", "seed", "lines"),
    [pytest.param(signal.SIGTERM, 0, 20, marks=pytest.mark.campaign), (signal.SIGINT, 1, 35)],
)
def test_a_signal_in_a_real_process_saves_and_the_resumed_run_is_the_same(
    uninterrupted: Path, start: Path, data: Path, tmp_path: Path, number: signal.Signals, seed: int, lines: int
) -> None:
    out = tmp_path / "run"
    process = launch(data, start, out, resume=False)
    wait_for_lines(out / f"seed-{seed}" / "log.jsonl", lines, process)
    os.kill(process.pid, number)
    status, _, told = process.wait()
    assert status == 128 + number, told
    assert "--resume" in told
    assert not (out / "metrics.json").exists()
    assert len(list((out / f"seed-{seed}" / "checkpoints").glob("step-*"))) == 1
    status, _, told = launch(data, start, out, resume=True).wait()
    assert status == 0, told
    assert "after step" in told
    assert_same_run(out, uninterrupted)


def kill_and_resume(out: Path, start: Path, data: Path, delays_s: list[float]) -> None:
    for number, delay_s in enumerate(delays_s):
        process = launch(data, start, out, resume=number > 0 and (out / "finetune.json").exists(), every_s=0.05)
        seeds = sorted(out.glob("seed-*")) if out.exists() else []
        wait_for_lines((seeds[-1] if seeds else out / "seed-0") / "log.jsonl", 1, process)
        time.sleep(delay_s)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait()[0] == -signal.SIGKILL
    status, _, told = launch(data, start, out, resume=True, every_s=0.05).wait()
    assert status == 0, told


@pytest.mark.campaign
def test_kill_nine_and_resume_is_the_same_run(uninterrupted: Path, start: Path, data: Path, tmp_path: Path) -> None:
    kill_and_resume(tmp_path / "run", start, data, [0.3])
    assert_same_run(tmp_path / "run", uninterrupted)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(10))
def test_kill_nine_again_and_again(uninterrupted: Path, start: Path, data: Path, tmp_path: Path, seed: int) -> None:
    generator = np.random.default_rng(seed)
    kill_and_resume(tmp_path / "run", start, data, (0.5 * generator.random(3)).tolist())
    assert_same_run(tmp_path / "run", uninterrupted)


# ---------------------------------------------------------------------------------------- evaluate, predict


def test_evaluate_gives_the_scores_of_the_run(run: Path, data: Path) -> None:
    result = evaluate_run(csv_task(data), data, run)
    metrics = read(run / "metrics.json")
    assert result.scores == pytest.approx(metrics["scores"], abs=1e-6)
    assert read(run / "evaluation-dev.json")["protocol"]["model_sha256"] == sha(run / "model.safetensors")
    train = evaluate_run(csv_task(data), data, run, "train", write=False)
    assert train.num_rows == 160
    assert not (run / "evaluation-train.json").exists()
    with pytest.raises(DataError, match="no test file"):
        evaluate_run(csv_task(data), data, run, "test")
    with pytest.raises(ConfigError, match=r"predicts \['bad', 'good'\], task sst2 has the labels"):
        evaluate_run("sst2", data, run)


@pytest.mark.campaign
def test_scores_of_other_files_have_names_of_their_own(
    run: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one file after another with the same name, none of which says a split; and of another folder."""
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    for part, seed in (("a", 21), ("b", 22), ("a", 21)):
        folder = tmp_path / part
        folder.mkdir(exist_ok=True)
        file = write_csv(folder / "heldout.csv", texts(30, seed=seed))
        for more in ([], ["--split", "train"]):
            assert main(["evaluate", "csv", "--data", str(file), "--model", str(copy), *more]) == 0
            assert "csv, heldout.csv (30 rows)" in capsys.readouterr().out
    found = {path.name: read(path) for path in copy.glob("evaluation-heldout*.json")}
    assert len(found) == 2
    for name, scored in found.items():
        assert name == f"evaluation-heldout.csv-{scored['protocol']['data_sha256'][:8]}.json"
        assert (scored["split"], scored["protocol"]["split"]) == ("heldout.csv", "heldout.csv")
        assert (
            len(read_rows(copy / name.replace("n-heldout", "n-predictions-heldout").replace(".json", ".jsonl"))) == 30
        )
    evaluate_run(csv_task(data), data, copy)
    own = (copy / "evaluation-dev.json").read_bytes()
    other = tmp_path / "other"
    other.mkdir()
    write_csv(other / "dev.csv", texts(30, seed=23))
    evaluate_run(csv_task(data), other, copy)
    assert (copy / "evaluation-dev.json").read_bytes() == own
    assert len(list(copy.glob("evaluation-dev-????????.json"))) == 1


@pytest.mark.campaign
def test_evaluate_finds_the_held_out_rows_again(start: Path, tmp_path: Path) -> None:
    file = write_csv(tmp_path / "all.csv", texts(200, seed=5))
    task = csv_task(file)
    result = finetune(task, file, start, tmp_path / "run", FinetuneConfig(**QUICK, dev_share=0.2), cache=None)
    assert result.protocol["data"]["dev_held_out_of_train"]
    again = evaluate_run(task, file, tmp_path / "run")
    assert again.num_rows == result.protocol["data"]["dev_rows"]
    assert again.scores == pytest.approx(result.scores, abs=1e-6)


def test_predict_is_lazy_and_ordered(run: Path) -> None:
    rows = [text for text, _ in texts(50, seed=9)]
    predictions = list(predict_run(run, iter(rows)))
    assert [p["text"] for p in predictions] == rows
    loaded = load_run(run)
    one_by_one = [next(iter(predict_run(loaded, [text]))) for text in rows[:5]]
    for a, b in zip(predictions, one_by_one, strict=False):
        assert a["predicted"] == b["predicted"]
        assert a["probabilities"]["good"] == pytest.approx(b["probabilities"]["good"], abs=1e-5)
    read_so_far = []

    def endless() -> Any:
        while True:
            read_so_far.append(1)
            yield "the film was good"

    next(predict_run(loaded, endless()))
    assert len(read_so_far) == TEXTS.items
    assert list(predict_run(loaded, [])) == []


def test_predict_refuses_what_is_not_text(run: Path) -> None:
    loaded = load_run(run)
    with pytest.raises(InputError, match="got one string"):
        next(predict_run(loaded, "good film"))
    with pytest.raises(InputError, match="expected a text"):
        next(predict_run(loaded, ["good film", None]))  # type: ignore[list-item]
    with pytest.raises(InputError, match="more than 24 tokens"):
        next(predict_run(loaded, ["good " * 100], truncation="error"))
    assert next(predict_run(loaded, ["good " * 100]))["truncated"]


def test_predict_file_goes_on_after_a_kill(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, how = write_csv(tmp_path / "in.csv", texts(150, seed=3)), How(size=Size(rows=50))
    assert predict_file(run, source, tmp_path / "whole.jsonl", how=how) == 150
    whole = (tmp_path / "whole.jsonl").read_bytes()
    assert [json.loads(line)["text"] for line in whole.splitlines()] == [t for t, _ in texts(150, seed=3)]

    out, parts = tmp_path / "parts.jsonl", tmp_path / "parts.jsonl.parts"
    with pytest.MonkeyPatch.context() as patch:
        write, calls = compute.write_part, []

        def dies(*args: Any, **others: Any) -> None:
            calls.append(1)
            if len(calls) == 2:
                raise MemoryError
            write(*args, **others)

        patch.setattr(compute, "write_part", dies)
        with pytest.raises(MemoryError):
            predict_file(run, source, out, how=how)
    assert not out.exists()
    (parts / ".part-00001.jsonl.0123abcd.99999999.tmp").write_bytes(b'{"text": "torn li')
    assert predict_file(run, source, out, how=how) == 150
    assert "resuming after 50 finished rows (1 of 3 blocks)" in capsys.readouterr().err
    assert out.read_bytes() == whole
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.csv", "parts.jsonl", "whole.jsonl"]
    with pytest.raises(ConfigError, match="exists already"):
        predict_file(run, source, out, how=how)


def test_predict_file_reads_plain_text(run: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("good film\n\nbad film\n", encoding="utf-8")
    assert predict_file(run, tmp_path / "in.txt", tmp_path / "out.jsonl") == 3
    assert [row["text"] for row in read_rows(tmp_path / "out.jsonl")] == ["good film", "", "bad film"]
    with pytest.raises(DataError, match="does not exist"):
        predict_file(run, tmp_path / "no.txt", tmp_path / "x.jsonl")


# --------------------------------------------------------------------------------------- other kinds of run


def test_regression_on_pairs(start: Path, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rows = []
    for _ in range(160):
        good = int(generator.integers(3))  # of the two texts
        text, pair = (" ".join(generator.choice([BAD, GOOD][number < good], 6)) for number in range(2))
        rows.append((text, pair, round(good + 0.01 * generator.random(), 3)))
    file = write_csv(tmp_path / "all.csv", rows, ("text", "text_pair", "label"))
    task = csv_task(file, text="text", text_pair="text_pair", label="label")
    assert task.is_regression
    with drawn():
        result = finetune(task, file, start, tmp_path / "run", FinetuneConfig(**QUICK), cache=None)
    assert set(result.scores) >= {"pearson", "spearman", "loss"}
    assert result.scores["pearson"] > 0.5  # among predictions that are all the same, rounding would decide
    assert (tmp_path / "run" / "scores.png").exists()
    rows_out = read_rows(tmp_path / "run" / "predictions-dev.jsonl")
    assert isinstance(rows_out[0]["predicted"], float)
    assert isinstance(rows_out[0]["gold"], float)
    assert "probabilities" not in rows_out[0]
    assert evaluate_run(task, file, tmp_path / "run").scores == pytest.approx(result.scores, abs=1e-5)
    predicted = next(predict_run(tmp_path / "run", [("the film", "the book")]))
    assert predicted["text_pair"] == "the book"


def test_frozen_encoder_run(start: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = FinetuneConfig(freeze_encoder=True, epochs=10, max_length=24, seeds=2)
    result = finetune(csv_task(data), data, start, tmp_path / "run", config, cache=tmp_path / "cache")
    assert len(list((tmp_path / "cache").iterdir())) == 2
    assert capsys.readouterr().err.count("found in the feature cache") == 2  # the second seed reuses both
    encoder = BertModel.from_pretrained(start)
    tuned = BertForSequenceClassification.from_pretrained(tmp_path / "run")
    for name, p in encoder.named_parameters():
        assert torch.equal(p, dict(tuned.bert.named_parameters())[name]), name
    again = evaluate_run(csv_task(data), data, tmp_path / "run")
    assert again.scores["accuracy"] == result.scores["accuracy"]
    assert again.scores["loss"] == pytest.approx(result.scores["loss"], abs=1e-5)


def test_training_goes_on_from_a_run_with_the_same_labels(run: Path, data: Path, tmp_path: Path) -> None:
    config = FinetuneConfig(**{**QUICK, "epochs": 1, "learning_rate": 1e-9}, baseline=False)
    result = finetune(csv_task(data), data, run, tmp_path / "more", config, cache=None)
    assert result.scores["accuracy"] == pytest.approx(read(run / "metrics.json")["scores"]["accuracy"])


def test_without_matplotlib_there_is_a_run_without_pictures(
    start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from bertkit.errors import MissingExtraError
    from bertkit.visualize import figures

    def missing(*args: Any, **options: Any) -> Any:
        raise MissingExtraError("drawing pictures needs 'matplotlib'")

    monkeypatch.setattr(figures, "require", missing)
    config = FinetuneConfig(**{**QUICK, "epochs": 1}, baseline=False)
    finetune(csv_task(data), data, start, tmp_path / "run", config, cache=None)
    assert not list((tmp_path / "run").glob("*.png"))
    assert ".png" not in (tmp_path / "run" / "README.md").read_text()
    assert "no plots" in capsys.readouterr().err


def test_rows_are_cut_openly(start: Path, data: Path, tmp_path: Path) -> None:
    config = FinetuneConfig(**{**QUICK, "epochs": 1}, max_train_rows=50, baseline=False)
    result = finetune(csv_task(data), data, start, tmp_path / "run", config, cache=None)
    assert result.protocol["data"]["train_rows"] == 50
    assert result.protocol["data"]["train_rows_not_drawn"] == 110
    assert "50 (110 left out)" in (tmp_path / "run" / "README.md").read_text()


@pytest.mark.campaign
def test_a_run_that_was_asked_to_be_short_is_not_dead(start: Path, data: Path, tmp_path: Path) -> None:
    config = FinetuneConfig(**{**QUICK, "learning_rate": 1e-8, "epochs": 1}, baseline=False)
    result = finetune(csv_task(data), data, start, tmp_path / "run", config, cache=None)
    assert not result.seeds[0].dead
    assert not result.replaced
    assert "SHORT RUN: after 10 updates the training loss is no better" in result.render()
    assert "DEAD" not in result.render()


@pytest.mark.campaign
def test_a_dead_run_is_named(start: Path, data: Path, tmp_path: Path) -> None:
    config = FinetuneConfig(**{**QUICK, "learning_rate": 1e-8, "epochs": None, "patience": 0}, restarts=0)
    result = finetune(csv_task(data), data, start, tmp_path / "run", config, cache=None)
    assert result.seeds[0].dead
    assert any("DEAD RUN" in note for note in result.notes)
    assert any("not better than TF-IDF" in note for note in result.notes)
    assert "DEAD RUN" in result.render()


@pytest.mark.campaign
def test_real_weights_and_real_tweets(shared: Path, minilm: Path, tmp_path: Path) -> None:
    """MiniLM on 200 real tweets: the frozen features tell more than the label frequencies, the whole model learns."""
    for split, size in (("train", 200), ("dev", 100)):
        rows = load_split(get_task("tweets"), shared / "data", split)[:size]
        names = get_task("tweets").id2label
        write_csv(tmp_path / f"{split}.csv", [(r.text, names[r.label]) for r in rows], ("text", "sentiment"))
    frozen = FinetuneConfig(freeze_encoder=True, epochs=30, baseline=False)
    result = finetune("tweets", tmp_path, minilm, tmp_path / "frozen", frozen, cache=None)
    assert result.scores["accuracy"] > 0.45  # always answering "neutral" gives 0.4
    assert not result.seeds[0].dead
    whole = FinetuneConfig(epochs=2, learning_rate=5e-4, batch_size=16, baseline=False)
    result = finetune("tweets", tmp_path, minilm, tmp_path / "whole", whole, cache=None)
    epochs = [r["train_loss"] for r in read_rows(tmp_path / "whole" / "log.jsonl") if r.get("event") == "epoch"]
    assert epochs[1] < epochs[0]
    assert result.protocol["data"]["dev_rows"] == 100
