"""How narrow a space is: against definitions by hand, scikit-learn's whitening, and spaces that are known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import cosine_similarity

import family_folders
from bertkit import SentenceEncoder, visualize
from bertkit.errors import InputError
from bertkit.insight.layer_vectors import LayerReader
from bertkit.insight.vector_space import mean_cosine, spaces_of
from pipeline_helpers import WORDS, save_tiny

pytestmark = pytest.mark.slow


def texts(count: int = 120) -> list[str]:
    draws = np.random.default_rng(0)
    return [" ".join(draws.choice(WORDS, draws.integers(1, 9))) for _ in range(count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"), num_hidden_layers=2)


def test_the_mean_cosine_is_that_of_all_pairs() -> None:
    x = np.random.default_rng(0).normal(1.0, 1.0, size=(40, 7))
    pairs = cosine_similarity(x)[~np.eye(40, dtype=bool)]
    assert mean_cosine(x) == pytest.approx(pairs.mean())


def test_a_round_space_and_a_narrow_one() -> None:
    draws = np.random.default_rng(0)
    round_one = draws.normal(size=(6000, 16))
    as_they_are, removed, without, whitened = spaces_of(round_one[:3000], round_one[3000:])
    for each in (as_they_are, removed, whitened):
        assert abs(each.mean_cosine) < 0.002
        assert each.effective_dimension == pytest.approx(16, abs=0.3)
    assert without.effective_dimension == pytest.approx(15, abs=0.3)
    assert without.shares[-1] == pytest.approx(0.0, abs=1e-12)
    scales = np.array([30.0, 4.0, *[1.0] * 14])
    narrow = round_one * scales + 40
    as_they_are, removed, without, whitened = spaces_of(narrow[:3000], narrow[3000:])
    assert as_they_are.mean_cosine > 0.8
    assert abs(removed.mean_cosine) < 0.01
    right = np.square(np.square(scales).sum()) / (scales**4).sum()
    assert as_they_are.effective_dimension == pytest.approx(right, rel=0.03)
    assert without.effective_dimension == pytest.approx(np.square(16 + 14) / (256 + 14), rel=0.05)
    assert whitened.effective_dimension == pytest.approx(16, abs=0.3)


def test_whitening_and_removal_are_those_of_scikit_learn() -> None:
    draws = np.random.default_rng(1)
    x = draws.normal(size=(300, 10)) @ draws.normal(size=(10, 10)) + 1
    fitted, measured = x[:150], x[150:]
    analysis = PCA(whiten=True, svd_solver="full").fit(fitted)
    plain = PCA(1, svd_solver="full").fit(fitted)
    _, _, without, whitened = spaces_of(fitted, measured)
    for found, right in (
        (whitened, analysis.transform(measured)),
        (without, measured - plain.mean_ - (plain.transform(measured) @ plain.components_)),
    ):
        assert found.mean_cosine == pytest.approx(mean_cosine(right), abs=1e-9)
        shares = PCA(svd_solver="full").fit(right).explained_variance_ratio_
        np.testing.assert_allclose(found.shares, shares, atol=1e-9)
        assert found.effective_dimension == pytest.approx(1 / np.square(shares).sum())


def test_fewer_texts_than_numbers_have_no_variance_in_the_rest() -> None:
    x = np.random.default_rng(0).normal(size=(12, 40))
    *_, whitened = spaces_of(x[:6], x[6:])
    assert whitened.effective_dimension <= 5
    assert np.isfinite(whitened.shares).all()


def test_the_layers_and_vectors_of_a_model(folder: Path) -> None:
    sample = texts()
    found = visualize.anisotropy(sample, folder)
    reader = LayerReader(folder, pooling="mean")
    vectors = reader.vectors(reader.encode(sample))
    assert [each.layer for each in found.layers] == [0, 1, 2]
    assert [each.texts for each in found.layers] == pytest.approx([mean_cosine(each) for each in vectors], abs=1e-5)
    assert all(-1 <= each.tokens <= 1 for each in found.layers)
    assert (found.fitted, found.measured, found.width) == (60, 60, 32)
    own = SentenceEncoder(folder).encode(sample)
    assert found.spaces[0].mean_cosine == pytest.approx(mean_cosine(own), abs=0.1)  # of half of them
    assert found.spaces[0].mean_cosine > found.spaces[1].mean_cosine + 0.1
    assert found.even == pytest.approx(1 / (1 / 32 + 1 / 59))
    assert "60 texts, which are few for 32 numbers" in found.notes[-1]
    json.dumps(found.to_dict(), allow_nan=False)
    again = visualize.anisotropy(sample, folder)
    assert again.to_dict() == found.to_dict()
    part = visualize.anisotropy(sample, folder, points=20, layer=1)
    assert part.notes[0] == "20 of 120 texts were sampled (seed 0)"


def test_a_model_that_shows_no_layers_still_has_a_space(tmp_path: Path) -> None:
    family_folders.make("t5", tmp_path / "m", tmp_path)
    found = visualize.anisotropy(["the", "e the", "r", "the r", "e", "n", "i", "o"], tmp_path / "m")
    assert found.layers == []
    assert "an encoder-decoder" in found.notes[0]
    assert len(found.spaces) == 4
    pytest.importorskip("matplotlib")
    assert len(found.figure().axes) == 1


def test_picture_and_page(folder: Path, tmp_path: Path) -> None:
    found = visualize.anisotropy(texts(40), folder)
    assert "<svg" in found.save(tmp_path / "space.html").read_text(encoding="utf-8")
    left, right = found.figure().axes
    assert len(right.lines) == 4
    np.testing.assert_allclose(left.lines[0].get_ydata(), [each.tokens for each in found.layers])


def test_what_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="8 texts are needed at least, got 7"):
        visualize.anisotropy(texts(7), folder)
    with pytest.raises(InputError, match="give several texts, not one: 'the film is good'"):
        visualize.anisotropy("the film is good", folder)
    with pytest.raises(InputError, match="8 texts are needed at least, got 3"):
        visualize.anisotropy(texts(), folder, points=3)
    with pytest.raises(InputError, match="the vectors of all 9 texts are the same"):
        visualize.anisotropy(["a film"] * 9, folder)
    with pytest.raises(InputError, match="the vectors of all 9 texts are the same"):
        visualize.anisotropy([""] * 9, folder)
