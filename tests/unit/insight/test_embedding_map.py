"""Maps of texts: numbers against scikit-learn's on the model's vectors, samples, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness
from sklearn.neighbors import KNeighborsClassifier

from bertkit import SentenceEncoder, errors, visualize
from bertkit.errors import ConfigError, InputError, MissingExtraError
from bertkit.insight.layer_vectors import LayerReader
from pipeline_helpers import save_tiny

pytestmark = pytest.mark.slow

GOOD, BAD = "good great very not dull", "bad dull not very a"
TEXTS = [f"the {word} film was {other}" for word in GOOD.split() for other in "good great not".split()]
TEXTS += [f"{word} to the end {other} !" for word in BAD.split() for other in "bad dull scene".split()]
LABELS: list[str | None] = ["good"] * 15 + ["bad"] * 15


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"), num_hidden_layers=3)


def test_the_numbers_are_those_of_scikit_learn(folder: Path) -> None:
    found = visualize.embeddings(TEXTS, LABELS, folder)
    vectors = SentenceEncoder(folder).encode(TEXTS, normalize=True)
    analysis = PCA(10, svd_solver="full").fit(vectors)
    said = found.to_dict()
    np.testing.assert_allclose(said["variance"], analysis.explained_variance_ratio_, atol=1e-5)
    places = np.array([[point["x"], point["y"]] for point in said["points"]])
    np.testing.assert_allclose(np.abs(places), np.abs(analysis.transform(vectors)[:, :2]), atol=1e-4)
    assert said["trustworthiness"] == pytest.approx(trustworthiness(vectors, places), abs=1e-9)
    for name, x in (("label_accuracy", vectors), ("label_accuracy_on_map", places)):
        right = KNeighborsClassifier(10, algorithm="brute").fit(x, LABELS).predict(None)
        assert said[name] == pytest.approx(np.mean(right == np.array(LABELS)))
    assert (said["label_majority"], said["labels"]) == (0.5, {"good": 15, "bad": 15})
    assert [point["text"] for point in said["points"]] == TEXTS
    assert [point["label"] for point in said["points"]] == LABELS
    json.dumps(said, allow_nan=False)
    assert "label by the 10 nearest texts: right for" in found.render()


def test_vectors_of_a_layer_or_made_earlier(folder: Path) -> None:
    reader = LayerReader(folder, pooling="max")
    (vectors,) = reader.vectors(reader.encode(TEXTS), [1])
    found = visualize.embeddings(TEXTS, LABELS, folder, layer=1, pooling="max")
    other = visualize.embeddings(TEXTS, LABELS, vectors=vectors)
    np.testing.assert_allclose(found.projection.places, other.projection.places, atol=1e-4)
    assert "layer 1 (max) of 32 numbers" in found.render()
    assert "given vectors of 32 numbers" in other.render()
    top = visualize.embeddings(TEXTS, model=folder)
    assert not np.allclose(found.projection.places, top.projection.places, atol=1e-2)


def test_many_texts_are_sampled_each_label_by_its_share() -> None:
    draws = np.random.default_rng(0)
    count = 100_000
    labels = [f"label {number}" for number in draws.choice(4, count, p=[0.5, 0.3, 0.19, 0.01])]
    vectors = draws.normal(size=(count, 4))
    texts = [f"text {row}" for row in range(count)]
    first, same, other = (
        visualize.embeddings(texts, labels, vectors=vectors, points=400, seed=seed) for seed in (1, 1, 2)
    )
    assert first.texts == same.texts != other.texts
    assert first.texts == sorted(first.texts, key=lambda text: int(text.split()[1]))  # in the order of the file
    assert first.notes == ["400 of 100,000 texts were sampled (seed 1)"]
    assert first.render().startswith("400 texts of 100,000:")
    sizes = first.to_dict()["labels"]
    for number, share in enumerate([0.5, 0.3, 0.19, 0.01]):
        assert abs(sizes[f"label {number}"] - 400 * share) <= 4
    rows = [int(text.split()[1]) for text in first.texts]
    assert first.labels == [labels[row] for row in rows]
    control = visualize.embeddings([texts[row] for row in rows], vectors=vectors[rows])
    np.testing.assert_allclose(first.projection.places, control.projection.places, atol=1e-6)


def test_a_thousand_labels_no_labels_and_some_without() -> None:
    draws = np.random.default_rng(0)
    vectors, texts = draws.normal(size=(1100, 6)), [f"text {row}" for row in range(1100)]
    labels: list[Any] = [f"label {row % 1000}" for row in range(1100)]
    pytest.importorskip("matplotlib")
    many = visualize.embeddings(texts, labels, vectors=vectors)
    names = [text.get_text() for text in many.figure().legends[0].get_texts()]
    assert names == [*(f"label {number} (2)" for number in (0, 1, 10, 11, 12, 13, 14, 15)), "992 other labels (1,084)"]
    assert many.scores is not None
    assert many.scores.accuracy < 0.1
    none = visualize.embeddings(texts, vectors=vectors)
    assert (none.scores, none.figure().legends, none.to_dict()["labels"]) == (None, [], {})
    assert "label" not in none.to_dict()["points"][0]
    some = visualize.embeddings(texts, [None, *["a", "b"] * 3, *[None] * 1093], vectors=vectors)
    assert [text.get_text() for text in some.figure().legends[0].get_texts()] == [
        "a (3)",
        "b (3)",
        "no label (1,094)",
    ]
    assert some.scores is not None
    assert (some.scores.neighbours, some.scores.majority) == (2, 0.5)
    assert visualize.embeddings(texts, ["same"] * 1100, vectors=vectors).scores is None


def test_the_page_holds_everything_and_asks_for_nothing(tmp_path: Path, folder: Path) -> None:
    texts = [*TEXTS, "</script><script>alert(1)</script>", "good " * 300]
    found = visualize.embeddings(texts, [*LABELS, "<b>", "$x$"], folder)
    page = found.save(tmp_path / "map.html").read_text(encoding="utf-8")
    assert page.count("</script>") == 2
    assert "<b>" not in page
    assert "http" not in page.replace("http-equiv", "")
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert data["texts"][:30] == TEXTS
    assert data["texts"][30] == texts[30]
    assert len(data["texts"][31]) == 400  # a page of long texts stays small
    assert len(data["places"]) == len(data["groups"]) == 32
    assert [style["name"] for style in data["styles"]] == ["bad", "good", "$x$", "<b>"]
    assert found.notes == ["1 text had more tokens than are read, and was cut"]
    assert "srcdoc" in found._repr_html_()
    assert found._repr_html_().endswith("</iframe>")
    if pytest.importorskip("matplotlib"):
        assert found.save(tmp_path / "map.svg").read_text().count("$x$") == 1
        assert (tmp_path / "map.svg").read_bytes() == found.save(tmp_path / "again.svg").read_bytes()
    assert json.loads(found.save(tmp_path / "map.json").read_text()) == found.to_dict()


def test_empty_texts_and_texts_of_one_token_have_their_place(folder: Path) -> None:
    found = visualize.embeddings(["", "bad", "!", "a film", " "], model=folder, method="tsne")
    assert np.isfinite(found.projection.places).all()
    assert "perplexity 1.33 in place of 30" in found.render()


def test_what_is_refused(folder: Path) -> None:
    vectors = np.eye(30)
    damaged = np.where(np.arange(30)[:, None] == 3, np.nan, vectors)
    for told, texts, more in (
        ("needs 4 texts at least, got 1", TEXTS[:1], {"model": folder, "method": "tsne"}),
        ("needs 3 texts at least, got 0", [], {"model": folder}),
        ("perplexity=40 must be less", TEXTS, {"model": folder, "method": "tsne", "perplexity": 40}),
        ("got 15 labels for 30 texts", TEXTS, {"model": folder, "labels": LABELS[:15]}),
        ("give a model, or the vectors", TEXTS, {}),
        ("give a model, or the vectors", TEXTS, {"model": folder, "vectors": vectors}),
        ("a vector of numbers for each of 30 texts, got float64 .29, 30.", TEXTS, {"vectors": vectors[1:]}),
        ("vector 3 .counted from 0. has values", TEXTS, {"vectors": damaged}),
        ("layer would have no effect", TEXTS, {"vectors": vectors, "layer": 1}),
        ("no layer 9: it has 3", TEXTS, {"model": folder, "layer": 9}),
        ("pooling='median' is unknown", TEXTS, {"model": folder, "pooling": "median"}),
        ("give several texts, not one: 'a film'", "a film", {"model": folder}),
        ("points must be from 1", TEXTS, {"model": folder, "points": 0}),
        ("the vectors of all 4 texts are the same", ["a film"] * 4, {"model": folder}),
    ):  # fmt: skip
        with pytest.raises(InputError, match=told):
            visualize.embeddings(texts, **more)
    with pytest.raises(ConfigError, match="method must be one of"):
        visualize.embeddings(TEXTS, model=folder, method="mds")  # type: ignore[arg-type]


def test_without_matplotlib_pages_and_numbers_are_written(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name=name.partition(".")[0])

    monkeypatch.setattr(errors, "import_module", missing)
    found = visualize.embeddings(TEXTS, LABELS, folder)
    assert found.save(tmp_path / "map.html").stat().st_size > 1000
    with pytest.raises(MissingExtraError, match=r"bertkit\[plots\]"):
        found.save(tmp_path / "map.png")
    assert not (tmp_path / "map.png").exists()
