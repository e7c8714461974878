"""From features to a trained classifier: class weights, frozen encoder, regression, dead runs, settings."""

from __future__ import annotations

import json
import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from bertkit.batch import Batch, collate
from bertkit.cli import main
from bertkit.config.bert_config import BertConfig
from bertkit.config.encoder_decoder_config import BartConfig, T5Config
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.errors import ConfigError
from bertkit.model.models import BertForMaskedLM, BertForMultipleChoice, BertForSequenceClassification
from bertkit.model.seq2seq.reading_heads import BartForSequenceClassification
from bertkit.optim import AdamW, AdamWeightDecay
from bertkit.ragged import Ragged
from bertkit.tasks import get_task
from bertkit.tasks.text.workflow import TextWorkflow, class_weights, label_entropy, score_logits, text_logits
from bertkit.training.finetuning import feature_cache
from bertkit.training.finetuning import fit as fit_module
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.fit import Fit, fit_classifier
from bertkit.training.finetuning.frozen_encoder import FrozenHead, VectorBatch, freeze_encoder, frozen_vectors
from bertkit.training.finetuning.seed_run import settings_of_seed
from bertkit.training.trainer.callbacks import Callback
from bertkit.training.trainer.loop import Trainer
from training_helpers import TINY, no_dropout, tiny_model, toy_config, toy_features, toy_task, weights

#: Where the texts of a BART end, which its classifier reads.
END = 2


def ended(rows: Ragged) -> Ragged:
    """The same rows, the last token of each that of an end."""
    ids = rows.ids.copy()
    ids[rows.boundaries[1:] - 1] = END
    return replace(rows, ids=ids)


TRAIN, DEV = ended(toy_features(120)), ended(toy_features(60, seed=1))


def skewed() -> Ragged:
    """90 rows of label 0, 8 of label 1, 2 of label 2."""
    data = toy_features(100)
    return replace(data, labels=np.repeat([0, 1, 2], [90, 8, 2]))


def logits_of(model: Any, rows: Ragged) -> np.ndarray:
    return text_logits(InferenceEngine.for_scoring(model), rows)


# ------------------------------------------------------------------------------------------- whole training


@pytest.fixture(scope="module")
def learned() -> Fit:
    """A run that learns."""
    return fit_classifier(tiny_model(), toy_task(), TRAIN, DEV, toy_config(epochs=10), seed=0)


@pytest.mark.slow
def test_fit_learns_and_keeps_the_best_epoch(learned: Fit) -> None:
    fit = learned
    assert DEV.labels is not None
    scores = score_logits(toy_task(), logits_of(fit.model, DEV), DEV.labels)
    assert scores["accuracy"] > 0.6
    assert scores["accuracy"] == fit.progression.best_score == max(e["dev_accuracy"] for e in fit.progression.epochs)
    assert not fit.dead
    assert not fit.model.training


@pytest.mark.slow
def test_the_same_seed_gives_the_same_weights_and_another_does_not() -> None:
    config = toy_config(epochs=2)
    runs = [fit_classifier(tiny_model(), toy_task(), TRAIN, None, config, seed=seed).model for seed in (4, 4, 5)]
    first, second, other = (weights(model) for model in runs)
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    assert any(not torch.equal(value, other[name]) for name, value in first.items())


@pytest.mark.slow
def test_settings_reach_the_optimizer() -> None:
    for protocol, rate in (("sane", 3e-3 / 3), ("original", 0.0)):
        records: list[dict[str, float]] = []
        config = toy_config(protocol=protocol, epochs=3)
        fit_classifier(tiny_model(), toy_task(), TRAIN, None, config, seed=0, log=records.append)
        assert records[0]["lr"] == pytest.approx(rate)
        assert len([r for r in records if "event" not in r]) == 3 * math.ceil(120 / 16)


def test_the_original_protocol_has_the_original_optimizer() -> None:
    for protocol, kind in (("sane", AdamW), ("original", AdamWeightDecay)):
        seen = Follower()
        config = toy_config(protocol=protocol, epochs=1)
        fit_classifier(tiny_model(), toy_task(), TRAIN, DEV, config, seed=0, callbacks=[seen])
        groups = seen.trainers[0].optimizer.param_groups
        assert type(seen.trainers[0].optimizer) is kind
        assert [group["weight_decay"] for group in groups] == [0.01, 0.0]
        assert {(group["eps"], group["betas"]) for group in groups} == {(1e-6, (0.9, 0.999))}


class Follower(Callback):
    """Notes every call; ends the run after ``stop_after`` epochs."""

    def __init__(self, stop_after: int = 1000, stop_at_step: int = 0) -> None:
        self.stop_after, self.stop_at_step = stop_after, stop_at_step
        self.calls: list[str] = []
        self.records: list[dict[str, Any]] = []
        self.trainers: list[Trainer[Any]] = []

    def on_begin(self, trainer: Trainer[Any]) -> None:
        self.calls.append("begin")
        self.trainers.append(trainer)

    def on_step(self, trainer: Trainer[Any], record: dict[str, Any]) -> None:
        self.calls.append("step")
        assert trainer.at.step == record["step"]
        if trainer.at.step == self.stop_at_step:
            trainer.stop()

    def on_epoch(self, trainer: Trainer[Any], record: dict[str, Any]) -> None:
        self.calls.append("epoch")
        self.records.append(record)
        if len(trainer.at.epochs) == self.stop_after:
            trainer.stop()

    def on_end(self, trainer: Trainer[Any]) -> None:
        self.calls.append("end")


def test_callbacks_follow_a_run_and_may_end_it() -> None:
    seen = Follower(stop_after=2)
    options = {"callbacks": [Callback(), seen]}
    done = fit_classifier(tiny_model(), toy_task(), TRAIN, DEV, toy_config(epochs=5), seed=0, **options)
    steps = ["step"] * math.ceil(120 / 16)
    assert seen.calls == ["begin", *steps, "epoch", *steps, "epoch", "end"]
    assert [record["epoch"] for record in seen.records] == [1, 2]
    assert {"train_loss", "dev_loss", "dev_accuracy"} <= seen.records[0].keys()
    assert len(done.progression.epochs) == 2


def test_a_run_that_is_stopped_between_evaluations_stays_stopped_when_the_last_is_no_better() -> None:
    seen = Follower(stop_at_step=12)
    options = {"callbacks": [seen]}
    config = toy_config(epochs=5, learning_rate=1e-12)  # the second evaluation is no better than the first
    done = fit_classifier(tiny_model(), toy_task(), TRAIN, DEV, config, seed=0, **options)
    assert (done.progression.step, done.progression.best_step) == (12, 8)


@pytest.mark.campaign
@pytest.mark.slow
def test_a_run_stops_early_by_default_and_with_patience_0_it_does_not() -> None:
    """Labels turned round on dev, so that learning is punished."""
    turned = replace(DEV, labels=(np.asarray(DEV.labels) + 1) % 3)
    for patience, epochs in ((None, 4), (0, 12)):
        given = toy_config(epochs=12, learning_rate=1e-2, patience=patience)
        config = given.resolved(model=tiny_model().config, num_train_rows=120)
        done = fit_classifier(tiny_model(), toy_task(), TRAIN, turned, config, seed=0).progression
        assert done.best_step == 8
        assert len(done.epochs) == epochs


@pytest.mark.slow
def test_the_original_protocol_keeps_the_last_weights() -> None:
    """Though an earlier epoch was better on dev: here all its labels are turned round, so that learning is punished."""
    turned = replace(DEV, labels=(np.asarray(DEV.labels) + 1) % 3)
    best = {}
    for protocol in ("sane", "original"):
        config = toy_config(protocol=protocol, epochs=4)
        fit = fit_classifier(tiny_model(), toy_task(), TRAIN, turned, config, seed=0)
        best[protocol] = fit.progression.best_step
        last = fit.progression.step
    assert best["original"] == last > best["sane"]
    with pytest.raises(ConfigError, match="patience"):
        toy_config(protocol="original", patience=1)


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_trains_and_is_scored_as_the_saved_model_will_compute(precision: str) -> None:
    assert DEV.labels is not None
    fits = [
        fit_classifier(tiny_model(), toy_task(), TRAIN, DEV, toy_config(epochs=20, precision=kind), seed=0)
        for kind in ("fp32", precision)
    ]
    scores = score_logits(toy_task(), logits_of(fits[1].model, DEV), DEV.labels)
    best = max(fits[1].progression.epochs, key=lambda epoch: epoch["dev_accuracy"])
    assert (scores["accuracy"], scores["loss"]) == (best["dev_accuracy"], best["dev_loss"])  # all bits: fp32 both times
    assert scores["accuracy"] > 0.6
    exact, half = (fit.progression.epochs[0]["train_loss"] for fit in fits)
    assert half == pytest.approx(exact, rel=0.02)
    assert half != exact  # control: training was not in fp32


def test_accumulation_is_a_larger_batch() -> None:
    models = []
    for changes in ({"batch_size": 32}, {"batch_size": 8, "accumulation": 4}, {"batch_size": 32, "max_tokens": 64}):
        model = no_dropout()
        fit_classifier(model, toy_task(), TRAIN, None, toy_config(epochs=1, **changes), seed=0)
        models.append(logits_of(model, DEV))
    np.testing.assert_allclose(models[1], models[0], atol=1e-6)
    np.testing.assert_allclose(models[2], models[0], atol=2e-4)


@pytest.mark.campaign
@pytest.mark.slow
def test_regression() -> None:
    train, dev = toy_features(200, regression=True), toy_features(60, seed=1, regression=True)
    model = tiny_model(num_labels=1, problem_type="regression")
    fit = fit_classifier(model, toy_task(None), train, dev, toy_config(epochs=30, learning_rate=5e-3), seed=0)
    assert fit.progression.best_score is not None
    assert fit.progression.best_score > 0.6
    assert train.labels is not None
    assert fit.label_entropy == pytest.approx(float(np.var(train.labels)))


# -------------------------------------------------------------------------------------------- class weights


def test_balanced_weights_are_scikit_learns() -> None:
    train = skewed()
    found = class_weights(toy_task(), train, toy_config(class_weights="balanced"))
    assert found is not None
    expected = compute_class_weight("balanced", classes=np.arange(3), y=train.labels)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    assert class_weights(toy_task(), train, toy_config()) is None


def test_a_label_without_rows_has_weight_one() -> None:
    found = class_weights(toy_task(4), skewed(), toy_config(class_weights="balanced"))
    assert found is not None
    assert found[3] == 1.0
    assert torch.isfinite(found).all()


@pytest.mark.parametrize("max_tokens", [10_000, 40])
def test_weighted_loss_over_micro_batches_is_torchs(max_tokens: int) -> None:
    """The mean is over the weights of all targets of the step, wherever the cut falls."""
    train = skewed()
    model = no_dropout()
    records: list[dict[str, float]] = []
    config = toy_config(class_weights="balanced", epochs=1, max_tokens=max_tokens, batch_size=100)
    before = no_dropout()
    fit_classifier(model, toy_task(), train, None, config, seed=0, log=records.append)
    logits = before.forward_packed(collate(train, range(100))).logits
    assert logits is not None
    assert model.class_weights is not None
    labels = torch.from_numpy(np.asarray(train.labels))
    expected = torch.nn.CrossEntropyLoss(weight=model.class_weights)(logits, labels).item()
    plain = torch.nn.CrossEntropyLoss()(logits, labels).item()
    assert records[0]["loss"] == pytest.approx(expected, abs=1e-5)
    assert abs(expected - plain) > 1e-3  # control: the weights change the loss


# ------------------------------------------------------------------------------------------- frozen encoder


#: Families, and the parts of their classifiers that do not come with the encoder.
HEADS = {
    **dict.fromkeys(("bert", "albert"), ("classifier.",)),
    **dict.fromkeys(("roberta", "distilbert", "electra", "no pooler"), ("classifier.", "bert.pooler.")),
    "bert mean": ("classifier.",),
    "roberta max": ("classifier.",),
    "bart": ("classification_head.",),
}


def tiny_of(family: str, *, dropout: float = 0.1) -> Any:
    """A classifier of the family with :data:`TINY`'s shape; of "no pooler", from a checkpoint of BERT that has none."""
    if family == "bart":
        towers = ("encoder", "decoder")
        sizes = {f"{tower}_{name}": n for tower in towers for name, n in (("layers", 1), ("ffn_dim", 64))}
        heads = {f"{tower}_attention_heads": 4 for tower in towers}
        rates = {"dropout": dropout, "classifier_dropout": dropout}
        shape = {"vocab_size": 101, "d_model": 32, "max_position_embeddings": 40, "init_std": 0.1, "num_labels": 3}
        torch.manual_seed(0)
        return BartForSequenceClassification(BartConfig(**shape, **sizes, **heads, **rates, eos_token_id=END))
    if family == "no pooler":
        with tempfile.TemporaryDirectory() as folder:
            BertForMaskedLM(tiny_of("bert", dropout=dropout).config).save_pretrained(folder)
            return BertForSequenceClassification.from_pretrained(folder, num_labels=TINY.num_labels, seed=0)
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "num_labels")
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    family, _, pooling = family.partition(" ")
    own: dict[str, Any] = {
        "albert": {"embedding_size": 12, "classifier_dropout": dropout},
        "distilbert": {"seq_classif_dropout": dropout},
        "electra": {"embedding_size": 12},
    }.get(family, {})
    torch.manual_seed(0)
    shape = {name: getattr(TINY, name) for name in sizes} | {"pooling": pooling or "cls"}
    return BertForSequenceClassification(
        BertConfig(
            model_type=family,
            max_position_embeddings=40,
            initializer_range=0.1,
            **shape,
            **rates,
            **own,
        )
    )


@pytest.mark.parametrize("family", HEADS)
def test_frozen_training_touches_the_head_only(family: str) -> None:
    model = tiny_of(family)
    before = weights(model)
    fit_classifier(model, toy_task(), TRAIN, DEV, toy_config(freeze_encoder=True, learning_rate=1e-2), seed=0)
    changed = {name for name, p in model.named_parameters() if not torch.equal(before[name], p)}
    assert changed == {name for name in before if name.startswith(HEADS[family])}
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("family", HEADS)
def test_frozen_head_predicts_what_the_full_model_predicts(family: str) -> None:
    model = tiny_of(family)
    config = toy_config(freeze_encoder=True, learning_rate=1e-2, epochs=4)
    fit = fit_classifier(model, toy_task(), TRAIN, DEV, config, seed=0)
    from_vectors = FrozenHead(model).logits(frozen_vectors(model, DEV), DEV)
    assert DEV.labels is not None
    full = logits_of(model, DEV)
    one_by_one = np.concatenate([logits_of(model, DEV.select([row])) for row in range(len(DEV))])
    np.testing.assert_allclose(from_vectors, full, atol=1e-5)
    np.testing.assert_allclose(one_by_one, full, atol=1e-5)
    assert score_logits(toy_task(), full, DEV.labels)["accuracy"] == fit.progression.best_score


@pytest.mark.parametrize("family", HEADS)
def test_frozen_training_equals_training_with_a_frozen_model(family: str) -> None:
    """The short way (features once) and the long way (every epoch through the encoder) are the same optimisation."""
    short, long = tiny_of(family, dropout=0.0), tiny_of(family, dropout=0.0)
    config = toy_config(learning_rate=1e-2, epochs=2)
    fit_classifier(short, toy_task(), TRAIN, None, config.model_copy(update={"freeze_encoder": True}), seed=0)
    freeze_encoder(long)
    assert {name for name, p in long.named_parameters() if p.requires_grad} == {
        name for name in weights(long) if name.startswith(HEADS[family])
    }
    fit_classifier(long, toy_task(), TRAIN, None, config, seed=0)
    of_long = weights(long)
    for name, value in weights(short).items():
        torch.testing.assert_close(value, of_long[name], atol=1e-5, rtol=1e-4, msg=name)


def test_a_frozen_choice_trains_the_layer_in_front_of_it() -> None:
    """The multiple-choice heads of DistilBERT and ELECTRA have such a layer; that of RoBERTa reads the pooler."""
    for family, trained in (("distilbert", True), ("electra", True), ("roberta", False)):
        model = BertForMultipleChoice(tiny_of(family).config)
        freeze_encoder(model)
        assert model.bert.pooler is not None
        assert all(p.requires_grad is trained for p in model.bert.pooler.parameters()), family
        assert all(p.requires_grad for p in model.classifier.parameters())
        assert not any(p.requires_grad for p in model.bert.encoder.parameters())


def test_frozen_head_uses_class_weights() -> None:
    model = no_dropout()
    model.class_weights = torch.tensor([1.0, 5.0, 0.5])
    batch = VectorBatch(torch.randn(4, 32), {"labels": torch.tensor([0, 1, 1, 2])})
    head = FrozenHead(model)
    out = head.forward_packed(batch)
    expected = torch.nn.CrossEntropyLoss(weight=model.class_weights)(out.logits, batch.targets["labels"])
    torch.testing.assert_close(out.loss, expected)
    assert head.num_targets(batch) == {"loss": 1.0 + 5.0 + 5.0 + 0.5}
    assert [name for name, _ in head.named_parameters()] == ["classifier.weight", "classifier.bias"]


def test_class_weights_count_each_of_several_labels_once_also_where_they_are_integers() -> None:
    model = no_dropout()
    model.config = model.config.model_copy(update={"problem_type": "multi_label_classification"})
    model.class_weights = torch.tensor([1.0, 5.0, 0.5])
    batch = VectorBatch(torch.randn(2, 32), {"labels": torch.tensor([[0, 1, 1], [1, 0, 1]])})
    expected = FrozenHead(model).forward_packed(batch).loss_terms["loss"].num_targets
    assert model.num_targets(batch) == FrozenHead(model).num_targets(batch) == {"loss": expected} == {"loss": 6.0}


def test_features_do_not_depend_on_the_head_that_is_trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each seed draws the layer in front of the classifier anew, and finds the features of the first."""
    model = tiny_of("distilbert")
    first = frozen_vectors(model, DEV, cache=tmp_path)
    assert model.bert.pooler is not None
    model.bert.pooler.dense.weight.data.normal_()
    assert np.array_equal(frozen_vectors(model, DEV, cache=tmp_path), first)
    assert "found in the feature cache" in capsys.readouterr().err


def test_feature_cache_is_used_and_knows_weights_and_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tiny_model()
    first = frozen_vectors(model, DEV, cache=tmp_path)
    calls = []
    encode = InferenceEngine.row_outputs
    monkeypatch.setattr(InferenceEngine, "row_outputs", lambda *args, **kw: calls.append(1) or encode(*args, **kw))
    assert np.array_equal(frozen_vectors(model, DEV, cache=tmp_path), first)
    assert calls == []
    assert "found in the feature cache" in capsys.readouterr().err
    frozen_vectors(model, TRAIN, cache=tmp_path)
    with torch.no_grad():
        model.bert.embeddings.LayerNorm.bias[0] += 0.1
    assert not np.array_equal(frozen_vectors(model, DEV, cache=tmp_path), first)
    assert len(calls) == 2
    model.classifier.weight.data.zero_()
    frozen_vectors(model, DEV, cache=tmp_path)
    assert len(calls) == 2


def test_a_damaged_cache_is_computed_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_model()
    first = frozen_vectors(model, DEV, cache=tmp_path)
    file = next(tmp_path.glob("*.safetensors"))
    file.write_bytes(b"nonsense")
    assert np.array_equal(frozen_vectors(model, DEV, cache=tmp_path), first)
    assert "cannot be used" in capsys.readouterr().err
    assert np.array_equal(frozen_vectors(model, DEV, cache=tmp_path), first)


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert len(frozen_vectors(tiny_model(), DEV, cache=blocked / "below")) == len(DEV)
    assert "not cached" in capsys.readouterr().err


def test_the_cache_can_be_looked_at_and_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    frozen_vectors(tiny_model(), DEV, cache=feature_cache.cache_folder())
    size = next(tmp_path.rglob("*.safetensors")).stat().st_size
    folder = str(tmp_path / "bertkit" / "features")
    for options, found in (([], [1, size]), (["--clear-cache"], [0, 0])):
        assert main(["doctor", "--json", *options]) == 0
        told = json.loads(capsys.readouterr().out)["feature_cache"]
        assert told == {"folder": folder, "files": found[0], "bytes": found[1]}
    assert not list(tmp_path.rglob("*.safetensors"))


def test_the_cache_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_cache, "CACHE_BYTES", 10_000)
    for seed in range(5):
        frozen_vectors(tiny_model(), toy_features(60, seed=seed), cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


# ---------------------------------------------------------------------------------------------- dead runs


def test_label_entropy() -> None:
    assert label_entropy(toy_task(), skewed()) == pytest.approx(-sum(p * math.log(p) for p in (0.9, 0.08, 0.02)))
    balanced = class_weights(toy_task(), skewed(), toy_config(class_weights="balanced"))
    assert label_entropy(toy_task(), skewed(), balanced) == pytest.approx(math.log(3))


@pytest.mark.slow
def test_a_run_that_learns_nothing_is_called_dead(learned: Fit) -> None:
    fit = fit_classifier(tiny_model(), toy_task(), TRAIN, DEV, toy_config(learning_rate=1e-9), seed=0)
    assert fit.dead
    assert not learned.dead


# ----------------------------------------------------------------------------------------------- settings


BASE = BertConfig()
LARGE = BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
SMALL = BertConfig(hidden_size=512, num_hidden_layers=8, num_attention_heads=8)
BART_BASE = BartConfig(
    d_model=768,
    encoder_layers=6,
    decoder_layers=6,
    encoder_ffn_dim=3072,
    decoder_ffn_dim=3072,
    encoder_attention_heads=12,
    decoder_attention_heads=12,
)


@pytest.mark.parametrize(
    ("shape", "changes", "rate"),
    [
        (BASE, {}, 3e-5),
        (LARGE, {}, 2e-5),
        (SMALL, {}, 1e-4),
        (BASE, {"protocol": "original"}, 2e-5),
        (BASE, {"freeze_encoder": True}, 1e-2),
        (BertConfig(model_type="roberta"), {"freeze_encoder": True}, 1e-3),
        (BASE, {"learning_rate": 7e-5}, 7e-5),
    ],
)
def test_default_learning_rates(shape: BertConfig, changes: dict[str, object], rate: float) -> None:
    assert FinetuneConfig(**changes).resolved(model=shape, num_train_rows=10_000).learning_rate == rate


@pytest.mark.parametrize(
    ("shape", "head", "changes", "rate"),
    [
        (BART_BASE, "sequence", {}, 3e-5),
        (BartConfig(), "sequence", {}, 2e-5),
        (BartConfig(), "text", {}, 3e-5),
        (T5Config(), "text", {}, 3e-4),
        (BART_BASE, "sequence", {"freeze_encoder": True}, 1e-3),
        (BART_BASE, "span", {"freeze_encoder": True}, 1e-2),
    ],
)
def test_default_learning_rates_of_encoder_decoders(
    shape: BartConfig | T5Config, head: str, changes: dict[str, object], rate: float
) -> None:
    chosen = FinetuneConfig(**changes).resolved(model=shape, num_train_rows=10_000, head=head)
    assert (chosen.learning_rate, chosen.pooling) == (rate, None)


@pytest.mark.parametrize(
    ("rows", "changes", "epochs"),
    [
        (67_349, {}, 3),
        (3_668, {}, 9),
        (2_490, {}, 13),
        (635, {}, 20),
        (635, {"protocol": "original"}, 3),
        (635, {"epochs": 2}, 2),
        (67_349, {"freeze_encoder": True}, 10),
    ],
)
def test_default_epochs(rows: int, changes: dict[str, object], epochs: int) -> None:
    assert FinetuneConfig(**changes).resolved(model=BASE, num_train_rows=rows).epochs == epochs


def test_default_lengths() -> None:
    def length(task: str, shape: BertConfig = BASE) -> int | None:
        longest = TextWorkflow(replace(get_task("imdb"), name=task)).default_max_length
        return FinetuneConfig().resolved(model=shape, num_train_rows=10, longest=longest).max_length

    assert (length("sst2"), length("imdb"), length("csv")) == (128, 512, 256)
    assert length("imdb", TINY) == 40
    with pytest.raises(ConfigError, match="max_length=50 but the model has 40 positions"):
        FinetuneConfig(max_length=50).resolved(model=TINY, num_train_rows=10)


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ConfigError, match="unknown field 'learning_rat' \\(did you mean 'learning_rate'\\?\\)"):
        FinetuneConfig(learning_rat=1e-3)
    with pytest.raises(ConfigError, match="batch_size = 0"):
        FinetuneConfig(batch_size=0)
    with pytest.raises(ConfigError, match="layer_decay cannot be combined"):
        FinetuneConfig(freeze_encoder=True, layer_decay=0.9)
    with pytest.raises(ConfigError, match="precision bf16 cannot be combined"):
        FinetuneConfig(freeze_encoder=True, precision="bf16")


def test_batches_stay_on_the_models_device() -> None:
    batch: Batch = collate(TRAIN, [0, 1], {"labels": TRAIN.labels})
    assert batch.to("cpu").input_ids.device.type == "cpu"


# ----------------------------------------------------------------------------------------------- max_steps


@pytest.mark.parametrize(("max_steps", "epochs"), [(3, 1), (6, 1), (7, 2), (40, 7)])
def test_max_steps_end_a_run_whose_schedule_is_made_for_them(max_steps: int, epochs: int) -> None:
    rates: list[float] = []

    class Rates(Callback):
        def on_step(self, trainer: Any, record: Any) -> None:
            rates.append(record["lr"])

    train = toy_features(48)
    config = toy_config(epochs=50, max_steps=max_steps, batch_size=8, warmup=0.0)
    resolved = config.resolved(model=tiny_model().config, num_train_rows=len(train))
    made = fit_classifier(tiny_model(), toy_task(), train, None, resolved, seed=0, callbacks=[Rates()])
    assert made.progression.step == len(rates) == max_steps
    assert resolved.epochs == epochs
    expected = [resolved.learning_rate * (1 - step / max_steps) for step in range(max_steps)]
    assert rates == pytest.approx(expected)
    assert [epoch["step"] for epoch in made.progression.epochs][-1] == max_steps


def test_max_steps_leave_the_settings_of_earlier_runs_as_they_are() -> None:
    assert "max_steps" not in settings_of_seed(FinetuneConfig())
    assert settings_of_seed(FinetuneConfig(max_steps=3))["max_steps"] == 3
    for others in ({"search": 3}, {"few_shot": True}):
        with pytest.raises(ConfigError, match="max_steps"):
            FinetuneConfig(max_steps=3, **others)


@pytest.mark.parametrize(
    ("rows", "settings", "short"),
    [
        (64, {}, False),  # 20 epochs of 2 updates, as by default
        (64, {"epochs": 19}, True),
        (14_000, {}, False),  # 3 epochs of 438 updates
        (14_000, {"epochs": 1}, True),
        (14_000, {"epochs": 2}, True),
        (14_000, {"max_steps": 999}, True),
        (14_000, {"max_steps": 1000}, False),
        (400_000, {"epochs": 1}, False),  # 12,500 updates
        (400_000, {"max_steps": 10}, True),
    ],
)
def test_a_run_is_short_with_fewer_updates_than_usual_and_than_1000(
    rows: int, settings: dict[str, int], short: bool
) -> None:
    resolved = FinetuneConfig(**settings).resolved(model=tiny_model().config, num_train_rows=rows)
    assert resolved.is_short(rows) == short


# ------------------------------------------------------------------------------------------------- compile


@pytest.mark.campaign  # the compiler takes half a minute
def test_compiled_training_is_the_same_to_rounding() -> None:
    train, dev = toy_features(48), toy_features(24, seed=1)
    fits = []
    torch._dynamo.reset()
    for asked in ("off", "on"):
        config = toy_config(epochs=3, batch_size=8, compile=asked)
        resolved = config.resolved(model=no_dropout().config, num_train_rows=len(train))
        fits.append(fit_classifier(no_dropout(), toy_task(), train, dev, resolved, seed=0))
    for name, value in weights(fits[0].model).items():
        assert torch.allclose(value, weights(fits[1].model)[name], atol=1e-4), name
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0, "something was compiled"
    ends = [fit.progression.epochs[-1]["dev_loss"] for fit in fits]
    assert ends[0] == pytest.approx(ends[1], rel=1e-3)


def test_what_cannot_be_compiled_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings_of_seed(FinetuneConfig(compile="on")) == settings_of_seed(FinetuneConfig()), "may change on resume"
    for others in ({"freeze_encoder": True}, {"few_shot": True}):
        with pytest.raises(ConfigError, match="compile='on'"):
            FinetuneConfig(compile="on", **others)
    with pytest.raises(ConfigError, match="layers of encoders only"):
        FinetuneConfig(compile="on").resolved(model=T5Config(), num_train_rows=100)
    asked: list[bool] = []
    monkeypatch.setattr(fit_module, "will_compile", lambda *settings, fits: asked.append(fits))
    for deterministic in (False, True):
        config = toy_config(epochs=1, deterministic=deterministic).resolved(model=tiny_model().config, num_train_rows=8)
        fit_classifier(tiny_model(), toy_task(), toy_features(8), None, config, seed=0)
    assert asked == [True, False]
