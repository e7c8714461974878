"""BertClassifier is a scikit-learn estimator: its own rules, scikit-learn's checks, and the tools around it."""

from __future__ import annotations

import copy
import json
import pickle
import pickletools
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from bertkit import BertClassifier, pipeline
from bertkit.config.bert_config import BertConfig
from bertkit.errors import CheckpointError, InputError
from bertkit.model.models import BertModel
from bertkit.tokenization import BertTokenizer
from forked_interpreter import run_forked

WORDS = {"good": ["good", "fine", "great", "nice"], "bad": ["bad", "poor", "awful", "sad"]}
OTHER = ["the", "film", "book", "was", "is", "very", "we", "saw", "a"]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("start")
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)] + list("0123456789.-")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS["good"], *WORDS["bad"], *OTHER]
    words += [piece for piece in (*letters, *(f"##{letter}" for letter in letters)) if piece not in words]
    (folder / "words.txt").write_text("\n".join(words) + "\n")
    BertTokenizer(vocab_file=folder / "words.txt", model_max_length=64).save_pretrained(folder)
    torch.manual_seed(0)
    shape = BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    BertModel(shape).save_pretrained(folder)
    return str(folder)


def data(num_rows: int, seed: int, labels: tuple[Any, Any] = ("bad", "good")) -> tuple[list[str], np.ndarray[Any, Any]]:
    generator = np.random.default_rng(seed)
    numbers = generator.integers(2, size=num_rows)
    texts = []
    for number in numbers:
        words = [*generator.choice(OTHER, 6), *generator.choice(WORDS[("bad", "good")[number]], 2)]
        generator.shuffle(words)
        texts.append(" ".join(words))
    return texts, np.array(labels)[numbers]


def quick(start: str, **changes: Any) -> BertClassifier:
    return BertClassifier(start, **{"learning_rate": 3e-3, "epochs": 6, "batch_size": 16, "max_length": 32, **changes})


@pytest.fixture(scope="module")
def fitted(start: str) -> BertClassifier:
    return quick(start).fit(*data(160, 0))


@pytest.mark.slow
def test_it_learns_and_predicts(fitted: BertClassifier) -> None:
    X, y = data(80, 1)
    assert fitted.score(X, y) > 0.9
    assert fitted.classes_.tolist() == ["bad", "good"]
    probs = fitted.predict_proba(X)
    np.testing.assert_allclose(probs.sum(axis=1), 1.0, atol=1e-12)
    assert (fitted.classes_[probs.argmax(axis=1)] == fitted.predict(X)).all()
    np.testing.assert_allclose(1 / (1 + np.exp(-fitted.decision_function(X))), probs[:, 1])


@pytest.mark.parametrize("labels", [(0, 1), (7, -3), (2.0, 5.0), (True, False)])
def test_labels_keep_their_type(start: str, labels: tuple[Any, Any]) -> None:
    X, y = data(48, 0, labels)
    model = quick(start, epochs=1).fit(X, y)
    assert set(model.classes_.tolist()) == set(labels)
    assert model.predict(X).dtype == y.dtype


def test_texts_may_come_in_many_forms(fitted: BertClassifier) -> None:
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    X, _ = data(12, 2)
    expected = fitted.predict(X).tolist()
    for form in (tuple(X), np.array(X), np.array(X, dtype=object), pandas.Series(X, index=range(5, 17)),
                 polars.Series(X), (text for text in X)):  # fmt: skip
        assert fitted.predict(form).tolist() == expected


def test_pairs(start: str) -> None:
    generator = np.random.default_rng(0)
    X = [(f"{a} film", f"{a if same else b} book") for a, b, same in zip(
        generator.choice(OTHER, 100), generator.choice(WORDS["good"], 100), generator.integers(2, size=100), strict=True
    )]  # fmt: skip
    y = [first.split()[0] == second.split()[0] for first, second in X]
    model = quick(start, epochs=2).fit(X, y)
    assert model.predict(np.array(X)).tolist() == model.predict(X).tolist()
    with pytest.raises(InputError, match="fitted on pairs of texts, got single texts"):
        model.predict(["the film"])


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ("one text", ["a"], "got one string"),
        (np.array("text"), ["a"], "got one string"),
        (None, ["a"], "X must be a list of texts, got None"),
        (3, ["a"], "X must be a list of texts, got 3"),
        (["a", " "], ["x", "y"], r"X has an empty text in row 1 \(counted from 0\)"),
        ([("a", "b"), ("a", "")], ["x", "y"], "X has an empty text in row 1"),
        (["a", "b", "c"], ["x", "", "y"], r"y has no label in row 1 \(counted from 0\), but ''"),
        (["a", "b", "c"], np.array(["x", "y", "\t "]), "y has no label in row 2"),
        ([], [], "0 sample"),
        ([1, 2], ["a", "b"], "row 0 is 1"),
        (["a", None], ["a", "b"], r"X has no text in row 1 \(counted from 0\), but None; leave such rows out"),
        (["a", "b", float("nan")], ["a", "b", "a"], "X has no text in row 2"),
        ([float("nan"), "b", "c"], ["a", "b", "a"], "X has no text in row 0"),
        ({"text": ["a", "b"]}, ["a", "b"], r"got a dictionary of 'text'; pick one value: X\['text'\]"),
        ([{"text": "a"}, {"text": "b"}], ["a", "b"], r"\[row\['text'\] for row in X\]"),
        (csr_matrix(np.eye(2)), [0, 1], "X is a sparse matrix: numbers, where the model reads the texts themselves"),
        (np.eye(2), [0, 1], "row 0 is .*numbers, where the model reads the texts themselves"),
        (np.array([["a", "b", "c"]] * 2), [0, 1], r"row 0 is \['a', 'b', 'c'\]"),
        (["a", ("b", "c")], ["a", "b"], r"row 1 is \('b', 'c'\)"),
        ([[], []], ["a", "b"], r"row 0 is \[\]"),
        ([("b", "c"), ("b", 1)], ["a", "b"], r"row 1 is \('b', 1\)"),
        (["a", "b"], ["x", "x"], "1 class: 'x'"),
        (["a", "b"], [3, 3], "1 class: 3"),
        (["a", "b", "c"], ["x", float("nan"), "y"], r"y has no label in row 1 \(counted from 0\), but nan"),
        (["a", "b", "c"], ["x", "y", None], "y has no label in row 2"),
        (["a", "b", "c"], np.array([1, 0, np.nan]), "y has no label in row 2"),
        (["a", "b", "c"], ["x", "y", np.float32("nan")], "y has no label in row 2"),
        (["a", "b", "c"], [0.0, 1.0, float("inf")], "y has no label in row 2"),
        (["a", "b"], [1, "a"], "row 1 is 'a', row 0 is 1"),
        (["a", "b", "c"], [2, True, 2], "row 1 is True, row 0 is 2"),
        (["a", "b"], [b"x", b"y"], "bytes is not supported"),
        (["a", "b"], ["x"], "one label for each of the 2 texts"),
        (["a", "b", "c"], [[1, 0], [0, 1]], "one label for each of the 3 texts"),
        (["a", "b"], [[1, 2], [3, 1]], "MultiOutputClassifier"),
        (["a", "b"], [[1, 0], [1, 0]], "every row of y has the same labels"),
        (["a", "b"], [["x"], ["y", None]], r"y has an empty label in row 1 \(counted from 0\)"),
        (["a", "b"], [["x"], ["y", 3]], "must be of one kind, got int and str"),
        (["a", "b"], "ab", "y must be a list, got one string"),
        (["a", "b"], [0.5, 0.7], "continuous"),
        (["a", "b"], None, "requires y to be passed"),
    ],
)
def test_wrong_input_is_refused(start: str, X: Any, y: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        quick(start).fit(X, y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["good", None], r"y has no label in row 1 \(counted from 0\), but None"),
        ([float("nan"), "good"], "y has no label in row 0"),
        (["good", ""], "y has no label in row 1"),
        (["good"], "one label for each of the 2 texts"),
        ([1, 0], "y holds labels such as 1; fitted on labels such as 'bad'"),
        (None, "requires y to be passed"),
    ],
)
def test_labels_to_score_are_checked_as_those_to_fit(fitted: BertClassifier, y: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fitted.score(["good film", "bad film"], y)


def test_scores_are_those_of_scikit_learn(fitted: BertClassifier) -> None:
    X, y = data(40, 3)
    weights = np.arange(40)
    assert fitted.score(X, y, weights) == accuracy_score(y, fitted.predict(X), sample_weight=weights)
    assert fitted.score(np.array(X), y.tolist()) == accuracy_score(y, fitted.predict(X))
    assert fitted.score(X, ["other"] * 40) == 0  # a label that it has not seen is none that it predicts


def test_missing_values_of_tables_are_named(start: str) -> None:
    pandas = pytest.importorskip("pandas")
    arrow = pytest.importorskip("pyarrow")
    texts = ["a", "b", "c"]
    for missing in (None, float("nan"), pandas.NA):
        with pytest.raises(InputError, match="y has no label in row 1"):
            quick(start).fit(texts, pandas.Series(["x", missing, "y"]))
    for labels in (pandas.Series([1, None, 0], dtype="Int64"), arrow.array(["x", None, "y"])):
        with pytest.raises(InputError, match="y has no label in row 1"):
            quick(start).fit(texts, labels)
    with pytest.raises(InputError, match="X has no text in row 2"):
        quick(start).fit(arrow.chunked_array([["a", "b"], [None]]), ["x", "y", "x"])


@pytest.mark.slow
def test_columns_of_arrow_in_chunks(start: str, fitted: BertClassifier) -> None:
    arrow = pytest.importorskip("pyarrow")
    X, y = data(160, 0)
    texts, labels = (arrow.chunked_array([part[:50], part[50:]]) for part in (X, y.tolist()))
    model = quick(start).fit(texts, labels)
    assert model.classes_.tolist() == fitted.classes_.tolist()
    assert (model.predict_proba(texts) == fitted.predict_proba(X)).all()


def test_wrong_settings_are_refused_at_fit_not_before(start: str) -> None:
    X, y = data(20, 0)
    with pytest.raises(InputError, match="class_weight must be"):
        quick(start, class_weight="heavy").fit(X, y)
    with pytest.raises(CheckpointError):
        quick("no/such folder").fit(X, y)


def test_not_fitted(start: str) -> None:
    with pytest.raises(NotFittedError):
        quick(start).predict(["a film"])


def test_the_same_seed_is_the_same_model_whatever_the_callers_generators(start: str) -> None:
    X, y = data(40, 0)
    logits = []
    for callers in (1, 2):
        torch.manual_seed(callers)
        np.random.seed(callers)
        before = torch.get_rng_state()
        logits.append(quick(start, epochs=1).fit(X, y).decision_function(X))
        assert torch.equal(torch.get_rng_state(), before)
    assert (logits[0] == logits[1]).all()
    other = quick(start, epochs=1, seed=1).fit(X, y).decision_function(X)
    assert not np.allclose(other, logits[0])


@pytest.mark.slow
def test_fits_in_threads_are_those_of_one_after_another_and_leave_the_callers_generators(start: str) -> None:
    """A process has one generator, from which dropout draws: threads must not draw from each other's seeds."""
    texts, labels = data(48, 1)
    made = [quick(start, epochs=2, seed=seed) for seed in (0, 1, 2)]
    alone = [clone(one).fit(texts, labels).predict_proba(texts) for one in made]
    torch.manual_seed(7)
    before = torch.get_rng_state(), random.getstate()
    with ThreadPoolExecutor(len(made)) as pool:
        together = list(pool.map(lambda one: one.fit(texts, labels).predict_proba(texts), made))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


def test_fitting_again_begins_from_the_start(start: str) -> None:
    X, y = data(40, 0)
    model = quick(start, epochs=1)
    once = model.fit(X, y).decision_function(X)
    assert (model.fit(X, y).decision_function(X) == once).all()


def test_frozen_and_balanced(start: str) -> None:
    X, y = data(60, 0)
    model = quick(start, freeze_encoder=True, class_weight="balanced", learning_rate=1e-2).fit(X, y)
    encoder = BertModel.from_pretrained(start)
    assert all(torch.equal(p, dict(model.model_.bert.named_parameters())[n]) for n, p in encoder.named_parameters())
    assert model.model_.class_weights is not None


# -------------------------------------------------------------------------------------- clone, pickle, tools


def test_clone_and_params(start: str, fitted: BertClassifier) -> None:
    copied = clone(fitted)
    assert copied.get_params() == fitted.get_params()
    assert not hasattr(copied, "classes_")
    copied.set_params(epochs=9, seed=3)
    assert (copied.epochs, copied.seed, fitted.epochs) == (9, 3, 6)
    with pytest.raises(ValueError, match="Invalid parameter"):
        copied.set_params(epoch=9)
    assert "learning_rate=0.003" in repr(copied)


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_predicts_the_same(fitted: BertClassifier, copier: Any) -> None:
    X, _ = data(30, 3)
    again = copier(fitted)
    np.testing.assert_allclose(again.decision_function(X), fitted.decision_function(X), atol=1e-6)
    assert again.classes_.tolist() == fitted.classes_.tolist()
    assert again.get_params() == fitted.get_params()


@pytest.mark.campaign
@pytest.mark.slow
def test_a_pickle_is_read_in_another_process_without_the_start_checkpoint(
    fitted: BertClassifier, tmp_path: Path
) -> None:
    X, _ = data(5, 3)
    moved = copy.deepcopy(fitted).set_params(model="gone")
    (tmp_path / "model.pickle").write_bytes(pickle.dumps(moved))
    code = f"import pickle; print(pickle.load(open({str(tmp_path / 'model.pickle')!r}, 'rb')).predict({X!r}).tolist())"
    done = run_forked(code)
    assert done.stdout.strip() == str(fitted.predict(X).tolist())


def test_the_pickle_holds_no_torch_objects(fitted: BertClassifier) -> None:
    names = [arg for op, arg, _ in pickletools.genops(pickle.dumps(fitted)) if isinstance(arg, str)]
    assert not [name for name in names if name == "torch" or name.startswith("torch.")]


@pytest.mark.slow
def test_grid_search_and_cross_validation(start: str) -> None:
    X, y = data(160, 0)
    search = GridSearchCV(quick(start), {"learning_rate": [1e-8, 5e-3]}, cv=2).fit(X, y)
    assert search.best_params_ == {"learning_rate": 5e-3}
    assert search.predict(X[:3]).shape == (3,)
    assert cross_val_score(quick(start, epochs=1), X, y, cv=2).shape == (2,)


def test_pipeline(start: str) -> None:
    X, y = data(60, 0)
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    model = Pipeline([("lower", lower), ("bert", quick(start, epochs=2))]).fit([t.upper() for t in X], y)
    assert model.score([t.upper() for t in X], y) > 0.4


def test_texts_that_are_cut_are_told(start: str) -> None:
    model = BertClassifier(start, max_length=8, epochs=1, freeze_encoder=True)
    texts = ["good film", "bad " * 50, "dull " * 50, "good"]
    with pytest.warns(UserWarning, match="2 of 4 texts are longer than max_length=8 word pieces and truncated"):
        model.fit(texts, [1, 0, 0, 1])
    with pytest.warns(UserWarning, match="1 of 1 text is longer"):
        model.predict(["good " * 50])


@pytest.mark.slow
@pytest.mark.parametrize("labels", [("bad", "good"), (7, -3), (2.0, 5.0), (True, False)])
def test_a_saved_classifier_predicts_the_same(start: str, labels: tuple[Any, Any], tmp_path: Path) -> None:
    X, y = data(48, 0, labels)
    model = quick(start, epochs=1, class_weight="balanced").fit(X, y)
    model.save(tmp_path / "saved")
    loaded = BertClassifier.load(tmp_path / "saved")
    assert loaded.get_params() == model.get_params()
    assert loaded.predict(X).dtype == y.dtype
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    answer = pipeline("text-classification", model=tmp_path / "saved", device="cpu")(X[0])[0]
    assert answer["label"] == str(model.predict(X[:1])[0])


def test_what_cannot_be_saved_or_loaded_is_refused(start: str, fitted: BertClassifier, tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        BertClassifier(start).save(tmp_path / "never")
    with pytest.raises(CheckpointError, match=r"classifier\.json does not exist"):
        BertClassifier.load(start)
    fitted.save(tmp_path)
    values = json.loads((tmp_path / "classifier.json").read_text())
    for damage in (
        {"classes": ["a"]},
        {"params": {"modle": "x"}},
        {"dtype": "nonsense"},
        {"config": None},
        {"pairs": None},
    ):
        (tmp_path / "classifier.json").write_text(json.dumps({**values, **damage}))
        with pytest.raises(CheckpointError, match=r"classifier\.json"):
            BertClassifier.load(tmp_path)


def test_a_weights_file_is_a_start(start: str) -> None:
    texts, labels = data(8, 0)
    quick: dict[str, Any] = {"epochs": 1, "freeze_encoder": True, "max_length": 16}
    fitted = BertClassifier(Path(start) / "model.safetensors", **quick).fit(texts, labels)
    expected = BertClassifier(start, **quick).fit(texts, labels)
    assert (fitted.predict_proba(texts) == expected.predict_proba(texts)).all()
