"""Pre-training of models that read one way: which word each token predicts, and what does not fit."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from bertkit import BertForMaskedLM
from bertkit.errors import ConfigError
from bertkit.training.pretraining.pretrain import pretrain
from bertkit.training.pretraining.pretrain_data import training_data, vocabulary_of
from bertkit.training.pretraining.pretrain_settings import PretrainConfig
from pretrain_helpers import CLS, FIRST, SEP, batch_of, pretrain_data, random_tokens
from pretrain_runs import SETTINGS, SHAPE

pytestmark = pytest.mark.slow

LEFT, RIGHT = SHAPE.replace(attention_direction="left-to-right"), SHAPE.replace(attention_direction="right-to-left")


@pytest.mark.parametrize(("objective", "shift"), [("next-word", 1), ("previous-word", -1)])
def test_every_word_is_predicted_once_from_its_neighbour(objective: str, shift: int) -> None:
    tokens = random_tokens(3, 12)
    data = pretrain_data(tokens, tokens.vocabulary(), objective=objective, max_seq_length=24)
    batch = batch_of(data, range(8))
    ids, labels = batch.input_ids.tolist(), batch.targets["labels"].tolist()
    assert set(batch.targets) == {"labels"}
    predicted = []
    for start, end in batch.layout.spans():
        assert (ids[start], ids[end - 1]) == (CLS, SEP)
        for at in range(start, end):
            word = ids[at + shift] if start <= at + shift < end else SEP
            assert labels[at] == (word if word >= FIRST else -100)
        predicted += [label for label in labels[start:end] if label != -100]
    assert predicted == [word for word in ids if word >= FIRST]
    assert batch.logit_rows.tolist() == np.flatnonzero(np.array(labels) != -100).tolist()
    same = pretrain_data(tokens, tokens.vocabulary(), objective="mlm", max_seq_length=24)
    assert batch.layout == batch_of(same, range(8)).layout  # the segments are those of masked words


@pytest.mark.parametrize(
    ("shape", "objective"), [(LEFT, "next-word"), pytest.param(RIGHT, "previous-word", marks=pytest.mark.campaign)]
)
def test_it_learns_and_the_objective_follows_from_the_config(stores, tmp_path, capsys, shape, objective) -> None:
    settings = PretrainConfig(**{**SETTINGS.model_dump(include=SETTINGS.model_fields_set), "max_steps": 60})
    result = pretrain(stores[0], tmp_path / "run", settings, model=shape, dev=stores[1])
    assert set(result.scores) == {"next_word_loss", "next_word_accuracy"}
    assert result.scores["next_word_loss"] < 0.75 * result.unigram_entropy
    told = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert told["settings"]["objective"] == objective
    assert f"--objective {objective}" in capsys.readouterr().err
    loaded = BertForMaskedLM.from_pretrained(tmp_path / "run" / "model")
    assert loaded.config.attention_direction == shape.attention_direction


@pytest.mark.parametrize(
    ("shape", "settings", "message"),
    [
        (LEFT, {"objective": "mlm"}, "attends left-to-right; use --objective next-word"),
        (LEFT, {"objective": "mlm+nsp"}, "attends left-to-right; use --objective next-word"),
        (RIGHT, {"objective": "next-word"}, "attends right-to-left; use --objective previous-word"),
        (SHAPE, {"objective": "next-word"}, r"would see that word; use --objective mlm\+nsp"),
        (LEFT, {"objective": "next-word", "masked_lm_prob": 0.4}, r"masked_lm_prob=0\.4 has no effect"),
        (LEFT, {"objective": "next-word", "noise_density": 0.4}, r"noise_density=0\.4 has no effect"),
        (SHAPE, {"objective": "mlm", "mask_share": 0.95}, "at most 1 together"),
        (SHAPE, {"objective": "mlm+nsp", "protocol": "original", "random_share": 0.0}, "masks as the paper does"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(stores, tmp_path, shape, settings, message) -> None:
    with pytest.raises(ConfigError, match=message):
        pretrain(stores[0], tmp_path / "run", SETTINGS.replace(**settings), model=shape)
    assert not (tmp_path / "run" / "model").exists()


def test_the_shares_of_masks_and_random_words_reach_the_examples(stores) -> None:
    store = stores[0]
    vocabulary = vocabulary_of(store, SETTINGS)
    found = {}
    for masked, random in ((0.8, 0.1), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)):
        settings = SETTINGS.replace(objective="mlm", mask_share=masked, random_share=random)
        plan = training_data(store, vocabulary, settings)
        batches = [batch for step in range(plan.steps_per_epoch) for batch in plan.micro_batches(step)]
        inputs, labels = (
            torch.cat(each) for each in zip(*((b.input_ids, b.targets["labels"]) for b in batches), strict=True)
        )
        inputs, labels = inputs[labels != -100], labels[labels != -100]
        found[masked, random] = tuple(float(x.float().mean()) for x in (inputs == vocabulary.mask_id, inputs == labels))
    assert found[1.0, 0.0] == (1.0, 0.0)
    assert found[0.0, 1.0][0] == 0.0
    assert found[0.0, 0.0] == (0.0, 1.0)
    assert found[0.8, 0.1] == pytest.approx((0.8, 0.1), abs=0.05)
