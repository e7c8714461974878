"""Sentences: where they end, and that nothing of the text is lost."""

from __future__ import annotations

import json
import lzma
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.data.corpus.documents import is_hard_wrapped, keep_lines, read_documents, split_lines

PARAGRAPH = (
    "Dr. Smith arrived at 5 p.m. on Monday. He lives in Washington, D.C. with his wife and their three small children! "
    "Does he own a dog? Nobody knows for sure. The neighbours, whom we asked, said that it cost $3.50 a day."
)
SENTENCES = (
    "Dr. Smith arrived at 5 p.m. on Monday.",
    "He lives in Washington, D.C. with his wife and their three small children!",
    "Does he own a dog?",
    "Nobody knows for sure.",
    "The neighbours, whom we asked, said that it cost $3.50 a day.",
)


def test_one_paragraph() -> None:
    assert split_lines([PARAGRAPH]) == SENTENCES
    assert keep_lines([f" {PARAGRAPH}\r", "  "]) == (PARAGRAPH,)


def test_lines_are_paragraphs() -> None:
    assert split_lines(["A heading without a stop", PARAGRAPH, "the end"]) == (
        "A heading without a stop",
        *SENTENCES,
        "the end",
    )


@pytest.mark.parametrize("width", [45, 60, 72, 80, 100])
def test_wrapped_text_is_joined_first(width: int) -> None:
    lines = textwrap.wrap(PARAGRAPH, width, break_on_hyphens=False)
    if len(lines) >= 4:
        assert is_hard_wrapped(lines)
        assert split_lines([*lines, ""]) == SENTENCES
    # Control: one word moved to the next line, and it is no longer what a program that wraps lines would write.
    first, word = lines[0].rsplit(None, 1)
    moved = [first, f"{word} {lines[1]}", *lines[2:]]
    assert not is_hard_wrapped(moved)


def test_sentences_a_line_are_not_taken_for_wrapped_text(shared: Path) -> None:
    text = (shared / "data/pretrain_text/google_bert_sample_text.txt").read_text()
    documents = [block.split("\n") for block in text.split("\n\n")]
    assert not any(is_hard_wrapped(lines) for lines in documents)
    assert not is_hard_wrapped(["the cat sat on the mat"] * 3)
    assert not is_hard_wrapped(["short", "lines", "of a", "poem"])


def test_scripts_without_spaces() -> None:
    assert split_lines(["我爱北京。你呢？“好。”他说。"]) == ("我爱北京。", "你呢？", "“好。”他说。")
    assert split_lines(["यह एक वाक्य है। यह दूसरा है।"]) == ("यह एक वाक्य है।", "यह दूसरा है।")


@given(st.lists(st.text(st.sampled_from("ab.!? A\u3000。”)\t1…"), max_size=60), max_size=6))
def test_nothing_is_lost(lines: list[str]) -> None:
    found = split_lines(lines)
    assert "".join("".join(found).split()) == "".join("".join(lines).split())
    assert all(sentence and sentence == sentence.strip() for sentence in found)


def test_real_text(shared: Path, tmp_path: Path) -> None:
    """On Wikipedia: nothing lost, sentences of a sensible length, and the same from every kind of file."""
    with lzma.open(shared / "data/pretrain_text/wikipedia_en.valid.txt.xz", "rt", encoding="utf-8") as file:
        documents = [block.split("\n") for block in file.read().strip().split("\n\n")[:200]]
    (tmp_path / "a.txt").write_text("\n\n".join("\n".join(lines) for lines in documents))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": lines}) + "\n" for lines in documents))
    found = [document.sentences for document in read_documents(tmp_path / "a.txt")]
    assert found == [document.sentences for document in read_documents(tmp_path / "a.jsonl")]
    assert len(found) == len(documents)
    for lines, sentences in zip(documents, found, strict=True):
        assert "".join(" ".join(lines).split()) == "".join("".join(sentences).split())
    words = [len(sentence.split()) for sentences in found for sentence in sentences]
    assert 15 < sum(words) / len(words) < 30
    # Independently: most full stops before a space and a capital end a sentence.
    ends = sum(sentence.endswith((".", "?", "!", '"', ")")) for sentences in found for sentence in sentences)
    assert ends / len(words) > 0.95


def test_splitting_later_gives_the_same(shared: Path) -> None:
    """Workers may split what the reader only cut into lines."""
    file = shared / "data/pretrain_text/wikinews_en.valid.txt.xz"
    now = [document.sentences for document in read_documents(file)]
    later = [split_lines(document.sentences) for document in read_documents(file, sentences="line")]
    assert now == later
