"""What an encoder-decoder says of a packed row is what it says of that row alone, whatever is packed beside it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import bertkit
from bertkit.batch import pack
from bertkit.errors import InputError
from seq2seq_helpers import KINDS, VOCAB, stir

ATOL = 1e-5
_BART, _MBART, _T5 = (KINDS[kind][1] for kind in ("bart", "mbart", "t5"))


def _made(name: str, config: Any) -> Any:
    torch.manual_seed(0)
    model = getattr(bertkit, name)(config).eval()
    with torch.no_grad():
        stir(model)
    return model


MODELS: dict[str, Any] = {
    **{
        f"{kind} {name}": _made(name, bertkit.BartConfig(model_type=kind, vocab_size=VOCAB, **values))
        for kind, values in (("bart", _BART), ("mbart", _MBART))
        for name in ("BartModel", "BartForSequenceClassification", "BartForQuestionAnswering")
    },
    "t5": _made("T5EncoderModel", bertkit.T5Config(vocab_size=VOCAB, **_T5)),
}
END = 2
#: More than eight rows of very different lengths: the decoder reads them in several groups.
lengths_lists = st.lists(st.integers(1, 38), min_size=1, max_size=20)


def texts(lengths: list[int], seed: int) -> list[list[int]]:
    """Random rows that end with the end of a text, as a tokenizer makes them."""
    chance = torch.Generator().manual_seed(seed)
    return [[*torch.randint(3, VOCAB, (length,), generator=chance).tolist(), END] for length in lengths]


def outputs(model: Any, rows: list[list[int]]) -> list[dict[str, Tensor]]:
    """What a model says of each row of a pack."""
    with torch.no_grad():
        out = model.forward_packed(pack(rows))
    sizes = [len(row) for row in rows]
    found = {name: out[name].split(sizes) if len(out[name]) == sum(sizes) else list(out[name]) for name in out}
    return [{name: parts[row] for name, parts in found.items()} for row in range(len(rows))]


@given(lengths=lengths_lists, seed=st.integers(0, 2**16), name=st.sampled_from(sorted(MODELS)))
def test_neighbours_do_not_matter(lengths: list[int], seed: int, name: str) -> None:
    model, rows = MODELS[name], texts(lengths, seed)
    for row, found in zip(rows, outputs(model, rows), strict=True):
        (alone,) = outputs(model, [row])
        assert alone.keys() == found.keys()
        for key, expected in alone.items():
            torch.testing.assert_close(found[key], expected, atol=ATOL, rtol=ATOL)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_change_would_be_seen(name: str) -> None:
    """The control: another token of its own changes what is said of a row, and that of no other row."""
    model, rows = MODELS[name], texts([3, 30, 5, 1, 9, 20, 2, 38, 8, 4], 1)
    before = outputs(model, rows)
    rows[4][2] = (rows[4][2] + 1) % VOCAB
    for row, (old, new) in enumerate(zip(before, outputs(model, rows), strict=True)):
        differs = any(bool((old[key] - new[key]).abs().max() > 1e-3) for key in old)
        assert differs == (row == 4)


def test_a_row_without_an_end_has_no_class() -> None:
    model = MODELS["bart BartForSequenceClassification"]
    with pytest.raises(InputError, match="row 1 of input_ids has no eos_token_id=2"):
        model.forward_packed(pack([[5, 6, END], [5, 6]]))
