"""Heads of different kinds on one encoder: what is trained, what the folder holds, and that each head is a model."""

from __future__ import annotations

import itertools
import json
import os
import signal

import numpy as np
import pytest
import torch

from bertkit.checkpoints.inspect import inspect
from bertkit.config.decision import read_decision
from bertkit.errors import CheckpointError, ConfigError
from bertkit.inference.evaluate import evaluate_run
from bertkit.inference.run_files import read_task
from bertkit.model.auto import class_named
from bertkit.model.convert import convert
from bertkit.model.models import BertForSequenceClassification, BertModel
from bertkit.optim import parameter_groups
from bertkit.system.interrupts import Interrupted
from bertkit.tasks import csv_task, get_task, task_of
from bertkit.tasks.multi.features import head_sampler, steps_of_heads
from bertkit.tasks.multi.task import MultiTask
from bertkit.tasks.workflow import workflow_of
from bertkit.tokenization import BertTokenizer
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.several_heads import HeadScores, HeadsResult, finetune_heads
from bertkit.training.trainer.callbacks import Callback
from finetune_data import QUICK, labelled_texts, no_pictures, tiny_start, write_heads_data, write_splits, write_table

TEXTS = ["the film was good and great", "a sad day", "it is the book"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heads")
    tiny_start(folder / "start")
    write_splits(folder / "mood", labelled_texts(64, 1), labelled_texts(32, 2))
    scores = [(text, 2.0 * label + len(text.split()) / 9) for text, label in labelled_texts(80, 3)]
    write_table(folder / "score.csv", ("text", "label"), scores, delimiter=",")
    write_heads_data(folder)
    return folder


def heads_of(place):
    mood = csv_task(place / "mood" / "train.csv", text="text", label="label")
    score = csv_task(place / "score.csv", text="text", label="label")
    return {
        "mood": (mood, place / "mood"),
        "score": (score, place / "score.csv"),
        "names": (task_of("ner", place / "ner"), place / "ner"),
        "answers": (get_task("squad"), place / "squad"),
    }


@pytest.fixture(scope="module")
def runs(place):
    """A run with a shared encoder and one with a frozen one."""
    quick = {**QUICK, "baseline": True}
    with no_pictures():
        shared = finetune_heads(heads_of(place), place / "start", place / "shared", FinetuneConfig(**quick), cache=None)
        settings = FinetuneConfig(**quick, freeze_encoder=True)
        frozen = finetune_heads(heads_of(place), place / "start", place / "frozen", settings, cache=None)
    return {"shared": shared, "frozen": frozen}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["shared", pytest.param("frozen", marks=pytest.mark.campaign)])
def test_each_head_is_a_model_of_its_own(place, runs, kind, tmp_path):
    run, result = place / kind, runs[kind]
    assert json.loads((run / "heads.json").read_text()) == json.loads(json.dumps(result.to_dict()))
    assert list(result.heads) == ["mood", "score", "names", "answers"]
    for name, (task, data) in heads_of(place).items():
        again = evaluate_run(task, data, run / "heads" / name, write=False)
        for metric, value in again.scores.items() if (kind, name) != ("shared", "score") else ():  # held out of train
            assert value == pytest.approx(result.heads[name].scores[metric], abs=2e-3), (name, metric)
        assert not list((run / "heads" / name).rglob("model*.safetensors"))  # the encoder is there once
        convert(run / "heads" / name, tmp_path / name)
        kind_of_model = class_named(workflow_of(task).model_class)
        ours, whole = (kind_of_model.from_pretrained(each / name).state_dict() for each in (run / "heads", tmp_path))
        assert all(torch.equal(ours[key], whole[key]) for key in ours)
        assert ours.keys() == whole.keys()
        assert read_decision(tmp_path / name) == read_decision(run / "heads" / name) != {}
        assert read_task(tmp_path / name) == task
        assert inspect(run / "heads" / name).loadable
    assert result.heads["mood"].interval is not None
    assert result.heads["mood"].baseline.keys() >= {"accuracy"}
    assert isinstance(BertModel.from_pretrained(run), BertModel)


def test_a_frozen_head_is_that_of_its_task_alone(place, runs, tmp_path):
    task, data = heads_of(place)["mood"]
    with no_pictures():
        alone = finetune(
            task, data, place / "start", tmp_path / "run", FinetuneConfig(**QUICK, freeze_encoder=True), cache=None
        )
    assert alone.scores == runs["frozen"].heads["mood"].scores
    ours = BertForSequenceClassification.from_pretrained(place / "frozen" / "heads" / "mood").state_dict()
    theirs = BertForSequenceClassification.from_pretrained(tmp_path / "run").state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_only_classifiers_of_a_shared_encoder_learn_faster(place):
    heads = {name: (task, str(data)) for name, (task, data) in heads_of(place).items()}
    workflow = workflow_of(MultiTask.of(heads))
    model = workflow.new_model(place / "start", seed=0, device=torch.device("cpu"), settings=FinetuneConfig(**QUICK))
    groups = parameter_groups(model, classifier_rate=workflow.classifier_rate)
    faster = {name for group in groups for name in group["names"] if group["lr_scale"] > 1}
    last = {"mood": "classifier", "score": "classifier", "names": "classifier", "answers": "qa_outputs"}
    assert faster == {
        f"models.{number}.{last[name]}.{part}" for number, name in enumerate(heads) for part in ("weight", "bias")
    }
    assert workflow_of(heads["mood"][0]).classifier_rate == 1


def test_a_shared_encoder_is_trained_by_all_heads(place, runs):
    start, trained = (BertModel.from_pretrained(place / name).state_dict() for name in ("start", "shared"))
    moved = {name for name in trained if not torch.equal(start[name], trained[name])}
    assert any("encoder.layer.0" in name for name in moved)
    seen = [json.loads(line) for line in (place / "shared" / "log.jsonl").read_text().splitlines()]
    named = {key for record in seen for key in record if key.endswith("_loss")}
    assert named >= {"mood_loss", "score_loss", "names_loss", "answers_loss"}


def test_new_heads_start_at_the_best_answer_that_ignores_the_text(place):
    """A classifier whose bias has been trained is left alone."""
    heads = heads_of(place)
    workflow = workflow_of(MultiTask.of({name: (task, str(data)) for name, (task, data) in heads.items()}))
    settings, tokenizer = FinetuneConfig(**QUICK), BertTokenizer.from_pretrained(place / "start")
    rows = workflow.encode(workflow.read("", "train"), tokenizer, settings, labelled=True)
    model = workflow.new_model(place / "start", seed=0, device=torch.device("cpu"), settings=settings)
    with torch.no_grad():
        model["score"].classifier.bias.fill_(0.5)
    workflow.set_up(model, rows, settings)
    assert model["score"].classifier.bias.tolist() == [0.5]
    assert model["answers"].qa_outputs.bias.tolist() == [0.0, 0.0]
    for name in ("mood", "names"):
        labels = rows.parts[name].labels
        shares = np.bincount(labels[labels >= 0], minlength=len(model[name].classifier.bias))
        expected = np.maximum(shares, 0.5) / np.maximum(shares, 0.5).sum()
        np.testing.assert_allclose(model[name].classifier.bias.softmax(0).detach(), expected, rtol=1e-5)


def test_a_head_on_other_weights_is_refused(place, runs, tmp_path):
    (tmp_path / "heads").mkdir()
    os.symlink(place / "shared" / "heads" / "mood", tmp_path / "heads" / "mood")
    with pytest.raises(CheckpointError, match="without its encoder"):
        BertForSequenceClassification.from_pretrained(tmp_path / "heads" / "mood")
    BertModel.from_pretrained(place / "start").save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="other weights"):
        BertForSequenceClassification.from_pretrained(tmp_path / "heads" / "mood")


class _Stop(Callback):
    """Sends Ctrl-C after some steps."""

    def __init__(self, step):
        self.step = step

    def on_step(self, trainer, record):
        if trainer.at.step == self.step:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.slow
def test_a_stopped_run_goes_on_bit_for_bit(place, runs, monkeypatch):
    """Also where a head had no step yet when it stopped."""
    from bertkit.training.finetuning import several_heads

    out, settings = place / "stopped", FinetuneConfig(**{**QUICK, "baseline": True})
    for step in (2, 7):
        with monkeypatch.context() as patch, no_pictures():
            patch.setattr(
                several_heads,
                "finetune",
                lambda *args, **kw: finetune(*args, **kw, callbacks=[_Stop(step)]),  # noqa: B023
            )
            with pytest.raises(Interrupted):
                finetune_heads(heads_of(place), place / "start", out, settings, resume=step > 2, cache=None)
    with no_pictures():
        again = finetune_heads(heads_of(place), place / "start", out, settings, resume=True, cache=None)
    assert again.heads == runs["shared"].heads
    assert (out / "model.safetensors").read_bytes() == (place / "shared" / "model.safetensors").read_bytes()


@pytest.mark.campaign
def test_a_frozen_run_goes_on_where_it_stopped(place, runs):
    heads = heads_of(place)
    settings = FinetuneConfig(**{**QUICK, "baseline": True}, freeze_encoder=True)
    out = place / "more"
    with no_pictures():
        finetune_heads({"mood": heads["mood"]}, place / "start", out, settings, cache=None)
        before = (out / "heads" / "mood" / "head.safetensors").stat().st_mtime_ns
        with pytest.raises(ConfigError, match="not empty"):
            finetune_heads(heads, place / "start", out, settings, cache=None)
        again = finetune_heads(heads, place / "start", out, settings, resume=True, cache=None)
    assert (out / "heads" / "mood" / "head.safetensors").stat().st_mtime_ns == before
    assert again.heads == runs["frozen"].heads


def test_steps_are_drawn_in_proportion_to_a_power_of_the_rows():
    sizes = [1600, 100, 7]
    assert steps_of_heads(sizes, 10, 1.0) == [160, 10, 1]
    root = steps_of_heads(sizes, 10, 0.5)
    assert root == [round(171 * size**0.5 / sum(s**0.5 for s in sizes)) for size in sizes]
    steps_of = head_sampler(sizes, 10, 1.0, 3)
    epoch = steps_of(0)
    starts = np.cumsum([0, *sizes])
    for low, high in itertools.pairwise(starts):
        own = np.concatenate([rows for rows in epoch if low <= rows[0] < high])
        assert sorted(own) == list(range(low, high))  # each row once
    assert all(np.array_equal(a, b) for a, b in zip(epoch, steps_of(0), strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(epoch, steps_of(1), strict=False))
    # A head with too few steps for its rows goes on in the next epoch.
    few = head_sampler([80, 1], 10, 0.0, 0)
    seen = [row for epoch in range(2) for rows in few(epoch) for row in rows.tolist() if row < 80]
    assert len(set(seen)) == len(seen) == 80


def test_what_cannot_share_an_encoder_is_refused(place, tmp_path):
    heads = heads_of(place)
    for bad, said in (
        ({"a": (get_task("swag"), place / "swag")}, "cannot share"),
        ({"a/b": heads["mood"]}, "a name is made of"),
        ({}, "no heads"),
        ({f"head-{number}": heads["mood"] for number in range(101)}, "101 heads; at most 100 can share an encoder"),
    ):
        with pytest.raises(ConfigError, match=said):
            finetune_heads(bad, place / "start", tmp_path / "run")
    with pytest.raises(ConfigError, match="lora"):
        finetune_heads(heads, place / "start", tmp_path / "run", FinetuneConfig(lora=2))
    assert not (tmp_path / "run").exists()


def test_a_score_without_an_interval_says_why(tmp_path):
    def cells(interval):
        head = HeadScores("ner", 20, "f1", {"f1": 1.0}, interval, {"f1": 0.5})
        line = HeadsResult(tmp_path, "shared", {"names": head}).render().splitlines()[2]
        return [cell.strip() for cell in line.split("  ") if cell.strip()]

    assert cells(None)[-3:] == ["1.0000", "too few rows", "0.5000"]
    assert cells([0.9, 1.0])[-3:] == ["1.0000", "0.9000 to 1.0000", "0.5000"]
