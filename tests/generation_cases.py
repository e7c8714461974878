"""Random prompts and settings, and what models of ``transformers`` and of ours write with them, token for token."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from seq2seq_helpers import VOCAB, Pair, batch, pair

#: In float32 two scores nearer than this may come out in either order, and everything behind them be another text.
NEAR = 1e-4
CASES_PER_MODEL = 20
WRITES = "ForConditionalGeneration"
DTYPES = {"float64": torch.float64, "float32": torch.float32}


@dataclass
class Outcome:
    """What a comparison found.

    cases: calls. rows: texts that they wrote. wrong: what differs and should not. undecided: rows that differ where
    scores among which the search had to choose were nearer than :data:`NEAR`. gaps: how near, for each of these.
    """

    cases: int = 0
    rows: int = 0
    wrong: list[str] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)

    @property
    def undecided(self) -> int:
        return len(self.gaps)


class Narrowest(TorchFunctionMode):
    """While it is active: the smallest distance of two neighbours among the scores that a search chooses from.

    Chosen are the best by ``argmax``, or the best k by ``topk``; the first that is not chosen is a neighbour.
    """

    #: The beam search of transformers adds -1e9 to the score of what it must not choose.
    IMPOSSIBLE = -1e8

    def __init__(self) -> None:
        super().__init__()
        self.gap = math.inf

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (torch.argmax, torch.topk) and args[0].is_floating_point():
            chosen = kwargs["k"] if func is torch.topk else 1
            best = args[0].flatten().topk(min(chosen + 1, args[0].numel())).values
            best = best[best > self.IMPOSSIBLE].double()
            self.gap = min([self.gap, *(best[:-1] - best[1:]).tolist()])
        return func(*args, **kwargs)


def narrowest_choice(peer: Any, ids: Tensor, mask: Tensor, settings: dict[str, Any]) -> float:
    """How near the scores came that transformers chose by in writing one text, computed in float64."""
    assert len(ids) == 1, "one input, for its scores are not told apart from others'"
    with Narrowest() as seen:
        copy.deepcopy(peer).double().generate(
            input_ids=ids, attention_mask=mask, do_sample=False, **without_cache(peer), **settings
        )
    assert seen.gap < math.inf, "the search chose by something else than argmax and topk"
    return seen.gap


def without_cache(peer: Any) -> dict[str, bool]:
    """transformers makes a cache for as many layers as the encoder has, and fails for a T5 whose decoder differs."""
    config = peer.config
    other = config.model_type == "t5" and config.num_decoder_layers != config.num_layers
    return {"use_cache": False} if other else {}


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
    forced = sum(name.startswith("forced_") for name in settings)
    if beams > 1 and longest <= forced:  # all tokens are: the other beams are equally impossible
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


def compare(both: Pair, seed: int, cases: int) -> Outcome:
    """Random prompts and settings with one model. In float64 nothing is undecided."""
    chance, found = random.Random(seed), Outcome(cases=cases)
    eos, pad = both.ours.config.eos_token_id, both.ours.config.pad_token_id
    plain = {"do_sample": False, **without_cache(both.peer)}
    for case in range(cases):
        ids, mask = batch(pad, 1000 * seed + case, chance.randint(1, 5), chance.randint(1, 20))
        settings = random_settings(chance, eos)
        theirs = ended(both.peer.generate(input_ids=ids, attention_mask=mask, **plain, **settings), eos)
        ours = ended(both.ours.generate(ids, mask, **settings), eos)
        found.rows += len(ours)
        assert len(ours) == len(theirs) == len(ids) * settings.get("num_return_sequences", 1)
        for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            if mine == other:
                continue
            row = slice(number * len(ids) // len(ours), number * len(ids) // len(ours) + 1)
            exact = next(both.peer.parameters()).dtype == torch.float64
            gap = math.inf if exact else narrowest_choice(both.peer, ids[row], mask[row], settings)
            if gap < NEAR:
                found.gaps.append(gap)
            else:
                found.wrong.append(f"model {seed}, case {case}, row {number}, {settings}: {mine} and {other}")
    return found


def cases_of_models(dtype: torch.dtype, cases: int) -> dict[int, int]:
    """So many cases in all, in a new model every :data:`CASES_PER_MODEL`: by the seed of each model."""
    first = {torch.float64: 2, torch.float32: 1002}[dtype]
    numbers = range(math.ceil(cases / CASES_PER_MODEL))
    return {first + number: min(CASES_PER_MODEL, cases - number * CASES_PER_MODEL) for number in numbers}


def compare_model(kind: str, dtype: torch.dtype, seed: int, cases: int, folder: Path) -> Outcome:
    """Random prompts and settings with a random model."""
    return compare(pair(kind, WRITES, folder, dtype=dtype, seed=seed, varied=True), seed, cases)


# --- controls: what a mistake looks like ------------------------------------------------------------------------------


def wrong_cache(folder: Path, dtype: torch.dtype) -> Outcome:
    """One value that is kept of every token of the decoder is another one."""
    both = pair("bart", WRITES, folder, dtype=dtype, varied=True)
    with torch.no_grad():
        both.ours.model.decoder.layer[0].attention.qkv.bias[-1] += 1.0
    return compare(both, 1, 6)
