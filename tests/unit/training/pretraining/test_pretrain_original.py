"""Protocol ``original``: a run sees exactly the examples that the original's functions make of the text."""

from __future__ import annotations

import random

import pytest
import torch

from bertkit import classic
from bertkit.data.examples.masking import MaskVocabulary
from bertkit.data.store.prepare import prepare
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import ConfigError
from bertkit.system.interrupts import Interrupted
from bertkit.training.pretraining import original_examples as module
from bertkit.training.pretraining.pretrain import pretrain
from bertkit.training.pretraining.pretrain_data import training_data
from bertkit.training.pretraining.pretrain_settings import PretrainConfig
from bertkit.training.trainer.batch_plan import EpochPlan, Prefetched, epoch_order
from pretrain_runs import SETTINGS, SHAPE, corpus, interrupt_after, weights

ORIGINAL = SETTINGS.replace(protocol="original", dupe_factor=3, short_seq_prob=0.3, seed=5)


def as_text(batch, tokenizer) -> list[tuple]:
    """What :class:`bertkit.classic.TrainingInstance` holds, for each example of a batch."""
    found = []
    for number, (start, end) in enumerate(batch.layout.spans()):
        labels = batch.targets["labels"][start:end]
        places = (labels != -100).nonzero().flatten().tolist()
        found.append((
            tokenizer.convert_ids_to_tokens(batch.input_ids[start:end].tolist()),
            batch.token_type_ids[start:end].tolist(),
            bool(batch.targets["next_sentence_label"][number]),
            places,
            tokenizer.convert_ids_to_tokens(labels[places].tolist()),
        ))  # fmt: skip
    return found


@pytest.mark.parametrize("masking", ["token", "whole-word"])
def test_the_examples_are_those_of_the_original(stores, tmp_path, masking) -> None:
    text = corpus(tmp_path / "text.txt", 15, seed=3)
    tokenizer = stores[0].tokenizer()
    prepare(text, tokenizer, tmp_path / "store", sentences="line", workers=1)
    store = TokenStore(tmp_path / "store")
    config = ORIGINAL.replace(masking=masking)
    plan = training_data(store, MaskVocabulary.of_tokenizer(tokenizer), config)

    def made(seed: int) -> list[tuple]:
        instances = classic.create_training_instances(
            [text], tokenizer, 32, 3, 0.3, 0.15, 5, random.Random(seed), do_whole_word_mask=masking == "whole-word"
        )  # 5 predictions: 15 % of 32, rounded up
        return sorted(
            (one.tokens, one.segment_ids, one.is_random_next, one.masked_lm_positions, one.masked_lm_labels)
            for one in instances
        )

    for epoch in range(2):  # the same examples again, in another order
        steps = range(epoch * plan.steps_per_epoch, (epoch + 1) * plan.steps_per_epoch)
        seen = [one for step in steps for batch in plan.micro_batches(step) for one in as_text(batch, tokenizer)]
        assert sorted(seen) == made(5)
        assert sum(plan.size(step) for step in steps) == sum(len(one[0]) for one in seen)
    assert plan.rows(0) != plan.rows(plan.steps_per_epoch)
    assert made(5) != made(6)  # control


def test_ranks_share_a_step_and_batches_are_packed(stores) -> None:
    vocabulary = MaskVocabulary.of_tokenizer(stores[0].tokenizer())
    whole = training_data(stores[0], vocabulary, ORIGINAL)
    parts = [training_data(stores[0], vocabulary, ORIGINAL, rank=rank, num_ranks=2) for rank in range(2)]
    for step in (0, 3, whole.steps_per_epoch - 1):
        mine = [one for batch in whole.micro_batches(step) for one in as_text(batch, stores[0].tokenizer())]
        theirs = [
            one for part in parts for batch in part.micro_batches(step) for one in as_text(batch, stores[0].tokenizer())
        ]
        assert sorted(mine) == sorted(theirs)
    batch = whole.micro_batches(0)[0]
    assert len(batch.input_ids) == sum(batch.layout.lengths)
    assert torch.equal(batch.logit_rows, (batch.targets["labels"] != -100).nonzero().flatten())


def test_steps_made_in_threads_are_the_same_over_the_end_of_an_epoch(stores, monkeypatch) -> None:
    plan = training_data(stores[0], MaskVocabulary.of_tokenizer(stores[0].tokenizer()), ORIGINAL)
    assert isinstance(plan, EpochPlan)  # that of fine-tuning too
    steps = range(3 * plan.steps_per_epoch)
    expected = [plan.rows(step) for step in steps]
    with Prefetched(plan, num_workers=7) as ahead:
        assert [ahead.rows(step) for step in steps] == expected
    # The worst that another thread can do: as soon as this one has looked, it remembers the order of its own epoch.
    own, other = ((epoch, epoch_order(len(plan.lengths), plan.seed, epoch)) for epoch in (0, 1))
    kept = [own]

    def look(_):
        found, kept[0] = kept[0], other
        return found

    monkeypatch.setattr(
        type(plan), "_order", property(look, lambda _, order: kept.__setitem__(0, order)), raising=False
    )
    assert [plan.rows(step) for step in steps] == expected


@pytest.mark.campaign  # ``test_pretrain.py`` resumes a run of today's procedure every day
@pytest.mark.slow
def test_a_run_goes_on_bit_for_bit(stores, tmp_path, monkeypatch) -> None:
    config = ORIGINAL.replace(max_steps=8, optimizer="adam-weight-decay", schedule="original", max_seq_length=48,
                              short_seq_length=24)  # fmt: skip
    whole = pretrain(stores[0], tmp_path / "whole", config, model=SHAPE, dev=stores[1])
    assert whole.progression.step == 8
    interrupt_after(monkeypatch, 3)
    with pytest.raises(Interrupted):
        pretrain(stores[0], tmp_path / "parts", config, model=SHAPE, dev=stores[1])
    pretrain(stores[0], tmp_path / "parts", config, model=SHAPE, dev=stores[1])
    a, b = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_what_the_original_does_not_have_is_refused(stores, monkeypatch) -> None:
    for change in ({"objective": "mlm"}, {"masking": "span"}):
        with pytest.raises(ConfigError, match="protocol 'original' has the objective"):
            PretrainConfig(protocol="original", **change).check()
    vocabulary = MaskVocabulary.of_tokenizer(stores[0].tokenizer())
    with pytest.raises(ConfigError, match=r"at most as many as examples in a step \(1\)"):
        training_data(stores[0], vocabulary, ORIGINAL.replace(batch_size=1), rank=1, num_ranks=2)
    tokens = stores[0].manifest.counts.num_tokens
    two_lengths = ORIGINAL.replace(short_seq_length=16)
    monkeypatch.setattr(module, "MOST_TOKENS", 6 * tokens)
    training_data(stores[0], vocabulary, two_lengths)  # 3 copies for 2 lengths
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    training_data(stores[0], vocabulary, two_lengths, rank=1, num_ranks=2)  # the other process has its own machine
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"for 2 lengths \(short_seq_length\), in 2 processes.*Lower dupe_factor"):
        training_data(stores[0], vocabulary, two_lengths, rank=1, num_ranks=2)
    monkeypatch.setattr(module, "MOST_TOKENS", 1000)
    with pytest.raises(ConfigError, match=r"3 times \(dupe_factor\) are more than 1,000\. Lower dupe_factor"):
        training_data(stores[0], vocabulary, ORIGINAL)


def test_documents_become_tokens_when_they_are_read(stores) -> None:
    store = stores[0]
    names = store.tokenizer().convert_ids_to_tokens(range(len(store.tokenizer())))
    documents = module._documents(store, names)
    assert len(documents) == len(store) == 40
    for number, document in enumerate(documents):
        whole = [names[token] for token in store.tokens_of(number)]
        assert [token for sentence in document for token in sentence] == whole
        assert [*document[2:-3]] == [document[place] for place in range(2, len(document) - 3)]
        assert document[-1] == [*document][-1]
        with pytest.raises(IndexError):
            document[len(document)]
