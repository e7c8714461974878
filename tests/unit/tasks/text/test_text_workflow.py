"""Long texts in windows, several labels per row, decisions made on dev: what the workflow of texts does with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch.nn import functional as F

from bertkit.config.bert_config import BertConfig
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.errors import CheckpointError, InputError
from bertkit.model.losses import class_loss
from bertkit.model.models import BertForSequenceClassification
from bertkit.ragged import GroupSet, Ragged
from bertkit.tasks import Columns, Example, TextTask, score
from bertkit.tasks.text.decoding import LabelDecision, cross_fitted_labels, decide_labels
from bertkit.tasks.text.features import encode_texts
from bertkit.tasks.text.workflow import TextWorkflow, class_weights, label_entropy
from bertkit.tasks.workflow import Predicted
from bertkit.tokenization import BertTokenizer
from bertkit.tokenization.features import featurize_texts
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.fit import fit_classifier
from bertkit.training.finetuning.frozen_encoder import FrozenHead, freeze_encoder, frozen_vectors
from pipeline_helpers import save_tiny
from training_helpers import toy_features, toy_task

TASK = TextTask("toy", ("a", "b"), ("accuracy",), "accuracy", Columns(("text",)))
SEVERAL = TextTask("toy", ("p", "q", "r"), ("micro_f1",), "micro_f1", Columns(("text",)), multi_label=True)
TEXTS = ["good film " * 30, "bad", "the scene was dull " * 9]
SINGLE = [(text, None) for text in TEXTS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"), BertForSequenceClassification, num_labels=2)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> BertTokenizer:
    return BertTokenizer.from_pretrained(folder)


def settings(**changes: object) -> FinetuneConfig:
    return FinetuneConfig(**{"max_length": 20, "long_texts": "windows", "overlap": 5, "precision": "fp32", **changes})


def test_logits_of_a_long_text_are_the_mean_of_its_windows(folder: Path, tokenizer: BertTokenizer) -> None:
    model = BertForSequenceClassification.from_pretrained(folder)
    workflow = TextWorkflow(TASK)
    examples = [Example(text, None, number % 2) for number, text in enumerate(TEXTS)]
    rows = workflow.encode(examples, tokenizer, settings(), labelled=True)
    assert isinstance(rows, GroupSet)
    assert rows.sizes.tolist() == [5, 1, 3]
    engine = InferenceEngine.for_scoring(model)
    found = workflow.outputs(engine, rows, check=lambda: None, label="scoring")
    for number, text in enumerate(TEXTS):
        ids = tokenizer(text)["input_ids"][1:-1]
        windows = [ids[start : start + 18] for start in range(0, max(1, len(ids) - 5), 13)]
        whole = [[tokenizer.cls_token_id, *window, tokenizer.sep_token_id] for window in windows]
        logits = [model(torch.tensor([window])).logits[0].detach().numpy() for window in whole]
        np.testing.assert_allclose(found[number], np.mean(logits, axis=0), atol=1e-5)
    cut = workflow.encode(examples, tokenizer, settings(long_texts="cut"), labelled=True)
    assert np.abs(workflow.outputs(engine, cut, check=lambda: None, label="")[0] - found[0]).max() > 1e-3, "control"


def test_each_window_is_trained_on_with_the_label_of_its_text(tokenizer: BertTokenizer) -> None:
    workflow = TextWorkflow(TASK)
    examples = [Example(text, None, number % 2) for number, text in enumerate(TEXTS)]
    rows = workflow.encode(examples, tokenizer, settings(), labelled=True)
    batch = workflow.collate(rows, [2, 0])
    assert batch.targets["labels"].tolist() == [0] * 8
    assert batch.layout.num_sequences == 8
    assert workflow.collate(rows, [1, 2]).targets["labels"].tolist() == [1, 0, 0, 0]
    shares = np.array([8, 1]) / 9
    assert label_entropy(TASK, rows) == pytest.approx(float(-(shares * np.log(shares)).sum()))


@pytest.mark.parametrize("family", ["bert", "distilbert", "electra"])
def test_frozen_vectors_of_windows_give_the_mean_of_their_logits(
    family: str, folder: Path, tokenizer: BertTokenizer
) -> None:
    shape = BertConfig.from_pretrained(folder)
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    sizes = {name: getattr(shape, name) for name in names}
    own = {"embedding_size": 32} if family == "electra" else {}
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(model_type=family, initializer_range=0.2, **sizes, **own))
    rows = encode_texts(SINGLE, tokenizer, 20, "windows", settings().overlap)
    vectors = frozen_vectors(model, rows)
    assert vectors.shape == ((3, 32) if family == "bert" else (9, 32)), "a head that is not linear reads every window"
    expected = TextWorkflow(TASK).outputs(InferenceEngine.for_scoring(model), rows, check=lambda: None, label="")
    np.testing.assert_allclose(FrozenHead(model).logits(vectors, rows), expected, atol=1e-5)


def test_a_frozen_head_with_a_layer_of_its_own_trains_on_every_window(tokenizer: BertTokenizer) -> None:
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "seq_classif_dropout"), 0.0)
    config = BertConfig(model_type="distilbert", vocab_size=len(tokenizer), **shape, **rates)
    examples = [Example(text, None, number % 2) for number, text in enumerate(TEXTS)]
    rows = TextWorkflow(TASK).encode(examples, tokenizer, settings(), labelled=True)
    models = []
    for changes in ({"freeze_encoder": True}, {}):
        torch.manual_seed(0)
        model = BertForSequenceClassification(config)
        if not changes:
            freeze_encoder(model)
        given = settings(epochs=3, learning_rate=1e-2, batch_size=2, **changes)
        fit_classifier(model, TASK, rows, None, given, seed=0)
        models.append(model)
    short, long = (dict(model.named_parameters()) for model in models)
    for name, value in short.items():
        torch.testing.assert_close(value, long[name], atol=1e-5, rtol=1e-4, msg=name)


def test_head_and_tail_and_what_pairs_cannot_have(tokenizer: BertTokenizer) -> None:
    rows = encode_texts(SINGLE, tokenizer, 20, "head_tail")
    same = featurize_texts(TEXTS, None, tokenizer, max_length=20, truncation="head_tail")
    assert isinstance(rows, Ragged)
    assert rows.ids.tolist() == same.ids.tolist()
    for how in ("windows", "head_tail"):
        with pytest.raises(InputError, match="single texts"):
            encode_texts([("a", "b")], tokenizer, 20, how)
    assert len(encode_texts([("a", "b")], tokenizer, 20)) == 1
    assert isinstance(encode_texts(SINGLE, tokenizer, 20, "only_first"), Ragged)


def several_features(seed: int = 0) -> Ragged:
    features = toy_features(60, seed=seed)
    generator = np.random.default_rng(seed)
    return replace(features, labels=(generator.random((60, 3)) < (0.1, 0.5, 0.0)).astype(np.float32))


def test_a_label_that_all_rows_or_none_have_keeps_its_weight() -> None:
    features = several_features()
    features.labels[:, 0], features.labels[:, 2] = 1.0, 0.0
    weights = class_weights(SEVERAL, features, FinetuneConfig(class_weights="balanced"))
    assert weights is not None
    assert weights[[0, 2]].tolist() == [1.0, 1.0], "with 0 it would never be learned"


def test_weights_of_several_labels_are_those_of_torch_and_the_floor_is_the_best_constant() -> None:
    features = several_features()
    weights = class_weights(SEVERAL, features, FinetuneConfig(class_weights="balanced"))
    assert weights is not None
    have = features.labels.sum(axis=0)
    assert weights.tolist() == pytest.approx([(60 - have[0]) / have[0], (60 - have[1]) / have[1], 1.0])
    logits, labels = torch.randn(60, 3), torch.from_numpy(features.labels)
    for chosen in (None, weights):
        term = class_loss(logits, labels, "multi_label_classification", chosen)
        expected = F.binary_cross_entropy_with_logits(logits, labels, pos_weight=chosen)
        assert float(term.mean()) == pytest.approx(float(expected), abs=1e-6)

        def constant(column: int, weights: torch.Tensor | None = chosen) -> float:
            one = None if weights is None else weights[column : column + 1]
            best = minimize_scalar(
                lambda x: float(F.binary_cross_entropy_with_logits(
                    torch.full((60, 1), float(x), dtype=torch.float64), labels[:, column : column + 1].double(),
                    pos_weight=None if one is None else one.double())),
                bounds=(-30, 30), method="bounded", options={"xatol": 1e-9})  # fmt: skip
            return float(best.fun)

        assert label_entropy(SEVERAL, features, chosen) == pytest.approx(
            np.mean([constant(c) for c in range(3)]), abs=1e-5
        )


SCORE = TextTask("toy", None, ("spearman",), "spearman", Columns(("text",)))


@pytest.mark.parametrize("class_weight", ["none", "balanced"])
@pytest.mark.parametrize("task", [TASK, SEVERAL, SCORE], ids=["one", "several", "score"])
def test_the_loss_of_the_constant_answer_is_the_floor(task: TextTask, class_weight: str) -> None:
    rows = several_features()
    if task is not SEVERAL:
        generator = np.random.default_rng(0)
        labels = generator.random(60) < 0.2 if task is TASK else generator.normal(3, 2, 60)
        rows = replace(rows, labels=labels.astype(np.int64 if task is TASK else np.float32))
    rows.labels[:2] = 1  # every label is there
    workflow, config = TextWorkflow(task), FinetuneConfig(class_weights=class_weight)
    weights, answer = class_weights(task, rows, config), torch.from_numpy(workflow.constant_answer(rows, config))

    def loss(logits_C: torch.Tensor) -> float:
        labels = torch.from_numpy(rows.labels)
        return float(class_loss(logits_C.repeat(60, 1), labels, task.problem_type, weights).mean())

    assert loss(answer) == pytest.approx(workflow.loss_floor(rows, config), abs=1e-5)
    direction = torch.tensor([0.1, -0.1, 0.0])[: len(answer)]
    assert min(loss(answer + direction), loss(answer - direction)) > loss(answer), "control: it is the best one"


def sure_logits(seed: int = 0, rows: int = 400) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=rows)
    right = (generator.random(rows) < 1 / (1 + np.exp(-(2 * x - 1.5)))).astype(np.int64)
    return np.stack([np.zeros(rows), 8 * x], axis=1).astype(np.float32), right


def test_a_decision_is_kept_applied_and_measured_on_other_rows() -> None:
    logits, right = sure_logits()
    task = replace(TASK, metrics=("f1",), main_metric="f1")
    workflow = TextWorkflow(task)
    encoded = replace(toy_features(400), labels=right)
    config = FinetuneConfig(calibrate=True, tune_thresholds=True)
    decision = workflow.decide(Predicted((), encoded, logits, {}), config)
    assert workflow.decide(Predicted((), encoded, logits, {}), FinetuneConfig()) == {
        "max_length": None,
        "long_texts": "cut",
    }
    assert decision["temperature"] > 2
    measured = decision["measured"]
    assert measured["cross_fitted"]["calibration_error"] < measured["as_trained"]["calibration_error"] / 2
    assert set(decision["thresholds"]) == {"b"}
    tuned = decision["tuned"]
    assert tuned["fitted"] >= tuned["as_trained"]
    assert tuned["cross_fitted"] <= tuned["fitted"] + 1e-12
    assert workflow.score(Predicted((), encoded, logits, decision))["f1"] == tuned["fitted"]
    assert workflow.score(Predicted((), encoded, logits, {}))["f1"] == tuned["as_trained"]
    examples = [Example("t", None, int(label)) for label in right]
    for row in workflow.prediction_rows(Predicted(examples, encoded, logits, decision))[:50]:
        share = row["probabilities"]["b"]
        assert row["predicted"] == ("b" if share >= decision["thresholds"]["b"] else "a")


def test_decisions_of_several_labels() -> None:
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(300, 3)).astype(np.float32)
    right = (generator.random((300, 3)) < 1 / (1 + np.exp(-(2 * logits - (0, 2, -2))))).astype(np.float32)
    decision = decide_labels(logits, right, SEVERAL.labels or (), metric="micro_f1", calibrate=False, tune=True)
    found = LabelDecision.of(decision, SEVERAL.labels or ()).labels(logits, several=True)
    plain = LabelDecision().labels(logits, several=True)
    assert (plain == (logits >= 0)).all()
    macro = replace(SEVERAL, metrics=("macro_f1",), main_metric="macro_f1")
    assert score(macro, found, right)["macro_f1"] > score(macro, plain, right)["macro_f1"]
    apart = cross_fitted_labels(logits, right, "micro_f1")
    assert score(macro, apart, right)["macro_f1"] <= score(macro, found, right)["macro_f1"]
    examples = [Example("t", None, tuple(np.flatnonzero(row).tolist())) for row in right]
    rows = TextWorkflow(SEVERAL).prediction_rows(
        Predicted(examples, replace(toy_features(300), labels=right), logits, decision)
    )
    for row, example, given in zip(rows, examples, found, strict=True):
        assert row["predicted"] == [name for name, yes in zip("pqr", given, strict=True) if yes]
        assert row["gold"] == ["pqr"[number] for number in example.label]


def test_decisions_of_another_model_are_refused() -> None:
    with pytest.raises(CheckpointError, match="is for the labels"):
        LabelDecision.of({"thresholds": {"x": 0.5}}, ["a", "b", "c"])
    with pytest.raises(CheckpointError, match="is for the labels"):
        LabelDecision.of({"thresholds": {"a": 0.5}}, ["a", "b"])  # it is the second one that has a threshold
    assert LabelDecision.of({}, ["a"]) == LabelDecision()


def test_three_labels_have_no_threshold_but_a_temperature() -> None:
    features = toy_features(60)
    logits = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    workflow = TextWorkflow(toy_task())
    decision = workflow.decide(
        Predicted((), features, logits, {}), FinetuneConfig(calibrate=True, tune_thresholds=True)
    )
    assert "temperature" in decision
    assert "thresholds" not in decision
