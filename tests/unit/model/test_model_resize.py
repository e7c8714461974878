"""A vocabulary that grows: new rows are the means of their pieces, and nothing else of the model changes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bertkit.config.bert_config import BertConfig
from bertkit.errors import InputError
from bertkit.model.models import BertForMaskedLM, BertForPreTraining, BertForSequenceClassification, BertModel
from bertkit.model.resize import resize_vocabulary

SHAPE = BertConfig(
    vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
    max_position_embeddings=24,
)  # fmt: skip
#: Two rows that are there get another meaning, three are new.
PIECES = {7: (10, 11, 12), 8: (13,), 50: (20, 20, 21), 51: (9, 14), 52: (30, 31, 32, 33)}
OLD = [number for number in range(50) if number not in PIECES]


def make(cls):
    torch.manual_seed(3)
    model = cls(SHAPE).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    return model


def texts(ids: list[int], *, seed: int = 0, rows: int = 6, columns: int = 20) -> dict[str, torch.Tensor]:
    """A padded batch of random texts of these ids."""
    random = torch.Generator().manual_seed(seed)
    chosen = torch.tensor(ids)[torch.randint(len(ids), (rows, columns), generator=random)]
    mask = torch.arange(columns) < torch.randint(3, columns + 1, (rows, 1), generator=random)
    return {"input_ids": chosen, "attention_mask": mask.long()}


def test_texts_of_old_tokens_are_computed_as_before() -> None:
    model, batch, other = make(BertForPreTraining), texts(OLD), texts([*OLD, 7])
    before, other_before = (model(**each, output_hidden_states=True) for each in (batch, other))
    resize_vocabulary(model, 53, PIECES)
    after, other_after = (model(**each, output_hidden_states=True) for each in (batch, other))
    assert all(torch.equal(a, b) for a, b in zip(before.hidden_states, after.hidden_states, strict=True))
    assert torch.equal(before.seq_relationship_logits, after.seq_relationship_logits)
    assert after.prediction_logits.shape == (6, 20, 53)
    # Products of equal vectors and rows; but the last columns of a wider product may be rounded otherwise.
    assert torch.allclose(before.prediction_logits[..., OLD], after.prediction_logits[..., OLD], rtol=1e-6, atol=1e-6)
    # Controls: a row with another meaning changes its own logit, and texts that have it.
    assert not torch.allclose(before.prediction_logits[..., 7], after.prediction_logits[..., 7], atol=0.01)
    assert not torch.equal(other_before.hidden_states[-1], other_after.hidden_states[-1])


@pytest.mark.parametrize("cls", [BertForPreTraining, BertForMaskedLM, BertForSequenceClassification, BertModel])
def test_new_rows_are_means_and_the_others_stay(cls) -> None:
    model = make(cls)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    resize_vocabulary(model, 53, PIECES)
    after = model.state_dict()
    assert before.keys() == after.keys()
    grown = {name for name in before if before[name].shape != after[name].shape}
    endings = ["word_embeddings.weight", "predictions.bias"][: 1 + (cls in (BertForPreTraining, BertForMaskedLM))]
    assert len(grown) == len(endings)
    assert all(any(name.endswith(ending) for name in grown) for ending in endings)
    for name in grown:
        old, new = before[name].double().numpy(), after[name].double().numpy()
        assert len(new) == 53
        assert np.array_equal(old[OLD], new[OLD])
        for number, pieces in PIECES.items():
            assert np.allclose(new[number], sum(old[piece] for piece in pieces) / len(pieces), rtol=1e-6, atol=1e-7)
        assert not np.allclose(new[50], old[[20, 21]].mean(0))  # control: a piece that comes twice counts twice
    assert all(torch.equal(before[name], after[name]) for name in before.keys() - grown)
    configs = {module.config.vocab_size for module in model.modules() if hasattr(module, "config")}
    assert configs == {53}


def test_a_text_of_new_words_begins_near_what_its_pieces_were() -> None:
    """Of a new word of one piece, exactly there."""
    model, batch = make(BertModel), texts(OLD)
    ids = batch["input_ids"].masked_fill(batch["input_ids"] == 20, 13)
    ids[:, 0] = 13
    before = model(ids, batch["attention_mask"])
    resize_vocabulary(model, 53, PIECES)
    after = model(ids.masked_fill(ids == 13, 8), batch["attention_mask"])
    assert torch.equal(before.last_hidden_state, after.last_hidden_state)


def test_it_is_saved_loaded_and_trained_as_any_model(tmp_path) -> None:
    model = make(BertForPreTraining)
    resize_vocabulary(model, 53, PIECES)
    model.save_pretrained(tmp_path)
    loaded = BertForPreTraining.from_pretrained(tmp_path)
    assert loaded.config.vocab_size == 53
    assert loaded.load_report.problems == ()
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in model.state_dict().items())
    batch = texts([*OLD, *PIECES])
    model.train()
    model(**batch, labels=batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)).loss.backward()
    table, bias = model.bert.embeddings.word_embeddings, model.cls.predictions.bias
    assert table.weight.grad[list(PIECES)].abs().sum(1).min() > 0
    assert bias.grad[list(PIECES)].abs().min() > 0
    assert table.padding_idx == SHAPE.pad_token_id
    assert {table.weight, bias} <= set(model.parameters())


def test_no_new_token_changes_nothing() -> None:
    model = make(BertForMaskedLM)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    resize_vocabulary(model, 50, {})
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert model.config == SHAPE


@pytest.mark.parametrize(
    ("size", "pieces", "told"),
    [
        (49, {}, "vocab_size=49, but the model has 50"),
        (52, {50: (1,)}, "row 51 is new"),
        (51, {50: ()}, "pieces of row 50 is empty"),
        (51, {50: (1, 50)}, r"pieces of row 50: id 50 is outside 0 \.\.\. 49"),
        (51, {50: (-1,)}, "id -1 is outside"),
        (51, {50: (1,), 51: (1,)}, r"row 51, outside 0 \.\.\. 50"),
    ],
)
def test_mistakes_leave_the_model_as_it_was(size, pieces, told) -> None:
    model = make(BertModel)
    with pytest.raises(InputError, match=told):
        resize_vocabulary(model, size, pieces)
    assert model.config == SHAPE
    assert model.embeddings.word_embeddings.num_embeddings == 50
