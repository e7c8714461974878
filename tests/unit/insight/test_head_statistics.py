"""What heads attend to over many texts: equal to a plain loop over the attention of ``transformers``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import family_folders
from bertkit import BertForMaskedLM, BertTokenizer, visualize
from bertkit.errors import InputError, TextError
from bertkit.insight import head_statistics
from pipeline_helpers import save_tiny

pytestmark = pytest.mark.slow

TEXTS = ["the film, the end.", "good", "is it not good? not very - but good!", "the scene", "a dull start in the film"]
PAIRS = [("the film.", "the end"), ("good", "not good!")]
SHARES = ("next", "previous", "itself", "cls", "sep", "same", "punctuation")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model"), BertForMaskedLM)


def by_hand(folder: Path, texts: list[Any]) -> dict[str, Any]:
    """The same numbers, token by token."""
    tokenizer = BertTokenizer.from_pretrained(folder)
    model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager")
    sums = {name: np.zeros((2, 4)) for name in (*SHARES, "distance", "entropy")}
    count, uniform = 0, 0.0
    for text in texts:
        inputs = tokenizer(*([text] if isinstance(text, str) else text), return_tensors="pt")
        tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())
        with torch.no_grad():
            layers = model(**inputs, output_attentions=True).attentions
        for layer, probs in enumerate(layers):
            for head in range(4):
                for i, query in enumerate(tokens):
                    for j, key in enumerate(tokens):
                        p = float(probs[0, head, i, j])
                        kinds = {
                            "next": j == i + 1,
                            "previous": j == i - 1,
                            "itself": i == j,
                            "cls": key == "[CLS]",
                            "sep": key == "[SEP]",
                            "same": i != j and key == query and not key.startswith("["),
                            "punctuation": key in list(".,!?'-"),
                        }
                        for kind, holds in kinds.items():
                            sums[kind][layer, head] += p * holds
                        sums["distance"][layer, head] += p * abs(i - j)
                        sums["entropy"][layer, head] -= p * math.log(p)
        count += len(tokens)
        uniform += len(tokens) * math.log(len(tokens))
    found: dict[str, Any] = {name: total / count for name, total in sums.items()}
    return {**found, "relative_entropy": found["entropy"] * count / uniform, "count": count}


@pytest.mark.parametrize("texts", [TEXTS, PAIRS], ids=["texts", "pairs"])
@pytest.mark.parametrize("at_once", [1, 1 << 20], ids=["one by one", "together"])
def test_numbers_are_those_of_a_loop_over_transformers(
    folder: Path, texts: list[Any], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_statistics, "BYTES_AT_ONCE", at_once)
    monkeypatch.setattr(head_statistics, "WINDOW", 3)
    found, expected = visualize.heads(texts, model=folder), by_hand(folder, texts)
    assert found.num_tokens == expected.pop("count")
    assert set(found.values) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found.values[name], values, rtol=2e-5, atol=1e-6, err_msg=name)
        assert values.max() > 0.001, name  # each of them is tested


def test_limits_are_said(folder: Path) -> None:
    found = visualize.heads(iter([*TEXTS, "", " \n", *TEXTS]), model=folder, max_texts=8)
    assert (found.num_texts, found.num_empty, found.has_more) == (6, 2, True)
    assert found.render().startswith("2 layers of 4 heads, the first 6 texts, ")
    assert "2 empty texts left out" in found.render()
    all_of_them = visualize.heads(TEXTS, model=folder, max_texts=5)
    assert (all_of_them.num_texts, all_of_them.has_more) == (5, False)
    said = all_of_them.to_dict()
    assert [(row["layer"], row["head"]) for row in said["heads"]] == [(a, b) for a in (1, 2) for b in (1, 2, 3, 4)]
    np.testing.assert_array_equal([row["next"] for row in said["heads"]], all_of_them.values["next"].ravel())


def test_long_and_empty_texts(folder: Path) -> None:
    with pytest.raises(TextError, match=r"text 66 \(counted from 0\) has 72 tokens"):
        visualize.heads(["good"] * 65 + ["", "good " * 70], model=folder)
    assert visualize.heads(["good " * 70], model=folder, truncation=True).num_truncated == 1
    for nothing in ([], ["", " "]):
        with pytest.raises(TextError, match="there is no text, or all of them are empty"):
            visualize.heads(nothing, model=folder)


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_encoders_of_models_that_write(family: str, tmp_path: Path) -> None:
    """A T5 has no token at the beginning of a text."""
    family_folders.make(family, tmp_path / "model", tmp_path)
    found = visualize.heads(["the river", "the wind is on"], model=tmp_path / "model")
    assert ("cls" in found.values, "cls" in found.names) == (family == "bart", family == "bart")
    assert family == "t5" or found.values["cls"].min() > 0
    assert found.values["sep"].min() > 0
    assert found.values["entropy"].shape == (2, 2)


@pytest.mark.parametrize("most", [0, -1])
def test_at_least_one_text_is_read(folder: Path, most: int) -> None:
    with pytest.raises(InputError, match=f"max_texts must be from 1, got {most}"):
        visualize.heads(TEXTS, model=folder, max_texts=most)


def test_heads_of_a_known_kind() -> None:
    """A mask of the next token times a matrix that looks there alone."""
    masks = head_statistics._Masks(
        BertTokenizer(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, ".": 6})
    )
    found = dict(zip((*SHARES, "distance"), masks.of([2, 5, 6, 5, 3]).numpy(), strict=True))
    np.testing.assert_array_equal(found["next"], np.eye(5, k=1))
    np.testing.assert_array_equal(found["cls"], np.tile([1, 0, 0, 0, 0], (5, 1)))
    np.testing.assert_array_equal(np.argwhere(found["same"]), [[1, 3], [3, 1]])
    np.testing.assert_array_equal(found["punctuation"], np.tile([0, 0, 1, 0, 0], (5, 1)))
