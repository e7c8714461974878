"""What a call of a model accepts, as in transformers, and what it refuses: with an InputError that says what to do."""

from __future__ import annotations

from inspect import signature

import pytest
import torch
from torch.testing import assert_close

from bertkit import BertConfig, InputError
from bertkit.batch import pack
from bertkit.model.auto import MODEL_CLASSES
from bertkit.model.output import ModelOutput
from bertkit.model.padded import PackedModel
from bertkit.tokenization.batch_encoding import BatchEncoding

SHAPE = {
    "vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
    "max_position_embeddings": 20,
}  # fmt: skip
IDS = torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0]])
MASK = (IDS != 0).long()


def model_of(name: str, family: str = "bert", **fields: object) -> PackedModel:
    torch.manual_seed(0)
    return MODEL_CLASSES[name](BertConfig(model_type=family, **SHAPE, **fields)).eval()


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_embeddings_may_stand_for_the_ids(family: str) -> None:
    model = model_of("BertModel", family)
    words = model.embeddings.word_embeddings(IDS)
    alone = model(inputs_embeds=words, attention_mask=MASK).last_hidden_state
    beside = model(IDS, inputs_embeds=words, attention_mask=MASK).last_hidden_state
    assert torch.equal(alone, beside)
    if family == "bert":
        assert_close(alone, model(IDS, MASK).last_hidden_state)


def test_embeddings_may_stand_for_the_ids_of_choices() -> None:
    model, ids = model_of("BertForMultipleChoice"), IDS[:, None, :].expand(-1, 3, -1)
    words = model.bert.embeddings.word_embeddings(ids)
    assert_close(model(inputs_embeds=words).logits, model(ids).logits)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give input_ids or inputs_embeds"),
        ({"input_ids": "hello"}, r"input_ids must be a tensor, got str.*tokenizer"),
        ({"input_ids": BatchEncoding({"input_ids": [[2, 3]]})}, r"got BatchEncoding.*model\(\*\*tokenizer"),
        ({"input_ids": [[2, 3]]}, "got list.*return_tensors"),
        ({"input_ids": IDS, "attention_mask": MASK.tolist()}, "attention_mask must be a tensor, got list"),
        ({"inputs_embeds": torch.zeros(2, 4, 15)}, "inputs_embeds must be floats of width 16"),
        ({"inputs_embeds": torch.zeros(2, 16)}, r"inputs_embeds must have shape \(batch, sequence, width\)"),
        (
            {"input_ids": IDS, "attention_mask": MASK, "inputs_embeds": torch.zeros(2, 5, 16)},
            r"input_ids \(2, 4\) and a",
        ),
        ({"input_ids": IDS, "labels": [0, 1]}, "labels must be a tensor, got list"),
        ({"input_ids": IDS, "labels": torch.tensor(1)}, r"2 in all, got shape \(\)"),
        ({"input_ids": IDS, "labels": torch.tensor([0, 1, 1])}, r"2 in all, got shape \(3,\)"),
        ({"input_ids": IDS, "labels": torch.tensor([0.0, 1.0])}, r"labels must have shape \(2, 3\)"),
    ],
)
def test_what_is_no_input_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=f"(?s){message}"):
        model_of("BertForSequenceClassification", num_labels=3)(**arguments)


@pytest.mark.parametrize("kind", [torch.int32, torch.int16, torch.uint8, torch.int64])
@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("BertForSequenceClassification", {"labels": [1, 0]}),
        ("BertForNextSentencePrediction", {"labels": [1, 0]}),
        ("BertForQuestionAnswering", {"start_positions": [1, 0], "end_positions": [2, 1]}),
        ("BertForPreTraining", {"next_sentence_label": [0, 1]}),
        ("BertForTokenClassification", {"labels": [[1, 0, 1, 1], [0, 1, 0, 0]]}),
        ("ElectraForPreTraining", {"labels": [[1, 0, 1, 1], [0, 1, 0, 0]]}),
    ],
)
def test_a_column_and_any_integer_type_are_labels(name: str, labels: dict[str, list[int]], kind: torch.dtype) -> None:
    model = model_of(name, "electra" if name.startswith("Electra") else "bert")
    targets = {key: torch.tensor(values) for key, values in labels.items()}
    expected = model(IDS, **targets).loss
    assert torch.equal(model(IDS, **{key: x.to(kind) for key, x in targets.items()}).loss, expected)
    if name not in ("BertForTokenClassification", "ElectraForPreTraining"):
        assert torch.equal(model(IDS, **{key: x[:, None].to(kind) for key, x in targets.items()}).loss, expected)


@pytest.mark.parametrize(
    ("name", "targets", "message"),
    [
        ("BertForQuestionAnswering", {"start_positions": torch.tensor([1, 0])}, "end_positions is missing"),
        ("BertForQuestionAnswering", {"end_positions": torch.tensor([1, 0])}, "start_positions is missing"),
        (
            "BertForQuestionAnswering",
            {"start_positions": torch.tensor([1.0, 0]), "end_positions": torch.tensor([1, 0])},
            "positions must be integers",
        ),
        ("BertForTokenClassification", {"labels": torch.zeros(2, 4)}, "labels must be integers"),
        ("BertForMaskedLM", {"labels": torch.zeros(2, 4)}, "labels must be integers"),
        ("BertForNextSentencePrediction", {"labels": torch.zeros(2)}, "labels must be integers"),
        ("BertForPreTraining", {"next_sentence_label": torch.zeros(3, dtype=torch.int64)}, "2 in all"),
    ],
)
def test_targets_that_cannot_be_are_refused(name: str, targets: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(InputError, match=message):
        model_of(name)(IDS, **targets)


def test_one_choice_is_compared_by_cross_entropy() -> None:
    """A question with one candidate has nothing to learn: probability 1, loss 0, no gradient."""
    model = model_of("BertForMultipleChoice")
    out = model(IDS[:, None, :], labels=torch.zeros(2, dtype=torch.int64))
    assert out.logits.shape == (2, 1)
    assert float(out.loss.detach()) == 0.0
    out.loss.backward()
    assert not model.classifier.weight.grad.any()


def test_labels_of_choices_are_one_a_question() -> None:
    model, ids = model_of("BertForMultipleChoice"), IDS[:, None, :].expand(-1, 3, -1)
    labels = torch.tensor([2, 0])
    assert torch.equal(model(ids, labels=labels[:, None]).loss, model(ids, labels=labels).loss)
    with pytest.raises(InputError, match="each question, 2 in all"):
        model(ids, labels=torch.zeros(6, dtype=torch.int64))


def test_a_batch_packed_by_hand_is_checked_too() -> None:
    model, batch = model_of("BertForTokenClassification"), pack([[2, 5, 3], [2, 3]])
    with pytest.raises(InputError, match=r"labels must be integers of shape \(5,\)"):
        model.forward_packed(batch.with_target("labels", torch.zeros(4, dtype=torch.int64)))


def test_output_shows_what_it_has() -> None:
    out = model_of("BertForQuestionAnswering")(IDS)
    assert isinstance(out, ModelOutput)
    shown = repr(out)
    assert shown.startswith("ModelOutput(start_logits=tensor(")
    assert "None" not in shown
    assert "pooler_output" not in shown


def test_decorators_of_a_subclass_stay() -> None:
    base = MODEL_CLASSES["BertForSequenceClassification"]

    class Own(base):  # type: ignore[misc, valid-type]
        @torch.no_grad()
        def forward(self, *args: object, **options: object) -> object:
            return super().forward(*args, **options)

    class Heir(Own):
        targets = ("labels", "weights")

    class Copied(base):  # type: ignore[misc, valid-type]
        forward = torch.no_grad()(base.forward)

    for cls in (Own, Heir, Copied):
        assert not cls(BertConfig(**SHAPE))(IDS).logits.requires_grad
    assert base(BertConfig(**SHAPE))(IDS).logits.requires_grad  # control
    assert list(signature(Heir.forward).parameters)[-2:] == ["labels", "weights"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_no_answer_is_found_in_padding(dtype: torch.dtype) -> None:
    """Logits of real tokens are often all below 0, which padding must not be above."""
    model = model_of("BertForQuestionAnswering")
    torch.nn.init.constant_(model.qa_outputs.bias, -5.0)
    out, alone = model.to(dtype)(IDS, MASK), model(IDS[1:, :3])
    for padded, real in ((out.start_logits, alone.start_logits), (out.end_logits, alone.end_logits)):
        assert padded[1].argmax() < 3
        assert_close(padded[1, :3], real[0], rtol=0, atol=0.02)
        assert_close(padded.softmax(-1)[1, 3], torch.zeros((), dtype=dtype))
    assert int((out.start_logits * MASK)[1].argmax()) == 3  # a control: 0 is more than all of them
