"""Training only the words of the training texts, beside training the whole table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from bertkit.batch import collate
from bertkit.errors import CheckpointError
from bertkit.model.models import BertForMaskedLM, BertForSequenceClassification
from bertkit.ragged import Ragged
from bertkit.training.finetuning.fit import fit_classifier
from bertkit.training.finetuning.frozen_encoder import freeze_encoder
from bertkit.training.finetuning.label_contrast import contrast_labels
from bertkit.training.trainer import used_words
from bertkit.training.trainer.assembly import RunOptions
from bertkit.training.trainer.callbacks import Callback
from bertkit.training.trainer.generators import seed_generators
from bertkit.training.trainer.loop import Trainer
from bertkit.training.trainer.used_words import UsedWords, all_words, only_used_words
from training_helpers import TINY, tiny_model, toy_config, toy_features, toy_task

TABLE = "bert.embeddings.word_embeddings.weight"
VOCABULARY = 300


def with_padding(rows: Ragged) -> Ragged:
    """The same with [PAD], which is never trained, as the last token of each row."""
    ids = rows.ids.copy()
    ids[rows.boundaries[1:] - 1] = 0
    return replace(rows, ids=ids)


#: Some words of dev are not in train, and two thirds of the vocabulary in neither.
TRAIN, DEV = with_padding(toy_features(24)), toy_features(60, seed=1)
USED = np.unique(TRAIN.ids)
UNUSED = np.setdiff1d(np.arange(VOCABULARY), USED)
assert set(DEV.ids) - set(USED)

#: Never clipped.
FREE = {"max_grad_norm": 1e9}


def choose(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(used_words, "WORTH_SAVING", 1 if way == "used" else 1 << 60)


def model_of(**changes: Any) -> BertForSequenceClassification:
    return tiny_model(vocab_size=VOCABULARY, **changes)


def fitted(way: str, monkeypatch: pytest.MonkeyPatch, callback: Callback | None = None, **changes: Any) -> Any:
    """What :func:`fit` returns; dropout is on."""
    choose(way, monkeypatch)
    config = toy_config(**{"epochs": 4, "batch_size": 5, "weight_decay": 0.1, **changes})
    callbacks = [] if callback is None else [callback]
    return fit_classifier(model_of(), toy_task(), TRAIN, DEV, config, seed=3, callbacks=callbacks)


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: x.detach().clone() for name, x in model.state_dict().items()}


def check_equal(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    """To the bit, but for the unused words, whose decay is rounded otherwise."""
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        if name == TABLE:
            assert torch.equal(ours[name][USED], expected[USED])
            assert_close(ours[name][UNUSED], expected[UNUSED], rtol=3e-6, atol=0)
        else:
            assert torch.equal(ours[name], expected), name


class Shapes(Callback):
    """Notes the rows of the trained table and of its moments, and saves the weights after each step."""

    def __init__(self) -> None:
        self.rows: set[int] = set()
        self.saved: list[dict[str, Tensor]] = []

    def on_step(self, trainer: Trainer[Any], record: dict[str, Any]) -> None:
        table = trainer.model.get_parameter(TABLE)
        self.rows |= {len(table), *(len(x) for x in trainer.optimizer.state[table].values() if x.ndim)}
        self.saved.append(state(trainer.model))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"protocol": "original"}, marks=pytest.mark.campaign),
        pytest.param({"weight_decay": 0.0, "layer_decay": 0.8}, marks=pytest.mark.campaign),
        pytest.param({"precision": "bf16"}, marks=pytest.mark.campaign),
        {"max_tokens": 20, "accumulation": 2},
    ],
    ids=str,
)
def test_the_same_weights_to_the_bit(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {way: Shapes() for way in ("whole", "used")}
    fits = {way: fitted(way, monkeypatch, seen[way], **FREE, **changes) for way in seen}
    check_equal(state(fits["used"].model), state(fits["whole"].model))
    for ours, theirs in zip(seen["used"].saved, seen["whole"].saved, strict=True):
        check_equal(ours, theirs)  # what a callback saves is whole
    assert [row["dev_accuracy"] for row in fits["used"].progression.epochs] == [
        row["dev_accuracy"] for row in fits["whole"].progression.epochs
    ]
    assert seen["whole"].rows == {VOCABULARY}
    assert seen["used"].rows == {len(USED) + 1}


def test_unused_words_decay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A control for the test above, which would not see it if the decay were smaller than its tolerance."""
    first = state(model_of())[TABLE]
    for decay, shrinks in ((0.1, True), (0.0, False)):
        shares = state(fitted("used", monkeypatch, weight_decay=decay).model)[TABLE] / first
        assert ((shares[UNUSED] < 0.999).all() and (shares[UNUSED] > 0.9).all()) == shrinks
        assert torch.equal(shares[UNUSED], torch.ones_like(shares[UNUSED])) != shrinks


def test_clipped_gradients_are_the_same_to_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = (state(fitted(way, monkeypatch, max_grad_norm=0.1).model) for way in ("used", "whole"))
    assert not torch.equal(theirs["classifier.weight"], state(fitted("whole", monkeypatch).model)["classifier.weight"])
    for name, expected in theirs.items():
        assert_close(ours[name], expected, rtol=1e-4, atol=1e-5)


def test_the_weights_after_the_last_step_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = {way: fitted(way, monkeypatch, epochs=6, patience=0, **FREE) for way in ("used", "whole")}
    ours, theirs = fits["used"].last_weights, fits["whole"].last_weights
    assert ours is not None
    assert theirs is not None
    check_equal(dict(ours), dict(theirs))


class KilledError(Exception):
    pass


class KillAt(Callback):
    """Saves a checkpoint after a step, and raises."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, trainer: Trainer[Any], record: dict[str, Any]) -> None:
        if record["step"] == self.step:
            trainer.save()
            raise KilledError


def killed_and_resumed(folder: Path, between: Callable[[], None] = lambda: None) -> Any:
    config = toy_config(epochs=4, batch_size=5, weight_decay=0.1)
    options: dict[str, Any] = {"folder": folder, "seed": 3}
    killed = model_of()
    with pytest.raises(KilledError):
        fit_classifier(killed, toy_task(), TRAIN, DEV, config, callbacks=[KillAt(7)], **options)
    assert type(killed.get_input_embeddings()) is nn.Embedding
    between()
    return fit_classifier(model_of(), toy_task(), TRAIN, DEV, config, resume=True, **options)


def test_a_resumed_run_is_the_uninterrupted_one_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = state(fitted("used", monkeypatch).model)
    resumed = state(killed_and_resumed(tmp_path).model)
    assert all(torch.equal(resumed[name], x) for name, x in whole.items())


def test_a_checkpoint_of_the_whole_table_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choose("whole", monkeypatch)
    with pytest.raises(CheckpointError, match=rf"{TABLE} is \[300, 32\], here .*earlier version"):
        killed_and_resumed(tmp_path, between=lambda: choose("used", monkeypatch))


def test_with_cached_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentence vectors in parts, whose first pass has no gradients."""
    config = toy_config(max_tokens=30, few_shot=True, few_shot_pairs=6, weight_decay=0.1)
    found = []
    for way in ("used", "whole"):
        choose(way, monkeypatch)
        model = model_of(pooling="mean")
        seed_generators(0)
        with only_used_words(model, TRAIN.ids):
            trainer = contrast_labels(model, TRAIN, config.model_copy(update={"max_grad_norm": 1e9}), 0, RunOptions())
            trainer.run()
        found.append(state(model))
    assert trainer.at.step > 3
    check_equal(*found)


def test_which_tables_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    choose("used", monkeypatch)
    frozen = model_of()
    freeze_encoder(frozen)
    tied = BertForMaskedLM(TINY.replace(vocab_size=VOCABULARY))
    every = np.arange(VOCABULARY)
    cases = ((model_of(), USED, True), (model_of(), every, False), (frozen, USED, False), (tied, USED, False))
    for model, ids, expected in cases:
        table = model.get_input_embeddings()
        with only_used_words(model, ids):
            assert isinstance(model.get_input_embeddings(), UsedWords) is expected
            with all_words(model):
                assert type(model.get_input_embeddings()) is nn.Embedding
        assert model.get_input_embeddings() is table


def test_other_words_can_be_read_but_not_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    choose("used", monkeypatch)
    model, batch = model_of(), collate(DEV, range(10))
    expected = model.eval().forward_packed(batch).logits
    with only_used_words(model, TRAIN.ids):
        assert torch.equal(model.eval().forward_packed(batch).logits, expected)
        with pytest.raises(IndexError):
            model.train().forward_packed(batch)


def test_small_tables_stay_as_they_are() -> None:
    model = model_of()
    with only_used_words(model, USED):
        assert type(model.get_input_embeddings()) is nn.Embedding
