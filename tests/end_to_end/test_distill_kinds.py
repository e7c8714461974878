"""Students of teachers that tag words, choose and answer: from files to a run folder."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy.special import softmax

from bertkit import BertModel, BertTokenizer, pipeline
from bertkit.cli import main
from bertkit.errors import ConfigError
from bertkit.inference.evaluate import evaluate_run
from bertkit.inference.runs import open_run
from bertkit.tasks import ner_task
from bertkit.tasks.taught_workflow import Lesson, taught_workflow
from bertkit.training.distillation import distill_task as module
from bertkit.training.distillation.distill_settings import DistillRecipe, Student, TaskDistillation
from bertkit.training.distillation.distill_task import distill_task
from bertkit.training.distillation.teachers import combined, open_teachers
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.trainer.run_folder import read_log
from distillation_data import StopAt
from everyday import some
from kinds_data import sentences, write_choices, write_questions
from pipeline_helpers import save_tiny

QUICK: dict[str, Any] = {"learning_rate": 4e-3, "precision": "fp32", "batch_size": 16, "baseline": False}
#: Of each kind of task: its shared run, which is the teacher; settings, and epochs and shape of a student.
KINDS: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "ner": ("tags", {"max_length": 24}, 4, "1x32"),
    "swag": ("choices", {"max_length": 24, "batch_size": 8, "learning_rate": 3e-3}, 30, "2x16"),
    "squad": ("answers", {"max_length": 40, "doc_stride": 12}, 4, "1x32"),
}


#: Where the kinds differ in nothing that is tested: two of them in the campaign.
one_kind = pytest.mark.parametrize("taught", some(KINDS, ["ner"]), indirect=True)


def write(task: str, file: Path, count: int, seed: int) -> Path:
    if task == "ner":
        file = file.with_suffix(".conll")
        file.write_text(sentences(count, seed))
    elif task == "swag":
        file = write_choices(file.with_suffix(".csv"), count, seed)
    else:
        file = file.with_suffix(".json")
        write_questions(file, count, seed, no_answers=False)
    return file


@pytest.fixture(scope="module", params=KINDS)
def taught(request, kinds, tmp_path_factory):
    """Task, the folder of a teacher, a folder of few rows, a file of rows whose answers are not read."""
    task, root = request.param, tmp_path_factory.mktemp(request.param)
    for name, count, seed in (("train", 6, 5), ("dev", 40, 2)):
        write(task, root / name, count, seed)
    return task, kinds(KINDS[task][0]).run, root, write(task, tmp_path_factory.mktemp("more") / "more", 300, 9)


def recipe_for(task: str, student: str | None = None, **training: Any) -> DistillRecipe:
    _, settings, epochs, shape = KINDS[task]
    config = FinetuneConfig(**{**QUICK, **settings, "epochs": epochs, **training})
    return DistillRecipe("test", "", TaskDistillation(), config, Student.parse(student or shape))


def test_a_student_beats_the_same_student_without_a_teacher(taught, tmp_path):
    task, teacher, few, more = taught
    result = distill_task([teacher], few, tmp_path / "out", recipe_for(task), texts=[more])
    main_metric = result.taught.main_metric
    assert result.texts["labelled"] == 6
    assert 100 < result.texts["unlabelled"] <= 300, "without those that are in the few, or that were there before"
    assert result.taught.mean[main_metric] > 0.85
    assert result.alone.mean["loss"] > 2 * result.taught.mean["loss"]
    told = json.loads((tmp_path / "out/distill.json").read_text())["result"]
    assert told["teacher"][main_metric] == result.teacher[main_metric] > 0.9
    assert result.costs["student"].megaflops < result.costs["teacher"].megaflops
    student = open_run(tmp_path / "out/with")
    again = evaluate_run(student.workflow.task, few, student, write=False)
    assert again.scores[main_metric] == pytest.approx(result.taught.mean[main_metric])


def test_the_teacher_scores_as_its_own_run_does(taught, tmp_path):
    """Its answers are stored, put in order and read as a student's; the score must not know."""
    task, teacher, few, _ = taught
    result = distill_task([teacher], few, tmp_path / "out", recipe_for(task, "1", epochs=1), compare=False)
    own = evaluate_run(open_run(teacher).workflow.task, few, open_run(teacher), write=False).scores
    assert {name: pytest.approx(score, abs=1e-6) for name, score in own.items()} == dict(result.teacher)


@one_kind
def test_a_killed_run_goes_on_bit_for_bit(taught, tmp_path, monkeypatch):
    task, teacher, few, more = taught
    recipe = recipe_for(task, "1", epochs=1, checkpoint_every_s=0)
    distill_task([teacher], few, tmp_path / "whole", recipe, texts=[more], compare=False)
    with monkeypatch.context() as patch:
        patch.setattr(module, "finetune", functools.partial(module.finetune, callbacks=[StopAt(5)]))
        with pytest.raises(KeyError, match="killed"):
            distill_task([teacher], few, tmp_path / "cut", recipe, texts=[more], compare=False)
    distill_task([teacher], few, tmp_path / "cut", recipe, texts=[more], compare=False)
    ours, theirs = (tmp_path / name / "with/model.safetensors" for name in ("whole", "cut"))
    assert ours.read_bytes() == theirs.read_bytes()


@one_kind
def test_states_follow_first_and_the_head_of_the_teacher_stays(taught, tmp_path):
    task, teacher, few, more = taught
    recipe = replace(
        recipe_for(task, "1", epochs=1), distillation=TaskDistillation(state_epochs=1, state_learning_rate=3e-3)
    )
    distill_task([teacher], few, tmp_path / "out", recipe, texts=[more], compare=False)
    steps = [record for record in read_log(tmp_path / "out/states/log.jsonl") if "event" not in record]
    assert steps[-1]["states_loss"] < 0.9 * steps[0]["states_loss"]
    before, after = (load_file(tmp_path / "out" / part / "model.safetensors") for part in ("student", "states/model"))
    heads = [name for name in before if name.startswith(("classifier.", "qa_outputs."))]
    assert len(heads) == 2
    assert all((before[name] == after[name]).all() for name in heads)


@one_kind
def test_variants_are_refused_for_what_is_no_text_with_a_label(taught, tmp_path):
    task, teacher, few, _ = taught
    recipe = replace(recipe_for(task), distillation=TaskDistillation(augment=2))
    with pytest.raises(ConfigError, match="augment=2: variants are made of texts and pairs"):
        distill_task([teacher], few, tmp_path / "out", recipe)
    assert not (tmp_path / "out").exists()


@pytest.mark.campaign
def test_what_a_teacher_says_of_words_does_not_depend_on_the_students_tokenizer(taught, tmp_path):
    """A student that reads whole words learns from a teacher that cuts towns in two; answers are refused."""
    task, teacher, few, more = taught
    if task == "swag":
        pytest.skip("as texts: one number for a whole sequence")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    text = more.read_text().lower()
    words += sorted(
        {word for word in text.replace("\t", " ").replace('"', " ").split() if word.isalnum() or word in ".,"}
    )
    other = save_tiny(tmp_path / "other", BertModel, vocab_size=len(words), initializer_range=0.05)
    (other / "vocab.txt").unlink()
    (tmp_path / "words.txt").write_text("\n".join(words) + "\n")
    BertTokenizer(vocab_file=tmp_path / "words.txt", model_max_length=64).save_pretrained(other)
    recipe = recipe_for(task, str(other))
    if task == "squad":
        with pytest.raises(ConfigError, match=r"another tokenizer than the teacher .*single tokens"):
            distill_task([teacher], few, tmp_path / "out", recipe)
        return
    result = distill_task([teacher], few, tmp_path / "out", recipe, texts=[more])
    assert result.taught.mean["f1"] > 0.85
    assert result.alone.mean["f1"] < result.taught.mean["f1"]


def test_an_ensemble_averages_what_is_one_choice(taught, tmp_path):
    """The softmax of an ensemble is over labels, choices or the tokens of a window, and the mean of its teachers'."""
    _, teacher, few, _ = taught
    workflow = taught_workflow(open_run(teacher).workflow.task, Lesson(temperature=2.0, soft_weight=0.7))
    opened = open_teachers([teacher], workflow)[0]
    rows, run = workflow.read(few, "dev"), opened.run
    units = workflow.units(rows, run.tokenizer, run.config)
    first = opened.logits(workflow, rows, units.sizes, run.config, tmp_path)
    second = first + np.random.default_rng(0).normal(size=first.shape).astype(np.float32)
    groups = units.groups
    found = combined([first, second], workflow.problem, "probabilities", 2.0, groups)
    if groups is None:
        parts, axis = [slice(None)], 1
    else:
        parts, axis = [slice(*ends) for ends in pairwise(groups)], 0
    for part in parts:
        wanted = np.mean([softmax(each[part] / 2.0, axis=axis) for each in (first, second)], axis=0)
        np.testing.assert_allclose(softmax(found[part] / 2.0, axis=axis), wanted, rtol=1e-4, atol=1e-6)


def test_teachers_of_other_kinds_and_labels_are_refused(taught, tmp_path):
    task, teacher, few, _ = taught
    other = "swag" if task == "squad" else "squad"
    with pytest.raises(ConfigError, match="which is of another kind than"):
        distill_task([teacher], few, tmp_path / "out", recipe_for(other), task=other)
    if task == "ner":
        places = (few / "dev.conll").read_text().replace("LOC", "PLACE")
        for name in ("train", "dev"):
            (tmp_path / f"{name}.conll").write_text(places)
        with pytest.raises(ConfigError, match=r"teacher .* predicts .*B-LOC.* has the labels .*B-PLACE"):
            distill_task([teacher], tmp_path, tmp_path / "out", recipe_for(task), task=ner_task(tmp_path))


@one_kind
def test_the_command_distills_a_tagger(taught, tmp_path, capsys):
    task, teacher, few, more = taught
    settings = [f"--set={name}={value}" for name, value in {**QUICK, **KINDS[task][1], "epochs": 1}.items()]
    parts = ["distill", "task", "--teacher", teacher, "--data", few, "--texts", more, "--student", KINDS[task][3]]
    assert main([*map(str, parts), "--out", str(tmp_path / "out"), *settings, "--no-compare"]) == 0
    assert "a student of 6 labelled examples and " in capsys.readouterr().out
    if task == "ner":
        assert pipeline("token-classification", tmp_path / "out/with")("ann lee went home") is not None
