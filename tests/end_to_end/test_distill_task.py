"""Students of a fine-tuned teacher, from files to a run folder."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import replace

import pytest
from safetensors.numpy import load_file

from bertkit.cli import main
from bertkit.errors import ConfigError
from bertkit.inference.runs import predict_run
from bertkit.tasks import csv_task
from bertkit.tasks.text.workflow import TextWorkflow
from bertkit.tokenization import BertTokenizer
from bertkit.training.distillation import distill_task as module
from bertkit.training.distillation.distill_settings import Student, TaskDistillation
from bertkit.training.distillation.distill_task import distill_task
from bertkit.training.distillation.taught_result import SEEN
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.trainer.loop import Trainer
from bertkit.training.trainer.run_folder import read_log
from distillation_data import StopAt, make_teacher, small_data, task_recipe
from finetune_data import QUICK, labelled_texts, tiny_start, write_splits, write_table


@pytest.fixture(scope="module")
def teacher(once):
    return once("teacher-of-texts", make_teacher)


@pytest.mark.campaign
def test_a_student_of_a_teacher_beats_the_same_student_without(teacher, tmp_path):
    data, more = small_data(tmp_path)
    result = distill_task([teacher], data, tmp_path / "out", task_recipe(), texts=[more])
    assert result.taught.mean["accuracy"] > 0.95
    assert result.alone.mean["accuracy"] < result.taught.mean["accuracy"] - 0.05
    assert result.costs["student"].parameters < result.costs["teacher"].parameters / 2
    assert result.costs["student"].megaflops < result.costs["teacher"].megaflops / 2
    assert result.texts == {"labelled": 24, "unlabelled": 400}
    facts = json.loads((tmp_path / "out/with/metrics.json").read_text())["protocol"]["distillation"]
    assert facts["unlabelled"]["texts"] == 400
    assert facts["teachers"][0]["sha256"]
    assert "student alone" in result.render()
    answers = list(predict_run(tmp_path / "out/with", ["a lovely great film", "a sad awful book"]))
    assert [answer["predicted"] for answer in answers] == ["1", "0"]


def with_states(**training):
    """A recipe whose student's states follow first; with dropout, and as many heads as the teacher has."""
    distillation = TaskDistillation(state_epochs=3, state_learning_rate=3e-3)
    student = Student(shape="1x16", heads=2)
    return replace(task_recipe(epochs=2, **training), distillation=distillation, student=student)


@pytest.mark.campaign
def test_states_follow_the_teacher_first_and_a_killed_stage_goes_on_bit_for_bit(teacher, tmp_path, monkeypatch):
    data, more = small_data(tmp_path)
    whole = distill_task([teacher], data, tmp_path / "whole", with_states(), texts=[more], compare=False)
    steps = [record for record in read_log(tmp_path / "whole/states/log.jsonl") if "event" not in record]
    assert len(steps) == 3 * math.ceil(424 / 16)
    for name in ("states_loss", "attention_loss"):
        assert steps[-1][name] < 0.6 * steps[0][name]
    assert whole.taught.mean["accuracy"] > 0.95
    step = Trainer.train_step

    def dying(self):
        if self.at.step == 50:
            raise KeyError("killed")
        return step(self)

    often = with_states(checkpoint_every_s=0)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_step", dying)
        with pytest.raises(KeyError, match="killed"):
            distill_task([teacher], data, tmp_path / "cut", often, texts=[more], compare=False)
    assert not (tmp_path / "cut/states/model").exists()
    distill_task([teacher], data, tmp_path / "cut", often, texts=[more], compare=False)
    for part in ("states/model", "with"):
        ours, theirs = (tmp_path / name / part / "model.safetensors" for name in ("whole", "cut"))
        assert ours.read_bytes() == theirs.read_bytes()


def test_layers_of_the_teacher_keep_their_head_while_states_follow(teacher, tmp_path):
    data, _ = small_data(tmp_path)
    recipe = replace(with_states(), student=Student(layers=1))
    distill_task([teacher], data, tmp_path / "out", recipe, compare=False)
    before, after = (load_file(tmp_path / "out" / part / "model.safetensors") for part in ("student", "states/model"))
    assert before.keys() == after.keys()
    heads = [name for name in before if name.startswith("classifier.")]
    assert len(heads) == 2
    assert all((before[name] == after[name]).all() for name in heads)
    assert any((before[name] != after[name]).any() for name in before)


def test_states_that_cannot_be_compared_are_refused(teacher, tmp_path):
    data, _ = small_data(tmp_path)
    with pytest.raises(ConfigError, match=r"the student has 1 attention heads, the teacher 2.*attention_weight=0"):
        distill_task([teacher], data, tmp_path / "heads", replace(with_states(), student=Student(shape="1x16")))
    assert not (tmp_path / "heads").exists(), "refused before anything is written"
    other = tiny_start(tmp_path / "other")
    BertTokenizer(vocab_file=other / "vocab.txt", model_max_length=32, do_lower_case=False).save_pretrained(other)
    with pytest.raises(ConfigError, match=r"another tokenizer than the teacher .* token by token.*state_epochs=0"):
        distill_task([teacher], data, tmp_path / "words", replace(with_states(), student=Student(model=str(other))))
    assert not (tmp_path / "words").exists(), "refused before anything is written"


@pytest.mark.campaign
def test_a_killed_run_goes_on_bit_for_bit_and_asks_the_teacher_once(teacher, tmp_path, monkeypatch):
    data, more = small_data(tmp_path)
    recipe = task_recipe("1", checkpoint_every_s=0, epochs=1)  # a layer of the teacher, with dropout
    whole = distill_task([teacher], data, tmp_path / "whole", recipe, texts=[more], compare=False)
    asked = []
    outputs = TextWorkflow.outputs

    def counted(self, engine, encoded, **options):
        if not options["label"]:  # what a teacher is asked, not what is scored
            asked.append(len(encoded))
        return outputs(self, engine, encoded, **options)

    monkeypatch.setattr(TextWorkflow, "outputs", counted)
    with monkeypatch.context() as patch:
        patch.setattr(module, "finetune", functools.partial(module.finetune, callbacks=[StopAt(7)]))
        with pytest.raises(KeyError, match="killed"):
            distill_task([teacher], data, tmp_path / "cut", recipe, texts=[more], compare=False)
    assert sum(size for size in asked if size > 1) == 200 + 24 + 400
    asked.clear()
    again = distill_task([teacher], data, tmp_path / "cut", recipe, texts=[more], compare=False)
    assert not [size for size in asked if size > 1]
    ours, theirs = (tmp_path / name / "with/model.safetensors" for name in ("whole", "cut"))
    assert ours.read_bytes() == theirs.read_bytes()
    assert again.taught.mean == whole.taught.mean
    with pytest.raises(Exception, match="temperature was 2"):
        distill_task([teacher], data, tmp_path / "cut", recipe.changed(["temperature=3"]), texts=[more])


def test_labels_in_another_order_are_put_in_order_and_others_refused(teacher, tmp_path):
    named = [(text, ["0", "1"][label]) for text, label in labelled_texts(40, 3)]
    one_first = sorted(named, key=lambda row: row[1] == "0")
    data = write_splits(tmp_path / "data", one_first, one_first)
    task = csv_task(data / "train.csv", labels=["1", "0"])
    result = distill_task([teacher], data, tmp_path / "out", task_recipe("1"), task=task, compare=False)
    assert result.teacher["accuracy"] > 0.9
    assert result.taught.mean["accuracy"] > 0.9
    words = write_splits(tmp_path / "words", [(t, "good" if n == "1" else "bad") for t, n in named], one_first)
    task = csv_task(words / "train.csv")
    with pytest.raises(ConfigError, match=r"predicts '0', '1'.*has the labels 'bad', 'good'"):
        distill_task([teacher], words, tmp_path / "out2", task_recipe("1"), task=task)


@pytest.mark.campaign
def test_two_teachers_and_what_does_not_fit(teacher, tmp_path, capsys):
    data, _ = small_data(tmp_path)
    options = ["--set", "epochs=1", "--set", "baseline=false", "--set", "max_length=24", "--quiet", "--no-compare"]
    command = ["distill", "task", "--teacher", str(teacher), "--teacher", str(teacher), "--data", str(data)]
    assert main([*command, "--out", str(tmp_path / "out"), "--student", "1", "--json", *options]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["teacher"]["accuracy"] > 0.95
    assert "without" not in report
    for given, message in (
        (["--student", "7"], "7 of 1 layers"),
        (["--set", "lora=8"], "cannot be combined with a teacher"),
        (["--set", "nonsense=8"], " temperature, soft_weight"),
        (["--dev", str(data)], "--dev is for recipes on running text"),
    ):
        assert main([*command, "--out", str(tmp_path / "no"), *options, *given]) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "no").exists()
    pairs = write_table(tmp_path / "pairs.tsv", ("a", "b", "label"), [("a", "b", 0), ("c", "d", 1)] * 10)
    task = csv_task(pairs, text="a", text_pair="b")
    with pytest.raises(ConfigError, match="whose rows are not pairs of texts"):
        distill_task([teacher], pairs, tmp_path / "no2", task_recipe("1"), task=task)
    with pytest.raises(ConfigError, match="no run of 'bertkit finetune'"):
        distill_task([teacher.parent / "start"], data, tmp_path / "no3", task_recipe("1"))


def test_variants_of_the_texts_are_made_once(teacher, tmp_path):
    data, _ = small_data(tmp_path)
    recipe = task_recipe("1x16").changed(["augment=5", "epochs=1"])
    result = distill_task([teacher], data, tmp_path / "out", recipe, compare=False)
    (file,) = (tmp_path / "out").glob("augmented-*.jsonl")
    made = file.read_bytes()
    assert result.texts["unlabelled"] == made.count(b"\n") > 60
    again = distill_task([teacher], data, tmp_path / "out", recipe, compare=False)
    assert file.read_bytes() == made
    assert again.taught.mean == result.taught.mean


def test_variants_are_made_anew_for_other_settings(teacher, tmp_path, monkeypatch):
    """A model on the disk is the student, so that nothing but the variants was there when the run was stopped."""
    data, _ = small_data(tmp_path)

    def stopped(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "finetune", stopped)
    for number in (2, 3):
        recipe = task_recipe(str(teacher.parent / "start")).changed([f"augment={number}", "epochs=1"])
        with pytest.raises(KeyboardInterrupt):
            distill_task([teacher], data, tmp_path / "out", recipe, compare=False)
    fewer, more = sorted(file.read_bytes().count(b"\n") for file in (tmp_path / "out").glob("augmented-*.jsonl"))
    assert fewer < more


KINDS = {
    "scores": {"label": lambda label: 0.5 + label},
    "several": {"label": lambda label: ["", "good|any"][label], "multi_label": True},
    "pairs": {"label": lambda label: label, "pair": True},
}


@pytest.mark.campaign
@pytest.mark.parametrize("kind", list(KINDS))
def test_scores_several_labels_and_pairs(tmp_path, kind, capsys):
    how = KINDS[kind]
    columns = ("text", *(["text_pair"] if "pair" in how else []))

    def table(name, rows, *, labelled=True):
        texts = [(text, *(["the film"] if "pair" in how else [])) for text, _ in rows]
        labels = [(how["label"](label),) if labelled else () for _, label in rows]
        path = tmp_path / "data" / f"{name}.csv"
        names = (*columns, "label") if labelled else columns
        return write_table(path, names, [(*a, *b) for a, b in zip(texts, labels, strict=True)], delimiter=",")

    train, _ = table("train", labelled_texts(60, 1)), table("dev", labelled_texts(40, 2))
    more = table("more", labelled_texts(50, 4), labelled=False)
    problem = {"problem": "multi_label"} if "multi_label" in how else {}
    pair = {"text_pair": "text_pair"} if "pair" in how else {}
    task = csv_task(train, text="text", label="label", **pair, **problem)
    assert (task.kind, task.is_pair) == (
        {"scores": "regression", "several": "multi_label"}.get(kind, "classification"),
        kind == "pairs",
    )
    config = FinetuneConfig(**{**QUICK, "epochs": 2})
    teacher = finetune(task, tmp_path / "data", tiny_start(tmp_path / "start"), tmp_path / "teacher", config).folder
    recipe = task_recipe("1", epochs=1)
    result = distill_task([teacher, teacher], None, tmp_path / "out", recipe, texts=[more], compare=False)
    assert result.texts == {"labelled": 60, "unlabelled": 50}
    assert result.taught.task == "csv"
    assert set(result.teacher) >= set(result.taught.mean) - {"loss"}
    for more, has_hint in ([], kind == "pairs"), (["mimetic=true", "teacher_embeddings=true"], False):
        capsys.readouterr()
        new, out = recipe.changed(["heads=2", *more], "1x16"), tmp_path / f"new{len(more)}"
        distill_task([teacher], None, out, new, compare=False)
        assert ("hint: a new student of 1x16 rarely learns to compare" in capsys.readouterr().err) == has_hint
        attention = load_file(out / "student/model.safetensors")
        queries, keys = (attention[f"encoder.layer.0.attention.self.{name}.weight"] for name in ("query", "key"))
        assert (queries == keys).all() == bool(more)


@pytest.mark.campaign
def test_a_student_may_have_another_tokenizer(teacher, tmp_path):
    start = tiny_start(tmp_path / "start")
    words = [*(start / "vocab.txt").read_text().split()[:5], *reversed((start / "vocab.txt").read_text().split()[5:])]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    BertTokenizer(tmp_path / "vocab.txt", model_max_length=32).save_pretrained(start)
    data, more = small_data(tmp_path)
    result = distill_task([teacher], data, tmp_path / "out", task_recipe(str(start)), texts=[more], compare=False)
    assert result.taught.mean["accuracy"] > 0.95


def test_a_teacher_that_was_trained_on_dev_rows_is_told_of(tmp_path):
    """Dev is held out of one file: the same rows for teacher and student, or, with another seed, others."""
    file = write_table(tmp_path / "reviews.csv", ("text", "label"), labelled_texts(60, 1), delimiter=",")
    config = FinetuneConfig(**{**QUICK, "epochs": 1})
    taught = finetune(csv_task(file), file, tiny_start(tmp_path / "start", width=32), tmp_path / "teacher", config)
    fair, unfair = (
        distill_task([taught.folder], file, tmp_path / f"out-{seed}", task_recipe(epochs=1, seed=seed), compare=False)
        for seed in (config.seed, config.seed + 1)
    )
    assert not fair.teacher_has_seen
    assert unfair.teacher_has_seen
    assert "A TEACHER WAS TRAINED ON ROWS OF THIS DEV SET" in unfair.render()
    assert SEEN not in fair.render()
