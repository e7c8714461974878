"""BART, mBART and T5 equal those of transformers: outputs, losses, gradients, files both ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import bertkit
from bertkit.errors import InputError
from parity_measures import LIMIT
from seq2seq_helpers import CASES, KINDS, close, decoder_ids, odd, pair
from seq2seq_measures import CONTROLS, measure

WRITES = "ForConditionalGeneration"


#: What a call is asked for beside its outputs.
ALL = {"output_hidden_states": True, "output_attentions": True}


def close_layers(ours: Any, theirs: Any, real_in: torch.Tensor, real_out: torch.Tensor) -> None:
    """Hidden states and attentions are equal where tokens are real; real_in and real_out ``(B, S)`` say where.

    Here there are zeros in the place of what transformers computes for padding.
    """
    # An encoder alone has no attention to another, but an empty tuple of it in transformers.
    asked = {name for name in theirs if name.endswith(("hidden_states", "attentions")) and theirs[name]}
    assert asked == {name for name in ours if name.endswith(("hidden_states", "attentions"))}
    assert asked
    for name in asked:
        real = real_out if name.startswith(("decoder", "cross")) else real_in
        shape = real[:, None, :, None] if name.endswith("attentions") else real[..., None]
        assert len(ours[name]) == len(theirs[name])
        for mine, expected in zip(ours[name], theirs[name], strict=True):
            assert mine.shape == expected.shape
            close(mine * shape, expected * shape)
            assert real is real_out or not bool((mine * (1 - shape)).any())


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


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("kind", KINDS)
def test_hidden_states_and_attentions(kind: str, training: bool, tmp_path: Path) -> None:
    both = pair(kind, WRITES, tmp_path)
    both.peer.set_attn_implementation("eager")  # no other gives probabilities
    both.peer.train(training)
    both.ours.train(training)
    ids, seen = decoder_ids(), torch.ones(4, 11, dtype=torch.long)
    seen[2, 5:] = 0
    for side in (both.ids, both.mask), (both.ids.flip(1), both.mask.flip(1)):  # padded on the right, and on the left
        call = {"attention_mask": side[1], "decoder_input_ids": ids, "decoder_attention_mask": seen, **ALL}
        theirs, ours = both.peer(input_ids=side[0], **call), both.ours(side[0], **call)
        close_layers(ours, theirs, side[1], seen)
        close(ours.logits, theirs.logits)
        assert len(ours.keys()) == 8  # logits, both last states, and five of what was asked for
    call = {"attention_mask": both.mask, "decoder_input_ids": ids}
    assert both.ours(both.ids, **call).keys() == ["logits", "last_hidden_state", "encoder_last_hidden_state"]
    only = both.ours(both.ids, **call, output_attentions=True)
    assert only.decoder_hidden_states is None
    assert only.encoder_hidden_states is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_gap_in_the_mask_changes_nothing_or_is_refused(kind: str, tmp_path: Path) -> None:
    """T5's distances count tokens, so that padding inside a text would change them; BART's positions are columns."""
    both = pair(kind, WRITES, tmp_path)
    both.mask[0, 1] = 0
    if both.ours.config.longest_with_gaps is None:
        call = {"attention_mask": both.mask, "decoder_input_ids": decoder_ids()}
        close(both.ours(both.ids, **call).logits, both.peer(input_ids=both.ids, **call).logits)
        return
    for asked in (
        lambda: both.ours(both.ids, both.mask, decoder_ids()),
        lambda: both.ours.generate(both.ids, both.mask),
    ):
        with pytest.raises(InputError, match="attention_mask has a gap: column 1 of row 0"):
            asked()


@pytest.mark.parametrize("head", ["Model", "ForSequenceClassification", "ForQuestionAnswering"])
def test_layers_of_heads_that_read(head: str, tmp_path: Path) -> None:
    both = pair("bart", head, tmp_path)
    both.peer.set_attn_implementation("eager")
    for row, length in enumerate(both.mask.sum(dim=1).tolist()):
        both.ids[row, length - 1] = 2
    theirs = both.peer(input_ids=both.ids, attention_mask=both.mask, **ALL)
    close_layers(both.ours(both.ids, both.mask, **ALL), theirs, both.mask, torch.ones_like(both.mask))


@pytest.mark.parametrize("kind", ["t5", "t5 v1.1"])
def test_layers_of_the_encoder_alone(kind: str, tmp_path: Path) -> None:
    both = pair(kind, "EncoderModel", tmp_path)
    both.peer.set_attn_implementation("eager")
    theirs = both.peer(input_ids=both.ids, attention_mask=both.mask, **ALL)
    close_layers(both.ours(both.ids, both.mask, **ALL), theirs, both.mask, both.mask)


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


@pytest.mark.parametrize("kind", ["t5", "t5 v1.1"])
def test_files_of_an_encoder_alone_both_ways(kind: str, tmp_path: Path) -> None:
    """Their config says that there is no decoder; files that say there is one are read too."""
    import transformers

    both = pair(kind, "EncoderModel", tmp_path / "theirs")
    both.ours.save_pretrained(tmp_path / "ours")
    theirs, ours = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("theirs", "ours"))
    assert ours["is_encoder_decoder"] is theirs["is_encoder_decoder"] is False
    expected = both.ours(both.ids, both.mask).last_hidden_state
    again = transformers.T5EncoderModel.from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        close(again(both.ids, both.mask).last_hidden_state[both.mask.bool()], expected[both.mask.bool()], LIMIT)
    for said in (False, True):
        (tmp_path / "ours" / "config.json").write_text(json.dumps({**ours, "is_encoder_decoder": said}))
        part = bertkit.T5EncoderModel.from_pretrained(tmp_path / "ours")
        assert torch.equal(part(both.ids, both.mask).last_hidden_state, expected)


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


def test_the_comparison_of_layers_can_fail(tmp_path: Path) -> None:
    """A control: with another bias for distances the outputs differ."""
    both = pair("t5", WRITES, tmp_path)
    with torch.no_grad():
        both.ours.model.decoder.distances.weight[1] += 0.5
    call = {"attention_mask": both.mask, "decoder_input_ids": decoder_ids(), **ALL}
    both.peer.set_attn_implementation("eager")
    theirs, ours = both.peer(input_ids=both.ids, **call), both.ours(both.ids, **call)
    with pytest.raises(AssertionError):
        close(ours.logits, theirs.logits)
    for name in ("decoder_attentions", "decoder_hidden_states"):
        with pytest.raises(AssertionError):
            close(ours[name][1], theirs[name][1])
    close(
        ours.encoder_attentions[1] * both.mask[:, None, :, None],
        theirs.encoder_attentions[1] * both.mask[:, None, :, None],
    )
