"""What surrounds the training of a seed: searches, intervals, the listing of errors."""

from __future__ import annotations

import json
import math
import shutil
import statistics
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bertkit.cli import main
from bertkit.config.decision import DECISION, read_decision, write_decision
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.errors import CheckpointError, ConfigError, MissingExtraError
from bertkit.inference.evaluate import evaluate_run
from bertkit.inference.run_files import SETTINGS
from bertkit.metrics.intervals import bootstrap_draws
from bertkit.model.models import BertForSequenceClassification
from bertkit.system.json_files import read_json
from bertkit.system.task_engines import InTurn
from bertkit.tasks import csv_task, diagnose, get_task
from bertkit.tasks.registry import KINDS, load_class, task_from_dict, task_to_dict
from bertkit.tasks.run_rows import worst_rows
from bertkit.tasks.task_settings import uses
from bertkit.tasks.text.row_scores import row_losses
from bertkit.tasks.text.workflow import TextWorkflow, score_logits, text_logits
from bertkit.tasks.tokens.task import TokenTask
from bertkit.tasks.workflow import Predicted, Workflow, workflow_of
from bertkit.training.finetuning import finetune as finetune_module
from bertkit.training.finetuning.finetune import finetune, load_run_config
from bertkit.training.finetuning.finetune_results import notes_on
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.hyperparameter_search import ORIGINAL_GRID, given_names, space_of
from finetune_data import QUICK, labelled_texts, write_splits, write_table
from forked_interpreter import run_forked
from training_helpers import read_rows, tiny_model, toy_features, toy_task

pytestmark = pytest.mark.usefixtures("without_pictures")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_splits(tmp_path_factory.mktemp("data"), labelled_texts(64, 1), labelled_texts(40, 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    "task",  # with a new head, and with the dense step of the included model
    ["csv", pytest.param("pairs", marks=pytest.mark.campaign)],
)
def test_training_imports_no_compiler(task: str, tmp_path: Path) -> None:
    """torch's takes a second or two; its optimizers would import it, and so would copying from the meta device."""
    write_table(tmp_path / "pairs.csv", ("text", "text_pair"), [(f"a {n}", f"{n} b") for n in range(9)], delimiter=",")
    few = write_splits(tmp_path / "few", labelled_texts(12, 1), labelled_texts(8, 2))
    file = few if task == "csv" else tmp_path / "pairs.csv"
    code = (
        "import sys\n"
        "from bertkit.cli import main\n"
        f"start = 'finetune {task} --data {file} --model bertkit-tiny-en --out {tmp_path}/run --epochs 1'\n"
        "assert main([*start.split(), '--quiet']) == 0\n"
        "assert not {'torch._dynamo', 'sympy'} & set(sys.modules)\n"
    )
    assert (done := run_forked(code)).returncode == 0, done.stderr


def test_answers_that_are_all_the_same_are_told_beside_the_scores(start: Path, data: Path, tmp_path: Path) -> None:
    config = FinetuneConfig(**{**QUICK, "learning_rate": 1e-8, "epochs": 1, "baseline": False}, seeds=2, restarts=0)
    task = csv_task(data)
    result = finetune(task, data, start, tmp_path / "run", config, cache=None)
    for seed in result.seeds:
        rows = read_rows(tmp_path / f"run/seed-{seed.seed}/predictions-dev.jsonl")
        found = diagnose(task, [row["predicted"] for row in rows], [row["gold"] for row in rows])
        assert [remark for remark in seed.remarks if not remark.startswith("SHORT RUN")] == found
        assert all(any(note.startswith("seed") and note.endswith(f": {one}") for note in result.notes) for one in found)
    model = BertForSequenceClassification.from_pretrained(tmp_path / "run")
    with torch.no_grad():
        model.classifier.weight.zero_()
        model.classifier.bias.copy_(torch.tensor([0.0, 1.0]))
    model.save_pretrained(tmp_path / "run")
    always = evaluate_run(task, data, tmp_path / "run")
    assert task.labels is not None
    told = f"all {always.num_rows} predictions are {task.labels[1]!r}: the model has learned nothing."
    assert list(always.notes) == [told]
    assert f"note: {told}" in always.render()
    one = replace(result.seeds[0], remarks=[told])
    assert told in notes_on([one], "accuracy", None)
    same = [one, replace(one, seed=7), replace(one, seed=8, remarks=[])]
    assert f"seed {one.seed}, 7: {told}" in notes_on(same, "accuracy", None)


# --------------------------------------------------------------------------------------------------- search


def test_the_original_protocol_searches_the_original_grid() -> None:
    config = FinetuneConfig(protocol="original")
    assert space_of(config, config) == dict(ORIGINAL_GRID)
    assert space_of(config.model_copy(update={"epochs": 3}), config) == {"learning_rate": (2e-5, 3e-5, 5e-5)}
    assert space_of(config.model_copy(update={"epochs": 3, "learning_rate": 2e-5}), config) == {}
    assert space_of(config.model_copy(update={"freeze_encoder": True}), config) == {}
    assert space_of(FinetuneConfig(), config) == {}


def test_a_search_leaves_alone_what_was_given() -> None:
    resolved = FinetuneConfig(learning_rate=1e-4, epochs=3)
    space = space_of(FinetuneConfig(search=5), resolved)
    assert list(space["learning_rate"]) == [3e-5, 5e-5, 1e-4, 2e-4, 3e-4]
    assert list(space["epochs"]) == [2, 3, 6]
    assert set(space) == {"learning_rate", "epochs", "batch_size", "warmup"}
    assert set(space_of(FinetuneConfig(search=5, batch_size=8, epochs=1), resolved)) == {"learning_rate", "warmup"}


def test_what_was_given_with_its_default_value_is_not_searched_either(tmp_path: Path) -> None:
    resolved = FinetuneConfig(learning_rate=1e-4, epochs=3)
    given = FinetuneConfig(search=5, batch_size=32, warmup=0.1)
    assert given == FinetuneConfig(search=5), "the values alone cannot tell"
    assert set(space_of(given, resolved)) == {"learning_rate", "epochs"}
    for config in (given, FinetuneConfig(search=5)):
        settings = {"task": {"name": "sst2"}, "config": config.model_dump(), "given": given_names(config)}
        (tmp_path / SETTINGS).write_text(json.dumps(settings))
        again = load_run_config(tmp_path)
        assert again == config
        assert space_of(again, resolved) == space_of(config, resolved), "a resumed search is the same search"


@pytest.mark.parametrize(
    ("options", "given"), [("", []), ("--batch-size 32", ["batch_size"]), ("--warmup 0.1", ["warmup"])]
)
def test_the_command_line_gives_only_what_was_typed(
    options: str, given: list[str], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[FinetuneConfig] = []

    def stop(task: Any, data: Any, model: Any, out: Any, config: FinetuneConfig, **others: Any) -> None:
        seen.append(config)
        raise ConfigError("seen")

    monkeypatch.setattr(finetune_module, "finetune", stop)
    where = ["--data", str(data), "--model", "m", "--out", str(tmp_path / "run"), "--device", "cpu", "-q"]
    assert main(["finetune", "csv", *where, "--search", "5", *options.split()]) == 2
    assert given_names(seen[0]) == given
    assert seen[0] == FinetuneConfig(search=5)


def test_a_grid_is_tried_whole_and_the_best_is_trained(start: Path, data: Path, tmp_path: Path) -> None:
    config = FinetuneConfig(**{**QUICK, "learning_rate": None, "epochs": 1}, protocol="original", seeds=1, restarts=0)
    result = finetune(csv_task(data), data, start, tmp_path / "run", config, cache=None)
    told = json.loads((tmp_path / "run/search.json").read_text())
    assert [trial["setting"] for trial in told["trials"]] == [{"learning_rate": rate} for rate in (2e-5, 3e-5, 5e-5)]
    best = max(told["trials"], key=lambda trial: trial["score"])
    assert told["chosen"] == best["setting"] == result.protocol["search"]["chosen"]
    assert result.protocol["learning_rate"] == best["setting"]["learning_rate"]
    assert result.scores["accuracy"] == pytest.approx(best["score"])  # the same seed, the same settings
    assert not list((tmp_path / "run").glob("trial-*"))


@pytest.mark.slow
def test_optuna_searches_and_a_stopped_search_goes_on(
    start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna")
    from bertkit.training.finetuning import hyperparameter_search as search_module

    config = FinetuneConfig(**{**QUICK, "epochs": 1, "learning_rate": None}, search=4, restarts=0)
    whole = finetune(csv_task(data), data, start, tmp_path / "whole", config, cache=None)
    trained = []
    try_one = search_module._try

    def stops(job: Any, number: int, *args: Any, **options: Any) -> Any:
        trained.append(number)
        if len(trained) == 3:
            raise KeyboardInterrupt
        return try_one(job, number, *args, **options)

    monkeypatch.setattr(search_module, "_try", stops)
    with pytest.raises(KeyboardInterrupt):
        finetune(csv_task(data), data, start, tmp_path / "parts", config, cache=None)
    log = tmp_path / "parts/trial-000/checkpoints/step-00000001"
    log.mkdir(parents=True, exist_ok=True)
    result = finetune(csv_task(data), data, start, tmp_path / "parts", config, resume=True, cache=None)
    assert trained.count(0) == trained.count(1) == 1
    trials = [search.protocol["search"]["trials"] for search in (whole, result)]
    for one, other in zip(*trials, strict=True):
        assert (one["setting"], one["score"]) == (other["setting"], other["score"])
    assert len(trials[0]) == 4


def test_without_optuna_the_message_says_how_to_get_it(
    start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    config = FinetuneConfig(**{**QUICK, "learning_rate": None}, search=2)
    with pytest.raises(MissingExtraError, match=r"pip install 'bertkit\[search\]'"):
        finetune(csv_task(data), data, start, tmp_path / "run", config, cache=None)


# ---------------------------------------------------------------------------------- resampled rows and listings


def test_resampled_scores_are_scores_of_resampled_rows() -> None:
    features, model = toy_features(30), tiny_model()
    logits = text_logits(InferenceEngine.for_scoring(model), features)
    for metric in ("accuracy", "macro_f1", "matthews"):
        task = replace(toy_task(), metrics=(metric,), main_metric=metric)
        draws = bootstrap_draws(30, 5)
        found = TextWorkflow(task).main_metric_of(Predicted((), features, logits, {}), draws)
        expected = [score_logits(task, logits[draw], features.labels[draw])[metric] for draw in draws]
        assert found.tolist() == expected


@pytest.mark.parametrize("labels", [3, None])
def test_losses_of_rows_mean_the_loss(labels: int | None) -> None:
    features = toy_features(40, regression=labels is None)
    model = tiny_model(num_labels=labels or 1, problem_type=None if labels else "regression")
    logits = text_logits(InferenceEngine.for_scoring(model), features)
    task = toy_task(labels)
    losses = row_losses(task, logits, features.labels)
    assert losses.mean() == pytest.approx(score_logits(task, logits, features.labels)["loss"], rel=1e-5)


def test_the_worst_come_first_and_what_is_right_is_left_out() -> None:
    rows = [{"row": number} for number in range(5)]
    listed = worst_rows(rows, np.array([0.0, 2.0, 0.5, 3.0, 0.0]), 10)
    assert [line["row"] for line in listed] == [3, 1, 2]
    assert [line["badness"] for line in listed] == [3.0, 2.0, 0.5]
    assert len(worst_rows(rows, np.array([1.0, 2.0, 0.5, 3.0, 0.1]), 2)) == 2


@pytest.mark.slow
def test_a_run_tells_median_interval_and_worst_examples(start: Path, data: Path, tmp_path: Path) -> None:
    config = FinetuneConfig(**QUICK, seeds=3, worst=7, restarts=0)
    result = finetune(csv_task(data), data, start, tmp_path / "run", config, cache=None)
    scores = [seed.scores["accuracy"] for seed in result.seeds]
    assert result.median["accuracy"] == statistics.median(scores)
    low, high = result.interval
    assert low <= result.mean["accuracy"] <= high
    for seed in result.seeds:
        assert seed.interval[0] <= seed.scores["accuracy"] <= seed.interval[1]
    assert "95 % interval" in result.render()
    assert "95 % interval" in (tmp_path / "run/README.md").read_text()
    worst = read_rows(tmp_path / "run/errors-dev.jsonl")
    rows = read_rows(tmp_path / "run/predictions-dev.jsonl")
    losses = {row["row"]: -np.log(row["probabilities"][row["gold"]]) for row in rows}
    expected = sorted(losses, key=losses.__getitem__, reverse=True)[:7]
    assert {line["row"] for line in worst} == set(expected)
    assert [line["badness"] for line in worst] == sorted((line["badness"] for line in worst), reverse=True)
    assert worst[0]["badness"] == pytest.approx(losses[worst[0]["row"]], rel=1e-3)


def test_runs_of_an_older_version_can_be_read_and_resumed(start: Path, data: Path, tmp_path: Path) -> None:
    """Settings and results that version 0.1.0 wrote know nothing of searches, restarts and intervals."""
    config = FinetuneConfig(**QUICK)
    finetune(csv_task(data), data, start, tmp_path / "run", config, cache=None)
    settings = read_json(tmp_path / "run/finetune.json", dict)
    for name in ("search", "restarts", "worst"):
        del settings["config"][name]
    del settings["task"]["more_dev"]
    (tmp_path / "run/finetune.json").write_text(json.dumps(settings))
    metrics = read_json(tmp_path / "run/metrics.json", dict)
    for name in ("median", "interval", "replaced"):
        del metrics[name]
    for seed in metrics["seeds"]:
        del seed["interval"]
    (tmp_path / "run/metrics.json").write_text(json.dumps(metrics))
    again = finetune(csv_task(data), data, start, tmp_path / "run", config, resume=True, cache=None)
    assert again.scores == metrics["scores"]
    assert "accuracy" in again.render()
    with pytest.raises(CheckpointError, match="epochs was 2, now 3"):
        finetune(csv_task(data), data, start, tmp_path / "run", FinetuneConfig(**{**QUICK, "epochs": 3}), resume=True)


# -------------------------------------------------------------------------------------------- kinds of tasks


def test_every_kind_of_task_has_a_class_and_a_workflow() -> None:
    for form in KINDS:
        assert load_class(form, "task").form == form
        assert issubclass(load_class(form, "workflow"), Workflow)
    values = task_to_dict(toy_task())
    assert task_from_dict(values) == toy_task()
    with pytest.raises(CheckpointError, match="no tasks of kind 'poem'"):
        task_from_dict({"kind": "poem"})
    with pytest.raises(CheckpointError, match="unknown fields, 'rhyme'"):
        task_from_dict({**values, "rhyme": True})
    with pytest.raises(CheckpointError, match=r"a task is damaged: metrics\.0 = 1: input should be a valid string"):
        task_from_dict({**values, "metrics": [1]})


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("squad", {"class_weights": "balanced"}),
        ("squad", {"calibrate": True}),
        ("squad", {"tune_thresholds": True}),
        ("squad", {"long_texts": "windows"}),
        ("codah", {"class_weights": "balanced"}),
        ("codah", {"long_texts": "head_tail"}),
        ("codah", {"doc_stride": 7}),
        ("ner", {"calibrate": True}),
        ("ner", {"class_weights": "balanced"}),
        ("stsb", {"class_weights": "balanced"}),
        ("stsb", {"calibrate": True}),
        ("mnli", {"tune_thresholds": True}),
        ("mrpc", {"long_texts": "windows"}),
        ("imdb", {"label_all_pieces": True}),
        ("imdb", {"overlap": 3}),
        ("imdb", {"max_answer_length": 3}),
    ],
)
def test_a_setting_that_would_do_nothing_is_refused(name: str, settings: dict[str, Any]) -> None:
    task = TokenTask("ner", ("PER",)) if name == "ner" else get_task(name)
    with pytest.raises(ConfigError, match=rf"{next(iter(settings))}=.* has no effect in task {name}: it is for "):
        workflow_of(task).check_settings(FinetuneConfig(**settings))
    workflow_of(task).check_settings(FinetuneConfig())


def test_settings_that_a_task_understands_are_taken() -> None:
    workflow_of(get_task("squad2")).check_settings(FinetuneConfig(doc_stride=7, max_query_length=9))
    workflow_of(TokenTask("ner", ("PER",))).check_settings(FinetuneConfig(label_all_pieces=True))
    both = {"class_weights": "balanced", "calibrate": True, "tune_thresholds": True}
    workflow_of(get_task("imdb")).check_settings(FinetuneConfig(**both, long_texts="windows", overlap=3))
    workflow_of(get_task("mrpc")).check_settings(FinetuneConfig(**both))
    workflow_of(get_task("sparse-pairs")).check_settings(FinetuneConfig(query_flops=0.3, document_flops=0.3))
    workflow_of(get_task("text2text")).check_settings(FinetuneConfig(max_target_length=9, num_beams=2))
    workflow_of(get_task("rerank")).check_settings(FinetuneConfig(rank_loss="lambda", pooling="mean"))
    workflow_of(get_task("pairs")).check_settings(FinetuneConfig(mine_negatives=2, max_negative=0.5, pooling="cls"))
    for other in ({"temperature": 0.1}, {"pooling": "mean"}):
        with pytest.raises(ConfigError, match="has no effect in task sparse-pairs: it is for "):
            workflow_of(get_task("sparse-pairs")).check_settings(FinetuneConfig(**other))
    assert set(uses()) <= set(FinetuneConfig.model_fields)


def test_such_a_setting_stops_a_run_before_it_begins(start: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="label_all_pieces=True has no effect"):
        finetune(csv_task(data), data, start, tmp_path / "run", FinetuneConfig(**QUICK, label_all_pieces=True))
    assert not (tmp_path / "run" / SETTINGS).exists()


def test_a_decision_lies_beside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_decision(tmp_path) == {}
    write_decision(tmp_path, {})
    assert not (tmp_path / DECISION).exists()
    write_decision("~", {"null_threshold": -1.5})
    assert read_decision(tmp_path) == {"null_threshold": -1.5}
    for damaged in ("{", "[]", '{"temperature": NaN}', "[" * 100_000):
        (tmp_path / DECISION).write_text(damaged)
        with pytest.raises(CheckpointError, match=r"decision\.json is damaged"):
            read_decision(tmp_path)


@pytest.mark.parametrize("frozen", [True, False])
def test_the_chosen_pooling_is_trained_saved_and_evaluated(
    start: Path, data: Path, tmp_path: Path, frozen: bool
) -> None:
    settings = {**QUICK, "epochs": 2, "baseline": False, "freeze_encoder": frozen, "pooling": "mean"}
    result = finetune(csv_task(data), data, start, tmp_path / "run", FinetuneConfig(**settings), cache=None)
    model = BertForSequenceClassification.from_pretrained(tmp_path / "run")
    assert model.config.pooling == "mean"
    assert not hasattr(model.bert, "pooler") or model.bert.pooler is None
    protocol = json.loads((tmp_path / "run" / "metrics.json").read_text())["protocol"]
    assert protocol["pooling"] == "mean"
    assert ("mean features" in protocol["what_is_trained"]) == frozen
    again = evaluate_run(csv_task(data), data, tmp_path / "run")
    assert again.scores["accuracy"] == pytest.approx(result.mean["accuracy"])


def test_a_start_checkpoint_may_say_how_to_pool(start: Path, data: Path, tmp_path: Path) -> None:
    own = shutil.copytree(start, tmp_path / "start")
    (own / "1_Pooling").mkdir()
    (own / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    config = FinetuneConfig(**{**QUICK, "epochs": 1, "baseline": False, "freeze_encoder": True})
    finetune(csv_task(data), data, own, tmp_path / "run", config, cache=None)
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["protocol"]["pooling"] == "max"
    assert BertForSequenceClassification.from_pretrained(tmp_path / "run").config.pooling == "max"


def test_a_trial_without_a_score_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from bertkit.training.finetuning import hyperparameter_search as search_module

    scores = iter([math.nan, 0.5, None])

    def train(seed: int, options: Any) -> Any:
        epochs = [{"step": 1, "dev_accuracy": next(scores)}]
        return SimpleNamespace(progression=SimpleNamespace(epochs=epochs, best_step=1, seconds=0.0))

    job: Any = SimpleNamespace(
        run=SimpleNamespace(path=tmp_path),
        workflow=SimpleNamespace(task=SimpleNamespace(main_metric="accuracy")),
        config=FinetuneConfig(),
        identity={},
        cache=None,
        train=train,
    )
    job.with_config = lambda config: job
    found = search_module.search(job, {"epochs": (1, 2, 3)}, None, InTurn(), resume=False)
    assert [trial.score for trial in found.trials] == [None, 0.5, None]
    assert found.chosen == {"epochs": 2}
    assert json.loads((tmp_path / "search.json").read_text())["trials"][0]["score"] is None
    assert "trial 1: epochs 1: no score (dev accuracy) in" in capsys.readouterr().err
