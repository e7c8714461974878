"""Students of running text, from a token store to a model folder."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bertkit import BertForMaskedLM, BertModel
from bertkit.cli import main
from bertkit.errors import CheckpointError, ConfigError
from bertkit.training.distillation.distill_corpus import distill_corpus
from bertkit.training.distillation.distill_settings import (
    DistillRecipe,
    PredictionDistillation,
    RelationDistillation,
    StateDistillation,
    Student,
)
from bertkit.training.pretraining.pretrain import pretrain
from bertkit.training.trainer.loop import Trainer
from pretrain_runs import SETTINGS, SHAPE, make_stores

STILL = SHAPE.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


@pytest.fixture(scope="module")
def teacher(stores, tmp_path_factory):
    settings = SETTINGS.replace(objective="mlm", max_steps=120, batch_size=16, checkpoint_every_s=100)
    run = pretrain(stores[0], tmp_path_factory.mktemp("teacher") / "run", settings, model=STILL, dev=stores[1])
    return run.model


def recipe(distillation, student="1", **training):
    config = SETTINGS.replace(**{"objective": "mlm", "checkpoint_every_s": 100, **training})
    return DistillRecipe("test", "", distillation, config, Student.parse(student))


def test_a_student_of_predictions_beats_the_same_student_without(stores, teacher, tmp_path):
    plan = recipe(PredictionDistillation(), "1x32", max_steps=24)
    found = distill_corpus(teacher, stores[0], tmp_path / "out", plan, dev=stores[1])
    start = str(tmp_path / "out/student")
    alone = pretrain(stores[0], tmp_path / "alone", plan.training, model=start, dev=stores[1])
    assert found.scores["masked_lm_loss"] < alone.scores["masked_lm_loss"]
    assert found.scores["masked_lm_accuracy"] > alone.scores["masked_lm_accuracy"] + 0.1
    model = BertForMaskedLM.from_pretrained(tmp_path / "out/model")
    assert model.config.num_hidden_layers == 1
    assert found.parameters["student"] < found.parameters["teacher"]
    assert found.megaflops["student"] < found.megaflops["teacher"]
    assert "million weights" in found.render()


def test_a_killed_run_goes_on_bit_for_bit(stores, teacher, tmp_path, monkeypatch):
    plan = recipe(PredictionDistillation(positions="masked"), max_steps=8, checkpoint_every_s=0)
    distill_corpus(teacher, stores[0], tmp_path / "whole", plan)
    step = Trainer.train_step

    def dying(self):
        if self.at.step == 5:
            raise KeyError("killed")
        return step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_step", dying)
        with pytest.raises(KeyError, match="killed"):
            distill_corpus(teacher, stores[0], tmp_path / "cut", plan)
    distill_corpus(teacher, stores[0], tmp_path / "cut", plan)
    ours, theirs = (tmp_path / name / "model/model.safetensors" for name in ("whole", "cut"))
    assert ours.read_bytes() == theirs.read_bytes()
    with pytest.raises(CheckpointError, match="temperature was 2"):
        distill_corpus(teacher, stores[0], tmp_path / "cut", plan.changed(["temperature=3"]))


@pytest.mark.parametrize("distillation", [RelationDistillation(relation_heads=4), StateDistillation()])
def test_relations_and_states_of_another_width(stores, teacher, tmp_path, distillation):
    with pytest.raises(ConfigError, match="relation_heads=5 does not divide"):  # which leaves the folder free
        distill_corpus(teacher, stores[0], tmp_path / "out", recipe(RelationDistillation(relation_heads=5)))
    plan = replace(recipe(distillation, max_steps=40), student=Student(shape="1x16", heads=2))
    found = distill_corpus(teacher, stores[0], tmp_path / "out", plan)
    lines = [json.loads(line) for line in (tmp_path / "out/run/log.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "lr" in line]
    assert losses[-1] < losses[0] / 2
    assert found.scores == {}
    assert BertModel.from_pretrained(tmp_path / "out/model").config.hidden_size == 16


def test_the_command_and_what_it_refuses(stores, teacher, tmp_path, capsys):
    command = ["distill", "distilbert", "--teacher", str(teacher), "--data", str(stores[0].path), "--quiet"]
    small = "max_steps=2 batch_size=4 max_seq_length=16 max_tokens=64".split()
    given = [*command, *(part for setting in small for part in ("--set", setting)), "--student", "1", "--json"]
    assert main([*given, "--out", str(tmp_path / "out"), "--dev", str(stores[1].path), "--set", "dev_examples=4"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 2
    other, _ = make_stores(tmp_path, "[PAD]", "[UNK]", "zebra")
    with pytest.raises(ConfigError, match=r"the teacher .* has another tokenizer than the token store"):
        distill_corpus(teacher, other, tmp_path / "no", recipe(PredictionDistillation()))
    with pytest.raises(ConfigError, match="of method task, not of method distilbert or minilmv2 or tinybert"):
        distill_corpus(teacher, stores[0], tmp_path / "no", "task")
    encoder = tmp_path / "encoder"
    BertModel.from_pretrained(teacher).save_pretrained(encoder)
    stores[0].tokenizer().save_pretrained(encoder)
    with pytest.raises(CheckpointError, match="has no masked-lm head"):
        distill_corpus(encoder, stores[0], tmp_path / "no", recipe(PredictionDistillation()))
    with pytest.raises(ConfigError, match="leave dev out"):
        distill_corpus(teacher, stores[0], tmp_path / "no", recipe(StateDistillation()), dev=stores[1])
    assert not (tmp_path / "no/run").exists()


@pytest.mark.parametrize(
    ("settings", "student", "told"),
    [
        (StateDistillation(), "4x25", "a student of 4 layers .*; the student has 1 attention heads, .*--student 2x24"),
        (StateDistillation(), "3x30", "a student of 3 layers learns every k-th layer"),
        (RelationDistillation(relation_heads=48), "1x40", "the student's width of 40 and the teacher's width of 32"),
        (PredictionDistillation(), "1x48", "take layers of the teacher .--student 1."),
    ],
)
def test_a_student_that_does_not_fit_is_refused_before_anything_is_written(
    settings, student, told, stores, teacher, tmp_path
):
    with pytest.raises(ConfigError, match=told):
        distill_corpus(teacher, stores[0], tmp_path / "out", recipe(settings, student))
    assert not (tmp_path / "out").exists()


def test_a_new_student_whose_attention_is_compared_has_the_heads_of_its_teacher(stores, teacher, tmp_path):
    """A width of 24 would have one head of 64 at most, and the teacher has two."""
    found = distill_corpus(teacher, stores[0], tmp_path / "out", recipe(StateDistillation(), "1x24", max_steps=2))
    assert BertModel.from_pretrained(found.folder / "model").config.num_attention_heads == 2
