"""Pipelines that write, with BART and T5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import bertkit
from bertkit import pipeline
from bertkit.errors import ConfigError, InputError
from seq2seq_helpers import KINDS
from tokenizer_families import family_contestants

TEXTS = ["The little dog ran home.", "A cat", "It was a long day, and nobody had seen the boat since noon."]


@pytest.fixture(scope="module", params=["bart", "t5"])
def folder(request: pytest.FixtureRequest, shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model with a tokenizer of its family."""
    family = request.param
    tokenizer: Any = family_contestants(shared, {"bart": "roberta"}.get(family, family)).ours
    values = {**KINDS[family][1], "vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    values["eos_token_id"] = tokenizer.sep_token_id if tokenizer.eos_token_id is None else tokenizer.eos_token_id
    torch.manual_seed(0)
    if family == "bart":
        config: Any = bertkit.BartConfig(**values, bos_token_id=tokenizer.cls_token_id)
        model: Any = bertkit.BartForConditionalGeneration(config)
    else:
        model = bertkit.T5ForConditionalGeneration(bertkit.T5Config(**values))
    path: Path = tmp_path_factory.mktemp(family)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def test_the_text_that_the_model_writes(folder: Path) -> None:
    """Each text gets what ``generate`` writes for it alone, in the order of the texts."""
    pipe = pipeline("summarization", model=folder, max_new_tokens=12)
    expected = []
    for text in TEXTS:
        ids = torch.tensor([pipe.tokenizer(f"sum: {text}")["input_ids"]])
        out = pipe.model.generate(ids, max_new_tokens=12)[0].tolist()
        expected.append({"summary_text": pipe.tokenizer.decode(out, skip_special_tokens=True).strip()})
    assert pipe(TEXTS, prefix="sum: ") == expected
    assert pipe(TEXTS[0], prefix="sum: ") == [expected[0]]
    assert list(pipe(iter(TEXTS), prefix="sum: ")) == expected
    assert len({found["summary_text"] for found in expected}) > 1  # a control: the text matters
    assert pipe(TEXTS) != expected


def test_several_texts_each_and_further_settings(folder: Path) -> None:
    pipe = pipeline(model=folder)
    assert pipe.task == "text2text-generation"
    beams = pipe(TEXTS, num_beams=3, num_return_sequences=2, settings={"length_penalty": 0.5, "max_new_tokens": 6})
    assert [[list(one) for one in each] for each in beams] == [[["generated_text"]] * 2] * 3
    drawn = [pipe(TEXTS[0], do_sample=True, seed=seed, max_new_tokens=8) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_model_object(folder: Path) -> None:
    model = bertkit.AutoModelForSeq2SeqLM.from_pretrained(folder)
    with pytest.raises(InputError, match="does not know its tokenizer"):
        pipeline("translation", model=model)
    pipe = pipeline("translation", model=model, tokenizer=folder)
    assert list(pipe(TEXTS[0], max_new_tokens=3)[0]) == ["translation_text"]


def test_bad_input(folder: Path, minilm: Path) -> None:
    pipe = pipeline("text2text-generation", model=folder, max_new_tokens=4)
    with pytest.raises(InputError, match=r"text 1 .* is empty"):
        pipe(["a", " \n"])
    with pytest.raises(InputError, match="is a pair"):
        pipe({"text": "a", "text_pair": "b"})
    with pytest.raises(InputError, match="truncation must be True or False, got 'do_not_truncate'"):
        pipe("a", truncation="do_not_truncate")
    with pytest.raises(ConfigError, match="num_beams"):
        pipe("a", num_beams=0)
    with pytest.raises(ConfigError, match="generate has no 'lenght_penalty'"):
        pipe("a", settings={"lenght_penalty": 1.0})
    with pytest.raises(InputError, match="no option 'num_beam'"):
        pipeline("summarization", model=folder, num_beam=2)
    with pytest.raises(InputError, match="computes in the type of the weights"):
        pipeline("summarization", model=folder, precision="int8")
    with pytest.raises(bertkit.BertkitError, match="those that write are bart, mbart, t5"):
        pipeline("summarization", model=minilm)
    if pipe.model.config.model_type == "bart":
        with pytest.raises(InputError, match="the limit is 40"):
            pipe("a b c " * 40)
        assert pipe("a b c " * 40, truncation=True) == pipe("a b c " * 39, truncation=True)
