"""Batches of pre-training examples: the same for any number of workers and ranks, and right for the model."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertkit.batch import Batch, split_by_budget
from bertkit.data.examples.masking import Masking, MaskVocabulary
from bertkit.data.examples.pretrain_batches import PretrainData
from bertkit.data.store.mapped_ids import NAME
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import ConfigError, DataError
from bertkit.model.models import BertForMaskedLM, BertForPreTraining
from bertkit.optim import adamw, linear_schedule, parameter_groups
from bertkit.training.trainer.batch_plan import Plan
from bertkit.training.trainer.generators import seed_generators
from bertkit.training.trainer.loop import Trainer
from bertkit.training.trainer.loop_options import LoopOptions
from pretrain_helpers import CLS, FIRST, SEP, SPECIALS, ToyTokens, batch_of, pretrain_data, random_tokens, write_store
from training_helpers import TINY

OBJECTIVES = ("mlm+nsp", "mlm", "mlm+sop")
TOKENS = random_tokens(0, 60)
Example = dict[str, list[int]]


def make(tokens: ToyTokens = TOKENS, **settings: Any) -> PretrainData:
    settings = {"max_seq_length": 48, "batch_size": 16, "max_tokens": 300, **settings}
    return pretrain_data(tokens, tokens.vocabulary(), **settings)


def examples(batch: Batch) -> list[Example]:
    """Each sequence of a batch by itself: original ids, input ids, segments, positions, targets."""
    labels = batch.targets["labels"]
    original = torch.where(labels == -100, batch.input_ids, labels)
    out = []
    for row, (start, end) in enumerate(batch.layout.spans()):
        columns = {
            "ids": original,
            "inputs": batch.input_ids,
            "types": batch.token_type_ids,
            "positions": batch.position_ids,
            "labels": labels,
        }
        out.append({name: column[start:end].tolist() for name, column in columns.items()})
        if "next_sentence_label" in batch.targets:
            out[-1]["next"] = [int(batch.targets["next_sentence_label"][row])]
    return out


def stream_of(data: PretrainData, steps: range) -> list[Example]:
    return [example for step in steps for batch in data.micro_batches(step) for example in examples(batch)]


def in_any_order(found: list[Example]) -> list[str]:
    return sorted(map(str, found))


# ---------------------------------------------------------------------------------------------- what is in a batch


@pytest.mark.parametrize("objective", ["mlm+nsp", "mlm+sop"])
def test_pairs_are_assembled_as_bert_reads_them(objective: Any) -> None:
    data = make(objective=objective)
    index = data.index(0).take(np.arange(len(data.index(0))))
    found = examples(batch_of(data, range(len(index))))
    for row, example in enumerate(found):
        a, na, b, nb = (
            int(column[row])
            for column in (index.first_start, index.first_length, index.second_start, index.second_length)
        )
        first, second = range(FIRST + a, FIRST + a + na), range(FIRST + b, FIRST + b + nb)
        assert example["ids"] == [CLS, *first, SEP, *second, SEP]
        assert example["types"] == [0] * (na + 2) + [1] * (nb + 1)
        assert example["positions"] == list(range(na + nb + 3))
        assert example["next"] == [index.label[row]]


def test_full_sentences_have_a_separator_between_documents() -> None:
    data = make(objective="mlm", max_seq_length=64)
    found = examples(batch_of(data, range(len(data.index(0)))))
    crossing = 0
    for example in found:
        ids = example["ids"]
        assert "next" not in example
        assert set(example["types"]) == {0}
        assert (ids[0], ids[-1]) == (CLS, SEP)
        assert len(ids) <= 64
        words = [token - FIRST for token in ids if token >= FIRST]
        assert words == list(range(words[0], words[-1] + 1))
        expected = [CLS]
        for at in words:
            if at > words[0] and TOKENS.document_at(at) != TOKENS.document_at(at - 1):
                expected.append(SEP)
                crossing += 1
            expected.append(FIRST + at)
        assert ids == [*expected, SEP]
    assert crossing > 20
    assert sorted(x for example in found for x in example["ids"] if x >= FIRST) == list(
        range(FIRST, FIRST + TOKENS.num_tokens)
    )


def test_logit_rows_are_the_targets() -> None:
    batch = batch_of(make(), [3, 1, 4])
    assert batch.logit_rows is not None
    assert batch.logit_rows.tolist() == (batch.targets["labels"] != -100).nonzero().squeeze(1).tolist()
    assert len(batch.logit_rows) > 0


def test_tiny_sentences_and_documents_do_no_harm() -> None:
    tokens = ToyTokens.of([[3, 4], [5], [2, 2, 2]])
    for objective in OBJECTIVES:
        data = make(tokens, objective=objective, batch_size=1, short_seq_prob=0.0)
        for example in stream_of(data, range(data.steps_per_epoch)):
            assert all(token in (CLS, SEP) or token >= FIRST for token in example["ids"])


# ------------------------------------------------------------------------------------------------ one stream for all


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_an_epoch_sees_every_example_once(objective: Any) -> None:
    plan: Plan[Batch] = make(objective=objective)
    data = make(objective=objective)
    for epoch in range(3):
        steps = range(epoch * plan.steps_per_epoch, (epoch + 1) * plan.steps_per_epoch)
        seen = list(chain.from_iterable(map(plan.rows, steps)))
        assert sorted(seen) == list(range(len(data.index(epoch))))
        assert all(12 <= len(plan.rows(step)) <= 20 for step in steps)


def test_micro_batches_keep_to_the_budget() -> None:
    data = make()
    for step in range(data.steps_per_epoch):
        batches = data.micro_batches(step)
        assert all(batch.layout.num_tokens <= 300 for batch in batches)
        assert sum(batch.layout.num_tokens for batch in batches) == data.size(step)
        assert sum(batch.layout.num_sequences for batch in batches) == len(data.rows(step))


def cut_greedily(rows: list[int], lengths: list[int], max_tokens: int) -> list[list[int]]:
    parts: list[list[int]] = []
    for row in rows:
        if not parts or sum(lengths[one] for one in parts[-1]) + lengths[row] > max_tokens:
            parts.append([])
        parts[-1].append(row)
    return parts


@given(st.lists(st.integers(1, 60), min_size=1, max_size=60), st.integers(1, 200))
def test_micro_batches_are_as_full_as_can_be(lengths: list[int], max_tokens: int) -> None:
    rows = sorted(range(len(lengths)), key=lengths.__getitem__)
    found = split_by_budget(rows, lengths, max_tokens, even=False)
    assert found == cut_greedily(rows, lengths, max_tokens)
    assert len(found) <= len(split_by_budget(rows, lengths, max_tokens))


def test_even_micro_batches_are_others() -> None:
    """Control: the two rules differ, so the one that pre-training has always had must be asked for."""
    assert split_by_budget([0, 1, 2], [4, 4, 4], 10, even=False) == [[0, 1], [2]]
    assert split_by_budget([0, 1, 2, 3], [4, 4, 4, 4], 12, even=False) == [[0, 1, 2], [3]]
    assert split_by_budget([0, 1, 2, 3], [4, 4, 4, 4], 12) == [[0, 1], [2, 3]]


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_any_number_of_workers_gives_one_stream(objective: Any) -> None:
    steps = range(0, 2 * make().steps_per_epoch, 4)
    expected = [stream_of(make(objective=objective), range(step, step + 1)) for step in steps]
    for workers in (1, 2, 7):
        data = make(objective=objective)
        with ThreadPoolExecutor(workers) as pool:
            parts = [pool.submit(stream_of, data, range(step, step + 1)) for step in reversed(steps)]
            backwards = [part.result() for part in parts]
        assert backwards[::-1] == expected


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_ranks_share_each_step_out(num_ranks: int) -> None:
    whole = make()
    shares = [make(rank=rank, num_ranks=num_ranks) for rank in range(num_ranks)]
    for step in range(whole.steps_per_epoch + 2):
        parts = [stream_of(share, range(step, step + 1)) for share in shares]
        assert in_any_order(list(chain(*parts))) == in_any_order(stream_of(whole, range(step, step + 1)))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_an_example_does_not_depend_on_the_batch() -> None:
    data = make(masking=Masking("span"))
    alone = [examples(batch_of(data, [row], 1))[0] for row in range(30)]
    assert examples(batch_of(data, range(30), 1)) == alone
    assert examples(batch_of(make(masking=Masking("span"), batch_size=3), range(30), 1)) == alone


def test_masks_and_pairs_change_with_the_epoch_and_the_seed() -> None:
    """Control: the equalities above do not hold because everything is equal."""
    data = make(objective="mlm", short_seq_prob=0.0)
    first, second = ({str(e["ids"]): e["inputs"] for e in examples(batch_of(data, range(20, 60), n))} for n in (0, 1))
    assert list(first) != list(second)
    whole = [
        {str(e["ids"]): e["inputs"] for e in stream_of(data, range(n, n + data.steps_per_epoch))}
        for n in (0, data.steps_per_epoch)
    ]
    both = whole[0].keys() & whole[1].keys()
    assert len(both) > 50
    assert sum(whole[0][ids] == whole[1][ids] for ids in both) < len(both) / 10
    assert stream_of(make(seed=1), range(2)) != stream_of(make(seed=2), range(2))


# ------------------------------------------------------------------------------------------------- the real store


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_token_store_gives_the_same_batches(tmp_path: Path, objective: Any) -> None:
    folder = write_store(TOKENS, tmp_path / "store", documents_a_group=7, groups_a_shard=4)
    settings: dict[str, Any] = {"objective": objective, "max_seq_length": 48, "batch_size": 16, "max_tokens": 300}
    expected = stream_of(make(objective=objective), range(5))
    stored = pretrain_data(TokenStore(folder), TOKENS.vocabulary(), **settings)
    assert stream_of(stored, range(5)) == expected
    assert not (folder / NAME).exists(), "what fits into memory needs no second copy"
    for opening in range(2):  # the copy is written, then found
        large = pretrain_data(TokenStore(folder, cache_bytes=0), TOKENS.vocabulary(), **settings)
        assert (folder / NAME).exists(), opening
        assert stream_of(large, range(5)) == expected


# ------------------------------------------------------------------------------------------------------- the model


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_model_learns_from_the_batches(objective: Any) -> None:
    torch.manual_seed(0)
    data = make(objective=objective, max_seq_length=32)
    config = TINY.replace(vocab_size=data.vocabulary.size)
    model = BertForMaskedLM(config) if objective == "mlm" else BertForPreTraining(config)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    losses = []
    for step in range(12):
        (batch, *_) = data.micro_batches(0)
        loss = model.forward_packed(batch).loss
        assert loss is not None, step
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    at_first = np.log(data.vocabulary.size) + (0 if objective == "mlm" else np.log(2))
    assert losses[0] == pytest.approx(at_first, abs=0.5)
    assert losses[-1] < losses[0] - 0.5


def pretrainer(data: PretrainData, folder: Path, num_steps: int, seed: int) -> Trainer[Batch]:
    torch.manual_seed(seed)
    model = BertForPreTraining(TINY.replace(vocab_size=data.vocabulary.size))
    optimizer = adamw(parameter_groups(model), learning_rate=1e-3)
    options = LoopOptions(num_steps, 1e-3, monitor=None, folder=folder)
    return Trainer(model, data, optimizer, linear_schedule(num_steps), options)


def test_a_trainer_resumes_bit_for_bit(tmp_path: Path) -> None:
    """Stopped in the second epoch, gone on in a new process: pairs, masks and dropout are those of an unbroken run."""
    settings = {"tokens": random_tokens(1, 8), "max_seq_length": 32, "batch_size": 24}
    per_epoch = make(**settings).steps_per_epoch
    assert per_epoch > 2
    num_steps, stop_after = 2 * per_epoch + 1, per_epoch + 1
    seed_generators(0)
    whole = pretrainer(make(**settings), tmp_path / "whole", num_steps, 0)
    whole.run()

    seed_generators(0)
    first = pretrainer(make(**settings), tmp_path / "parts", num_steps, 0)
    for _ in range(stop_after):
        first.train_step()
        if first._epoch_ended():
            first._end_epoch(lambda: None)
    first.save()
    seed_generators(99)
    second = pretrainer(make(**settings), tmp_path / "parts", num_steps, 5)
    assert second.resume()
    second.run()
    expected = dict(whole.model.named_parameters())
    for name, p in second.model.named_parameters():
        assert torch.equal(p, expected[name]), name
    assert not torch.equal(p, dict(first.model.named_parameters())[name]), "control: training went on"


# ------------------------------------------------------------------------------------------------------- errors


def test_wrong_settings_say_what_to_do() -> None:
    with pytest.raises(ConfigError, match="max_tokens=20 of a micro-batch is less than max_seq_length=48"):
        make(max_tokens=20)
    with pytest.raises(ConfigError, match="batch_size=1, rank=0, num_ranks=2: every rank needs"):
        make(batch_size=1, num_ranks=2)


def test_a_store_of_another_tokenizer() -> None:
    data = pretrain_data(TOKENS, MaskVocabulary.of([*SPECIALS, "a", "b"]), max_seq_length=48)
    with pytest.raises(DataError, match="but the vocabulary has 7 tokens; use the tokenizer that the store"):
        batch_of(data, [0])
