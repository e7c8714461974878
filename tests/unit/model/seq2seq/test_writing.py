"""``generate`` and ``stream``: sampling, the cache, settings and their file, bad input."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import bertkit
from bertkit.config.generation_settings import GenerationSettings
from bertkit.errors import CheckpointError, ConfigError, InputError
from bertkit.model.generation.score_rules import adjusted
from seq2seq_helpers import VOCAB

_SIZES: dict[str, Any] = {"vocab_size": VOCAB, "d_model": 24}
CONFIGS = {
    "bart": bertkit.BartConfig(
        **_SIZES, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=3,
        encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=50, init_std=0.3, dropout=0.5,
    ),
    "t5": bertkit.T5Config(
        **_SIZES, d_kv=8, d_ff=32, num_layers=1, num_decoder_layers=2, num_heads=3, dropout_rate=0.5
    ),
}  # fmt: skip


@pytest.fixture(params=CONFIGS)
def model(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(0)
    kind = bertkit.BartForConditionalGeneration if request.param == "bart" else bertkit.T5ForConditionalGeneration
    made: Any = kind(CONFIGS[request.param]).eval()
    with torch.no_grad():  # random models write the same token again and again; this one writes varied texts
        made.model.shared.weight.mul_(1.5)
    return made


def prompts(rows: int = 3, width: int = 9) -> tuple[Tensor, Tensor]:
    ids = torch.randint(3, VOCAB, (rows, width), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1:2, 4:] = 0
    return ids, mask


def test_the_stream_gives_the_same_tokens(model: Any) -> None:
    for settings in ({"no_repeat_ngram_size": 2}, {"do_sample": True, "seed": 3, "num_return_sequences": 2}):
        whole = model.generate(*prompts(), max_new_tokens=12, **settings)
        tokens = list(model.stream(*prompts(), max_new_tokens=12, **settings))
        assert torch.equal(torch.stack(tokens, dim=1), whole[:, 1:])


def test_inputs_of_any_lengths_are_written_for_alike(model: Any) -> None:
    """In groups of similar length, sorted or not, each input gets what it gets alone; and copies follow the weights."""
    model.double()
    chance = torch.Generator().manual_seed(4)
    lengths = [3, 40, 5, 9, 33, 4, 48, 6, 2, 21]
    rows = [torch.randint(3, VOCAB, (length,), generator=chance) for length in lengths]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    for settings in ({}, {"num_beams": 3}, {"num_beams": 2, "num_return_sequences": 2}):
        together = model.generate(ids, mask, max_new_tokens=9, min_new_tokens=9, **settings)
        alone = [model.generate(row[None], max_new_tokens=9, min_new_tokens=9, **settings) for row in rows]
        assert torch.equal(together, torch.cat(alone))
    assert len({tuple(row) for row in together.tolist()}) > len(rows) / 2  # a control: texts differ
    model.float()
    before = model.generate(ids, mask, max_new_tokens=5)
    with torch.no_grad():
        model.model.shared.weight.mul_(-1)
    after = model.generate(ids, mask, max_new_tokens=5)
    assert not torch.equal(before, after)
    fresh = type(model)(model.config)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh.eval().generate(ids, mask, max_new_tokens=5), after)


def test_the_cache_changes_nothing(model: Any) -> None:
    """One token after the other gives the logits of the whole text at once, also behind the first room of the cache."""
    model = model.double()
    ids, mask = prompts()
    given = torch.randint(3, VOCAB, (3, 45), generator=torch.Generator().manual_seed(2))
    expected = model(ids, mask, given).logits
    batch, _, memory = model.encode(ids, mask)
    cache = model.model.decoder.remember(memory, batch.layout)
    steps = [model._step(given[:, place : place + 1], cache) for place in range(45)]
    assert torch.allclose(torch.stack(steps, dim=1), expected, rtol=0, atol=1e-10)


def test_dropout_is_off_and_the_mode_stays(model: Any) -> None:
    expected = model.generate(*prompts(), max_new_tokens=10)
    model.train()
    assert torch.equal(model.generate(*prompts(), max_new_tokens=10), expected)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("settings", [{}, {"num_beams": 3, "num_return_sequences": 2}])
def test_a_row_does_not_depend_on_the_others(model: Any, settings: dict[str, Any]) -> None:
    """Finished rows leave the batch; the others go on as if they had been alone."""
    model = model.double()
    ids, mask = prompts(rows=12)
    settings = {"max_new_tokens": 30, "no_repeat_ngram_size": 2, **settings}
    with torch.no_grad():
        model.model.shared.weight[model.config.eos_token_id] *= 2.0  # so that rows end early
    whole = model.generate(ids, mask, **settings)
    returned = settings.get("num_return_sequences", 1)
    lengths = set()
    for row in range(len(ids)):
        length = int(mask[row].sum())
        alone = model.generate(ids[row : row + 1, :length], **settings)
        both = whole[row * returned : (row + 1) * returned]
        assert torch.equal(both[:, : alone.shape[1]], alone)
        assert bool((both[:, alone.shape[1] :] == model.config.pad_token_id).all())
        lengths.add(alone.shape[1])
    assert len(lengths) > 1


@pytest.mark.slow
def test_sampling_follows_the_probabilities(model: Any) -> None:
    """First tokens of 4,000 samples beside the softmax that the settings leave; the same seed, the same tokens."""
    ids, mask = prompts(rows=1)
    for settings in ({}, {"temperature": 2.0, "top_k": 0}, {"top_k": 5}, {"top_k": 0, "top_p": 0.7}):
        chosen = GenerationSettings(do_sample=True, max_new_tokens=1, **settings)
        start = torch.full((1, 1), model.config.decoder_start_token_id)
        logits = model(ids, mask, start).logits[:, -1].detach()
        expected = adjusted(logits, start, model.config.eos_token_id, chosen).softmax(dim=-1)[0]
        call = {"do_sample": True, "max_new_tokens": 1, "forced_eos_token_id": None, **settings}
        model.generation_settings = GenerationSettings()
        found = model.generate(ids, mask, num_return_sequences=4000, seed=1, **call)[:, 1]
        shares = torch.bincount(found, minlength=VOCAB) / 4000
        assert float((shares - expected).abs().max()) < 0.035
        assert bool((expected[shares > 0] > 0).all())
        assert torch.equal(found, model.generate(ids, mask, num_return_sequences=4000, seed=1, **call)[:, 1])
        assert not torch.equal(found, model.generate(ids, mask, num_return_sequences=4000, seed=2, **call)[:, 1])
    kept = adjusted(logits, start, 1, GenerationSettings(do_sample=True, top_k=5)).isfinite().sum()
    assert int(kept) == 5


def test_beams_that_are_sampled(model: Any) -> None:
    call = {"do_sample": True, "num_beams": 3, "num_return_sequences": 3, "max_new_tokens": 10}
    found = model.generate(*prompts(), seed=5, **call)
    assert torch.equal(found, model.generate(*prompts(), seed=5, **call))
    assert not torch.equal(found, model.generate(*prompts(), seed=6, **call))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_beams": 0}, "num_beams = 0"),
        ({"temperature": 0.0}, "temperature = 0.0"),
        ({"top_p": 1.5}, "top_p = 1.5"),
        ({"max_new_tokens": 0}, "max_new_tokens = 0"),
        ({"max_new_tokens": 5, "min_new_tokens": 6}, r"at least 6 new tokens \(min_new_tokens=6\) and at most 5 \(max"),
        (
            {"max_new_tokens": 30, "min_length": 56},
            r"at least 55 new tokens \(min_length=56\) and at most 30 .* of 30 or",
        ),
        ({"min_new_tokens": 200}, r"at most 128 \(the default\) cannot both be; .*max_new_tokens of 200 or more"),
        ({"max_length": 9, "min_new_tokens": 9}, r"at most 8 \(max_length=9\)"),
        ({"num_return_sequences": 3}, "num_return_sequences=3 texts need as many num_beams"),
        ({"num_beams": 2, "do_sample": True, "num_return_sequences": 3}, "more than num_beams=2"),
        ({"num_beam": 2}, "no 'num_beam' .*did you mean 'num_beams'"),
        ({"forced_bos_token_id": 60}, "outside the vocabulary of 60"),
    ],
)
def test_settings_that_make_no_sense(model: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        model.generate(*prompts(), **settings)


def test_bad_input(model: Any) -> None:
    ids, mask = prompts()
    with pytest.raises(InputError, match="cannot be streamed: its first token is known only at the end"):
        list(model.stream(ids, mask, num_beams=2))
    with pytest.raises(InputError, match=r"row 1 has no token at all: its attention_mask is all 0"):
        model.generate(ids, mask * torch.tensor([[1], [0], [1]]))
    with pytest.raises(InputError, match="vocab_size"):
        model.generate(ids + VOCAB, mask)
    with pytest.raises(InputError, match="labels or decoder_input_ids"):
        model(ids, mask)
    with pytest.raises(InputError, match=r"decoder_input_ids must have shape \(3, length\)"):
        model(ids, mask, ids[:2])
    if model.config.model_type == "bart":
        with pytest.raises(InputError, match=r"input_ids has 51 tokens, and the model has 50 positions"):
            model.generate(torch.full((1, 51), 3))
        with pytest.raises(ConfigError, match="51 new tokens are more than the 50 positions"):
            model.generate(ids, mask, max_new_tokens=51)


def test_the_settings_of_a_checkpoint(model: Any, tmp_path: Path) -> None:
    model.generation_settings = GenerationSettings(num_beams=2, max_new_tokens=7, early_stopping="never")
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert again.generation_settings == model.generation_settings
    assert torch.equal(again.generate(*prompts()), model.generate(*prompts(), num_beams=2, max_new_tokens=7))
    file = tmp_path / "generation_config.json"
    content = json.loads(file.read_text())
    for change, message in (
        ({"num_beam_groups": 2}, "num_beam_groups is 2; bertkit generates only with num_beam_groups=1"),
        ({"num_beamz": 2}, "unknown field 'num_beamz'.*did you mean 'num_beams'"),
        ({"temperature": -1.0}, "temperature = -1.0"),
    ):
        file.write_text(json.dumps({**content, **change}))
        with pytest.raises(CheckpointError, match=message):
            type(model).from_pretrained(tmp_path)
    file.unlink()  # old checkpoints have them in config.json
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "num_beams": 4, "max_length": 30}))
    found = type(model).from_pretrained(tmp_path).generation_settings
    assert (found.num_beams, found.longest) == (4, 30)
    assert found.replace(max_new_tokens=5).longest == 6


def test_no_run_of_tokens_occurs_twice(model: Any) -> None:
    for row in model.generate(*prompts(), max_new_tokens=40, min_new_tokens=40, no_repeat_ngram_size=2).tolist():
        runs = list(pairwise(row))
        assert len(set(runs)) == len(runs)


def test_streams_leave_the_mode_to_the_caller(model: Any) -> None:
    """Two of a model in training mode, in turns, the second longer; dropout is in the caller's calls alone."""
    expected = [torch.stack(list(model.stream(*prompts(), max_new_tokens=number))) for number in (3, 6)]
    model.train()
    streams = [model.stream(*prompts(), max_new_tokens=number) for number in (3, 6)]
    found: list[list[Tensor]] = [[], []]
    for number in (0, 1, 0, 1, 0, 1, 0, 1, 1, 1, 1):
        found[number] += [tokens for tokens in [next(streams[number], None)] if tokens is not None]
        assert all(module.training for module in model.modules())
    for tokens, same in zip(found, expected, strict=True):
        assert torch.equal(torch.stack(tokens), same)
    with torch.no_grad():  # a control
        first, second = (model(*prompts(), decoder_input_ids=prompts()[0]).logits for _ in range(2))
    assert not torch.equal(first, second)


def test_streams_leave_gradients_to_the_caller(model: Any) -> None:
    one, other = (model.stream(*prompts(), max_new_tokens=number) for number in (3, 6))
    for _ in zip(one, other, strict=False):
        assert torch.is_grad_enabled()
    list(one), list(other)
    assert torch.is_grad_enabled()
    model(*prompts(), decoder_input_ids=prompts()[0]).logits.sum().backward()
