"""All of GLUE with one command, on small files in the official format."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from bertkit.cli import main
from bertkit.errors import ConfigError, DataError
from bertkit.inference.evaluate import evaluate_run
from bertkit.tasks import get_task, load_split, splits_of
from bertkit.tasks.reading.splits import beside
from bertkit.tasks.text.glue import WHOLE_GLUE
from bertkit.training.finetuning.finetune_results import FinetuneResult
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.glue_suite import (
    SUBMISSION_FILES,
    GlueResult,
    finetune_glue,
    task_score,
    write_submission,
)
from finetune_data import QUICK, labelled_texts, tiny_start, write_table

pytestmark = pytest.mark.usefixtures("without_pictures")

NLI = ("entailment", "neutral", "contradiction")
MNLI_COLUMNS = ("index", "promptID", "pairID", "genre", "sentence1", "sentence2", "label1", "gold_label")


def pairs_of_texts(count: int, seed: int) -> list[tuple[tuple[str, str], int]]:
    """Pairs, each with how many of its two texts are good."""
    both = zip(labelled_texts(count, seed), labelled_texts(count, seed + 1), strict=True)
    return [((first, second), a + b) for (first, a), (second, b) in both]


def write_mnli(folder: Path) -> None:
    def rows(count: int, seed: int) -> list[tuple[str, ...]]:
        return [
            (str(number), "1", "1e", "fiction", *texts, NLI[labels], NLI[labels])
            for number, (texts, labels) in enumerate(pairs_of_texts(count, seed))
        ]

    write_table(folder / "train.tsv", MNLI_COLUMNS, rows(48, 0))
    for seed, split in enumerate(("dev_matched", "dev_mismatched"), start=10):
        write_table(folder / f"{split}.tsv", MNLI_COLUMNS, rows(12 + seed, seed))
    for seed, split in enumerate(("test_matched", "test_mismatched"), start=20):
        write_table(folder / f"{split}.tsv", MNLI_COLUMNS[:6], [row[:6] for row in rows(5 + seed, seed)])


@pytest.fixture(scope="module")
def glue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SST-2 whole, MNLI whole, the diagnostic set, STS-B without dev, QNLI without train."""
    folder = tmp_path_factory.mktemp("glue")
    write_table(folder / "SST-2/train.tsv", ("sentence", "label"), labelled_texts(64, 1))
    write_table(folder / "SST-2/dev.tsv", ("sentence", "label"), labelled_texts(24, 2))
    tests = [(number, text) for number, (text, _) in enumerate(labelled_texts(9, 3))]
    write_table(folder / "SST-2/test.tsv", ("index", "sentence"), tests)
    write_mnli(folder / "MNLI")
    pairs = [(n, *texts) for n, (texts, _) in enumerate(pairs_of_texts(7, 4))]
    write_table(folder / "AX/AX.tsv", ("index", "sentence1", "sentence2"), pairs)
    scored = [(*texts, 2.5 * labels) for texts, labels in pairs_of_texts(60, 6)]
    write_table(folder / "STS-B/train.tsv", ("sentence1", "sentence2", "score"), scored)
    write_table(folder / "STS-B/test.tsv", ("index", "sentence1", "sentence2"), pairs)
    write_table(folder / "QNLI/dev.tsv", ("question", "sentence", "label"), [("a day", "the film", "entailment")])
    return folder


def test_mnli_has_two_dev_and_two_test_sets(glue: Path) -> None:
    task = get_task("mnli")
    files = splits_of(task, glue)  # type: ignore[arg-type]
    assert [path.name for path in files.values()] == ["train.tsv", "dev_matched.tsv", "test_matched.tsv"]
    assert beside(task, glue, "dev", "mismatched") == glue / "MNLI" / "dev_mismatched.tsv"  # type: ignore[arg-type]
    assert beside(get_task("sst2"), glue, "dev", "mismatched") is None  # type: ignore[arg-type]
    first = load_split(task, glue, "dev")[0]  # type: ignore[arg-type]
    assert (first.row, first.text_pair is not None) == (2, True)


@pytest.fixture(scope="module")
def whole(glue: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("glue-run")
    config = FinetuneConfig(**QUICK, seeds=2, restarts=0)
    result = finetune_glue(glue, tiny_start(folder / "start"), folder / "run", config)
    (folder / "table.txt").write_text(result.render())
    return folder


@pytest.mark.slow
def test_what_is_there_runs_and_what_is_not_is_said(whole: Path) -> None:
    told = json.loads((whole / "run/glue.json").read_text())
    assert list(told["tasks"]) == ["sst2", "stsb", "mnli"]
    assert set(told["missing"]) == {"cola", "mrpc", "qqp", "qnli", "rte", "wnli"}
    assert told["missing"]["qnli"] == "no train file, only dev"
    assert "CoLA" in told["missing"]["cola"]
    assert told["tasks"]["stsb"]["dev_held_out_of_train"]
    table = (whole / "table.txt").read_text()
    assert "not run: qnli: no train file, only dev" in table
    assert "accuracy_mismatched" in table
    assert "(held out)" in table
    assert (whole / "run/sst2/model.safetensors").exists()


def result_of(task: str, mean: dict[str, float]) -> FinetuneResult:
    """A finished run, of which only the mean scores matter."""
    return FinetuneResult(Path(task), task, next(iter(mean)), mean, mean, None, (), 0, None, {})


#: Mean dev scores, and what GLUE makes of them, computed by hand.
HAND = {
    "cola": ({"matthews": 0.5, "accuracy": 0.9, "loss": 3.0}, 0.5),
    "sst2": ({"accuracy": 0.9, "loss": 3.0}, 0.9),
    "mrpc": ({"f1": 0.9, "accuracy": 0.8, "loss": 3.0}, 0.85),
    "stsb": ({"spearman": 0.8, "pearson": 0.7, "loss": 3.0}, 0.75),
    "qqp": ({"f1": 0.7, "accuracy": 0.9, "loss": 3.0}, 0.8),
    "mnli": ({"accuracy": 0.8, "loss": 3.0, "accuracy_mismatched": 0.7}, 0.75),
    "qnli": ({"accuracy": 0.85, "loss": 3.0}, 0.85),
    "rte": ({"accuracy": 0.6, "loss": 3.0}, 0.6),
    "wnli": ({"accuracy": 0.1, "loss": 3.0}, 0.1),
}


def test_each_task_counts_with_the_metrics_that_glue_counts() -> None:
    assert list(HAND) == [task.name for task in WHOLE_GLUE]
    for task, (mean, score) in HAND.items():
        assert task_score(result_of(task, mean)) == pytest.approx(score), task
    assert task_score(result_of("mnli", {"accuracy": 0.8, "loss": 3.0})) == 0.8
    found = GlueResult(Path(), {task: result_of(task, mean) for task, (mean, _) in HAND.items()}, {})
    assert found.macro_average(with_wnli=True) == pytest.approx(6.1 / 9)
    assert found.macro_average(with_wnli=False) == pytest.approx(6.0 / 8)


@pytest.mark.slow
def test_the_macro_average_is_over_tasks_and_their_metrics(whole: Path) -> None:
    told = json.loads((whole / "run/glue.json").read_text())
    sst2, stsb, mnli = (told["tasks"][name]["mean"] for name in ("sst2", "stsb", "mnli"))
    of_stsb = (stsb["pearson"] + stsb["spearman"]) / 2
    of_mnli = (mnli["accuracy"] + mnli["accuracy_mismatched"]) / 2
    assert told["macro_average"] == pytest.approx((sst2["accuracy"] + of_stsb + of_mnli) / 3)
    assert told["macro_average_without_wnli"] == told["macro_average"]
    assert "3 of 9 tasks" in (whole / "table.txt").read_text()
    assert "3 of 8 tasks" in (whole / "table.txt").read_text()


def test_the_mismatched_score_is_that_of_the_mismatched_file(whole: Path, glue: Path) -> None:
    run = whole / "run/mnli"
    scores = json.loads((run / "metrics.json").read_text())["scores"]
    assert evaluate_run("mnli", glue, run, "mismatched").scores["accuracy"] == pytest.approx(
        scores["accuracy_mismatched"]
    )
    assert evaluate_run("mnli", glue, run).scores["accuracy"] == pytest.approx(scores["accuracy"])
    with pytest.raises(ConfigError, match="use train, dev, test, mismatched"):
        evaluate_run("mnli", glue, run, "mismached")


def test_submission_files_are_in_the_official_form(whole: Path, glue: Path) -> None:
    folder = whole / "run/submission"
    told = json.loads((whole / "run/glue.json").read_text())
    assert set(told["submission"]) == {"SST-2.tsv", "STS-B.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"}
    assert {path.name for path in folder.iterdir()} == set(told["submission"])
    assert told["not_submitted"]["cola"] == "cola was not run"
    for name, count, answers in (
        ("SST-2", 9, {"0", "1"}),
        ("MNLI-m", 25, set(NLI)),
        ("MNLI-mm", 26, set(NLI)),
        ("AX", 7, set(NLI)),
    ):
        lines = [line.split("\t") for line in (folder / f"{name}.tsv").read_text().splitlines()]
        assert lines[0] == ["index", "prediction"]
        assert [line[0] for line in lines[1:]] == [str(number) for number in range(count)]
        assert {line[1] for line in lines[1:]} <= answers
    scores = [float(line.split("\t")[1]) for line in (folder / "STS-B.tsv").read_text().splitlines()[1:]]
    assert all(0 <= score <= 5 for score in scores)
    rows = [json.loads(line) for line in predictions(whole / "run/sst2", glue / "SST-2/test.tsv")]
    right = [str(["negative", "positive"].index(row["predicted"])) for row in rows]
    assert right == [line.split("\t")[1] for line in (folder / "SST-2.tsv").read_text().splitlines()[1:]]


def predictions(run: Path, source: Path) -> list[str]:
    from bertkit.bulk.planner import predict_file

    out = run / "test-predictions.jsonl"
    predict_file(run, source, out)
    return out.read_text().splitlines()


def test_eleven_files_make_a_zip(whole: Path, glue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bertkit.training.finetuning import glue_suite

    wanted = {key: name for key, name in SUBMISSION_FILES.items() if key in ("sst2", "mnli", "mnli mismatched", "ax")}
    monkeypatch.setattr(glue_suite, "SUBMISSION_FILES", wanted)
    runs = {name: whole / "run" / name for name in ("sst2", "mnli")}
    written, absent = glue_suite.write_submission(tmp_path, glue, runs)
    assert not absent
    with zipfile.ZipFile(tmp_path / "submission/submission.zip") as archive:
        assert set(archive.namelist()) == set(written) == set(wanted.values())


def test_a_finished_suite_is_not_trained_again(whole: Path, glue: Path) -> None:
    before = (whole / "run/sst2/metrics.json").stat().st_mtime_ns
    config = FinetuneConfig(**QUICK, seeds=2, restarts=0)
    with pytest.raises(ConfigError, match="add --resume"):
        finetune_glue(glue, whole / "start", whole / "run", config)
    result = finetune_glue(glue, whole / "start", whole / "run", config, resume=True)
    assert (whole / "run/sst2/metrics.json").stat().st_mtime_ns == before
    assert result.render() == (whole / "table.txt").read_text()


def test_a_bad_test_file_is_said_first_and_costs_its_submission_file_alone(
    glue: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    shutil.copytree(glue / "SST-2", data / "SST-2")
    with (data / "SST-2/test.tsv").open("a") as file:
        file.write("9\t \n")
    pairs = [(*texts, ("entailment", "not_entailment")[labels % 2]) for texts, labels in pairs_of_texts(40, 6)]
    write_table(data / "RTE/train.tsv", ("sentence1", "sentence2", "label"), pairs)
    tests = [(number, *texts) for number, (texts, _) in enumerate(pairs_of_texts(6, 7))]
    write_table(data / "RTE/test.tsv", ("index", "sentence1", "sentence2"), tests)
    result = finetune_glue(data, whole / "start", tmp_path / "run", FinetuneConfig(**QUICK, restarts=0))
    assert list(result.results) == ["sst2", "rte"]
    assert result.submission == ("RTE.tsv",)
    assert "test.tsv:11" in result.not_submitted["sst2"]
    assert "no submission file SST-2.tsv" in result.render()
    told = capsys.readouterr().err
    assert 0 <= told.find("there will be no submission file SST-2.tsv") < told.find("--- sst2")
    write_table(data / "RTE/testing.tsv", ("index", "sentence1", "sentence2"), tests)
    (data / "RTE/test.tsv").rename(data / "RTE/test_a.tsv")
    (data / "RTE/testing.tsv").rename(data / "RTE/test_b.tsv")
    _, absent = write_submission(tmp_path / "run", data, {"rte": tmp_path / "run/rte"})
    assert "2 files for test" in absent["rte"]
    assert not (tmp_path / "run/submission/RTE.tsv").exists()


def test_nothing_is_trained_where_a_file_is_wrong(glue: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no task of GLUE"):
        finetune_glue(tmp_path, "no-model", tmp_path / "run")
    write_table(tmp_path / "SST-2/train.tsv", ("sentence", "label"), [*labelled_texts(20, 1), ("a film", "7")])
    write_table(tmp_path / "SST-2/dev.tsv", ("sentence", "label"), labelled_texts(8, 2))
    with pytest.raises(DataError, match=r"train.tsv:22: column 'label'"):
        finetune_glue(tmp_path, "no-model", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_nothing_is_trained_where_a_task_has_no_use_for_a_setting(glue: Path, tmp_path: Path) -> None:
    config = FinetuneConfig(**QUICK, class_weights="balanced")
    with pytest.raises(ConfigError, match="class_weights='balanced' has no effect in task stsb"):
        finetune_glue(glue, tiny_start(tmp_path / "start"), tmp_path / "run", config)
    assert not (tmp_path / "run").exists()


def test_the_command_gives_the_table_and_names_what_is_wrong(
    whole: Path, glue: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = [
        "--model",
        str(whole / "start"),
        "--out",
        str(whole / "run"),
        "--resume",
        "--seeds",
        "2",
        "--restarts",
        "0",
    ]
    settings = ["--learning-rate", "3e-3", "--epochs", "2", "--batch-size", "16", "--max-length", "24", "--no-baseline"]
    assert main(["finetune", "glue", "--data", str(glue), *again, *settings]) == 0
    assert capsys.readouterr().out.rstrip("\n") == (whole / "table.txt").read_text()
    assert main(["finetune", "glue", "--data", str(glue), *again, *settings, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tasks"]["sst2"]["dev_rows"] == 24
    assert main(["finetune", "glue", "--data", str(tmp_path), "--model", "m", "--out", str(tmp_path / "run")]) == 3
    assert "has no task of GLUE to train: cola: no files" in capsys.readouterr().err
    assert main(["finetune", "glue", "--data", str(glue), *again, "--label", "label"]) == 2
    assert "task glue does not take --label, but task csv does" in capsys.readouterr().err
