"""What the pictures of runs show, from the files of a real run: scikit-learn and scipy are the oracles."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit import visualize
from bertkit.cli import main
from bertkit.errors import CheckpointError, ConfigError, DataError
from bertkit.insight.run_curves import _thinned
from bertkit.insight.wrong_labels import held_out_probabilities, suspects
from bertkit.metrics.calibration import calibration_error
from bertkit.tasks import csv_task, task_of
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.visualize.error_pictures import Slice
from browser_helpers import CHROMIUM, browser
from finetune_data import QUICK, labelled_texts, no_pictures, tiny_start, write_heads_data, write_splits

pytestmark = pytest.mark.slow

SETTINGS = FinetuneConfig(**{**QUICK, "epochs": 2})


def make_runs(folder: Path) -> None:
    """A run on texts and one on tags."""
    start = tiny_start(folder / "start")
    data = write_splits(folder / "data", labelled_texts(48, 1), labelled_texts(60, 2))
    write_heads_data(folder)
    with no_pictures():
        finetune(csv_task(data), data, start, folder / "texts", SETTINGS, cache=None)
        finetune(task_of("ner", folder / "ner"), folder / "ner", start, folder / "tags", SETTINGS, cache=None)


@pytest.fixture(scope="module")
def runs(once: Callable[[str, Callable[[Path], Any]], Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> str:
        make_runs(folder)
        return str(folder)

    return Path(once("runs-for-pictures", make))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_curves_are_those_of_the_log(runs: Path) -> None:
    found = visualize.training(runs / "texts", runs / "tags")
    assert list(found.runs) == ["texts", "tags"]
    log = lines(runs / "texts" / "log.jsonl")
    steps = [record for record in log if "event" not in record]
    curves = found.to_dict()["runs"]["texts"]
    for name in ("loss", "lr", "grad_norm"):
        assert curves[name] == {"steps": [r["step"] for r in steps], "values": [r[name] for r in steps]}
    assert curves["dev_accuracy"]["values"] == [r["dev_accuracy"] for r in log if r.get("event") == "epoch"]
    titles = [axes.get_title() for axes in found.figure().axes]
    assert titles[:2] == ["training loss", "dev loss"]
    assert {"learning rate", "gradient norm", "dev accuracy", "tokens per second"} <= set(titles)


@pytest.mark.parametrize("count", [1, 2000, 2001, 12_345])
def test_long_logs_are_thinned_to_means(count: int) -> None:
    values = np.random.default_rng(0).normal(size=count)
    curve = _thinned(list(enumerate(values.tolist(), start=1)))
    every = -(-count // 2000)
    assert curve.steps[-1] == count
    assert len(curve.steps) <= 2000
    parts = [values[place : place + every] for place in range(0, count, every)]
    np.testing.assert_allclose(curve.values, [part.mean() for part in parts], atol=1e-12)


def test_folders_that_hold_no_run_are_named(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no log\.jsonl"):
        visualize.training(tmp_path)
    (tmp_path / "log.jsonl").write_text('{"step": "x"}\n')
    with pytest.raises(CheckpointError, match=r"log\.jsonl:1 is damaged"):
        visualize.training(tmp_path)
    (tmp_path / "log.jsonl").write_text('{"event": "epoch", "step": 1, "dev_loss": 1.0}\n')
    with pytest.raises(CheckpointError, match="no training step yet"):
        visualize.training(tmp_path)
    with pytest.raises(ConfigError, match="given twice"):
        visualize.training(runs / "texts", runs / "texts")
    with pytest.raises(ConfigError, match="1 to 9 runs, got 0"):
        visualize.training()


def test_confusion_of_texts_is_that_of_scikit_learn(runs: Path) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rows = lines(runs / "texts" / "predictions-dev.jsonl")
    gold, predicted = ([row[name] for row in rows] for name in ("gold", "predicted"))
    found = visualize.confusion(runs / "texts")
    assert found.matrix is not None
    assert found.calibration is not None
    assert (found.matrix == metrics.confusion_matrix(gold, predicted, labels=found.labels)).all()
    shares = [[row["probabilities"][name] for name in found.labels] for row in rows]
    right = [list(found.labels).index(label) for label in gold]
    assert found.calibration.error == pytest.approx(calibration_error(shares, right), abs=1e-12)
    assert len(found.figure().axes) == 3, "the matrix, its scale, the calibration"


def test_confusion_of_tags_counts_words_by_type(runs: Path) -> None:
    found = visualize.confusion(runs / "tags")
    assert found.matrix is not None
    # "the O, film B-MISC, fine O", twelve times
    assert (found.num_rows, found.matrix.sum(), found.calibration) == (36, 36, None)
    assert dict(zip(found.labels, found.matrix.sum(axis=1).tolist(), strict=True))["MISC"] == 12


def test_sets_that_were_not_scored_are_named(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no predictions of 'dve' \(did you mean 'dev'\?\); it has: dev"):
        visualize.confusion(runs / "texts", "dve")
    with pytest.raises(ConfigError, match="is not a run folder"):
        visualize.confusion(runs / "start")


def test_slices_have_the_intervals_of_wilson() -> None:
    stats = pytest.importorskip("scipy.stats")
    for right, count in ((0, 5), (3, 7), (19, 20), (50, 50)):
        found = Slice.of("s", np.arange(count) < right)
        low, high = stats.binomtest(right, count).proportion_ci(0.95, method="wilson")
        assert (found.low, found.high) == pytest.approx((low, high), abs=1e-6)


def test_mistakes_are_the_wrong_rows_in_order_of_confidence(runs: Path, tmp_path: Path) -> None:
    rows = lines(runs / "texts" / "predictions-dev.jsonl")
    table = tmp_path / "dev.csv"
    with (runs / "data" / "dev.csv").open() as file, table.open("w") as out:
        for number, line in enumerate(file):
            out.write(line.rstrip("\n") + ("," + ("where" if not number else "ab"[number % 2])) + "\n")
    found = visualize.errors(runs / "texts", top=3, data=table, columns=["where"])
    wrong = [row for row in rows if row["gold"] != row["predicted"]]
    assert found.num_mistakes == len(wrong)
    wrong.sort(key=lambda row: -row["probabilities"][row["predicted"]])
    assert [each.text for each in found.mistakes] == [row["text"] for row in wrong[:3]]
    slices = {each.name: each for each in found.slices}
    for value in "ab":
        with table.open() as file:
            texts = [row["text"] for row in csv.DictReader(file) if row["where"] == value]
        assert slices[f"where = {value}"].num_rows == len(texts)
    lengths = [each for name, each in slices.items() if "words" in name]
    assert sum(each.num_rows for each in lengths) == len(rows), "each row has one length"
    assert "where = a" in found.page()


def test_another_file_than_the_scored_one_is_refused(runs: Path) -> None:
    with pytest.raises(DataError, match=r"train\.csv:2: this is not the row that was scored"):
        visualize.errors(runs / "texts", data=runs / "data" / "train.csv", columns=["text"])
    with pytest.raises(ConfigError, match=r"no column 'txt' \(did you mean 'text'\?\)"):
        visualize.errors(runs / "texts", data=runs / "data" / "dev.csv", columns=["txt"])
    with pytest.raises(ConfigError, match="texts with one label each"):
        visualize.errors(runs / "tags")


def test_planted_wrong_labels_are_found() -> None:
    """Two clouds of points; every tenth label is turned over. The control: nothing is found in right labels."""
    generator = np.random.default_rng(0)
    right = generator.integers(0, 2, 400)
    vectors = generator.normal(size=(400, 8)) + 2.0 * right[:, None]
    given = right.copy()
    planted = np.arange(0, 400, 10)
    given[planted] = 1 - given[planted]
    numbers = {number for number, *_ in suspects(held_out_probabilities(vectors, given, 5, 0), given)}
    assert len(numbers & set(planted.tolist())) >= 32
    assert len(numbers - set(planted.tolist())) <= 4
    assert len(suspects(held_out_probabilities(vectors, right, 5, 0), right)) <= 4


def test_labels_of_a_run_are_checked_with_its_own_vectors(runs: Path) -> None:
    found = visualize.errors(runs / "texts", check_labels=True)
    assert found.num_checked == found.num_rows
    assert found.wrong_labels is not None
    assert all(each.probability > each.label_probability for each in found.wrong_labels)


@pytest.mark.parametrize("action", ["training", "confusion", "errors"])
def test_commands_write_pictures_pages_and_numbers(
    action: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for ending in ("png", "svg", "html", "json") if action == "training" else ("html", "json"):
        out = tmp_path / f"picture.{ending}"
        assert main(["visualize", action, str(runs / "texts"), "--out", str(out), "--json"]) == 0
        numbers = json.loads(capsys.readouterr().out)
        content = out.read_bytes()
        assert len(content) > 100
        if ending == "json":
            assert json.loads(content) == numbers
        if ending == "html":
            assert b"default-src 'none'" in content
            assert not re.search(rb"""(src|href)=["']?http|url\(\s*["']?http|@import""", content)
    assert main(["visualize", action, str(runs / "texts"), "--out", str(tmp_path / "p.gif")]) == 2
    assert not (tmp_path / "p.gif").exists()
    shutil.rmtree(tmp_path)


def test_an_evaluation_draws_its_own_pictures(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = shutil.copytree(runs / "texts", tmp_path / "run")
    assert main(["evaluate", "csv", "--data", str(runs / "data"), "--model", str(run)]) == 0
    assert {path.name for path in run.glob("*.png")} == {
        "evaluation-confusion-dev.png",
        "evaluation-curves-dev.png",
        "evaluation-reliability-dev.png",
    }
    assert visualize.confusion(run).num_rows == 60


def test_runs_of_the_first_release_are_drawn() -> None:
    old = Path(__file__).resolve().parents[2] / "compatibility" / "first_release" / "finetuned"
    rows = lines(old / "text" / "predictions-dev.jsonl")
    right = sum(row["gold"] == row["predicted"] for row in rows)
    assert f"{right / len(rows):.1%} right" in visualize.confusion(old / "text").render()
    assert f"{len(rows) - right} mistakes" in visualize.errors(old / "text").render()
    steps = [record["step"] for record in lines(old / "text" / "log.jsonl") if "event" not in record]
    assert f"{steps[-1]} steps" in visualize.training(old / "text").render()
    with pytest.raises(CheckpointError, match=r"has no log\.jsonl"):
        visualize.training(old / "ner")


def with_predictions(run: Path, folder: Path, rows: list[dict[str, Any]]) -> Path:
    """A copy of a run with other predictions."""
    shutil.copytree(run, folder)
    (folder / "predictions-dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_rare_labels_that_share_a_row_are_not_right_for_each_other(runs: Path, tmp_path: Path) -> None:
    """60 labels have a row of their own; of the 10 others each is taken for another one."""
    gold = [f"frequent {number}" for number in range(60) for _ in range(3)]
    rare = [f"rare {number}" for number in range(10)]
    predicted = [*gold[:-1], gold[0], *rare[1:], rare[0]]
    rows = [{"gold": a, "predicted": b} for a, b in zip([*gold, *rare], predicted, strict=True)]
    found = visualize.confusion(with_predictions(runs / "texts", tmp_path / "run", rows))
    assert found.matrix is not None
    assert found.matrix.shape == (61, 61)
    assert found.matrix.trace() == 189, "of the joined row all are on the diagonal"
    assert (found.num_right, found.to_dict()["num_right"]) == (179, 179)
    first, _, *confused = found.render().splitlines()
    assert first == f"dev: 190 rows, {179 / 190:.1%} right"
    assert confused[0].split() == ["10", "100.0%", *"10 others -> 10 others".split()]
    assert confused[1].split() == ["1", "33.3%", *"frequent 59 -> frequent 0".split()]


def test_a_tagger_has_words(runs: Path) -> None:
    assert visualize.confusion(runs / "tags").render().startswith("dev: 36 words, ")
    assert visualize.confusion(runs / "texts").render().startswith("dev: 60 rows, ")


def test_the_run_that_is_given_twice_is_named(runs: Path) -> None:
    with pytest.raises(ConfigError, match="tags is given twice"):
        visualize.training(runs / "texts", runs / "tags", runs / "tags")


def test_lengths_of_pairs_are_those_of_their_texts(runs: Path, tmp_path: Path) -> None:
    probabilities = {"0": 0.9, "1": 0.1}
    rows = [
        {"row": n, "text": text, "text_pair": "c", "gold": "0", "predicted": "0", "probabilities": probabilities}
        for n, text in enumerate(["a b", "a b d e"] * 4)
    ]
    found = visualize.errors(with_predictions(runs / "texts", tmp_path / "run", rows))
    assert "3 to 5 words" in {each.name for each in found.slices}, "the mark between the two is no word"


def test_the_scored_file_is_read_as_the_run_reads(runs: Path, tmp_path: Path) -> None:
    """Between its fields is a "|", its quotes are text, and one of its rows was left out. A later file is in UTF-8."""
    for name, seed in (("train", 1), ("dev", 2)):
        rows = [f'"{text} žár|{label}|{"ab"[n % 3 == 0]}' for n, (text, label) in enumerate(labelled_texts(30, seed))]
        lines_of = "\n".join(["text|label|kind", *rows[:4], "no label", *rows[4:]]) + "\n"
        (tmp_path / f"{name}.csv").write_text(lines_of, encoding="cp1250")
    task = csv_task(tmp_path, delimiter="|", quoting="none", encoding="cp1250", on_error="skip")
    settings = FinetuneConfig(**{**QUICK, "epochs": 1, "on_error": "skip"})
    with no_pictures():
        finetune(task, tmp_path, runs / "start", tmp_path / "run", settings, cache=None)
    later = tmp_path / "later.csv"
    later.write_text(lines_of, encoding="utf-8")
    shutil.copy(tmp_path / "run" / "predictions-dev.jsonl", tmp_path / "run" / "evaluation-predictions-later.jsonl")
    for split, file in (("dev", tmp_path / "dev.csv"), ("later", later)):
        found = visualize.errors(tmp_path / "run", split, data=file, columns=["kind"])
        sizes = {each.name: each.num_rows for each in found.slices if each.name.startswith("kind")}
        assert (found.num_rows, sizes) == (30, {"kind = a": 20, "kind = b": 10})


@pytest.mark.campaign
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_errors_in_a_browser(runs: Path, tmp_path: Path, dark: bool) -> None:
    found = visualize.errors(runs / "texts", check_labels=True)
    file = found.save(tmp_path / "errors.html")
    with browser(tmp_path / "profile") as page:
        page.open(file, dark=dark)
        headings = page.value("[...document.querySelectorAll('h1, h2')].map((each) => each.textContent)")
        assert headings == ["Errors", "Slices", "Most confident mistakes", "Likely wrong labels"]
        first = page.value("[...document.querySelectorAll('table')[0].rows].map((row) => row.cells[0].textContent)")
        assert first == ["slice", "all rows", *(each.name for each in found.slices)]
        paper = page.value("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(255, 255, 255)") != dark
        assert (page.requests, page.problems) == ([file.as_uri()], [])
