"""Packing is invisible: padded == packed, neighbours do not matter, order only reorders, kernels agree."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from bertkit import BertConfig, InputError
from bertkit.batch import Layout, pack, pack_padded
from bertkit.model.attention import attend_reference
from bertkit.model.auto import MODEL_CLASSES
from bertkit.model.kernels.bucketed_attention import attend_bucketed, buckets
from bertkit.model.models import BertForMultipleChoice, BertModel

CONFIG, ELECTRA = (
    BertConfig(
        model_type=family, vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=32, max_position_embeddings=64, initializer_range=0.3, num_labels=4,
    )
    for family in ("bert", "electra")
)  # fmt: skip
torch.manual_seed(0)
MODELS = {
    name: cls(ELECTRA if name == "ElectraForPreTraining" else CONFIG).eval()
    for name, cls in MODEL_CLASSES.items()
    if cls is not BertForMultipleChoice
}
ATOL = 1e-5
lengths_lists = st.lists(st.integers(1, 40), min_size=1, max_size=9)


def random_ids(lengths, seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 50, (length,), generator=generator) for length in lengths]


def random_types(lengths, seed):
    return [ids % 2 for ids in random_ids(lengths, seed + 1)]


def padded(sequences, width, left=0):
    out = torch.zeros(len(sequences), width, dtype=torch.int64)
    mask = torch.zeros_like(out)
    for row, ids in enumerate(sequences):
        out[row, left : left + len(ids)] = ids
        mask[row, left : left + len(ids)] = 1
    return out, mask


@given(lengths=lengths_lists, seed=st.integers(0, 2**16), name=st.sampled_from(sorted(MODELS)), extra=st.integers(0, 5))
def test_packed_equals_padded(lengths, seed, name, extra):
    model, sequences, types = MODELS[name], random_ids(lengths, seed), random_types(lengths, seed)
    width = max(lengths) + extra
    ids, mask = padded(sequences, width)
    segments, _ = padded(types, width)
    with torch.no_grad():
        flat = model.forward_packed(pack(sequences, types), output_hidden_states=True)
        wide = model(ids, mask, segments, output_hidden_states=True)
    for field in flat:
        ours, theirs = getattr(flat, field), getattr(wide, field)
        if field == "hidden_states":
            for a, b in zip(ours, theirs, strict=True):
                assert_close(b[mask.bool()], a, rtol=0, atol=ATOL)
        elif field in model.token_fields:
            assert_close(theirs[mask.bool()], ours, rtol=0, atol=ATOL)
            nothing = torch.finfo(theirs.dtype).min if field in ("start_logits", "end_logits") else 0.0
            assert (theirs[~mask.bool()] == nothing).all()
        else:
            assert_close(theirs, ours, rtol=0, atol=ATOL)


@given(lengths=lengths_lists, seed=st.integers(0, 2**16), data=st.data())
def test_neighbours_and_order_do_not_matter(lengths, seed, data):
    model, sequences = MODELS["BertModel"], random_ids(lengths, seed)
    order = data.draw(st.permutations(range(len(lengths))))
    with torch.no_grad():
        together = model.forward_packed(pack([sequences[b] for b in order]))
        alone = [model.forward_packed(pack([ids])) for ids in sequences]
    pieces = together.last_hidden_state.split([lengths[b] for b in order])
    for row, b in enumerate(order):
        assert_close(pieces[row], alone[b].last_hidden_state, rtol=0, atol=ATOL)
        assert_close(together.pooler_output[row], alone[b].pooler_output[0], rtol=0, atol=ATOL)


def test_a_neighbour_would_be_seen():
    """Control: the comparison above fails when two sequences are made one."""
    a, b = random_ids([7, 9], 1)
    model = MODELS["BertModel"]
    with torch.no_grad():
        apart = model.forward_packed(pack([a, b])).last_hidden_state[:7]
        joined = model.forward_packed(pack([torch.cat([a, b])])).last_hidden_state[:7]
    assert (apart - joined).abs().max() > 1e-2


@given(lengths=st.lists(st.integers(1, 90), min_size=1, max_size=14), seed=st.integers(0, 2**16))
def test_kernels_agree_forward_and_backward(lengths, seed):
    generator = torch.Generator().manual_seed(seed)
    layout = Layout(tuple(lengths))
    qkv = torch.randn(layout.num_tokens, 3, 2, 8, generator=generator)
    direction = torch.randn(layout.num_tokens, 2, 8, generator=generator)
    results = []
    for attend in (attend_reference, attend_bucketed):
        leaf = qkv.clone().requires_grad_()
        out = attend(leaf, layout, 0.0)
        out.mul(direction).sum().backward()
        results.append((out.detach(), leaf.grad))
    assert_close(results[1], results[0], rtol=0, atol=ATOL)


@given(lengths=lengths_lists, seed=st.integers(0, 2**16))
def test_pooled_path_equals_the_whole_encoder(lengths, seed):
    """The short way of sequence heads gives the same vectors and the same gradients."""
    model, batch = MODELS["BertModel"], pack(random_ids(lengths, seed), random_types(lengths, seed))
    results = []
    for rows in (None, "first"):
        model.zero_grad()
        out = model.forward_packed(batch, rows=rows).pooler_output
        out.square().sum().backward()
        results.append([out.detach(), *(p.grad.clone() for p in model.parameters())])
    assert_close(results[1], results[0], rtol=1e-5, atol=5 * ATOL)  # gradients are sums over tokens


@given(lengths=lengths_lists, seed=st.integers(0, 2**16), data=st.data())
def test_words_are_predicted_at_some_rows_as_at_all(lengths, seed, data):
    """The top layer at the masked rows only: the same logits, losses and gradients as of the whole encoder."""
    total = sum(lengths)
    rows = torch.tensor(data.draw(st.lists(st.integers(0, total - 1), min_size=1, max_size=12, unique=True)))
    batch = pack(random_ids(lengths, seed), random_types(lengths, seed))
    labels = torch.full((total,), -100)
    labels[rows] = batch.input_ids[rows]
    batch = batch.with_target("labels", labels)
    for model in (MODELS["BertForPreTraining"], MODELS["BertForMaskedLM"]):
        results = []
        for logit_rows in (None, rows):
            model.zero_grad()
            out = model.forward_packed(replace(batch, logit_rows=logit_rows))
            logits = out.prediction_logits if out.logits is None else out.logits
            next_sentence = getattr(out, "seq_relationship_logits", None)
            loss = out.loss if next_sentence is None else out.loss + next_sentence.square().sum()
            loss.backward()
            gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
            results.append([logits if logit_rows is not None else logits[rows], loss, *gradients])
        assert_close(results[1], results[0], rtol=1e-5, atol=ATOL)


def test_nothing_else_of_the_top_layer_is_computed():
    """Control: without the short way, the top layer's feed-forward would see every row."""
    model, batch = MODELS["BertForMaskedLM"], pack(random_ids([30, 20, 8], 0))
    seen = []
    hook = model.bert.encoder.layer[-1].ffn_up.register_forward_hook(lambda module, args, out: seen.append(len(out)))
    for rows in (torch.tensor([5, 33, 51]), None):
        model.forward_packed(replace(batch, logit_rows=rows))
    hook.remove()
    assert seen == [6, 58]


@given(lengths=st.lists(st.integers(1, 512), min_size=1, max_size=40))
def test_buckets_hold_each_token_once(lengths):
    plan = buckets(tuple(lengths))
    tokens = torch.arange(sum(lengths))
    places = plan.gather(tokens)
    assert torch.equal(plan.restore(places), tokens)
    length_at = dict(zip([0, *accumulate(lengths)], lengths, strict=False))
    seen = []
    for bucket, rows in zip(plan.each, plan.split(places), strict=True):
        for row in rows.view(bucket.shape):
            start = int(row[0])
            length = length_at[start]
            assert row[:length].tolist() == list(range(start, start + length))
            assert (row[length:] == start).all()
            seen.append(start)
    assert sorted(seen) == sorted(length_at)


@given(lengths=lengths_lists, seed=st.integers(0, 2**16), left=st.integers(0, 4))
def test_unpack_undoes_pack(lengths, seed, left):
    sequences = random_ids(lengths, seed)
    ids, mask = padded(sequences, max(lengths) + left, left)
    batch, padding = pack_padded(ids, mask)
    assert torch.equal(batch.input_ids, torch.cat(sequences))
    assert batch.layout.lengths == tuple(lengths)
    assert int(batch.position_ids[0]) == left  # columns count, as in padded software
    assert torch.equal(padding.unpack(batch.input_ids), ids * mask)


def test_holes_in_the_mask_keep_their_columns():
    ids = torch.tensor([[3, 4, 5, 6]])
    model = MODELS["BertModel"]
    with torch.no_grad():
        holed = model(ids, torch.tensor([[1, 0, 1, 1]])).last_hidden_state
        explicit = model(ids[:, [0, 2, 3]], position_ids=torch.tensor([[0, 2, 3]])).last_hidden_state
    assert_close(holed[:, [0, 2, 3]], explicit, rtol=0, atol=ATOL)
    assert not holed[:, 1].any()


IDS = torch.ones(2, 3, dtype=torch.int64)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"input_ids": IDS[0]}, r"\(batch, sequence\), got \(3,\)"),
        ({"input_ids": IDS.float()}, "must be integers"),
        ({"input_ids": IDS[:0]}, "batch is empty"),
        ({"input_ids": IDS[:, :0]}, "batch is empty"),
        ({"input_ids": IDS * 50}, r"input_ids has 50, outside 0 \.\.\. 49"),
        ({"input_ids": -IDS}, "input_ids has -1"),
        (
            {"input_ids": IDS, "attention_mask": torch.tensor([[1, 1, 1], [0, 0, 0]])},
            "row 1 has no token at all: its attention_mask is all 0",
        ),
        ({"input_ids": IDS, "attention_mask": torch.ones(2, 4)}, "attention_mask must have the shape"),
        ({"input_ids": IDS, "token_type_ids": IDS + 1}, "token_type_ids has 2"),
        ({"input_ids": IDS.new_ones(1, 65)}, "position_ids has 64.*Truncate"),
        ({"input_ids": IDS, "label": IDS}, "takes no 'label'"),
    ],
)
def test_bad_input_is_told(arguments, message):
    with pytest.raises(InputError, match=message):
        MODELS["BertModel"](**arguments)


@pytest.mark.parametrize(
    ("name", "targets", "message"),
    [
        ("BertForSequenceClassification", {"labels": torch.tensor([0, 4])}, r"label 4 is outside 0 \.\.\. 3"),
        ("BertForSequenceClassification", {"labels": torch.tensor([0, 1, 2])}, "2 in all, got shape"),
        ("BertForTokenClassification", {"labels": torch.tensor([0, 1])}, "shape of input_ids"),
        ("BertForMaskedLM", {"label": IDS}, "write labels="),
    ],
)
def test_bad_targets_are_told(name, targets, message):
    with pytest.raises(InputError, match=message):
        MODELS[name](IDS, **targets)


def test_target_at_padding_is_an_error():
    with pytest.raises(InputError, match="1 targets where attention_mask is 0"):
        MODELS["BertForTokenClassification"](
            IDS, torch.tensor([[1, 1, 1], [1, 1, 0]]), labels=torch.zeros(2, 3, dtype=torch.int64)
        )


def test_output_reads_like_a_mapping_and_a_tuple():
    out = MODELS["BertForSequenceClassification"](IDS, labels=torch.tensor([0, 1]))
    assert out[0] is out.loss is out["loss"]
    assert out.keys() == ["loss", "logits"]
    assert MODELS["BertForSequenceClassification"](IDS, return_dict=False)[0].shape == (2, 4)
    with pytest.raises(KeyError, match="attentions"):
        out["attentions"]
    assert isinstance(MODELS["BertModel"], BertModel)


@pytest.mark.parametrize(
    ("sequences", "segments", "told"),
    [
        ([], None, "the batch is empty"),
        ([[1], []], None, "sequence 1 has no token at all"),
        ([[1, 2], [3]], [[0, 0]], "2 sequences but token_type_ids of 1"),
        ([[1, 2]], [[0, 0], [0]], "1 sequences but token_type_ids of 2"),
        ([[1, 2], [3]], [[0, 0], [0, 1]], "sequence 1 has 1 token ids but 2 token_type_ids"),
    ],
)
def test_sequences_that_cannot_be_packed(sequences, segments, told):
    with pytest.raises(InputError, match=f"{told}(: give at least one sequence)?$"):
        pack(sequences, segments)
