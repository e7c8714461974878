"""Models whose table of words has more rows than the tokenizer has tokens, as one padded to a multiple of 64 has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import bertkit
from bertkit import AutoTokenizer, BertForMaskedLM, pipeline
from bertkit.errors import CheckpointError
from bertkit.export.onnx_export import export_onnx
from pipeline_helpers import TOLERANCES, VOCABULARY, save_tiny
from seq2seq_helpers import KINDS
from tokenizer_families import family_contestants

TOKENS = len(VOCABULARY)
ROWS = 64 * (TOKENS // 64 + 1)
TEXTS = ["the film is [MASK]", "a [MASK] scene was not dull"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert ROWS > TOKENS + 20
    return save_tiny(tmp_path_factory.mktemp("padded") / "m", BertForMaskedLM, vocab_size=ROWS)


@pytest.fixture(scope="module", params=["torch", "packed", "padded"])
def source(request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "torch":
        return folder
    out = tmp_path_factory.mktemp(request.param) / "export"
    export_onnx(
        BertForMaskedLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder), out, variants=(request.param,)
    )
    return out


def _logits(folder: Path, text: str) -> tuple[torch.Tensor, torch.Tensor]:
    """All logits of ``transformers`` for a text ``(S, V)``, and the ids of its tokens."""
    tokenizer = transformers.BertTokenizerFast.from_pretrained(folder)
    encoded = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        return transformers.BertForMaskedLM.from_pretrained(folder)(**encoded).logits[0], encoded["input_ids"][0]


@pytest.mark.slow
def test_a_mask_is_filled_by_tokens_alone(folder: Path, source: Path) -> None:
    pipe = pipeline("fill-mask", model=source)
    found: Any = pipe(TEXTS, top_k=ROWS)
    for text, guesses in zip(TEXTS, found, strict=True):
        logits, ids = _logits(folder, text)
        row = logits[ids == pipe.tokenizer.mask_token_id][0]
        assert int(row.argsort(descending=True)[:40].max()) >= TOKENS  # a control: such rows are among the best
        assert len(guesses) == TOKENS
        scores = np.zeros(TOKENS)
        scores[[guess["token"] for guess in guesses]] = [guess["score"] for guess in guesses]
        np.testing.assert_allclose(scores, row[:TOKENS].softmax(dim=0).numpy(), atol=TOLERANCES["auto"])


def test_sparse_vectors_have_tokens_alone(folder: Path, source: Path) -> None:
    found: Any = pipeline("sparse-encoding", model=source)(TEXTS)
    for text, vector in zip(TEXTS, found, strict=True):
        expected = _logits(folder, text)[0].amax(dim=0).relu().log1p()
        assert (expected[TOKENS:] > 0).any()  # a control
        dense = np.zeros(TOKENS)
        dense[vector.ids] = vector.weights
        np.testing.assert_allclose(dense, expected[:TOKENS].numpy(), atol=1e-3)
        assert vector.as_dict().keys() <= set(VOCABULARY)


@pytest.mark.parametrize("family", ["bart", "t5"])
@pytest.mark.parametrize(
    "settings", [{"do_sample": True, "seed": 3}, {"num_beams": 3}, {}], ids=["drawn", "beams", "best"]
)
def test_only_tokens_are_written(family: str, settings: dict[str, Any], shared: Path, tmp_path: Path) -> None:
    tokenizer: Any = family_contestants(shared, {"bart": "roberta"}.get(family, family)).ours
    many = len(tokenizer) + 5
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    torch.manual_seed(0)
    model: Any = (
        bertkit.BartForConditionalGeneration(bertkit.BartConfig(**{**KINDS["bart"][1], **ids, "vocab_size": many}))
        if family == "bart"
        else bertkit.T5ForConditionalGeneration(bertkit.T5Config(**{**KINDS["t5"][1], **ids, "vocab_size": many}))
    )
    with torch.no_grad():  # one of the five rows is the best at every place
        table = model.lm_head.weight if model.lm_head is not None else model.model.shared.weight
        table[: len(tokenizer)] *= 0.01
        if model.final_logits_bias is not None:
            model.final_logits_bias[0, len(tokenizer) :] = 20.0
    control = model.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=4)
    assert int(control.max()) >= len(tokenizer)
    pipe = pipeline("text2text-generation", model=model, tokenizer=tokenizer)
    found: Any = pipe(["a b c", "one"], max_new_tokens=4, **settings)
    assert len(found) == 2
    if "num_beams" not in settings:
        assert (
            "".join(pipe.stream("one", max_new_tokens=4, **settings))
            == pipe("one", max_new_tokens=4, **settings)[0]["generated_text"]
        )


def test_a_config_that_ends_texts_by_no_token(shared: Path) -> None:
    tokenizer: Any = family_contestants(shared, "t5").ours
    many = len(tokenizer) + 5
    model = bertkit.T5ForConditionalGeneration(
        bertkit.T5Config(
            **{**KINDS["t5"][1], "vocab_size": many, "pad_token_id": tokenizer.pad_token_id, "eos_token_id": many - 1}
        )
    )
    with pytest.raises(CheckpointError, match=f"eos_token_id={many - 1}, which is no token of the tokenizer"):
        pipeline("text2text-generation", model=model, tokenizer=tokenizer)
