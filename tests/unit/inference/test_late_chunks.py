"""Parts of a text with vectors of their own: places, means of token vectors, windows of long texts."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest

from bertkit import pipeline
from bertkit.errors import InputError, LongTextError
from bertkit.inference.late_chunks import late_chunks, late_parts
from pipeline_helpers import save_tiny

SHORT = "a very good film and the dull end of it"
LONG = "the film was great and in the end not very bad. " * 30


@pytest.fixture(scope="module")
def pipe(tmp_path_factory: pytest.TempPathFactory):
    return pipeline("feature-extraction", model=save_tiny(tmp_path_factory.mktemp("model")))


def test_a_chunk_of_the_whole_text_is_the_mean_of_its_tokens(pipe) -> None:
    (chunk,) = late_chunks(pipe, SHORT, 60)
    assert SHORT[chunk.start : chunk.end] == SHORT
    np.testing.assert_allclose(chunk.vector, pipe(SHORT)[0][1:-1].mean(axis=0), atol=1e-5)


def test_chunks_of_a_text_that_fits_see_all_of_it(pipe) -> None:
    chunks = late_chunks(pipe, SHORT, 4)
    tokens = pipe(SHORT)[0][1:-1]
    assert sum(chunk.num_tokens for chunk in chunks) == len(tokens)
    done = 0
    for chunk in chunks:
        np.testing.assert_allclose(chunk.vector, tokens[done : done + chunk.num_tokens].mean(axis=0), atol=1e-5)
        done += chunk.num_tokens
    alone = pipe(SHORT[chunks[1].start : chunks[1].end], pooling="mean")
    assert np.abs(alone - chunks[1].vector).max() > 0.01, "the control: by itself the part has another vector"


def test_a_long_text_is_covered_by_words(pipe) -> None:
    chunks = late_chunks(pipe, LONG, 10, normalize=True)
    assert "".join(LONG[chunk.start : chunk.end] for chunk in chunks).replace(" ", "") == LONG.replace(" ", "")
    assert all(0 < chunk.num_tokens <= 10 for chunk in chunks)
    assert all(LONG[chunk.start - 1] in " ." for chunk in chunks[1:])
    np.testing.assert_allclose([np.linalg.norm(chunk.vector) for chunk in chunks], 1, atol=1e-5)


def test_without_white_space_and_without_text(pipe) -> None:
    chunks = late_chunks(pipe, "x" * 90, 7)
    assert [chunk.start for chunk in chunks[1:]] == [chunk.end for chunk in chunks[:-1]]
    assert late_chunks(pipe, "", 5) == []


SENTENCES = ["The film was good. ", "Dr. Bad was not in it.\n", "It was a dull end, and a great start!  ", "Not bad."]


def test_chunks_of_sentences(pipe) -> None:
    text = "".join(SENTENCES)
    chunks = late_chunks(pipe, text)
    assert [text[chunk.start : chunk.end] for chunk in chunks] == [sentence.strip() for sentence in SENTENCES]
    tokens, done = pipe(text)[0][1:-1], 0
    for chunk in chunks:
        np.testing.assert_allclose(chunk.vector, tokens[done : done + chunk.num_tokens].mean(axis=0), atol=1e-5)
        done += chunk.num_tokens
    assert done == len(tokens)
    assert late_chunks(pipe, " \n ") == []


def test_sentences_of_a_long_text_and_a_sentence_that_is_too_long(pipe) -> None:
    text = LONG + "very " * 200 + "good. The end."
    chunks = late_chunks(pipe, text)
    assert "".join(text[chunk.start : chunk.end] for chunk in chunks).replace(" ", "") == text.replace(" ", "")
    assert text[chunks[0].start : chunks[0].end] == LONG[: LONG.index(".") + 1]
    assert text[chunks[-1].start : chunks[-1].end] == "The end."
    assert max(chunk.num_tokens for chunk in chunks) == 62
    alone = late_chunks(pipe, "The end.")[0].vector
    assert np.abs(alone - chunks[-1].vector).max() > 0.01, "it is read beside what is before it"


def test_parts_are_read_as_one_text(pipe) -> None:
    parts = [sentence.strip() for sentence in SENTENCES]
    whole = late_chunks(pipe, " ".join(parts), normalize=True)
    found = late_parts(pipe, parts, normalize=True)
    np.testing.assert_allclose([one.vector for one in found], [one.vector for one in whole], atol=1e-6)
    assert [(one.start, one.end) for one in found] == [(0, len(part)) for part in parts]
    assert len(late_parts(pipe, parts * 20)) == 80
    assert late_parts(pipe, parts, dimensions=5)[0].vector.shape == (5,)
    with pytest.raises(LongTextError, match="part 1"):
        late_parts(pipe, ["film", "film " * 63])


def test_what_cannot_be_chunked(pipe, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="from 1 to 62 tokens for this model, got 63"):
        late_chunks(pipe, SHORT, 63)
    from sentence_folders import pooling, sentence_folder

    folder = sentence_folder(tmp_path / "cls", [pooling("cls")])
    with pytest.raises(InputError, match=r"pools by cls.*with pooling='mean'"):
        late_chunks(pipeline("feature-extraction", model=folder), SHORT, 5)
    asked = pipeline("feature-extraction", model=folder, pooling="mean")
    np.testing.assert_allclose(late_chunks(asked, SHORT, 5)[0].vector, late_chunks(pipe, SHORT, 5)[0].vector, atol=1e-6)


def test_tokens_that_begin_with_a_blank_belong_to_their_sentence(pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """As tokenizers of ModernBERT give offsets: " Ok" begins at the blank."""
    whole = late_chunks(pipe, "A good film. Bad. The end", None)
    called = type(pipe.tokenizer).__call__

    def with_blanks(self: object, text: str, *given: object, **named: object) -> object:
        found = called(self, text, *given, **named)
        if "offset_mapping" in found:
            found["offset_mapping"] = [
                (start - (start > 0 and text[start - 1] == " "), end) for start, end in found["offset_mapping"]
            ]
        return found

    monkeypatch.setattr(type(pipe.tokenizer), "__call__", with_blanks)
    shifted = late_chunks(pipe, "A good film. Bad. The end", None)
    assert [chunk[:3] for chunk in map(astuple, shifted)] == [chunk[:3] for chunk in map(astuple, whole)]
    assert len(late_parts(pipe, ["a good", "film"])) == 2
