"""SetFit's names: the training is that of ``finetune`` with few labels, and what it leaves opens everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier

import bertkit
from bertkit import FinetuneConfig, SentenceEncoder, SetFitModel, finetune, pipeline
from bertkit.config.sentence_config import Normalize, SentenceConfig
from bertkit.errors import BertkitError, CheckpointError, ConfigError, DataError, InputError
from bertkit.setfit import Trainer, TrainerCallback, TrainingArguments, get_templated_dataset, sample_dataset
from everyday import some
from finetune_data import labelled_texts, no_pictures, tiny_start, write_splits

pytestmark = pytest.mark.slow

ROWS = labelled_texts(24, seed=3)
TEXTS, LABELS = [text for text, _ in ROWS], [label for _, label in ROWS]
TRAIN = {"text": TEXTS[:12], "label": LABELS[:12]}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_start(tmp_path_factory.mktemp("setfit") / "start")


def trained(start: Path, train: Any = TRAIN, **given: Any) -> SetFitModel:
    arguments = {"num_iterations": 5, "body_learning_rate": 1e-3, "show_progress_bar": False, **given.pop("args", {})}
    model = SetFitModel.from_pretrained(start, **given)
    Trainer(model=model, args=TrainingArguments(**arguments), train_dataset=train).train()
    return model


def test_the_weights_are_those_of_finetune_with_few_labels(start: Path, tmp_path: Path) -> None:
    model = trained(start, args={"seed": 7, "max_length": 24})
    rows = [(text, ("no", "yes")[label]) for text, label in ROWS]
    data = write_splits(tmp_path / "data", rows[:12], rows[12:])
    config = FinetuneConfig(
        few_shot=True, few_shot_method="contrastive", few_shot_pairs=10, learning_rate=1e-3, max_length=24, seed=7
    )
    with no_pictures():
        finetune("csv", data, start, tmp_path / "run", config)
    probabilities = [
        [each["score"] for each in sorted(row, key=lambda each: each["label"])]
        for row in pipeline("text-classification", model=str(tmp_path / "run"))(TEXTS, top_k=None)
    ]
    np.testing.assert_allclose(model.predict_proba(TEXTS, as_numpy=True), probabilities, atol=1e-3)


def test_the_head_is_a_logistic_regression_on_the_vectors(start: Path) -> None:
    model = trained(start)
    vectors = np.asarray(model.encode(TEXTS))
    mine, probabilities = model.model_head, model.predict_proba(TEXTS, as_numpy=True)
    assert isinstance(mine, LogisticRegression)
    np.testing.assert_allclose(mine.predict_proba(vectors), probabilities, atol=1e-3)
    scale = np.linalg.norm(np.asarray(model.encode(TRAIN["text"])), axis=1).mean()
    oracle = LogisticRegression(C=3.0, max_iter=1000, class_weight="balanced")
    oracle.fit(np.asarray(model.encode(TRAIN["text"])) / scale, TRAIN["label"])
    np.testing.assert_allclose(oracle.predict_proba(vectors / scale), probabilities, atol=1e-3)


@pytest.mark.parametrize(
    ("labels", "names", "answers"),
    [
        ([3 + 4 * each for each in LABELS], None, {3, 7}),
        ([2 * each for each in LABELS], ["a", "b", "c"], {"a", "c"}),
        *(
            pytest.param(*case, marks=pytest.mark.campaign)
            for case in (
                (LABELS, None, {0, 1}),
                (LABELS, ["no", "yes"], {"no", "yes"}),
                ([("no", "yes")[each] for each in LABELS], None, {"no", "yes"}),
            )
        ),
    ],
)
def test_labels_come_back_as_they_were_given_also_from_a_folder(
    labels: list[Any], names: list[str] | None, answers: set[Any], start: Path, tmp_path: Path
) -> None:
    model = trained(start, {"text": TEXTS, "label": labels}, labels=names)
    found = list(model.predict(TEXTS, as_numpy=True))
    assert set(found) == answers
    model.save_pretrained(tmp_path / "saved")
    again = SetFitModel.from_pretrained(tmp_path / "saved")
    assert list(again.predict(TEXTS, as_numpy=True)) == found
    assert again.labels == model.labels
    np.testing.assert_allclose(again.predict_proba(TEXTS), model.predict_proba(TEXTS), atol=1e-4)
    np.testing.assert_allclose(again.encode(TEXTS), model.encode(TEXTS), atol=1e-4)
    expected = ["a", "c"] if answers == {"a", "c"} else [str(each) for each in sorted(answers)]
    shape = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert list(shape["id2label"].values()) == expected


def test_a_text_may_have_several_labels(start: Path, tmp_path: Path) -> None:
    labels = [[each, 1 - each, 1] for each in LABELS]  # the last of all texts
    model = trained(start, {"text": TEXTS, "label": labels}, multi_target_strategy="multi-output")
    found, probabilities = model.predict(TEXTS, as_numpy=True), model.predict_proba(TEXTS, as_numpy=True)
    np.testing.assert_array_equal(found, probabilities >= 0.5)
    assert (found[:, 2] == 1).all()
    assert (found == labels).mean() > 0.8
    heads = model.model_head.predict_proba(np.asarray(model.encode(TEXTS)))
    np.testing.assert_allclose(np.stack([each[:, 1] for each in heads], axis=1), probabilities, atol=1e-3)
    model.save_pretrained(tmp_path / "saved")
    np.testing.assert_array_equal(SetFitModel.from_pretrained(tmp_path / "saved").predict(TEXTS), found)
    with pytest.raises(DataError, match="multi_target_strategy='one-vs-rest'"):
        trained(start, {"text": TEXTS, "label": labels})


def test_no_texts_have_no_labels(start: Path) -> None:
    model = trained(start, labels=["no", "yes"])
    assert model.predict([]) == []
    assert model.predict_proba([]).shape == (0, 2)


def test_a_second_training_goes_on_with_the_encoder(start: Path) -> None:
    model = trained(start)
    before = np.asarray(model.encode(TEXTS))
    model.fit(TEXTS, LABELS)
    np.testing.assert_allclose(model.encode(TEXTS), before, atol=1e-6)  # the head alone
    Trainer(model=model, args=TrainingArguments(num_iterations=5), train_dataset=TRAIN).train()
    assert np.abs(np.asarray(model.encode(TEXTS)) - before).max() > 1e-4


@pytest.mark.parametrize("num_steps", some((1, 5, 2, 9), (1, 5)))
def test_max_steps_are_so_many(num_steps: int, start: Path) -> None:
    steps: list[int] = []

    class Count(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            steps.append(state.global_step)

    model = SetFitModel.from_pretrained(start)
    args = TrainingArguments(max_steps=num_steps)
    Trainer(model=model, args=args, train_dataset={"text": TEXTS, "label": LABELS}, callbacks=[Count]).train()
    assert steps == [*range(1, num_steps + 1)]


@pytest.mark.parametrize("form", ["dict", "list", "pandas", "polars"])
def test_samples_are_balanced_and_in_the_form_that_was_given(form: str) -> None:
    import pandas as pd
    import polars as pl

    columns = {"text": TEXTS, "label": LABELS}
    rows = [dict(zip(columns, row, strict=True)) for row in ROWS]
    given = {"dict": columns, "list": rows, "pandas": pd.DataFrame(columns), "polars": pl.DataFrame(columns)}[form]
    found = sample_dataset(given, num_samples=3, seed=1)
    assert type(found) is type(given)
    labels = [row["label"] for row in found] if form == "list" else list(found["label"])
    assert sorted(labels) == [0, 0, 0, 1, 1, 1]
    again, other = sample_dataset(given, num_samples=3, seed=1), sample_dataset(given, num_samples=3, seed=2)
    text_of = (lambda each: [row["text"] for row in each]) if form == "list" else (lambda each: list(each["text"]))
    assert text_of(found) == text_of(again) != text_of(other)


def test_templates_with_several_labels_and_rows_before_them() -> None:
    made = get_templated_dataset(
        {"text": ["x"], "label": [[1, 1]]}, ["a", "b"], template="it is {}", sample_size=1, multi_label=True
    )
    assert made == {"text": ["x", "it is a", "it is b"], "label": [[1, 1], [1, 0], [0, 1]]}


def test_what_cannot_be_is_said_with_what_to_write(start: Path) -> None:
    def told(call: Any) -> str:
        with pytest.raises((BertkitError, AttributeError)) as error:
            call()
        return str(error.value)

    model = SetFitModel.from_pretrained(start)
    assert "train()" in told(lambda: model.predict("x"))
    assert "'review': 'text'" in told(lambda: Trainer(model, train_dataset={"review": ["a b"], "stars": [1]}))
    assert "row 1" in told(lambda: Trainer(model, train_dataset={"text": ["a", None], "label": [1, 0]}))
    assert "two labels" in told(Trainer(model, train_dataset={"text": ["a", "b"], "label": [1, 1]}).train)
    assert "two texts" in told(Trainer(model, train_dataset={"text": ["a", "b"], "label": [1, 0]}).train)
    named = SetFitModel.from_pretrained(start, labels=["a"])
    assert "labels=" in told(Trainer(named, train_dataset=TRAIN).train)
    assert "BertVectorizer" in told(lambda: SetFitModel(start, model_head=LogisticRegression()))
    assert "bertkit.setfit import TrainingArguments" in told(lambda: Trainer(model, bertkit.TrainingArguments("x")))
    assert "metric=" in told(lambda: Trainer(model, train_dataset=TRAIN, compute_metrics=len))
    assert "average" in told(
        lambda: Trainer(trained(start), metric="f1").evaluate({"text": ["a", "b", "it"], "label": [0, 1, 2]})
    )
    assert "few_shot_method='finetune'" in told(lambda: TrainingArguments(end_to_end=True))
    assert "body_learning_rate=" in told(lambda: TrainingArguments(learning_rate=1))
    assert "search=10" in told(lambda: Trainer(model).hyperparameter_search(n_trials=3))
    assert "model.fit(texts, labels)" in told(lambda: model.freeze("body"))
    with pytest.raises(InputError, match="candidate_labels"):
        get_templated_dataset(reference_dataset="emotion")
    with pytest.raises(ConfigError, match="one-vs-rest"):
        SetFitModel.from_pretrained(start, multi_target_strategy="all")


def setfit_folder(folder: Path, start: Path, head: Any, steps: tuple[Any, ...] = (), **config: Any) -> Path:
    """A folder as SetFit writes it: an encoder, ``config_setfit.json`` and a head by joblib."""
    encoder = SentenceEncoder(start, sentence=SentenceConfig(steps=steps))
    encoder.save_pretrained(folder)
    (folder / "config_setfit.json").write_text(json.dumps({"normalize_embeddings": False, "labels": None, **config}))
    joblib.dump(head, folder / "model_head.pkl")
    return folder


@pytest.mark.parametrize("case", ["two", "three", "names", "one-vs-rest", "several", "normalized"])
def test_a_model_that_setfit_trained_is_read(case: str, start: Path, tmp_path: Path) -> None:
    steps = (Normalize(),) if case == "normalized" else ()
    vectors = SentenceEncoder(start, sentence=SentenceConfig(steps=steps)).encode(TEXTS)
    three = np.arange(len(TEXTS)) % 3
    head: Any = LogisticRegression()
    labels: Any = LABELS
    match case:
        case "three":
            labels = three
        case "names":
            labels = np.array(["no", "yes", "so"])[three]
        case "one-vs-rest":
            head, labels = OneVsRestClassifier(LogisticRegression()), np.eye(3, dtype=int)[three]
        case "several":
            head = MultiOutputClassifier(LogisticRegression())
            labels = np.stack([three == 0, three > 0, np.array(LABELS) == 1], axis=1).astype(int)
    head.fit(vectors, labels)
    folder = setfit_folder(tmp_path / case, start, head, steps, labels=["a", "b"] if case == "two" else None)
    model = SetFitModel.from_pretrained(folder)
    expected = head.predict_proba(vectors)
    expected = np.stack([each[:, 1] for each in expected], 1) if isinstance(expected, list) else expected
    np.testing.assert_allclose(model.predict_proba(TEXTS, as_numpy=True), expected, atol=1e-4)
    sure = np.abs(expected - 0.5).min(axis=1) > 1e-3
    predicted = head.predict(vectors)
    predicted = np.array(["a", "b"])[predicted] if case == "two" else predicted
    np.testing.assert_array_equal(np.asarray(model.predict(TEXTS, as_numpy=True))[sure], predicted[sure])
    if case == "two":  # trained further here, it is a folder of bertkit
        Trainer(model=model, args=TrainingArguments(num_iterations=2), train_dataset=TRAIN).train()
        model.save_pretrained(tmp_path / "again")
        assert SetFitModel.from_pretrained(tmp_path / "again").predict(TEXTS) == model.predict(TEXTS)
    else:
        with pytest.raises(InputError, match="copy that folder"):
            model.save_pretrained(tmp_path / "again")


class Runs:
    """What a pickle must not do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("where", ["head", "field", "array"])
def test_nothing_in_a_head_is_run(where: str, start: Path, tmp_path: Path) -> None:
    bad, touched = Runs(tmp_path / "touched"), tmp_path / "touched"
    head: Any = bad
    if where != "head":
        head = LogisticRegression().fit(np.eye(4), [0, 1, 0, 1])
        head.n_iter_ = bad if where == "field" else np.array([bad], dtype=object)
    folder = setfit_folder(tmp_path / "bad", start, head)
    with pytest.raises(CheckpointError, match="nothing in it was run"):
        SetFitModel.from_pretrained(folder)
    assert not touched.exists()
    joblib.load(folder / "model_head.pkl")  # the control
    assert touched.exists()


def test_other_heads_are_refused(start: Path, tmp_path: Path) -> None:
    head = KNeighborsClassifier().fit(np.eye(6), [0, 1, 0, 1, 0, 1])
    folder = setfit_folder(tmp_path / "other", start, head)
    with pytest.raises(CheckpointError, match="KNeighborsClassifier"):
        SetFitModel.from_pretrained(folder)
    (folder / "model_head.pkl").write_bytes((folder / "model_head.pkl").read_bytes()[:40])
    with pytest.raises(CheckpointError, match="Train the head again"):
        SetFitModel.from_pretrained(folder)
