"""Batches of denoising examples: the corpus comes back from them, whatever the ranks, and a model learns from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertkit
from bertkit.batch import Batch
from bertkit.data.examples.denoising_batches import NO_TARGET, DenoisingData, DenoisingRules, DenoisingVocabulary
from bertkit.errors import ConfigError, DataError
from bertkit.optim import adamw, linear_schedule, parameter_groups
from bertkit.training.trainer.loop import Trainer
from bertkit.training.trainer.loop_options import LoopOptions
from pretrain_helpers import FIRST, ToyTokens, random_tokens
from tokenizer_families import small

TOKENS = random_tokens(0, 24)
#: Ids that the toy corpus does not have.
BOS, EOS, MASK = (FIRST + TOKENS.num_tokens + more for more in range(3))
SENTINELS = tuple(range(MASK + 100, MASK, -1))
SIZE = MASK + 101
T5 = DenoisingVocabulary(SIZE, behind=(EOS,), sentinels=SENTINELS)
BART = DenoisingVocabulary(SIZE, before=(BOS,), behind=(EOS,), mask_id=MASK)
VOCABULARIES = {"span-corruption": T5, "text-infilling": BART}

Example = tuple[tuple[int, ...], tuple[int, ...]]


def make(objective: Any, tokens: ToyTokens = TOKENS, **settings: Any) -> DenoisingData:
    rules = DenoisingRules(objective, max_seq_length=settings.pop("max_seq_length", 48), seed=3)
    return DenoisingData(tokens, VOCABULARIES[objective], rules, **{"batch_size": 16, "max_tokens": 300, **settings})


def examples(batches: list[Batch]) -> list[Example]:
    """Source and target of each sequence."""
    found = []
    for batch in batches:
        for (start, end), labels in zip(batch.layout.spans(), batch.targets["labels"].tolist(), strict=True):
            source = tuple(batch.input_ids[start:end].tolist())
            found.append((source, tuple(label for label in labels if label != NO_TARGET)))
    return found


def epoch(data: DenoisingData, number: int = 0) -> list[Example]:
    steps = range(number * data.steps_per_epoch, (number + 1) * data.steps_per_epoch)
    return [example for step in steps for example in examples(data.micro_batches(step))]


@pytest.mark.slow
@pytest.mark.parametrize("objective", VOCABULARIES)
def test_an_epoch_is_the_corpus(objective: str) -> None:
    """Put back, the texts of the examples are the corpus, every token once."""
    everything = np.sort(TOKENS.tokens(0, len(TOKENS.sentence_boundaries) - 1)).tolist()
    found = epoch(make(objective))
    texts: list[int] = []
    for source, target in found:
        assert source[-1] == target[-1] == EOS
        if objective == "text-infilling":
            assert source[0] == target[0] == BOS
            assert MASK in source
            texts += target[1:-1]
        else:
            texts += [token for token in (*source, *target) if token < BOS]
    assert sorted(texts) == everything
    again, other = epoch(make(objective)), epoch(make(objective), 1)
    assert again == found
    assert sorted(other) != sorted(found)


@pytest.mark.parametrize("objective", VOCABULARIES)
def test_ranks_share_an_epoch(objective: str) -> None:
    whole = sorted(epoch(make(objective)))
    shares = [epoch(make(objective, rank=rank, num_ranks=3)) for rank in range(3)]
    assert sorted(example for share in shares for example in share) == whole


def test_sentences_are_permuted_whole() -> None:
    """Without a mask in it, each sentence of an example stands in its source as it stands in the text."""
    data = make("text-infilling")
    bounds = TOKENS.sentence_boundaries
    sentences = {tuple(TOKENS.tokens(n, n + 1).tolist()) for n in range(len(bounds) - 1)}
    spans = data.index(0).take(np.arange(8))
    inner = [tuple(part.tolist()) for example in data._sentences_of(spans) for part in example[1:-1]]
    assert inner
    assert set(inner) <= sentences


def test_what_cannot_be_made_is_refused() -> None:
    for objective, vocabulary, told in (
        ("span-corruption", BART, "needs a tokenizer with sentinels"),
        ("text-infilling", T5, "needs a tokenizer with a mask"),
    ):
        with pytest.raises(ConfigError, match=told):
            DenoisingData(TOKENS, vocabulary, DenoisingRules(objective))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="objective must be one of"):
        DenoisingRules("mlm")  # type: ignore[arg-type]
    small = DenoisingData(TOKENS, replace(T5, size=5), DenoisingRules(max_seq_length=48), max_tokens=300)
    with pytest.raises(DataError, match="vocabulary has 5 tokens"):
        small.micro_batches(0)


@pytest.mark.slow
def test_the_vocabulary_of_a_tokenizer(shared: Path, tmp_path: Path) -> None:
    t5: Any = small("t5", shared, tmp_path)
    found = DenoisingVocabulary.of(t5)
    assert (found.before, found.behind) == ((), (t5.eos_token_id,))
    assert t5.convert_ids_to_tokens(list(found.sentinels[:2])) == ["<extra_id_0>", "<extra_id_1>"]
    bart: Any = small("roberta", shared, tmp_path)
    found = DenoisingVocabulary.of(bart)
    assert (found.before, found.behind) == ((bart.cls_token_id,), (bart.sep_token_id,))
    assert found.mask_id == bart.mask_token_id


class Counting(ToyTokens):
    """Each sentence counts on from the one before, up to 49 and again from 0."""

    def tokens(self, first_sentence: int, end_sentence: int) -> np.ndarray:
        return super().tokens(first_sentence, end_sentence) % 50


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("objective", VOCABULARIES)
def test_a_model_learns_from_them(objective: str) -> None:
    """Of a corpus that counts, the missing tokens follow from the others: the loss falls far below that of chance."""
    special = replace(VOCABULARIES[objective], size=100, behind=(51,), sentinels=tuple(range(99, 59, -1)))
    if objective == "text-infilling":
        special = replace(special, before=(50,), mask_id=52)
    rules = DenoisingRules(objective, max_seq_length=16)  # type: ignore[arg-type]
    data = DenoisingData(Counting.of([[12] * 400]), special, rules, batch_size=32, max_tokens=2000)
    torch.manual_seed(0)
    shape = {"vocab_size": 100, "d_model": 32, "pad_token_id": 53, "eos_token_id": 51}
    model: Any
    if objective == "span-corruption":
        sizes = {"d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 53}
        model = bertkit.T5ForConditionalGeneration(bertkit.T5Config(**shape, **sizes))
    else:
        tower = {"layers": 1, "ffn_dim": 64, "attention_heads": 2}
        sizes = {f"{name}_{key}": value for name in ("encoder", "decoder") for key, value in tower.items()}
        ids = {"bos_token_id": 50, "decoder_start_token_id": 51, "forced_eos_token_id": 51}
        model = bertkit.BartForConditionalGeneration(bertkit.BartConfig(**shape, **sizes, **ids))
    records: list[dict[str, Any]] = []
    steps = 150
    trainer: Any = Trainer(
        model,
        data,
        adamw(parameter_groups(model), learning_rate=3e-3),
        linear_schedule(steps),
        LoopOptions(steps, 3e-3),
        log=records.append,
    )
    trainer.run()
    losses = [record["loss"] for record in records if "loss" in record]
    assert losses[0] > 4
    assert np.mean(losses[-10:]) < 2.0  # of 50 numbers by chance: 3.9
