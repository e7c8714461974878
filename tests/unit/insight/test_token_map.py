"""Maps of word pieces: places, links and cosines against transformers' hidden states."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import cosine_similarity
from transformers import AutoModel as TheirModel

import family_folders
from bertkit import AutoTokenizer, visualize
from bertkit.errors import InputError
from bertkit.insight import token_map
from pipeline_helpers import save_tiny

pytestmark = pytest.mark.slow

TEXTS = ["the film is good", "is the end good", "a dull scene"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"), num_hidden_layers=3)


@pytest.mark.parametrize("layer", [0, 2, -1])
def test_the_cosines_are_those_of_transformers_states(folder: Path, layer: int) -> None:
    found = visualize.tokens(TEXTS, folder, layer=layer)
    assert found.layer == layer % 4
    theirs, tokenizer = TheirModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        states = [
            theirs(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states[layer][0, 1:-1]
            for text in TEXTS
        ]
    words = [word for text in TEXTS for word in text.split()]
    owners = np.repeat([0, 1, 2], [4, 4, 3])
    assert [each.piece for each in found.pieces] == words
    assert [each.text for each in found.pieces] == owners.tolist()
    assert [each.position for each in found.pieces] == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3]
    cosines = cosine_similarity(torch.cat(states).numpy())
    apart = owners[:, None] != owners
    same = np.array([[one == other for one in words] for other in words])
    assert found.cosines.same == pytest.approx(cosines[apart & same].mean(), abs=1e-5)
    assert found.cosines.different == pytest.approx(cosines[apart & ~same].mean(), abs=1e-5)
    assert [[words[row] for row in link] for link in found.repeated] == [["the"] * 2, ["is"] * 2, ["good"] * 2]
    json.dumps(found.to_dict(), allow_nan=False)


def test_special_tokens_are_drawn_if_asked_for(folder: Path) -> None:
    found = visualize.tokens(TEXTS[:1], folder, special=True)
    assert [each.piece for each in found.pieces] == ["[CLS]", "the", "film", "is", "good", "[SEP]"]
    assert (found.repeated, found.cosines.same) == ([], None)
    assert "mean cosine" not in found.render()


def test_of_many_pieces_the_first_are_drawn_and_no_more_computed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = visualize.tokens(TEXTS[:2], folder)
    monkeypatch.setattr(token_map, "MOST_PIECES", 8)
    found = visualize.tokens(TEXTS * 500, folder)
    assert found.notes == ["the first 8 of 5,500 pieces are drawn"]
    np.testing.assert_allclose(found.projection.places, whole.projection.places, atol=1e-5)


def test_picture_and_page(folder: Path, tmp_path: Path) -> None:
    found = visualize.tokens([*TEXTS, "good"], folder)
    page = found.save(tmp_path / "pieces.html").read_text(encoding="utf-8")
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert data["names"][:4] == TEXTS[0].split()
    assert data["links"] == [[0, 4], [2, 5], [3, 7, 11]] or sorted(data["links"]) == sorted(found.repeated)
    assert data["texts"][0] == "token 1 of: the film is good"
    assert [style["name"] for style in data["styles"]] == [f"{n}. {text}" for n, text in enumerate([*TEXTS, "good"], 1)]
    pytest.importorskip("matplotlib")
    axes = found.figure().axes[0]
    assert {text.get_text() for text in axes.texts} >= {"film", "scene"}
    assert len(axes.lines) == len(found.repeated)


def test_a_single_text_is_one_text(folder: Path) -> None:
    found = visualize.tokens(TEXTS[0], folder)
    assert found.texts == TEXTS[:1]
    assert [each.piece for each in found.pieces] == TEXTS[0].split()


def test_pieces_of_bytes_are_read_as_text(tmp_path: Path) -> None:
    family_folders.make("modernbert", tmp_path / "m", tmp_path)
    found = visualize.tokens(["the the r"], tmp_path / "m")
    assert [each.piece for each in found.pieces] == ["the", "\N{OPEN BOX}", "the", "r"]


def test_what_is_refused(folder: Path, tmp_path: Path) -> None:
    for told, texts, more in (
        ("there are no texts", [], {}),
        ("needs 3 pieces at least, got 1", ["bad"], {}),
        ("needs 4 pieces at least, got 3", ["a good film"], {"method": "tsne"}),
        ("needs 3 pieces at least, got 0", ["", ""], {}),
        ("pooling would have no effect", TEXTS, {"pooling": "mean"}),
        ("perplexity=11 must be less than the number of pieces, 11", TEXTS, {"method": "tsne", "perplexity": 11}),
    ):
        with pytest.raises(InputError, match=told):
            visualize.tokens(texts, folder, **more)
    family_folders.make("t5", tmp_path / "m", tmp_path)
    with pytest.raises(InputError, match="an encoder-decoder"):
        visualize.tokens(TEXTS, tmp_path / "m")
