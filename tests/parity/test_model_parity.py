"""Every head against ``transformers``, through our loader: all layers, losses, gradients; eval and training mode.

Padded positions: theirs are computed and meaningless, ours are 0; only real positions are compared.
"""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import nn
from torch.testing import assert_close

import bertkit
from bertkit.batch import Batch, pack_padded
from bertkit.checkpoints.apply import to_theirs
from bertkit.checkpoints.names import BERT, TABLES

ATOL = 1e-5
SIZES = {
    "vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 40, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
B, S, C = 5, 17, 3
FIELDS = ["loss", "logits", "start_logits", "end_logits", "prediction_logits", "seq_relationship_logits"]
FIELDS += ["pooler_output", "last_hidden_state"]
HEADS = [
    "BertModel",
    "BertForPreTraining",
    "BertForMaskedLM",
    "BertForNextSentencePrediction",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertForQuestionAnswering",
    "BertForMultipleChoice",
]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(11)


def pair(name, tmp_path, *, attention="eager", **config):
    """The same random weights in their class and in ours."""
    # 0.2, not 0.02: with the usual small values all outputs look alike and a wrong model would pass.
    labels = 2 if name == "BertForQuestionAnswering" else C
    theirs_config = transformers.BertConfig(**SIZES, initializer_range=0.2, num_labels=labels, **config)
    theirs = getattr(transformers, name)._from_config(theirs_config, attn_implementation=attention)
    for parameter in theirs.parameters():
        if parameter.ndim == 1:  # biases and norms start at 0 and 1, which would hide a mix-up
            nn.init.normal_(parameter, mean=float(parameter.detach().mean()), std=0.2)
    theirs.save_pretrained(tmp_path)
    return theirs.eval(), getattr(bertkit, name).from_pretrained(tmp_path)


def awkward_inputs(name):
    """Full length, padding on the right, length 1, padding on the left, a hole in the middle; segments; positions."""
    shape = (B, 2, S) if name == "BertForMultipleChoice" else (B, S)
    mask = torch.ones(shape, dtype=torch.int64)
    mask[1, ..., 9:] = 0
    mask[2, ..., 1:] = 0
    mask[3, ..., :4] = 0
    mask[4, ..., 5:7] = 0
    return {
        "input_ids": torch.randint(0, 97, shape),
        "attention_mask": mask,
        "token_type_ids": torch.randint(0, 2, shape),
        "position_ids": torch.randint(0, 40, shape),
    }


def targets(name, mask):
    words = torch.where((torch.rand(mask.shape) < 0.4) & mask.bool(), torch.randint(0, C, mask.shape), -100)
    return {
        "BertModel": {},
        "BertForPreTraining": {"labels": words, "next_sentence_label": torch.randint(0, 2, (B,))},
        "BertForMaskedLM": {"labels": words},
        "BertForNextSentencePrediction": {"labels": torch.randint(0, 2, (B,))},
        "BertForSequenceClassification": {"labels": torch.randint(0, C, (B,))},
        "BertForTokenClassification": {"labels": words},
        "BertForQuestionAnswering": {
            "start_positions": torch.randint(0, S, (B,)),
            "end_positions": torch.full((B,), 9),
        },
        "BertForMultipleChoice": {"labels": torch.randint(0, 2, (B,))},
    }[name]


def compare(theirs, ours, mask):
    """Each field that both have: all values of sequences, real positions of tokens."""
    real = mask.bool().flatten(0, -2)
    compared = []
    for field in FIELDS:
        a, b = getattr(theirs, field, None), getattr(ours, field, None)
        if a is None or b is None:
            assert a is b, field
            continue
        if a.shape[:2] == real.shape:
            a, b = a[real], b[real]
        elif field == "pooler_output":  # theirs reads column 0, which is padding in row 3
            a, b = a[[0, 1, 2, 4]], b[[0, 1, 2, 4]]
        assert_close(b, a, rtol=0, atol=ATOL, msg=lambda text, field=field: f"{field}: {text}")
        compared.append(field)
    return compared


def left_padding_off(inputs):
    """Sequence heads of ours read the first real token; theirs read column 0, so compare without left padding."""
    inputs["attention_mask"][3, ..., :4] = 1
    return inputs


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_outputs_losses_and_gradients(name, attention, tmp_path):
    theirs, ours = pair(name, tmp_path, attention=attention)
    inputs = left_padding_off(awkward_inputs(name))
    if name == "BertForQuestionAnswering":  # theirs lets padding into the softmax of the loss; see the test below
        inputs["attention_mask"][:] = 1
    wanted = targets(name, inputs["attention_mask"])
    more = {"output_hidden_states": True, "output_attentions": attention == "eager"}
    for mode in ("eval", "train"):
        a = getattr(theirs, mode)()(**inputs, **wanted, **more)
        b = getattr(ours, mode)()(**inputs, **wanted, **more)
        fields = compare(a, b, inputs["attention_mask"])
        assert ("loss" in fields) == bool(wanted)
        check_layers(a, b, inputs["attention_mask"])
        for out, model in ((a, theirs), (b, ours)):
            model.zero_grad()
            score = (
                out.loss if wanted else (out.pooler_output.sum() + (out.last_hidden_state**2)[real_of(inputs)].sum())
            )
            (score if wanted else score / 1000).backward()
        check_gradients(theirs, ours)


def real_of(inputs):
    return inputs["attention_mask"].bool()


def check_layers(theirs, ours, mask):
    real = mask.bool().flatten(0, -2)
    assert len(ours.hidden_states) == SIZES["num_hidden_layers"] + 1
    for a, b in zip(theirs.hidden_states, ours.hidden_states, strict=True):
        assert_close(b[real], a[real], rtol=0, atol=ATOL)
    for a, b in zip(theirs.attentions or (), ours.attentions or (), strict=True):
        both = real[:, None, :, None] & real[:, None, None, :]
        assert_close(b * both, a * both, rtol=0, atol=ATOL)
        assert_close(b.sum(-1)[real[:, None].expand(b.shape[:3])], torch.ones(int(real.sum()) * 4), rtol=0, atol=ATOL)


def check_gradients(theirs, ours):
    wanted = {name: parameter.grad for name, parameter in theirs.named_parameters() if parameter.grad is not None}
    spec = BERT.classes[type(ours).__name__]
    grads = {name: parameter.grad for name, parameter in ours.named_parameters() if parameter.grad is not None}
    got = dict(to_theirs(grads, ours.config, spec, TABLES["bert"]))
    assert got.keys() == wanted.keys()
    for name, gradient in got.items():
        assert_close(gradient, wanted[name], rtol=1e-5, atol=ATOL, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("problem", ["regression", "multi_label_classification"])
@pytest.mark.parametrize("explicit", [True, False])
def test_other_losses_of_the_sequence_classifier(problem, explicit, tmp_path):
    outputs = 1 if problem == "regression" else C
    theirs, ours = pair("BertForSequenceClassification", tmp_path)
    theirs.num_labels = theirs.config.num_labels = outputs
    with torch.no_grad():
        theirs.classifier = nn.Linear(32, outputs)
    theirs.config.problem_type = problem if explicit else None
    theirs.save_pretrained(tmp_path)
    ours = bertkit.BertForSequenceClassification.from_pretrained(tmp_path)
    inputs = left_padding_off(awkward_inputs("BertForSequenceClassification"))
    labels = torch.rand(B) if outputs == 1 else torch.randint(0, 2, (B, C)).float()
    a, b = theirs(**inputs, labels=labels), ours(**inputs, labels=labels)
    assert_close(b.loss, a.loss, rtol=0, atol=ATOL)
    assert_close(b.logits, a.logits, rtol=0, atol=ATOL)


def test_class_weights_are_those_of_cross_entropy(tmp_path):
    _, ours = pair("BertForSequenceClassification", tmp_path)
    inputs, labels = awkward_inputs("BertForSequenceClassification"), torch.tensor([0, 1, 2, 2, 1])
    ours.class_weights = torch.tensor([1.0, 5.0, 0.5])
    out = ours(**inputs, labels=labels)
    assert_close(out.loss, nn.CrossEntropyLoss(weight=ours.class_weights)(out.logits, labels))
    batch, _ = pack_padded(inputs["input_ids"])
    assert ours.num_targets(batch.with_target("labels", labels)) == {"loss": 12.0}


def test_span_loss_leaves_padding_out(tmp_path):
    """Deviation: theirs counts the logits of padded positions in the softmax. Ours equals theirs on real positions."""
    theirs, ours = pair("BertForQuestionAnswering", tmp_path)
    inputs = awkward_inputs("BertForQuestionAnswering")
    starts, ends = torch.tensor([3, 8, 0, 2, 99]), torch.tensor([4, 8, 0, 5, 99])
    out = ours(**inputs, start_positions=starts, end_positions=ends)
    raw, real = theirs(**inputs), inputs["attention_mask"].bool()
    for logits in (out.start_logits, out.end_logits):
        assert not (logits.softmax(-1) * ~real).any()
        assert (logits[~real] < raw.start_logits.min()).all()
    losses = []
    for logits, positions in ((raw.start_logits, starts), (raw.end_logits, ends)):
        for row in range(4):  # row 4 has its answer outside
            losses.append(nn.functional.cross_entropy(logits[row][real[row]][None], positions[row : row + 1]))
    assert_close(out.loss, torch.stack(losses).mean(), rtol=0, atol=ATOL)


@pytest.mark.parametrize("name", ["BertModel", "BertForSequenceClassification", "BertForTokenClassification"])
def test_left_padding_changes_no_output(name, tmp_path):
    """Deviation: theirs counts positions from column 0 and pools it, even when it is padding."""
    theirs, ours = pair(name, tmp_path)
    ids, mask = torch.randint(0, 97, (2, 9)), torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1], [1] * 9])
    out, alone, padded = ours(ids, mask), theirs(ids[:1, 2:]), theirs(ids, mask)
    for key, values in alone.items():
        found = out[key][:1] if out[key].ndim == 2 else out[key][:1, 2:]
        assert_close(found, values, rtol=0, atol=ATOL)
        assert not torch.allclose(padded[key][:1] if values.ndim == 2 else padded[key][:1, 2:], values, atol=0.01)
        assert_close(out[key][1:], padded[key][1:], rtol=0, atol=ATOL)
    columns = {"attention_mask": mask, "position_ids": torch.arange(9)[None]}  # given, they count
    key = "last_hidden_state" if name == "BertModel" else "logits"
    if name != "BertForSequenceClassification":
        real = mask.bool()
        assert_close(ours(ids, **columns)[key][real], padded[key][real], rtol=0, atol=ATOL)


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_activations(activation, tmp_path):
    theirs, ours = pair("BertForMaskedLM", tmp_path, hidden_act=activation)
    inputs = awkward_inputs("BertForMaskedLM")
    real = real_of(inputs)
    assert_close(ours(**inputs).logits[real], theirs(**inputs).logits[real], rtol=0, atol=ATOL)


def test_vectors_in_place_of_ids(tmp_path):
    theirs, ours = pair("BertModel", tmp_path)
    vectors = torch.randn(2, 6, 32)
    ids = torch.zeros(2, 6, dtype=torch.int64)
    assert_close(
        ours(ids, inputs_embeds=vectors).last_hidden_state,
        theirs(inputs_embeds=vectors).last_hidden_state,
        rtol=0, atol=ATOL,
    )  # fmt: skip


def test_masked_rows_only_give_the_same_loss_and_gradients(tmp_path):
    _, ours = pair("BertForPreTraining", tmp_path)
    inputs = awkward_inputs("BertForPreTraining")
    wanted = targets("BertForPreTraining", inputs["attention_mask"])
    everywhere = ours(**inputs, **wanted)
    everywhere.loss.backward()
    before = {name: parameter.grad.clone() for name, parameter in ours.named_parameters()}
    batch, padding = pack_padded(**inputs)
    labels = padding.pack(wanted["labels"])
    rows = (labels != -100).nonzero().squeeze(1)
    batch = Batch(
        batch.input_ids, batch.token_type_ids, batch.position_ids, batch.layout,
        targets={**wanted, "labels": labels}, logit_rows=rows,
    )  # fmt: skip
    ours.zero_grad()
    out = ours.forward_packed(batch)
    out.loss.backward()
    assert out.prediction_logits.shape == (len(rows), 97)
    assert_close(out.loss, everywhere.loss, rtol=0, atol=ATOL)
    for name, parameter in ours.named_parameters():
        assert_close(parameter.grad, before[name], rtol=1e-5, atol=ATOL)
    with pytest.raises(bertkit.InputError, match="leaves out rows"):
        ours.forward_packed(Batch(batch.input_ids, batch.token_type_ids, batch.position_ids, batch.layout,
                                  targets=batch.targets, logit_rows=rows[1:]))  # fmt: skip


def test_parity_can_fail(tmp_path):
    """Swap query and key on the way in: were this to pass, the tests above would prove nothing."""
    theirs, ours = pair("BertModel", tmp_path)
    with torch.no_grad():
        for layer in ours.encoder.layer:
            query, key, value = layer.attention.qkv.weight.chunk(3)
            layer.attention.qkv.weight.copy_(torch.cat([key, query, value]))
    ids = torch.randint(0, 97, (2, 12))
    difference = (ours(ids).last_hidden_state - theirs(input_ids=ids).last_hidden_state).abs().max()
    assert difference > 100 * ATOL


def test_initial_weights_have_the_paper_s_distribution():
    torch.manual_seed(0)
    model = bertkit.BertModel(bertkit.BertConfig(**{**SIZES, "hidden_size": 256, "intermediate_size": 512}))
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "position" not in name]
    values = torch.cat([p[1:].flatten() for p in matrices])
    assert values.abs().max() <= 0.04  # cut at two sd
    assert abs(values.std() - 0.02 * 0.8796) < 2e-4  # sd of a normal cut at two sd
    assert abs(values.mean()) < 1e-4
    assert all(p.eq(0).all() for name, p in model.named_parameters() if name.endswith("bias"))
    assert model.embeddings.LayerNorm.weight.eq(1).all()
    assert model.embeddings.word_embeddings.weight[0].eq(0).all()


@pytest.mark.parametrize("family", ["Bert", "Roberta", "DistilBert", "Albert", "Electra"])
@pytest.mark.parametrize("head", ["Model", "ForMaskedLM", "ForSequenceClassification"])
def test_a_state_with_published_names_is_loaded(family, head, tmp_path):
    shape = {**SIZES, "embedding_size": 32} if family in ("Albert", "Electra") else SIZES
    if family == "DistilBert":
        shape = {"dim": 32, "n_heads": 4, "n_layers": 2, "hidden_dim": 64, "vocab_size": 97}
    theirs = getattr(transformers, family + head)(getattr(transformers, family + "Config")(**shape, num_labels=3))
    theirs.save_pretrained(tmp_path)
    loaded = getattr(bertkit, family + head).from_pretrained(tmp_path)
    for strict in (True, False):
        ours = type(loaded)(loaded.config)
        names = sorted(ours.state_dict())
        missing, unexpected = ours.load_state_dict(theirs.state_dict(), strict=strict)
        assert missing == unexpected == []
        assert sorted(ours.state_dict()) == names
        for name, value in loaded.state_dict().items():
            assert torch.equal(value, ours.state_dict()[name]), name


def test_a_state_is_loaded_as_strictly_as_by_torch(tmp_path):
    theirs, ours = pair("BertForSequenceClassification", tmp_path)
    before = {name: value.clone() for name, value in ours.state_dict().items()}
    state = {name: value + 1 for name, value in theirs.state_dict().items()}
    del state["bert.encoder.layer.0.attention.self.key.weight"]
    state["other"] = torch.zeros(1)
    left = {"bert.encoder.layer.0.attention.self.query.weight", "bert.encoder.layer.0.attention.self.value.weight"}
    with pytest.raises(RuntimeError, match=r"layer\.0\.attention\.qkv\.weight"):
        ours.load_state_dict(state)
    missing, unexpected = ours.load_state_dict(state, strict=False)
    assert missing == ["bert.encoder.layer.0.attention.qkv.weight"]
    assert set(unexpected) == {*left, "other"}
    for name, value in ours.state_dict().items():
        assert_close(value, before[name] + (name not in missing))
    outer = nn.Sequential(ours)
    outer.load_state_dict({f"0.{name}": value for name, value in theirs.state_dict().items()})  # in another module
    assert_close(ours.state_dict(), before)
