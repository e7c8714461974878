"""Token stores with the tokenizers of every family: what is in them is what the tokenizer gives for the text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit.data.store.prepare import prepare
from bertkit.data.store.store_report import inspect_store
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import DataError, InputError
from bertkit.tokenization import AutoTokenizer, BertTokenizer, XLMRobertaTokenizer
from bertkit.tokenization.digest import tokenizer_digest
from store_families import BLANKS, DOCUMENTS, MASKED, oracle, store_of, tokenizer_of, write_corpus
from tokenizer_families import UNIGRAM

FAMILIES = (*MASKED, "t5", "bert")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_ids_are_those_of_the_tokenizer(family: str, shared: Path, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(family, shared, tmp_path)
    theirs = oracle(tokenizer, tmp_path / "saved")
    store = store_of(tokenizer, tmp_path)
    assert len(store) == len(DOCUMENTS)
    bounds = store.document_boundaries.tolist()
    for document, first, end in zip(DOCUMENTS, bounds[:-1], bounds[1:], strict=True):
        assert end - first == len(document)
        for number, sentence in enumerate(document):
            text = f" {sentence}" if number and family in BLANKS else sentence
            ids = theirs.encode(text, add_special_tokens=False).ids
            assert store.tokens(first + number, first + number + 1).tolist() == ids, (sentence, family)
        if family in BLANKS:  # a document is the text of its sentences
            assert store.tokens(first, end).tolist() == theirs.encode(" ".join(document), add_special_tokens=False).ids
    # Read from its own copy, and told from any other.
    copy = store.tokenizer()
    assert type(copy) is type(tokenizer)
    assert tokenizer_digest(copy) == tokenizer_digest(tokenizer) == store.manifest.tokenizer.sha256
    assert "the" in inspect_store(store.path).samples[0].text.lower()
    other = tokenizer_of("bert" if family != "bert" else "roberta", shared, tmp_path)
    if family not in ("distilbert", "electra"):  # which tokenize as BERT's
        with pytest.raises(DataError, match="was made with another tokenizer"):
            store.check_tokenizer(other)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_names_of_special_tokens_are_text(family: str, shared: Path, tmp_path: Path) -> None:
    """Also in full-width letters, which unigram tokenizers normalize to the names."""
    tokenizer = tokenizer_of(family, shared, tmp_path)
    names = [name for name in tokenizer.all_special_tokens if len(name) > 1][:12]
    wide = ["".join(chr(ord(char) + 0xFEE0) for char in name) for name in names]
    documents = [[f"The {name} of the{name}mill.", name] for name in (*names, *wide)]
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    texts = [text for row in documents for text in row]
    as_usual = set(tokenizer.encode_ragged(texts, add_special_tokens=False).ids.tolist())
    assert special & as_usual, "a text with the names has special tokens otherwise"
    store = store_of(tokenizer, tmp_path, documents)
    found = set(store.tokens(0, len(store.sentence_boundaries) - 1).tolist())
    assert not special & found
    if family in UNIGRAM:
        by_letter = tokenizer.encode_ragged(wide, add_special_tokens=False).ids.tolist()
        assert special & set(by_letter), "normalizing makes names of them"
        assert store.manifest.counts.num_unknown >= 1


@pytest.mark.slow
def test_ids_above_two_bytes(tmp_path: Path) -> None:
    first = ["<s>", "<pad>", "</s>", "<unk>"]
    pieces = [*first, "▁", *"w0123456789", *(f"▁w{number}" for number in range(70_000)), "<mask>"]
    tokenizer = XLMRobertaTokenizer([(piece, 0.0 if piece in first else -5.0) for piece in pieces])
    store = store_of(tokenizer, tmp_path, [["w1 w69999"], ["w65536"]])
    assert store.manifest.id_type == "uint32"
    assert store.tokens(0, 2).tolist() == [pieces.index(f"▁w{number}") for number in (1, 69_999, 65_536)]
    assert store.tokens(0, 2).max() > 65_535


@pytest.mark.slow
@pytest.mark.parametrize("family", ["modernbert", pytest.param("deberta-v2", marks=pytest.mark.campaign)])
def test_the_bytes_do_not_depend_on_the_workers(family: str, shared: Path, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.txt", DOCUMENTS * 30)
    tokenizer_of(family, shared, tmp_path).save_pretrained(tmp_path / "tokenizer")
    for name, workers in (("one", 1), ("two", 2)):
        sizes: dict[str, Any] = {"workers": workers, "chunk_chars": 2000, "shard_text_bytes": 3000}
        prepare(corpus, tmp_path / "tokenizer", tmp_path / name, **sizes)
    one, two = (
        {str(path.relative_to(tmp_path / name)): path.read_bytes() for path in (tmp_path / name).rglob("*.*")}
        for name in ("one", "two")
    )
    assert one == two
    assert len(TokenStore(tmp_path / "one").manifest.shards) > 2


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in ("distilbert", "electra")])
def test_the_digest_is_of_what_decides_the_ids(family: str, shared: Path, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(family, shared, tmp_path)
    tokenizer.save_pretrained(tmp_path / "saved")
    digest = tokenizer_digest(tokenizer)
    for path in (tmp_path / "saved", tmp_path / "saved" / "tokenizer.json"):
        again = type(tokenizer).from_pretrained(path, model_max_length=99)
        assert tokenizer_digest(again) == digest
    changed = AutoTokenizer.from_pretrained(tmp_path / "saved")
    changed.add_tokens("[ENT]")
    assert tokenizer_digest(changed) != digest
    own: Any = tokenizer
    at_blanks = family in (*BLANKS, "mmbert")
    change = {"add_prefix_space": not own.add_prefix_space} if at_blanks else {"do_lower_case": not own.do_lower_case}
    assert tokenizer_digest(type(tokenizer).from_pretrained(tmp_path / "saved", **change)) != digest


def test_the_digest_of_word_pieces_is_that_of_the_first_release() -> None:
    """Stores that are there must go on to open."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "film"]
    tokenizer = BertTokenizer({word: number for number, word in enumerate(words)})
    assert tokenizer_digest(tokenizer) == "2b2cf2a7800dbac99e30cbf117ca478dfb4446caf2879085d35e87a33453df5d"


def test_anything_else_is_refused(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.txt", DOCUMENTS)
    with pytest.raises(InputError, match=r"tokenizer must be a tokenizer of bertkit .* got int"):
        prepare(corpus, 7, tmp_path / "store")  # type: ignore[arg-type]
    assert np.array_equal(list(tmp_path.iterdir()), [corpus])
