"""Models of one's own on ``BertPreTrainedModel``: as in transformers, and both read what the other wrote."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import bertkit
from bertkit import AutoModel, BertConfig, BertForSequenceClassification, BertModel, CheckpointError, InputError
from pipeline_helpers import save_tiny

pytestmark = pytest.mark.slow

IDS = torch.tensor([[2, 7, 9, 3], [2, 11, 3, 5]])


def reader(library: ModuleType, base: str = "Bert", attribute: str = "bert") -> Any:
    """The class that people write, on a library's names."""
    outputs = import_module(f"{library.__name__}.modeling_outputs")

    class Reader(getattr(library, f"{base}PreTrainedModel")):  # type: ignore[misc]
        base_model_prefix = attribute

        def __init__(self, config: Any, hidden: int = 6) -> None:
            super().__init__(config)
            self.num_labels = config.num_labels
            setattr(self, attribute, getattr(library, f"{base}Model")(config))
            self.lstm = nn.LSTM(config.hidden_size, hidden, batch_first=True)
            self.scale = nn.Parameter(torch.full((1,), 3.0))
            self.classifier = nn.Linear(hidden, config.num_labels)
            self.post_init()

        def forward(self, input_ids: Any = None, attention_mask: Any = None, labels: Any = None) -> Any:
            out = getattr(self, attribute)(
                input_ids, attention_mask=attention_mask, return_dict=self.config.return_dict
            )
            logits = self.scale * self.classifier(self.lstm(out[0])[0][:, -1])
            loss = None if labels is None else nn.CrossEntropyLoss()(logits.view(-1, self.num_labels), labels.view(-1))
            return outputs.SequenceClassifierOutput(loss=loss, logits=logits)

    return Reader


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("m") / "encoder")


def test_new_weights_are_named_and_the_encoder_is_the_file_s(encoder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Reader = reader(bertkit)
    model = Reader.from_pretrained(encoder, num_labels=5, hidden=4)
    said = capsys.readouterr().err
    assert "Reader: new weights, which are not in" in said
    assert said.rstrip().endswith("lstm.bias_ih_l0, lstm.bias_hh_l0, classifier.weight, classifier.bias")
    assert model.new_weights[0] == "scale"
    assert (model.training, model.config.num_labels, model.classifier.weight.shape) == (False, 5, (5, 4))
    assert model.base_model is model.bert
    assert torch.equal(model.bert(IDS).last_hidden_state, BertModel.from_pretrained(encoder)(IDS).last_hidden_state)
    assert model.scale.item() == 3
    assert not model.classifier.bias.any()
    assert model(IDS, labels=torch.tensor([0, 4])).loss > 0
    assert isinstance(model.bert, bertkit.PreTrainedModel)
    assert isinstance(model, bertkit.PreTrainedModel)
    assert not isinstance(nn.Linear(1, 1), bertkit.PreTrainedModel)


@pytest.mark.parametrize(("base", "attribute"), [("Bert", "bert"), ("Roberta", "roberta"), ("DebertaV2", "deberta")])
def test_each_library_reads_what_the_other_wrote(base: str, attribute: str, tmp_path: Path) -> None:
    shape: dict[str, Any] = {
        "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
        "max_position_embeddings": 20, "num_labels": 3,
    }  # fmt: skip
    if base == "DebertaV2":
        shape |= {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
    here, there = (reader(library, base, attribute) for library in (bertkit, transformers))
    theirs = there(getattr(transformers, f"{base}Config")(**shape)).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    ours = here.from_pretrained(tmp_path / "theirs")
    assert ours.new_weights == ()
    torch.testing.assert_close(ours(IDS).logits, theirs(IDS).logits)
    with torch.no_grad():
        ours.classifier.weight.mul_(-2)
        ours.base_model.encoder.layer[0].ffn_up.weight.mul_(2)
    ours.save_pretrained(tmp_path / "ours")
    back, again = there.from_pretrained(tmp_path / "ours").eval(), here.from_pretrained(tmp_path / "ours")
    torch.testing.assert_close(back(IDS).logits, ours(IDS).logits)
    assert torch.equal(again(IDS).logits, ours(IDS).logits)
    assert again.config.architectures == back.config.architectures == ["Reader"]


def test_own_initialization_reaches_own_modules_only(encoder: Path) -> None:
    class Filled(bertkit.BertPreTrainedModel):  # type: ignore[misc]
        def __init__(self, config: BertConfig) -> None:
            super().__init__(config)
            self.encoder = AutoModel.from_config(config)
            self.inner = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
            self.post_init()

        def _init_weights(self, module: nn.Module) -> None:
            super()._init_weights(module)
            if isinstance(module, nn.Linear):
                module.weight.data.fill_(7)

    model: Any = Filled.from_pretrained(encoder)
    assert (model.inner[0].weight == 7).all()
    assert (model.inner[1].weight == 1).all()
    assert not (model.encoder.encoder.layer[0].ffn_up.weight == 7).any()
    assert torch.equal(model.encoder(IDS)[0], BertModel.from_pretrained(encoder)(IDS)[0])


def test_tied_weights_are_written_once_and_stay_tied(encoder: Path, tmp_path: Path) -> None:
    class Tied(bertkit.BertPreTrainedModel):  # type: ignore[misc]
        def __init__(self, config: BertConfig) -> None:
            super().__init__(config)
            self.bert = BertModel(config, add_pooling_layer=False)
            self.decoder = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
            self.decoder.weight = self.bert.embeddings.word_embeddings.weight
            self.post_init()

    model: Any = Tied.from_pretrained(encoder)
    assert model.new_weights == ()
    model.save_pretrained(tmp_path)
    again: Any = Tied.from_pretrained(tmp_path)
    assert again.decoder.weight is again.bert.embeddings.word_embeddings.weight
    assert torch.equal(again.decoder.weight, BertModel.from_pretrained(encoder).embeddings.word_embeddings.weight)


def test_the_trainer_trains_it_and_its_checkpoints_are_read(encoder: Path, tmp_path: Path) -> None:
    Reader = reader(bertkit)
    rows = [{"input_ids": [2, 5 + i % 2, 3], "attention_mask": [1, 1, 1], "labels": i % 2} for i in range(8)]
    args = bertkit.TrainingArguments(str(tmp_path), max_steps=2, save_steps=2, report_to="none")
    trainer = bertkit.Trainer(model=Reader.from_pretrained(encoder), args=args, train_dataset=rows)
    trainer.train()
    again = Reader.from_pretrained(tmp_path / "checkpoint-2")
    assert again.new_weights == ()
    assert torch.equal(again(IDS).logits, trainer.model(IDS).logits)


def test_what_does_not_fit_is_an_error(encoder: Path, tmp_path: Path) -> None:
    Reader = reader(bertkit)
    Reader.from_pretrained(encoder).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"classifier\.weight has the shape .*ignore_mismatched_sizes=True"):
        Reader.from_pretrained(tmp_path, num_labels=7)
    wider = Reader.from_pretrained(tmp_path, num_labels=7, ignore_mismatched_sizes=True)
    assert wider.new_weights == ("classifier.weight", "classifier.bias")
    assert "classifier.weight" in Reader.from_pretrained(tmp_path, new_head=True).new_weights
    with pytest.raises(CheckpointError, match="does not fit BertModel; nothing was loaded"):
        Reader.from_pretrained(encoder, num_hidden_layers=9)
    with pytest.raises(InputError, match=r"from_pretrained has no 'n_labels'; write num_labels="):
        Reader.from_pretrained(encoder, n_labels=2)
    seeded = [Reader.from_pretrained(encoder, seed=3).classifier.weight for _ in range(2)]
    assert torch.equal(*seeded)
    labelled = save_tiny(tmp_path / "labelled", BertForSequenceClassification, num_labels=3)
    assert Reader.from_pretrained(labelled, hidden=32).new_weights[0] == "scale"  # whose classifier fits
