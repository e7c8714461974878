"""Several labels, weights of rows, few labels, frames and columns: what BertClassifier takes."""

from __future__ import annotations

import contextlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.exceptions import DataConversionWarning
from sklearn.metrics import accuracy_score, f1_score

from bertkit import BertClassifier, BertRegressor, pipeline
from bertkit.errors import ConfigError, InputError
from bertkit.model.losses import class_loss
from everyday import some
from finetune_data import labelled_texts, start_with_words, tiny_start

pytestmark = pytest.mark.slow

pandas = pytest.importorskip("pandas")
ROWS = labelled_texts(48, seed=1)
TEXTS = [text for text, _ in ROWS]
LABELS = [label for _, label in ROWS]
LISTS = [["bad", "short"] if label == 0 else ["good"] for label in LABELS]
MATRIX = np.array([[label == 0, label == 1, label == 0] for label in LABELS], dtype=int)
QUICK: dict[str, Any] = {"learning_rate": 3e-3, "epochs": 8, "batch_size": 16, "max_length": 24}
LEARNS = {**QUICK, "learning_rate": 1e-2, "epochs": 30}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_start(tmp_path_factory.mktemp("start"), width=32))


@pytest.fixture(scope="module")
def several(start: str) -> BertClassifier:
    return BertClassifier(start, **LEARNS).fit(TEXTS, LISTS)


# ------------------------------------------------------------------------------------------------ several labels


def test_several_labels_are_learned_and_scored_as_scikit_learn_does(several: BertClassifier, start: str) -> None:
    assert several.classes_.tolist() == ["bad", "good", "short"]
    found = several.predict(TEXTS)
    assert f1_score(MATRIX, several.predict_proba(TEXTS) > 0.5, average="micro") > 0.8
    right = [set(ours) == set(theirs) for ours, theirs in zip(found, LISTS, strict=True)]
    assert several.score(TEXTS, LISTS) == np.mean(right)
    assert several.score(TEXTS, LISTS, np.arange(48)) == np.average(right, weights=np.arange(48))

    by_matrix = BertClassifier(start, **LEARNS).fit(TEXTS, MATRIX)
    assert by_matrix.classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(by_matrix.predict_proba(TEXTS), several.predict_proba(TEXTS))
    assert by_matrix.score(TEXTS, MATRIX) == accuracy_score(MATRIX, by_matrix.predict(TEXTS)) == np.mean(right)
    np.testing.assert_allclose(np.exp(several.predict_log_proba(TEXTS)), several.predict_proba(TEXTS))
    assert several.decision_function(TEXTS).shape == (48, 3)


def test_an_indicator_frame_gives_its_names_to_the_classes(start: str) -> None:
    frame = pandas.DataFrame(MATRIX, columns=["bad", "good", "short"])
    model = BertClassifier(start, **{**QUICK, "epochs": 1}).fit(TEXTS, frame)
    assert model.classes_.tolist() == ["bad", "good", "short"]
    assert model.predict(TEXTS).shape == (48, 3)


def test_several_labels_are_saved_and_pickled(several: BertClassifier, tmp_path: Path) -> None:
    several.save_pretrained(tmp_path)
    for again in (BertClassifier.from_pretrained(tmp_path), pickle.loads(pickle.dumps(several))):
        assert again.predict(TEXTS).tolist() == several.predict(TEXTS).tolist()
        assert again.score(TEXTS, LISTS) == several.score(TEXTS, LISTS)
    rows = pipeline("text-classification", model=tmp_path, device="cpu")(TEXTS[0], top_k=None)
    probs = dict(zip(several.classes_, several.predict_proba(TEXTS[:1])[0], strict=True))
    assert {row["label"]: row["score"] for row in rows} == pytest.approx(probs, abs=1e-4)


def test_labels_of_another_form_are_not_scored(several: BertClassifier) -> None:
    with pytest.raises(InputError, match="lists of 3 classes; got indicators of 3"):
        several.score(TEXTS, MATRIX)


def test_a_pickle_of_an_older_version_has_one_label_a_row(start: str) -> None:
    model = BertClassifier(start, **{**QUICK, "epochs": 1}).fit(TEXTS, LABELS)
    state = model.__getstate__()
    del state["label_form_"]
    older = BertClassifier.__new__(BertClassifier)
    older.__setstate__(state)
    assert older.predict(TEXTS).tolist() == model.predict(TEXTS).tolist()


# ----------------------------------------------------------------------------------------------- weights of rows


@pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification", "regression"])
def test_a_weight_counts_as_so_many_equal_rows(problem: str) -> None:
    torch.manual_seed(0)
    logits = torch.randn(5, 1 if problem == "regression" else 3, dtype=torch.float64)
    labels = {
        "single_label_classification": torch.tensor([0, 1, 2, 1, 0]),
        "multi_label_classification": torch.randint(2, (5, 3)).double(),
        "regression": torch.randn(5, dtype=torch.float64),
    }[problem]
    weights = torch.tensor([1.0, 3.0, 0.0, 2.0, 1.0], dtype=torch.float64)
    rows = torch.repeat_interleave(torch.arange(5), weights.long())
    ours = class_loss(logits, labels, problem, None, weights)
    repeated = class_loss(logits[rows], labels[rows], problem)
    assert float(ours.total) == pytest.approx(float(repeated.total), rel=1e-12)
    assert float(ours.total) != pytest.approx(float(class_loss(logits, labels, problem).total), rel=1e-3), "control"


@pytest.mark.parametrize("kind", [BertClassifier, BertRegressor])
def test_fitting_with_weights_is_fitting_with_rows_repeated(kind: Any, tmp_path: Path) -> None:
    """Without dropout, in fp32, and all rows in each step."""
    start = start_with_words([*"good bad the film".split()], tmp_path, width=16, layers=1, heads=2)
    settings = (start / "config.json").read_text()
    (start / "config.json").write_text(settings.replace("0.1", "0.0"))
    texts, y = ["good film", "bad film", "the film", "good", "bad"], [1, 0, 1, 1, 0]
    weights = [3, 1, 0, 2, 2]
    rows = np.repeat(np.arange(5), weights)
    one = kind(start, learning_rate=1e-2, epochs=30, batch_size=64, max_length=8, freeze_encoder=True)
    weighted = one.fit(texts, y, weights)._logits(texts)
    repeated = one.fit([texts[row] for row in rows], [y[row] for row in rows])._logits(texts)
    np.testing.assert_allclose(weighted, repeated, atol=1e-3)
    assert np.abs(weighted - one.fit(texts, y)._logits(texts)).max() > 1e-2, "control: weights do something"


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0] * 47, r"one number for each of the 48 texts, got shape \(47,\)"),
        ([1.0] * 47 + [-2], r"sample_weight is -2 in row 47 \(counted from 0\)"),
        ([float("nan")] + [1.0] * 47, "sample_weight is nan in row 0"),
        ([0.0] * 48, "zero in every row"),
        (["a"] * 48, "one number for each text"),
        ([float(label) for label in LABELS], "1 class: 1"),
    ],
)
def test_wrong_weights_are_refused(start: str, weights: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        BertClassifier(start, **QUICK).fit(TEXTS, LABELS, sample_weight=weights)


def test_weights_of_labels_are_those_of_their_rows(start: str, tmp_path: Path) -> None:
    quick = {**QUICK, "epochs": 1}
    names = [("no", "yes")[label] for label in LABELS]
    by_label = BertClassifier(start, class_weight={"yes": 5}, **quick).fit(TEXTS, names)
    by_row = BertClassifier(start, **quick).fit(TEXTS, names, [5.0 if name == "yes" else 1.0 for name in names])
    np.testing.assert_array_equal(by_label.predict_proba(TEXTS), by_row.predict_proba(TEXTS))
    assert (
        by_label.predict_proba(TEXTS) != BertClassifier(start, **quick).fit(TEXTS, names).predict_proba(TEXTS)
    ).any()
    numbers = BertClassifier(start, class_weight={1: 5}, **quick).fit(TEXTS, LABELS)
    numbers.save_pretrained(tmp_path)
    assert BertClassifier.from_pretrained(tmp_path).get_params() == numbers.get_params()
    with pytest.raises(
        InputError, match="class_weight has 'maybe', which is no label of y; the labels are 'no', 'yes'"
    ):
        BertClassifier(start, class_weight={"maybe": 5}).fit(TEXTS, names)


# ------------------------------------------------------------------------------------------- few labels, settings


@pytest.mark.parametrize("method", some(("linear", "contrastive", "finetune"), ["linear"]))
def test_few_labels_by_each_method(method: str, start: str) -> None:
    model = BertClassifier(start, few_shot=method, **{**QUICK, "epochs": 2}).fit(TEXTS[:12], LABELS[:12])
    assert model.config_.few_shot_method == method
    assert model.predict(TEXTS).shape == (48,)


@pytest.mark.campaign
def test_few_labels_are_learned_as_a_run_with_few_shot_does(start: str, tmp_path: Path) -> None:
    from bertkit import FinetuneConfig, finetune
    from finetune_data import write_table

    write_table(tmp_path / "data" / "train.csv", ("text", "label"), [(t, "ab"[y]) for t, y in ROWS[:16]], delimiter=",")
    config = FinetuneConfig(few_shot=True, few_shot_method="linear", max_length=24)
    finetune("csv", data=tmp_path / "data", model=start, out=tmp_path / "run", config=config)
    run = pipeline("text-classification", model=tmp_path / "run", device="cpu")(TEXTS, top_k=None)
    scores = [{row["label"]: row["score"] for row in rows}["b"] for rows in run]
    model = BertClassifier(start, few_shot="linear", max_length=24).fit(TEXTS[:16], LABELS[:16])
    np.testing.assert_allclose(model.predict_proba(TEXTS)[:, 1], scores, atol=1e-3)


@pytest.mark.campaign
def test_few_labels_are_compared(start: str) -> None:
    model = BertClassifier(start, few_shot=True, learning_rate=3e-3, epochs=1, max_length=24)
    assert model.fit(TEXTS[:12], LABELS[:12]).config_.few_shot_method in ("linear", "contrastive", "finetune")


@pytest.mark.parametrize(
    ("settings", "y", "weights", "error", "message"),
    [
        ({"few_shot": True}, LISTS, None, ConfigError, "few_shot is for texts or pairs of texts with one label each"),
        ({"few_shot": "best"}, LABELS, None, ConfigError, "few_shot_method"),
        ({"few_shot": True}, LABELS, [1] * 48, InputError, "few_shot takes no sample_weight"),
        ({"epochs": 0}, LABELS, None, ConfigError, "epochs"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    start: str, settings: dict[str, Any], y: Any, weights: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        BertClassifier(start, **settings).fit(TEXTS, y, weights)


def test_random_state_is_the_seed(start: str) -> None:
    quick = {**QUICK, "epochs": 1}
    by_seed, by_state = (
        BertClassifier(start, **quick, **{name: 5}).fit(TEXTS, LABELS).predict_proba(TEXTS)
        for name in ("seed", "random_state")
    )
    other = BertClassifier(start, **quick, random_state=np.random.RandomState(5)).fit(TEXTS, LABELS)
    assert (by_seed == by_state).all()
    assert (other.predict_proba(TEXTS) != by_seed).any()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("max_iter", "write epochs="),
        ("n_estimators", "RandomForestClassifier"),
        ("epoch", "did you mean 'epochs'"),
        ("lr", "write learning_rate="),
    ],
)
def test_a_parameter_of_another_library_is_answered_with_ours(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BertClassifier(**{name: 3})
    with pytest.raises(ConfigError, match=message):
        BertClassifier().set_params(**{name: 3})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("epochs", r"write BertClassifier\(epochs=\.\.\.\)"),
        ("validation_data", r"write bertkit\.finetune"),
        ("nonsense", "takes no 'nonsense'$"),
    ],
)
def test_a_keyword_of_fit_says_where_it_belongs(start: str, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BertClassifier(start).fit(TEXTS, LABELS, **{name: 3})


def test_a_method_of_another_library_is_answered_with_ours() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'partial_fit'; write fit\(X, y\)"):
        _ = BertClassifier().partial_fit
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        _ = BertClassifier().nonsense
    assert not hasattr(BertClassifier(), "partial_fit")


# ---------------------------------------------------------------------------------------------- frames and columns


@pytest.fixture(scope="module")
def fitted(start: str) -> BertClassifier:
    return BertClassifier(start, **{**QUICK, "epochs": 1}).fit(TEXTS, LABELS)


def test_columns_of_every_kind(fitted: BertClassifier) -> None:
    polars, arrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    expected = fitted.predict_proba(TEXTS)
    for form in (
        pandas.Series(TEXTS, dtype="string"),
        pandas.Series(TEXTS, dtype="category"),
        pandas.DataFrame({"text": TEXTS}),
        polars.DataFrame({"text": TEXTS}),
        arrow.table({"text": TEXTS}),
        arrow.chunked_array([TEXTS[:20], TEXTS[20:]]),
        np.array(TEXTS).reshape(-1, 1),
        np.array(TEXTS, dtype=np.dtypes.StringDType()),
    ):
        np.testing.assert_array_equal(fitted.predict_proba(form), expected)


def test_labels_of_every_kind_of_column(start: str) -> None:
    polars, arrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    names = ["no" if label == 0 else "yes" for label in LABELS]
    one = BertClassifier(start, **{**QUICK, "epochs": 1}, freeze_encoder=True)
    for y in (
        pandas.Series(names, dtype="category"),
        pandas.Series(names, dtype="string"),
        polars.Series(names, dtype=polars.Categorical),
        arrow.chunked_array([names[:9], names[9:]]),
    ):
        assert one.fit(TEXTS, y).classes_.tolist() == ["no", "yes"]
        assert set(one.predict(TEXTS).tolist()) <= {"no", "yes"}
    for lists in (polars.Series(LISTS), arrow.array(LISTS), pandas.Series(LISTS), [set(row) for row in LISTS]):
        assert one.fit(TEXTS, lists).classes_.tolist() == ["bad", "good", "short"]
    for frame in (pandas.DataFrame({"y": names}), polars.DataFrame({"y": names}), arrow.table({"y": names})):
        with pytest.warns(DataConversionWarning) if not hasattr(frame, "column_names") else contextlib.nullcontext():
            assert one.fit(TEXTS, frame).classes_.tolist() == ["no", "yes"]
    for matrix in (polars.DataFrame(MATRIX, schema=["a", "b", "c"]), csr_matrix(MATRIX), MATRIX.astype(bool)):
        assert one.fit(TEXTS, matrix).predict(TEXTS).shape == (48, 3)
    with pytest.raises(InputError, match="two columns of the same name"):
        one.fit(TEXTS, pandas.DataFrame(MATRIX, columns=["a", "b", "a"]))


def test_two_columns_of_texts_are_pairs(start: str) -> None:
    frame = pandas.DataFrame({"question": TEXTS, "answer": TEXTS[::-1]})
    quick = {**QUICK, "epochs": 1}
    model = BertClassifier(start, **quick).fit(frame, LABELS)
    pairs = list(zip(TEXTS, TEXTS[::-1], strict=True))
    np.testing.assert_array_equal(
        model.predict_proba(frame), BertClassifier(start, **quick).fit(pairs, LABELS).predict_proba(pairs)
    )


def test_a_frame_says_which_column_to_pick(fitted: BertClassifier) -> None:
    polars, arrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    columns = {"id": ["7"] * 48, "review": TEXTS, "stars": list(range(48))}
    for frame in (pandas.DataFrame(columns), polars.DataFrame(columns), arrow.table(columns)):
        with pytest.raises(InputError, match=r'columns .*stars.*; pick the column of texts: X\["review"\]'):
            fitted.predict(frame)
    twice = pandas.DataFrame(np.array([TEXTS, TEXTS]).T, columns=["text", "text"])
    with pytest.raises(InputError, match="two have the name 'text': rename one"):
        fitted.predict(twice)
    with pytest.raises(InputError, match="none of which holds texts"):
        fitted.predict(pandas.DataFrame({"a": [1, 2], "b": [3, 4]}))


@pytest.mark.parametrize("missing", [None, float("nan"), pandas.NA])
def test_a_missing_text_of_a_column_is_named_by_its_own_row(fitted: BertClassifier, missing: Any) -> None:
    for row in (0, 1, 3):
        column = pandas.Series(["a", "b", "c", "d"], index=[7, 8, 9, 10], dtype=object)
        column.iloc[row] = missing
        with pytest.raises(InputError, match=rf"X has no text in row {row} \(counted from 0\)"):
            fitted.predict(column)


def test_a_column_vector_of_labels_is_warned_of(start: str) -> None:
    with pytest.warns(DataConversionWarning, match="column-vector"):
        BertClassifier(start, **{**QUICK, "epochs": 1}).fit(TEXTS, np.array(LABELS).reshape(-1, 1))
