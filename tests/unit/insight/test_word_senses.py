"""The experiment with ambiguous words: scores against scikit-learn on vectors of transformers, and its list."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from transformers import AutoModel as TheirModel

from bertkit import AutoTokenizer, cli, errors
from bertkit.engine.closeness import Closeness
from bertkit.insight.layer_vectors import token_reader
from bertkit.insight.sense_sentences import SenseSentence, read_sense_sentences
from bertkit.insight.word_senses import _around, _own_table
from bertkit.quantization import quantize
from bertkit.static import WordVectors
from bertkit.visualize import senses
from pipeline_helpers import WORDS, save_tiny

pytestmark = pytest.mark.slow

ROWS = """word,sense,sentence
film,work,The film is good
film,work,a very great film !
film,work,film and scene
film,layer,Is the FILM dull
film,layer,not a film of the end
film,layer,the start is a film
end,stop,the end is good
end,stop,a bad end
end,side,"the end , not the start"
end,side,very great end
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"), num_hidden_layers=2)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("rows") / "senses.csv"
    found.write_text(ROWS)
    return found


def test_the_words_that_are_asked_for_come_in_their_order(folder: Path, file: Path) -> None:
    assert [each.word for each in senses(folder, file=file).words] == ["film", "end"]
    found = senses(folder, file=file, words=["end", "film", "end"])
    assert [each.word for each in found.words] == ["end", "film"]
    assert found.drawn.word == "end"


def test_the_word_embeddings_of_a_model_in_8_bits_are_read_with_their_scales(
    folder: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"{word} {other} {end}" for word in WORDS[:6] for other in WORDS[:6] for end in WORDS[6:10]]
    monkeypatch.setattr(quantize, "NEAR_ENOUGH", Closeness(-1.0, -1.0, 0.0))
    quantize.quantize(folder, tmp_path / "bytes", texts, any_speed=True)
    rows = read_sense_sentences(file)
    readers = [token_reader(model, {}) for model in (folder, tmp_path / "bytes")]
    right, found = (_own_table(reader, rows) for reader in readers)
    table = readers[1].pipe.model.embeddings.word_embeddings
    assert table.weight.dtype == torch.int8, "the control: its numbers alone are no vectors"
    np.testing.assert_allclose(found, right, atol=0.02 * np.abs(right).max())


def test_a_word_counts_once_as_it_is_written() -> None:
    words = ["the", "The", "cafe", "FILM"]
    table = WordVectors(words, np.eye(4, dtype=np.float32))
    sentence = "The café, the film end"
    rows = [SenseSentence("end", "a", sentence, sentence.index("end"), len(sentence), "")]
    np.testing.assert_allclose(_around(table, rows), [[1 / 3, 1 / 3, 1 / 3, 0]], atol=1e-6)
    rows = [SenseSentence("end", "a", "The end", 4, 7, "")]
    np.testing.assert_array_equal(_around(table, rows), [[0, 1, 0, 0]])


def index(x: np.ndarray, names: list[str], seed: int = 0) -> float:
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return adjusted_rand_score(names, KMeans(len(set(names)), n_init=10, random_state=seed).fit_predict(unit))


def test_scores_are_those_of_plain_steps(folder: Path, file: Path) -> None:
    found = senses(folder, file=file)
    tokenizer, theirs = AutoTokenizer.from_pretrained(folder), TheirModel.from_pretrained(folder).eval()
    rows = [row for row in read_sense_sentences(file) if row.word == "film"]
    token, vectors, around = tokenizer.convert_tokens_to_ids("film"), [], []
    table = theirs.embeddings.word_embeddings.weight.detach().numpy()
    for row in rows:
        ids = tokenizer(row.sentence)["input_ids"]
        with torch.inference_mode():
            states = theirs(torch.tensor([ids]), output_hidden_states=True).hidden_states
        vectors.append(np.stack([layer[0, ids.index(token)].numpy() for layer in states]))
        around.append(table[[each for each in ids[1:-1] if each != token]].mean(axis=0))
    names, stacked = [row.sense for row in rows], np.stack(vectors, axis=1)
    assert [each.word for each in found.words] == ["film", "end"]
    assert found.words[0].layers == pytest.approx([index(layer, names) for layer in stacked])
    assert found.words[0].neighbours == pytest.approx(index(np.stack(around), names))
    assert found.words[0].static == 0
    assert found.layers == pytest.approx(np.mean([each.layers for each in found.words], axis=0))


def test_words_cut_in_pieces_and_other_word_vectors(folder: Path, tmp_path: Path, file: Path) -> None:
    vectors = WordVectors(["the", "good", "great", "start", "film"], np.eye(5, dtype=np.float32))
    found = senses(folder, file=file, words=["end"], vectors=vectors)
    assert [each.word for each in found.words] == ["end"]
    assert found.static_vectors == "5 word vectors"
    x = np.array([[1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [1, 0, 0, 1, 0], [0, 0, 1, 0, 0]], float)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)
    groups = KMeans(2, n_init=10, random_state=0).fit_predict(x.astype(np.float32))
    assert found.neighbours == pytest.approx(adjusted_rand_score(["a", "a", "b", "b"], groups))
    own = tmp_path / "own.csv"
    own.write_text(
        "word,sense,sentence\n" + "".join(f"films,{s},the films {t}\n" for s in "ab" for t in ("end", "is", "."))
    )
    assert senses(folder, file=own).words[0].sentences == 6


@pytest.mark.filterwarnings("error")
def test_sentences_of_the_word_alone(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.csv"
    own.write_text("word,sense,sentence\nend,a,end\nend,a,End\nend,b,end\nend,b,the end\nend,c,END\nend,c,end\n")
    found = senses(folder, file=own)
    assert found.words[0].sentences == 6
    assert all(-0.5 < score < 0.5 for score in (*found.words[0].layers, found.neighbours))


def test_it_is_saved_and_repeated(folder: Path, file: Path, tmp_path: Path) -> None:
    found = senses(folder, file=file, seed=3)
    for ending in (".png", ".svg", ".html", ".json"):
        assert found.save(tmp_path / f"senses{ending}").stat().st_size > 100
    assert json.loads((tmp_path / "senses.json").read_text()) == json.loads(
        json.dumps(senses(folder, file=file, seed=3).to_dict())
    )
    page = (tmp_path / "senses.html").read_text()
    assert "default-src 'none'" in page
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=.http", page)
    assert "layer 2" in found.render()


def test_the_list_that_comes_along() -> None:
    rows = read_sense_sentences()
    sizes = Counter((row.word, row.sense) for row in rows)
    assert len({row.word for row in rows}) >= 20
    assert set(sizes.values()) == {10}
    assert len({row.sentence for row in rows}) == len(rows)
    assert all(row.sentence[row.start : row.end].lower() == row.word for row in rows)
    assert all(len(re.findall(rf"\b{row.word}\b", row.sentence, re.IGNORECASE)) == 1 for row in rows)


BAD = {
    "word,sense,sentence\nbank,river,no such thing\n": r":2: the word 'bank' is not in the sentence",
    "word,sense,sentence\nbank,river,banker\n": r":2: the word 'bank' is not in the sentence",
    "word,sense,sentence\nbank,a,bank\nbank,a,a bank\n": "'bank' has one sense, 'a'",
    "word,sense,sentence\nbank,a,bank\nbank,a,a bank\nbank,b,the bank\n": "'bank' in the sense 'b' has one sentence",
    "word,sentence\nbank,bank\n": "expected the columns word, sense and sentence",
    "word,sense\nbank,a\n": "sentence",
    "word,sense,sentence\n": "no sentences|no rows|empty",
}


@pytest.mark.parametrize("content", BAD)
def test_bad_files(folder: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "own.csv").write_text(content)
    with pytest.raises(errors.BertkitError, match=BAD[content]):
        senses(folder, file=tmp_path / "own.csv")


def test_a_word_that_is_cut_off_or_not_listed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text(
        "word,sense,sentence\n" + "".join(f"end,{s},{'the ' * n}end\n" for s in "ab" for n in (1, 5000))
    )
    with pytest.raises(errors.InputError, match=":3: the word 'end' is not among the first"):
        senses(folder, file=tmp_path / "own.csv")
    with pytest.raises(errors.ConfigError, match=r"no sentences for the word 'bnk'.*did you mean 'bank'"):
        senses(folder, words=["bnk"])


def test_the_command(folder: Path, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "senses.png"
    assert (
        cli.main(
            ["visualize", "senses", "film", "--model", str(folder), "--file", str(file), "--out", str(out), "--json"]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["words"][0]["word"] == "film"
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.campaign
def test_a_real_model_tells_senses_apart(minilm: Path) -> None:
    found = senses(minilm)
    assert max(found.layers) - found.neighbours > 0.3
    assert found.layers[0] < 0.1
