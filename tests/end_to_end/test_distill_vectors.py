"""A small sentence encoder that learns the vectors of a larger one."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bertkit import SentenceEncoder
from bertkit.cli import main
from bertkit.errors import ConfigError, DataError
from bertkit.training.distillation import distill_vectors as module
from bertkit.training.distillation.distill_settings import DistillRecipe, Student, VectorDistillation, VectorTraining
from bertkit.training.distillation.distill_vectors import distill_vectors
from bertkit.training.distillation.taught_vectors import narrowing
from bertkit.training.trainer.loop import Trainer
from bertkit.training.trainer.run_folder import read_log
from embedding_data import TOPICS, WORDS, untrained


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("teacher") / "model")


@pytest.fixture(scope="module")
def texts():
    generator = np.random.default_rng(0)
    found = []
    for _ in range(400):
        words = WORDS[generator.integers(TOPICS)]
        found.append(" ".join(generator.choice(words, generator.integers(2, 7))))
    return found


def recipe(student, *, loss="mse", **training):
    config = VectorTraining(**{"learning_rate": 3e-3, "epochs": 6, "batch_size": 32, "dev_texts": 40, **training})
    return DistillRecipe("test", "", VectorDistillation(loss=loss), config, Student.parse(student))


@pytest.mark.parametrize(("student", "loss"), [("2x16", "mse"), ("2x48", "cosine")])
def test_a_student_of_another_width_nears_its_teacher(teacher, texts, tmp_path, student, loss):
    result = distill_vectors(teacher, texts, tmp_path / "out", recipe(student, loss=loss))
    assert result.student.cosine_mean > 0.9
    assert result.student.cosine_mean > result.start.cosine_mean + 0.1
    assert result.student.same_neighbour > result.start.same_neighbour
    assert result.texts == {"train": len(set(texts)) - result.texts["dev"], "dev": result.texts["dev"]}
    assert (result.kept < 1) == (student == "2x16")
    encoder = SentenceEncoder(tmp_path / "out/model")
    vectors = encoder.encode(texts[:5])
    assert vectors.shape == (5, 16 if student == "2x16" else 32)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    kinds = [
        module["type"].rpartition(".")[2] for module in json.loads((tmp_path / "out/model/modules.json").read_text())
    ]
    assert kinds == ["Transformer", "Pooling", *(["Dense"] if student == "2x48" else []), "Normalize"]


def test_a_killed_run_goes_on_bit_for_bit_and_the_teacher_is_not_asked_again(teacher, texts, tmp_path, monkeypatch):
    plan = recipe("1", checkpoint_every_s=0, epochs=2)
    whole = distill_vectors(teacher, texts, tmp_path / "whole", plan)
    step = Trainer.train_step

    def dying(self):
        if self.at.step == 7:
            raise KeyError("killed")
        return step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_step", dying)
        with pytest.raises(KeyError, match="killed"):
            distill_vectors(teacher, texts, tmp_path / "cut", plan)
    monkeypatch.setattr(module.SentenceEncoder, "encode", _refusing(module.SentenceEncoder.encode))
    again = distill_vectors(teacher, texts, tmp_path / "cut", plan)
    ours, theirs = (tmp_path / name / "model/model.safetensors" for name in ("whole", "cut"))
    assert ours.read_bytes() == theirs.read_bytes()
    assert again.student == whole.student
    steps = [record["step"] for record in read_log(tmp_path / "cut/log.jsonl") if "event" not in record]
    assert steps == list(range(1, len(steps) + 1))
    assert distill_vectors(teacher, texts, tmp_path / "cut", plan).to_dict() == again.to_dict()


def _refusing(encode):
    """The teacher's vectors were kept: only single texts, whose time is taken, may be encoded."""

    def checked(self, texts, **options):
        assert isinstance(texts, str), "the teacher is asked again"
        return encode(self, texts, **options)

    return checked


def test_narrowing_keeps_dot_products_best():
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(200, 8)).astype(np.float32) * np.array([5, 4, 3, 1, 1, 0.5, 0.2, 0.1], np.float32)
    chosen, kept = narrowing(vectors, 3)
    left, values, _ = np.linalg.svd(vectors.astype(np.float64), full_matrices=False)
    np.testing.assert_allclose(kept, (values[:3] ** 2).sum() / (values**2).sum(), rtol=1e-6)
    best = (left[:, :3] * values[:3]) @ (left[:, :3] * values[:3]).T
    np.testing.assert_allclose((vectors @ chosen) @ (vectors @ chosen).T, best, atol=1e-3)
    assert narrowing(vectors, 8) == (None, 1.0)


def test_the_command_and_what_it_refuses(teacher, texts, tmp_path, capsys):
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(texts))
    command = ["distill", "vectors", "--teacher", str(teacher), "--student", "1", "--quiet", "--set", "epochs=1"]
    assert main([*command, "--data", str(file), "--out", str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["student"]["cosine_mean"] > 0.5
    for given, message in (
        (["--out", str(tmp_path / "no")], "needs texts: give --data"),
        (["--out", str(tmp_path / "no"), "--data", str(file), "--teacher", "x"], "has one teacher, got 2"),
        (["--out", str(tmp_path / "no"), "--data", str(file), "--task", "sst2"], "--task is for recipe task"),
        (["--out", str(tmp_path / "no"), "--data", str(file), "--no-compare"], "--no-compare is for recipe task"),
        (["--out", str(tmp_path / "no"), "--data", str(file), "--dev", str(file)], "--dev is for recipes on running"),
    ):
        assert main([*command, *given]) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(DataError, match="2 different texts are too few"):
        distill_vectors(teacher, ["a", "b", "a", " "], tmp_path / "few", recipe("1"))
    assert not (tmp_path / "few").exists()
    with pytest.raises(ConfigError, match="not of method vectors"):
        distill_vectors(teacher, texts, tmp_path / "no", "task")
