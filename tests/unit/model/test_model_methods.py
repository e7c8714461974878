"""Methods that models have by their names elsewhere: resizing, publishing, checkpointing, making new ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from huggingface_hub import HfApi
from torch import nn

from bertkit import (
    AutoModel,
    AutoModelForPreTraining,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    ElectraForPreTraining,
    InputError,
    ResourceError,
)
from bertkit.model.loading import LoadOptions
from bertkit.system.model_sources import http_errors

SHAPE = {
    "vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
    "max_position_embeddings": 20,
}  # fmt: skip
IDS = torch.tensor([[2, 5, 6, 3]])


def test_resized_tables_keep_the_old_rows() -> None:
    model = BertForMaskedLM(BertConfig(**SHAPE)).eval()
    before, bias = model.get_input_embeddings().weight.detach().clone(), model.cls.predictions.bias.detach().clone()
    states = model.bert(IDS).last_hidden_state
    table = model.resize_token_embeddings(33)
    assert table is model.get_input_embeddings()
    assert model.config.vocab_size == model.bert.config.vocab_size == 33
    assert torch.equal(table.weight[:30], before)
    torch.testing.assert_close(table.weight[30:], before.mean(0).expand(3, -1))
    assert torch.equal(model.cls.predictions.bias[:30], bias)
    assert torch.equal(model.bert(IDS).last_hidden_state, states)
    assert model(torch.tensor([[2, 32, 3]])).logits.shape == (1, 3, 33)
    assert table.weight.requires_grad
    assert model.resize_token_embeddings() is table
    with pytest.raises(InputError, match="vocabularies can only grow"):
        model.resize_token_embeddings(5)


def test_another_table_of_the_same_shape() -> None:
    model = BertModel(BertConfig(**SHAPE)).eval()
    table = nn.Embedding(30, 16)
    model.set_input_embeddings(table)
    assert model.get_input_embeddings() is table
    for wrong in (nn.Embedding(31, 16), nn.Embedding(30, 8), nn.Linear(16, 30)):
        with pytest.raises(InputError, match=r"expected an nn\.Embedding of shape \(30, 16\)"):
            model.set_input_embeddings(wrong)


def test_gradient_checkpointing_by_its_other_name() -> None:
    model = BertModel(BertConfig(**SHAPE))
    model.gradient_checkpointing_enable({"use_reentrant": False})
    assert model.encoder.gradient_checkpointing
    model.gradient_checkpointing_disable()
    assert not model.encoder.gradient_checkpointing


def test_new_models_of_a_config() -> None:
    assert type(AutoModel.from_config(BertConfig(**SHAPE))) is BertModel
    electra = BertConfig(model_type="electra", embedding_size=8, **SHAPE)
    assert type(AutoModelForPreTraining.from_config(electra)) is ElectraForPreTraining
    config = BertConfig(num_labels=5, **SHAPE)
    assert AutoModelForSequenceClassification.from_config(config)(IDS).logits.shape == (1, 5)
    for arguments in ((), ("bert-base-uncased",), (config,)):
        with pytest.raises(InputError, match="from_config"):
            AutoModel(*arguments)
    with pytest.raises(InputError, match=r"AutoTokenizer\.from_pretrained"):
        AutoTokenizer("bert-base-uncased")


def test_none_is_the_same_as_leaving_out(tmp_path: Path) -> None:
    BertModel(BertConfig(**SHAPE)).save_pretrained(tmp_path)
    nothing = dict.fromkeys(LoadOptions.__annotations__)
    ours, theirs = BertModel.from_pretrained(tmp_path), BertModel.from_pretrained(tmp_path, **nothing)
    assert torch.equal(ours.pooler.dense.weight, theirs.pooler.dense.weight)


def test_push_to_hub_uploads_what_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}

    class Made:
        repo_id = "me/model"

    def create_repo(self: HfApi, repo_id: str, **options: object) -> Made:
        asked.update(options, token=self.token, created=repo_id)
        return Made()

    def upload_folder(self: HfApi, **options: object) -> str:
        asked.update(options, loaded=BertModel.from_pretrained(str(options["folder_path"])))
        return "https://hub/me/model/commit/1"

    monkeypatch.setattr(HfApi, "create_repo", create_repo)
    monkeypatch.setattr(HfApi, "upload_folder", upload_folder)
    model = BertModel(BertConfig(**SHAPE))
    assert model.push_to_hub("model", private=True, token="hf_x") == "https://hub/me/model/commit/1"
    assert {name: asked[name] for name in ("created", "private", "token", "repo_id", "commit_message", "exist_ok")} == {
        "created": "model", "private": True, "token": "hf_x", "repo_id": "me/model",
        "commit_message": "Upload BertModel", "exist_ok": True,
    }  # fmt: skip
    assert torch.equal(asked["loaded"].pooler.dense.weight, model.pooler.dense.weight)
    assert not Path(str(asked["folder_path"])).exists()


def test_push_to_hub_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    model = BertModel(BertConfig(**SHAPE))
    with pytest.raises(InputError, match="'a/b/c' is not a valid name on the Hub"):
        model.push_to_hub("a/b/c")

    http_error, invalid_url = http_errors()
    for kind in (OSError, type("ConnectError", (http_error,), {}), invalid_url):

        def create_repo(self: HfApi, *arguments: object, kind: type[Exception] = kind, **options: object) -> None:
            raise kind("no route to host")

        monkeypatch.setattr(HfApi, "create_repo", create_repo)
        with pytest.raises(
            ResourceError, match=r"to 'me/model': .*no route to host\. Check the.*not logged in: hf auth"
        ):
            model.push_to_hub("me/model")
