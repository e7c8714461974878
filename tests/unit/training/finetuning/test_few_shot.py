"""Learning from a handful of labels: the pairs, the linear head, the comparison of methods, and the run folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from bertkit import pipeline
from bertkit.errors import CheckpointError, ConfigError, DataError
from bertkit.inference.evaluate import evaluate_run
from bertkit.model.models import BertForSequenceClassification
from bertkit.ragged import Floats
from bertkit.tasks import csv_task
from bertkit.tasks.examples import Example
from bertkit.tasks.hold_out import deal
from bertkit.training.finetuning.few_shot import can_cross_validate
from bertkit.training.finetuning.few_shot_parts import HeldOut
from bertkit.training.finetuning.few_shot_selection import METHODS
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.frozen_encoder import FrozenHead
from bertkit.training.finetuning.label_contrast import PAIRS, contrast_loss, pair_steps
from bertkit.training.finetuning.linear_head import STRENGTHS, choose_strength, fit_linear_head, logistic, read_by
from bertkit.training.finetuning.pseudo_labels import sure_enough
from finetune_data import labelled_texts, write_splits, write_table

pytestmark = pytest.mark.usefixtures("without_pictures")

FEW = FinetuneConfig(few_shot=True, learning_rate=3e-3, epochs=2, max_length=24, baseline=False)


def table(path: Path, rows: list[tuple[str, int]]) -> Path:
    return write_table(path, ("text", "label"), rows, delimiter=",")


@pytest.mark.parametrize("sizes", [(8, 8), (3, 1, 40), (1, 5), (16,) * 20])
def test_pairs_are_what_they_say_they_are_and_balanced(sizes: tuple[int, ...]) -> None:
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(len(sizes)), sizes))
    steps = pair_steps(labels, 20, seed=3)
    for step in steps:
        first, second = (labels[step.rows[step.pairs[:, side]]] for side in (0, 1))
        assert len(np.unique(step.rows)) == len(step.rows)
        assert (step.pairs[:, 0] != step.pairs[:, 1]).all()
        np.testing.assert_array_equal(step.same, first == second)
        assert 0 < len(step.pairs) <= PAIRS
        assert step.same.sum() in (len(step.pairs) / 2, 0), "half of one label, or none where no text has a partner"
    total = sum(len(step.pairs) for step in steps)
    assert 20 * len(labels) <= total < 20 * len(labels) + PAIRS
    assert any(step.same.any() for step in steps)


def test_texts_that_all_have_different_labels_are_no_pairs() -> None:
    with pytest.raises(ConfigError, match=r"no label has two texts.*--few-shot-method linear"):
        pair_steps(np.arange(77), 20, seed=0)


def test_pairs_depend_on_the_seed_alone() -> None:
    labels = np.repeat(np.arange(6), 8)

    def drawn(seed: int) -> list[list[list[int]]]:
        return [[step.rows.tolist(), *step.pairs.tolist()] for step in pair_steps(labels, 20, seed=seed)]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_many_labels_need_not_be_at_right_angles() -> None:
    assert [contrast_loss(number) for number in (2, 8, 9, 77)] == ["cosine", "cosine", "cosent", "cosent"]


def test_every_text_is_compared_as_often_as_the_others_of_its_label_and_labels_alike() -> None:
    labels = np.repeat([0, 1], [12, 60])
    seen = np.bincount(np.concatenate([step.rows for step in pair_steps(labels, 40, seed=0)]), minlength=72)
    assert seen[12:].max() - seen[12:].min() <= 1
    assert 0.9 < seen[:12].sum() / seen[12:].sum() < 1.1


@pytest.mark.parametrize("num_labels", [2, 4])
def test_the_head_says_what_scikit_learn_says(num_labels: int) -> None:
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(num_labels), 4 + 6 * np.arange(num_labels))  # balanced, so the first do not get lost
    features = generator.normal(size=(len(labels), 6)).astype(np.float32) + labels[:, None]
    weights, bias = logistic(features, labels, 10.0, num_labels=num_labels + 1)
    scale = np.linalg.norm(features, axis=1).mean()
    alike = (len(labels) / num_labels / np.bincount(labels))[labels]
    oracle = LogisticRegression(C=10.0, max_iter=1000)
    oracle.fit(features.astype(np.float64) / scale, labels, sample_weight=alike)
    given = generator.normal(size=(50, 6)).astype(np.float32) * 3
    logits = given @ weights.T + bias
    found = torch.from_numpy(logits).softmax(-1).numpy()
    np.testing.assert_allclose(found[:, :num_labels], oracle.predict_proba(given / scale), atol=2e-4)
    assert found[:, num_labels].max() < 1e-3, "a label without rows is never given"


def test_the_strength_depends_on_how_much_noise_there_is() -> None:
    generator = np.random.default_rng(0)
    labels, folds = np.tile([0, 1], 40), np.arange(80) // 2 % 5
    noise = generator.normal(size=(80, 30)).astype(np.float32)
    clear = noise * 0.05
    clear[:, 0] += 4 * labels - 2
    assert choose_strength(noise, labels, folds) == min(STRENGTHS)
    assert choose_strength(clear, labels, folds) == max(STRENGTHS)


def test_the_head_is_put_into_the_model(start: Path) -> None:
    model = BertForSequenceClassification.from_pretrained(start, num_labels=2, pooling="mean", new_head=True)
    vectors = np.random.default_rng(0).normal(size=(20, model.config.hidden_size)).astype(np.float32)
    labels = (vectors[:, 0] > 0).astype(np.int64)
    head = FrozenHead(model)
    loss = fit_linear_head(head, read_by(head, vectors), labels, 10.0)
    with torch.no_grad():
        logits = model.classifier(torch.from_numpy(vectors))
    assert loss == pytest.approx(torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels)).item(), abs=1e-5)
    assert (logits.argmax(-1).numpy() == labels).mean() > 0.9


def test_a_run_with_a_dev_file_is_an_ordinary_classifier(start: Path, tmp_path: Path) -> None:
    data = write_splits(tmp_path / "data", labelled_texts(16, 0), labelled_texts(60, 1))
    result = finetune(
        csv_task(data), data, start, tmp_path / "run", FEW.model_copy(update={"few_shot_method": "contrastive"})
    )
    assert result.protocol["split"] == "dev"
    assert result.protocol["pooling"] == "mean"
    assert result.protocol["few_shot"]["chosen"] == "contrastive"
    assert result.scores["accuracy"] > 0.7
    again = evaluate_run(csv_task(data), data, tmp_path / "run", write=False)
    assert again.scores == pytest.approx({name: result.scores[name] for name in again.scores}, abs=1e-6)
    (found,) = pipeline("text-classification", tmp_path / "run")(["the film was lovely and great"])
    assert found["label"] == "1"
    with pytest.raises(ConfigError, match="already holds a run"):
        finetune(csv_task(data), data, start, tmp_path / "run", FEW)


@pytest.mark.slow
def test_without_a_dev_file_scores_are_of_rows_that_were_not_seen(start: Path, tmp_path: Path) -> None:
    rows = [(text, label) for (text, _), (_, label) in zip(labelled_texts(60, 0), labelled_texts(60, 9), strict=True)]
    data = table(tmp_path / "random.csv", rows)  # labels that no text tells
    config = FEW.model_copy(update={"few_shot_method": "linear"})
    result = finetune(csv_task(data), data, start, tmp_path / "run", config)
    assert result.protocol["split"] == "train, cross-validated"
    assert result.protocol["data"]["train_rows"] == 60, "no row was held out of training"
    assert 0.25 < result.scores["accuracy"] < 0.75
    lines = (tmp_path / "run" / "predictions-dev.jsonl").read_text().splitlines()
    assert len(lines) == 60
    with pytest.raises(DataError, match="trained on"):
        evaluate_run(csv_task(data), data, tmp_path / "run", write=False)
    assert evaluate_run(csv_task(data), data, tmp_path / "run", "train", write=False).num_rows == 60


@pytest.mark.slow
def test_the_methods_are_compared_on_training_rows_alone(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_splits(tmp_path / "data", labelled_texts(24, 0), labelled_texts(30, 1))
    config = FEW.model_copy(update={"epochs": 1})
    result = finetune(csv_task(data), data, start, tmp_path / "run", config)
    told = f"{capsys.readouterr().err}\n{result.render()}"
    assert told.count("comparing methods") == 1, "one line, and a bar on a terminal"
    assert told.count("labels, in this order:") == 1, "with the report on the data, not once more with the scores"
    found = result.protocol["few_shot"]
    assert found["compared"][0]["method"] == found["chosen"]
    assert {each["method"] for each in found["compared"]} == set(METHODS) - {"pseudo"}
    assert found["rows"] == 24
    for each in found["compared"]:
        assert each["interval"][0] <= each["score"] <= each["interval"][1]
        low, high = each["below_interval"] or (each["below"], each["below"])  # none of the chosen one
        assert low <= each["below"] <= high
        assert (each["below_interval"] is None) >= (each["method"] == found["chosen"])
    assert any("best in cross-validation" in note for note in result.notes)
    # Other dev rows, the same choice and the same scores of the comparison.
    write_splits(tmp_path / "data", labelled_texts(24, 0), labelled_texts(30, 7))
    other = finetune(csv_task(tmp_path / "data"), tmp_path / "data", start, tmp_path / "other", config).protocol[
        "few_shot"
    ]
    for one, two in zip(found["compared"], other["compared"], strict=True):
        assert {**one, "seconds": 0} == {**two, "seconds": 0}


@pytest.mark.campaign
@pytest.mark.slow
def test_an_interrupted_comparison_goes_on(start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_splits(tmp_path / "data", labelled_texts(24, 0), labelled_texts(30, 1))
    whole = finetune(csv_task(data), data, start, tmp_path / "whole", FEW)
    done: list[str] = []
    own = HeldOut._predicted

    def some(parts: HeldOut, method: str, fold: int) -> Floats:
        if len(done) == 6:
            raise KeyboardInterrupt
        done.append(method)
        return own(parts, method, fold)

    monkeypatch.setattr(HeldOut, "_predicted", some)
    with pytest.raises(KeyboardInterrupt):
        finetune(csv_task(data), data, start, tmp_path / "run", FEW)
    with pytest.raises(ConfigError, match="already holds a run"):
        finetune(csv_task(data), data, start, tmp_path / "run", FEW)
    done.clear()
    monkeypatch.setattr(HeldOut, "_predicted", lambda *given: done.append("") or own(*given))
    resumed = finetune(csv_task(data), data, start, tmp_path / "run", FEW, resume=True)
    assert len(done) == 4 * 4 - 6
    assert resumed.scores == whole.scores
    assert not (tmp_path / "run" / "cross-validation").exists()


def test_one_text_a_label_works_and_says_what_cannot_be_known(start: Path, tmp_path: Path) -> None:
    data = table(tmp_path / "two.csv", [("a good film", 1), ("a sad day", 0)])
    result = finetune(csv_task(data), data, start, tmp_path / "run", FEW)
    assert result.protocol["split"] == "train, not held out"
    assert result.protocol["few_shot"]["chosen"] == "linear"
    assert any("CROSS-VALIDATION IS IMPOSSIBLE" in note for note in result.notes)
    assert not can_cross_validate(csv_examples(["a", "a", "b", "b"], [0, 0, 1, 1])), "the same text is no second one"
    assert can_cross_validate(csv_examples(["a", "b", "c", "d", "e"], [0, 0, 1, 1, 2]))


@pytest.mark.campaign
@pytest.mark.slow
def test_a_part_without_pairs_is_no_error(start: Path, tmp_path: Path) -> None:
    """Two labels have two texts each, but left out, one part has a text of both."""
    texts = ["a good film", "the sad day", "a bad end", "the good day", "a sad film", "the bad film"]
    data = table(tmp_path / "few.csv", list(zip(texts, "aabcdd", strict=True)))
    found = finetune(csv_task(data), data, start, tmp_path / "run", FEW).protocol["few_shot"]
    assert "contrastive" in found["reason"]
    assert {each["method"] for each in found["compared"]} == {"linear", "finetune", "tfidf"}
    asked = FEW.model_copy(update={"few_shot_method": "contrastive"})
    result = finetune(csv_task(data), data, start, tmp_path / "asked", asked)
    assert result.protocol["split"] == "train, not held out"
    assert any("CROSS-VALIDATION IS IMPOSSIBLE" in note for note in result.notes)


def test_a_label_whose_texts_are_all_of_another_label_too(start: Path, tmp_path: Path) -> None:
    texts = [text for text, _ in labelled_texts(8, 0)]
    rows = [(text, "a") for text in texts] + [(text, "b") for text in texts[:2]]
    data = table(tmp_path / "both.csv", rows)
    examples = csv_examples(texts + texts[:2], [0] * 8 + [1] * 2)
    seed = next(seed for seed in range(100) if len({deal(examples, 4, seed)[row] for row in (8, 9)}) == 1)
    result = finetune(csv_task(data), data, start, tmp_path / "run", FEW.model_copy(update={"seed": seed}))
    assert any("CROSS-VALIDATION IS IMPOSSIBLE" in note for note in result.notes)


def test_several_seeds_need_a_dev_file(start: Path, tmp_path: Path) -> None:
    data = table(tmp_path / "few.csv", labelled_texts(12, 0))
    with pytest.raises(ConfigError, match="seeds=3 with few_shot needs a dev file"):
        finetune(csv_task(data), data, start, tmp_path / "run", FEW.model_copy(update={"seeds": 3}))


def test_without_a_dev_file_nothing_is_held_out(start: Path, tmp_path: Path) -> None:
    data = table(tmp_path / "few.csv", labelled_texts(12, 0))
    with pytest.raises(ConfigError, match=r"dev_share=0\.3 cannot be combined with few_shot"):
        finetune(csv_task(data), data, start, tmp_path / "run", FEW.model_copy(update={"dev_share": 0.3}))


@pytest.mark.slow
def test_pairs_of_texts_are_read_together(start: Path, tmp_path: Path) -> None:
    rows = [(text, other, int(one == two)) for (text, one), (other, two) in zip(
        labelled_texts(16, 0), labelled_texts(16, 1), strict=True)]  # fmt: skip
    data = write_table(tmp_path / "pairs.csv", ("text_a", "text_b", "label"), rows, delimiter=",")
    config = FEW.model_copy(update={"few_shot_method": "contrastive"})
    task = csv_task(data, text="text_a", text_pair="text_b")
    result = finetune(task, data, start, tmp_path / "run", config)
    assert result.protocol["text_pairs"]
    (found,) = pipeline("text-classification", tmp_path / "run")([("the film", "was good")])
    assert found["label"] in ("0", "1")


def csv_examples(texts: list[str], labels: list[int]) -> list[object]:

    return [
        Example(row=row, text=text, label=label) for row, (text, label) in enumerate(zip(texts, labels, strict=True))
    ]


def test_what_cannot_be_learned_is_refused(start: Path, tmp_path: Path) -> None:
    data = table(tmp_path / "one.csv", [("a good film", 1), ("a fine film", 1)])
    task = csv_task(table(tmp_path / "both.csv", labelled_texts(8, 0)))
    with pytest.raises(DataError, match="same label"):
        finetune(task, data, start, tmp_path / "run", FEW)
    with pytest.raises(ConfigError, match="scores"):
        finetune("stsb", tmp_path, start, tmp_path / "run", FEW)
    with pytest.raises(ConfigError, match="few_shot cannot be combined with lora=8"):
        FinetuneConfig(few_shot=True, lora=8)
    one_each = table(tmp_path / "two.csv", [("a good film", 1), ("a sad day", 0)])
    with pytest.raises(ConfigError, match="calibrate"):
        finetune(csv_task(one_each), one_each, start, tmp_path / "run", FEW.model_copy(update={"calibrate": True}))
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(ConfigError, match="needs few_shot"):
        FinetuneConfig(few_shot_pairs=30)
    assert not (tmp_path / "run").exists()
    assert json.loads(FEW.model_dump_json())["few_shot_pairs"] == 20


def test_a_threshold_is_as_low_as_held_out_answers_allow() -> None:
    logits = np.log(np.array([[0.95, 0.05], [0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.4, 0.6]], np.float32))
    assert sure_enough(logits, np.array([0, 0, 1, 0, 1])) == pytest.approx(0.6)
    assert sure_enough(logits, np.array([0, 0, 1, 1, 0])) == pytest.approx(0.8)
    assert sure_enough(logits, np.array([1, 1, 0, 1, 0])) == pytest.approx(0.95), (
        "the surest, where none is good enough"
    )


@pytest.mark.campaign
@pytest.mark.slow
def test_pseudo_labels_are_compared_and_can_be_asked_for(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_splits(tmp_path / "data", labelled_texts(16, 0), labelled_texts(60, 1))
    more = tmp_path / "more.txt"
    unknown = {text for text, _ in labelled_texts(60, 5)} - {text for text, _ in labelled_texts(16, 0)}
    scored = {text for text, _ in labelled_texts(60, 1)}
    more.write_text("\n".join([*unknown, *scored]) + "\n\n")
    config = FEW.model_copy(update={"unlabelled": str(more)})
    result = finetune(csv_task(data), data, start, tmp_path / "run", config)
    assert f"unlabelled texts beside: {len(unknown - scored)} of" in capsys.readouterr().err, "none that is scored"
    found = result.protocol["few_shot"]
    assert {each["method"] for each in found["compared"]} == set(METHODS)
    forced = config.model_copy(update={"few_shot_method": "pseudo"})
    result = finetune(csv_task(data), data, start, tmp_path / "forced", forced)
    found = result.protocol["few_shot"]
    assert [each["method"] for each in found["compared"]] == ["pseudo", "contrastive"]
    assert result.protocol["data"]["train_rows"] == 16
    with pytest.raises(ConfigError, match="only it and"):
        FinetuneConfig(few_shot=True, few_shot_method="pseudo")
    more.write_text("\n")
    with pytest.raises(CheckpointError, match="unlabelled_sha256"):
        finetune(csv_task(data), data, start, tmp_path / "run", config, resume=True)
    with pytest.raises(DataError, match="no text"):
        finetune(csv_task(data), data, start, tmp_path / "none", config)
