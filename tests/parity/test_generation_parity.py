"""What BART, mBART and T5 write equals what transformers writes, token for token, greedy and with beams."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from seq2seq_helpers import KINDS, VOCAB, Pair, batch, pair

#: transformers makes a cache for as many layers as the encoder has.
WRITERS = [kind for kind in KINDS if "odd" not in kind]


def random_settings(chance: random.Random, eos: int) -> dict[str, Any]:
    """Settings of every kind, in combinations that have one right answer."""
    longest, beams = chance.choice([1, 2, 5, 20, 35]), chance.choice([1, 1, 2, 3, 4])
    settings: dict[str, Any] = {"max_new_tokens": longest, "num_beams": beams}
    sometimes: dict[str, Any] = {
        "no_repeat_ngram_size": chance.choice([1, 2, 3]),
        "repetition_penalty": chance.choice([0.7, 1.3, 2.0]),
        "min_new_tokens": min(chance.choice([1, 3, 10]), longest),
        "forced_eos_token_id": eos,
    }
    settings |= {name: value for name, value in sometimes.items() if chance.random() < 0.3}
    if chance.random() < 0.2:
        settings["forced_bos_token_id"] = chance.randrange(3, VOCAB)
    if longest == 1 and beams > 1:  # of one forced token the other beams are all equally impossible
        settings = {name: value for name, value in settings.items() if not name.startswith("forced_")}
    if beams > 1:
        settings["length_penalty"] = chance.choice([1.0, 0.0, 2.0, -1.0, 0.6])
        settings["early_stopping"] = chance.choice([True, False, "never"])
        settings["num_return_sequences"] = chance.randint(1, beams)
    return settings


def ended(rows: Tensor, eos: int) -> list[list[int]]:
    """Each row up to its end; what stands behind is padding here, and with T5's beams the end again in transformers."""
    listed: list[list[int]] = rows.tolist()
    return [row[: row.index(eos, 1) + 1] if eos in row[1:] else row for row in listed]


def differences(both: Pair, seed: int, cases: int) -> list[str]:
    """The settings with which the two write something else."""
    chance, wrong = random.Random(seed), []
    eos = both.ours.config.eos_token_id
    for case in range(cases):
        ids, mask = batch(
            both.ours.config.pad_token_id, 1000 * seed + case, chance.randint(1, 5), chance.randint(1, 20)
        )
        settings = random_settings(chance, eos)
        theirs = both.peer.generate(input_ids=ids, attention_mask=mask, do_sample=False, **settings)
        ours = both.ours.generate(ids, mask, **settings)
        if ended(ours, eos) != ended(theirs, eos):
            wrong.append(f"{settings}: {ended(ours, eos)} and {ended(theirs, eos)}")
    return wrong


@pytest.mark.parametrize("kind", WRITERS)
def test_the_same_tokens(kind: str, tmp_path: Path) -> None:
    assert differences(pair(kind, "ForConditionalGeneration", tmp_path, dtype=torch.float64), 1, 8) == []


@pytest.mark.campaign
@pytest.mark.parametrize("kind", WRITERS)
def test_the_same_tokens_of_many_models(kind: str, tmp_path: Path) -> None:
    """500 cases a family, in 25 models."""
    for seed in range(2, 27):
        both = pair(kind, "ForConditionalGeneration", tmp_path / str(seed), dtype=torch.float64, seed=seed)
        assert differences(both, seed, 20) == []


@pytest.mark.campaign
@pytest.mark.parametrize("kind", WRITERS)
def test_single_precision(kind: str, tmp_path: Path) -> None:
    """Where the two differ, the two best scores were nearer than 1e-4."""
    undecided = cases = 0
    for seed in range(30, 45):
        both = pair(kind, "ForConditionalGeneration", tmp_path / str(seed), seed=seed)
        ids, mask = batch(both.ours.config.pad_token_id, seed)
        theirs = both.peer.generate(input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=40)
        ours = both.ours.generate(ids, mask, max_new_tokens=40)
        eos = both.ours.config.eos_token_id
        for row, (mine, other) in enumerate(zip(ended(ours, eos), ended(theirs, eos), strict=True)):
            cases += 1
            if mine != other:
                place = next(i for i, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b)
                given = torch.tensor([mine[:place]])
                logits = both.ours(ids[row : row + 1], mask[row : row + 1], given).logits[0, -1]
                best = logits.topk(2).values
                assert float(best[0] - best[1]) < 1e-4
                undecided += 1
    print(f"\n{undecided} of {cases} rows were undecided")


def test_the_comparison_can_fail(tmp_path: Path) -> None:
    """A control: with a wrong row of the cache the outputs differ."""
    both = pair("bart", "ForConditionalGeneration", tmp_path, dtype=torch.float64)
    with torch.no_grad():
        both.ours.model.decoder.layer[0].attention.qkv.bias[-1] += 1.0
    assert differences(both, 1, 12) != []
