"""Models that read one way: equal to ``transformers`` with ``is_decoder``, and blind to the other side."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from bertkit import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertForTokenClassification, BertModel
from bertkit.batch import Batch, Layout, positions_of
from bertkit.engine.fused_modules import can_fuse
from bertkit.errors import CheckpointError, ConfigError
from bertkit.export.onnx_export import export_onnx
from bertkit.inference.fill_mask import FillMaskPipeline
from bertkit.model.attention import attention_probabilities
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.model.models import BertForNextSentencePrediction
from bertkit.model.one_way_attention import OneWay, hidden_bias
from bertkit.quantization.quantize import quantize
from bertkit.tokenization import BertTokenizer
from bertkit.training.distillation.distill_settings import PredictionDistillation, RelationDistillation, StateLoss
from bertkit.training.distillation.taught_networks import check_pair

pytestmark = pytest.mark.slow

SHAPE = BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=40,
)  # fmt: skip
DIRECTIONS = ("left-to-right", "right-to-left")
LENGTHS = (5, 1, 9, 7, 30, 2)


def one_way(direction: str, cls: type = BertModel, **options):
    torch.manual_seed(3)
    return cls(SHAPE.replace(attention_direction=direction), **options).eval()


def packed(ids_T: torch.Tensor, lengths: tuple[int, ...]) -> Batch:
    return Batch(ids_T, torch.zeros_like(ids_T), positions_of(lengths), Layout(lengths))


def test_equal_to_transformers_with_is_decoder(tmp_path) -> None:
    transformers = pytest.importorskip("transformers")
    ours = one_way("left-to-right")
    ours.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["is_decoder"] is True
    theirs = transformers.BertModel.from_pretrained(tmp_path, attn_implementation="eager").eval()
    ids = torch.randint(1, 50, (3, 12), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, 7:] = mask[2, 3:] = 0
    with torch.no_grad():
        a = ours(ids, mask, output_hidden_states=True, output_attentions=True)
        b = theirs(ids, mask, output_hidden_states=True, output_attentions=True)
    real = mask.bool()
    for mine, other in zip(a.hidden_states, b.hidden_states, strict=True):
        assert_close(mine[real], other[real], rtol=1e-4, atol=1e-5)
    for mine, other in zip(a.attentions, b.attentions, strict=True):
        assert_close(mine[0], other[0], rtol=1e-4, atol=1e-6)
    assert_close(a.pooler_output, b.pooler_output, rtol=1e-4, atol=1e-5)
    assert BertModel.from_pretrained(tmp_path).config.attention_direction == "left-to-right"


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tokens_on_the_other_side_change_nothing(direction, dtype) -> None:
    model = one_way(direction).to(dtype)
    ids_T = torch.randint(1, 50, (sum(LENGTHS),), generator=torch.Generator().manual_seed(1))
    last = sum(LENGTHS) - LENGTHS[-1]  # where the sequence of 30 ends
    at, seen = last - 12, slice(None, last - 12) if direction == "left-to-right" else slice(last - 11, None)
    other_T = ids_T.clone()
    other_T[at] = (ids_T[at] + 7) % 49 + 1
    with torch.no_grad():
        before, after = (model.forward_packed(packed(x, LENGTHS)).last_hidden_state for x in (ids_T, other_T))
    assert torch.equal(before[seen], after[seen])
    assert not torch.equal(before[at], after[at])
    unseen = slice(at + 1, last) if direction == "left-to-right" else slice(last - 30, at)
    assert not torch.equal(before[unseen], after[unseen])  # control: the other side does see it
    both = BertModel(SHAPE).eval().to(dtype)
    with torch.no_grad():
        before, after = (both.forward_packed(packed(x, LENGTHS)).last_hidden_state for x in (ids_T, other_T))
    assert not torch.equal(before[seen], after[seen])


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("chosen", [False, True])
def test_the_kernel_is_the_plain_formula_with_its_gradient(direction, chosen) -> None:
    layout, draw = Layout(LENGTHS), torch.Generator().manual_seed(2)
    qkv = torch.randn(sum(LENGTHS), 3, 2, 8, generator=draw, dtype=torch.float64, requires_grad=True)
    rows = ChosenRows.first_and(torch.tensor([3, 20, 21, 40]), layout) if chosen else None
    out = OneWay(direction)(qkv, layout, 0.0, rows)
    plain = []
    for start, end in layout.spans():
        q, k, v = qkv[start:end].unbind(1)
        probs = attention_probabilities(q, k, hidden_bias(end - start, direction).to(q))
        hidden = torch.ones(end - start, end - start).triu(1).bool()
        assert (probs[:, hidden if direction == "left-to-right" else hidden.T] == 0).all()
        plain.append(torch.einsum("qnk,knh->qnh", probs.transpose(0, 1), v))
    expected = torch.cat(plain) if rows is None else torch.cat(plain)[rows.rows]
    assert_close(out, expected, rtol=1e-9, atol=1e-12)
    weight = torch.randn(out.shape, generator=draw, dtype=torch.float64)
    ours, theirs = (torch.autograd.grad((x * weight).sum(), qkv, retain_graph=True)[0] for x in (out, expected))
    assert ours.isfinite().all()
    assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_padded_batches_and_dropout_in_training_leave_the_other_side_hidden() -> None:
    model = one_way("left-to-right").train()
    ids = torch.randint(1, 50, (2, 9))
    other = ids.clone()
    other[:, 6:] = 1
    states = []
    for each in (ids, other):
        torch.manual_seed(0)
        states.append(model(each).last_hidden_state)
    assert torch.equal(states[0][:, :6], states[1][:, :6])


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_saved_model_keeps_its_direction(direction, tmp_path) -> None:
    model = one_way(direction, BertForMaskedLM)
    model.save_pretrained(tmp_path)
    loaded = BertForMaskedLM.from_pretrained(tmp_path)
    assert loaded.config.attention_direction == direction
    ids = torch.randint(1, 50, (1, 8))
    assert torch.equal(loaded.eval()(ids).logits, model(ids).logits)
    written = json.loads((tmp_path / "config.json").read_text())
    # What other software cannot compute, it must not load: neither by the model type nor by the name of the weights.
    assert written["model_type"] == ("bert" if direction == "left-to-right" else "bertkit-bert")
    assert (tmp_path / "model.safetensors").exists() == (direction == "left-to-right")

    assert not {"is_decoder", "attention_direction"} & SHAPE.to_dict().keys()
    assert BertConfig.from_dict({"is_decoder": False}).attention_direction == "both"
    assert BertConfig.from_dict({"is_decoder": True}).attention_direction == "left-to-right"
    for values, message in (
        ({"is_decoder": True, "attention_direction": "right-to-left"}, "leave one out"),
        ({"is_decoder": 1}, "is_decoder is 1"),
        ({"is_decoder": True, "add_cross_attention": True}, "add_cross_attention"),
        ({"model_type": "roberta", "is_decoder": True}, "is_decoder is True"),
        ({"model_type": "roberta", "attention_direction": "left-to-right"}, "only the bert family"),
        ({"attention_direction": "left"}, "attention_direction"),
    ):
        with pytest.raises(ConfigError, match=message):
            BertConfig.from_dict(values)

    for direction in DIRECTIONS:
        model = one_way(direction)
        assert not can_fuse(model)
        with pytest.raises(ConfigError, match="OneWayAttention cannot be exported"):
            export_onnx(model, None, tmp_path / f"onnx-{direction}", check=False)
        assert not (tmp_path / f"onnx-{direction}").exists()
    assert can_fuse(BertModel(SHAPE).eval())  # control
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(45))]
    tokenizer = BertTokenizer({name: number for number, name in enumerate(tokens)})
    one_way("left-to-right").save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    texts = [f"w{n % 45} w{n // 45} w{n % 7}" for n in range(200)]
    with pytest.raises(ConfigError, match="reads left-to-right"):
        quantize(tmp_path / "model", tmp_path / "int8", texts)
    with pytest.raises(CheckpointError, match="reads left-to-right"):
        FillMaskPipeline(one_way("left-to-right", BertForMaskedLM), tokenizer)


def test_a_head_on_the_first_token_is_refused_left_to_right() -> None:
    for cls in (BertForSequenceClassification, BertForNextSentencePrediction):
        with pytest.raises(ConfigError, match="has seen no other"):
            one_way("left-to-right", cls)
    one_way("right-to-left", BertForSequenceClassification)  # whose first token sees all
    one_way("left-to-right", BertForTokenClassification)
    torch.manual_seed(0)
    pooled = BertForSequenceClassification(SHAPE.replace(attention_direction="left-to-right", pooling="mean")).eval()
    a, b = (pooled(torch.tensor([[2, 7, 8, last]])).logits for last in (9, 10))
    assert not np.allclose(a.detach().numpy(), b.detach().numpy(), atol=0)


def test_distillation_on_running_text_compares_models_that_read_both_ways() -> None:
    one = SHAPE.replace(attention_direction="left-to-right")
    for settings in (PredictionDistillation(), RelationDistillation(relation_heads=2), StateLoss()):
        with pytest.raises(ConfigError, match="the teacher reads left-to-right"):
            check_pair(SHAPE, one, settings)
        check_pair(SHAPE, SHAPE, settings)  # control


def test_transformers_does_not_load_a_model_that_it_would_compute_otherwise(tmp_path) -> None:
    transformers = pytest.importorskip("transformers")
    one_way("right-to-left").save_pretrained(tmp_path)
    for cls in (transformers.AutoModel, transformers.BertModel):
        with pytest.raises((ValueError, OSError)):
            cls.from_pretrained(tmp_path)
