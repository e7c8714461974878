"""BART, mBART and T5 equal those of transformers: outputs, losses, gradients, files both ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import bertkit
from parity_measures import LIMIT
from seq2seq_helpers import CASES, KINDS, close, decoder_ids, odd, pair
from seq2seq_measures import CONTROLS, measure

WRITES = "ForConditionalGeneration"


@pytest.mark.parametrize(("kind", "head"), CASES)
def test_class(kind: str, head: str, tmp_path: Path) -> None:
    """Outputs, losses, gradients, padded, packed and in training mode; transformers has back what was saved."""
    found = measure(kind, head, tmp_path)
    assert found.good, found


@pytest.mark.parametrize("kind", ["bart", "mbart", "t5 v1.1"])
def test_odd_sizes(kind: str, tmp_path: Path) -> None:
    found = measure(kind, WRITES, tmp_path, batches=((1,), (130, 127, 66, 63, 1)), **odd(kind))
    assert found.good, found


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_of_the_decoder(kind: str, tmp_path: Path) -> None:
    both = pair(kind, "Model", tmp_path)
    ids, mask = decoder_ids(), torch.ones(4, 11, dtype=torch.long)
    mask[2, 5:] = mask[3, :2] = 0
    call = {"attention_mask": both.mask, "decoder_input_ids": ids, "decoder_attention_mask": mask}
    theirs, ours = both.peer(input_ids=both.ids, **call), both.ours(both.ids, **call)
    seen = mask[..., None]
    close(ours.last_hidden_state * seen, theirs.last_hidden_state * seen)


@pytest.mark.parametrize("kind", KINDS)
def test_files_both_ways(kind: str, tmp_path: Path) -> None:
    """The automatic classes choose the same, and ours has the same bits."""
    import transformers

    both = pair(kind, WRITES, tmp_path / "theirs")
    both.ours.save_pretrained(tmp_path / "ours")
    auto = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours")
    assert type(auto) is type(both.peer)
    again: Any = bertkit.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours")
    assert type(again) is type(both.ours)
    assert again.config == both.ours.config
    for name, values in both.ours.state_dict().items():
        assert torch.equal(again.state_dict()[name], values)


@pytest.mark.parametrize("kind", ["t5", "t5 v1.1"])
def test_the_encoder_alone_of_a_whole_model(kind: str, tmp_path: Path) -> None:
    whole = pair(kind, WRITES, tmp_path)
    part = bertkit.T5EncoderModel.from_pretrained(tmp_path)
    expected = whole.ours(whole.ids, whole.mask, decoder_ids()).encoder_last_hidden_state
    assert torch.equal(part(whole.ids, whole.mask).last_hidden_state, expected)
    assert part.load_report is not None
    assert len(part.load_report.unused) > 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_does_not_depend_on_the_others(kind: str, tmp_path: Path) -> None:
    both = pair(kind, WRITES, tmp_path, dtype=torch.float64)
    ids = decoder_ids()
    whole = both.ours(both.ids, both.mask, ids).logits
    for row, length in enumerate(both.mask.sum(dim=1).tolist()):
        alone = both.ours(both.ids[row : row + 1, :length], None, ids[row : row + 1]).logits
        close(alone[0], whole[row], 1e-12)


@pytest.mark.parametrize("control", CONTROLS)
def test_the_comparison_can_fail(control: str, tmp_path: Path) -> None:
    assert CONTROLS[control](tmp_path) > 100 * LIMIT
