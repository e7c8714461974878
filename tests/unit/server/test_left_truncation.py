"""Texts that lose their beginning: the tokens that ``tokenizers`` keeps, read by the model in torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from bertkit import BertForSequenceClassification, BertForTokenClassification, BertModel
from pipeline_helpers import VOCABULARY
from server_helpers import ask

LIMIT = 64
LONG = "the start of a film is great, and not dull. " * 12 + "it was in the end a very bad scene"
SHORT = "a good film"


def kept(*texts: str, direction: str = "left", limit: int = LIMIT) -> dict[str, torch.Tensor]:
    """A text or a pair as the arguments of a model."""
    vocabulary = {word: number for number, word in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.enable_truncation(limit, strategy="longest_first", direction=direction)
    found = tokenizer.encode(*texts)
    assert len(found.ids) <= limit
    return {"input_ids": torch.tensor([found.ids]), "token_type_ids": torch.tensor([found.type_ids])}


def asked(server: Any, path: str, body: Any) -> Any:
    """The answer of the server."""
    reply = ask(server.address, path, body)
    assert reply.status == 200, reply.body
    return reply.body


def close(found: Any, expected: torch.Tensor) -> bool:
    """Whether they are the same to rounding."""
    return torch.allclose(torch.tensor(found), expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_embed(server: Any) -> None:
    model = BertModel.from_pretrained(server.folder / "vectors").eval()
    hidden = {side: model(**kept(LONG, direction=side)).last_hidden_state[0] for side in ("left", "right")}
    for side, state in hidden.items():
        body = {"inputs": [LONG, SHORT], "normalize": False, "truncate": True, "truncation_direction": side}
        long, short = asked(server, "/models/vectors/embed", body)
        assert close(long, state.mean(dim=0))
        assert close(short, model(**kept(SHORT)).last_hidden_state[0].mean(dim=0))
    assert not close(hidden["left"].mean(dim=0).tolist(), hidden["right"].mean(dim=0))  # else this shows nothing
    body = {"inputs": LONG, "truncation_direction": "Left"}
    assert close(asked(server, "/models/vectors/embed_all", body)[0], hidden["left"])
    cut = {"input": LONG, "model": "vectors", "truncate_prompt_tokens": 16, "truncation_side": "left"}
    expected = model(**kept(LONG, limit=16)).last_hidden_state[0]
    found = asked(server, "/pooling", {**cut, "task": "token_embed", "use_activation": False})["data"][0]["data"]
    assert close(found, expected)
    found = asked(server, "/pooling", {**cut, "task": "token_embed"})["data"][0]["data"]
    assert close(found, torch.nn.functional.normalize(expected, dim=-1))
    own = asked(server, "/v1/embed", {"input": LONG, "model": "vectors", "overflow": "truncate-left"})
    assert close(own["results"][0], hidden["left"].mean(dim=0))
    assert own["truncated"] == [True]


@torch.no_grad()
def test_of_a_pair_the_longer_text_is_cut(server: Any) -> None:
    model = BertForSequenceClassification.from_pretrained(server.folder / "ranks").eval()
    texts = [SHORT, LONG, f"{LONG} {SHORT}"]
    body = {"query": LONG, "texts": texts, "raw_scores": True, "truncate": True, "truncation_direction": "Left"}
    found = {each["index"]: each["score"] for each in asked(server, "/models/ranks/rerank", body)}
    for place, text in enumerate(texts):
        assert found[place] == pytest.approx(model(**kept(LONG, text)).logits.item(), abs=1e-4)
        assert found[place] != pytest.approx(model(**kept(LONG, text, direction="right")).logits.item(), abs=1e-4)


@torch.no_grad()
def test_labels_of_a_text_and_of_its_tokens(server: Any) -> None:
    model = BertForSequenceClassification.from_pretrained(server.folder / "labels").eval()
    body = {"inputs": LONG, "raw_scores": True, "truncate": True, "truncation_direction": "left"}
    found = {each["label"]: each["score"] for each in asked(server, "/models/labels/predict", body)}
    assert close([found[label] for label in ("bad", "good", "dull")], model(**kept(LONG)).logits[0])
    # vLLM's clients count on a row for each token of the tokenizer, special tokens included.
    tagger = BertForTokenClassification.from_pretrained(server.folder / "tags").eval()
    body = {"input": [SHORT, LONG], "model": "tags", "truncate_prompt_tokens": -1, "truncation_side": "left"}
    for text, row in zip((SHORT, LONG), asked(server, "/pooling", body)["data"], strict=True):
        assert close(row["data"], tagger(**kept(text)).logits[0].softmax(dim=-1))
    raw = asked(server, "/pooling", {**body, "task": "token_classify", "use_activation": False})["data"]
    assert close(raw[0]["data"], tagger(**kept(SHORT)).logits[0])


def test_refused_where_it_is_not_done(server: Any) -> None:
    for path, body in (
        ("/v1/choose", {"input": {"context": LONG, "choices": ["the end", "a film"]}}),
        ("/v1/attention", {"input": LONG, "model": "labels"}),
    ):
        reply = ask(server.address, path, {**body, "overflow": "truncate-left"})
        assert reply.status == 422
        assert "cut at their beginning for embed" in reply.body["error"]["message"]
