"""A tokenizer with fewer tokens splits a text whose tokens it has all kept exactly as before."""

from __future__ import annotations

import lzma
from itertools import islice

import numpy as np
import pytest

from bertkit.errors import InputError
from bertkit.tokenization import AutoTokenizer, BertTokenizer
from bertkit.tokenization.family_vocabularies import BpeVocabulary
from bertkit.tokenization.smaller_vocabulary import cut_vocabulary
from tokenizer_families import ENCODERS, family_contestants
from tokenizer_helpers import vocab_file

CUT = [family for family in ENCODERS if family != "mmbert"]


def texts_of(shared, count):
    with lzma.open(shared / "data/glue/SST-2/train.tsv.xz", "rt", encoding="utf-8") as lines:
        return [line.split("\t")[0].strip() for line in islice(lines, 1, count + 1)]


def tokenizer_of(shared, family):
    return BertTokenizer(vocab_file(shared, "uncased")) if family == "bert" else family_contestants(shared, family).ours


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", *CUT])
def test_words_that_stay_are_split_as_before(shared, tmp_path, family):
    old = tokenizer_of(shared, family)
    texts = texts_of(shared, 2500)
    seen = np.unique(old.encode_ragged(texts[:600]).ids)
    new, rows = cut_vocabulary(old, seen)
    assert len(new) == len(rows) < len(old) / 2
    assert rows == sorted(rows)
    names = old.convert_ids_to_tokens(rows)
    assert new.convert_ids_to_tokens(list(range(len(rows)))) == names
    places = np.full(len(old), -1)
    places[rows] = np.arange(len(rows))
    new.save_pretrained(tmp_path)
    saved = AutoTokenizer.from_pretrained(tmp_path)
    before, after, again = (each.encode_ragged(texts) for each in (old, new, saved))
    whole = [number for number, ids in enumerate(before) if (places[ids] >= 0).all()]
    assert 600 <= len(whole) < len(texts)  # and some of the other texts have new words
    for number in whole:
        np.testing.assert_array_equal(places[before[number]], after[number])
    np.testing.assert_array_equal(after.ids, again.ids)
    assert after.boundaries[-1] > before.boundaries[-1]  # in more pieces
    unknown = old.convert_tokens_to_ids(old.unk_token)
    lost = (after.ids == places[unknown]).sum() - (before.ids == unknown).sum()
    assert lost == 0  # no text is read worse than in characters
    assert new.special_tokens_map == old.special_tokens_map
    if isinstance(new._vocabulary, BpeVocabulary):
        assert len(new._vocabulary.merges) < len(old._vocabulary.merges)


def test_without_the_merges_in_between_the_words_would_change(shared):
    """The control: a vocabulary of the seen tokens alone has not what they are merged from."""
    old = tokenizer_of(shared, "roberta")
    text = "incomprehensible"
    seen = old.encode_ragged([text]).ids
    new, rows = cut_vocabulary(old, seen)
    assert old.convert_ids_to_tokens(rows) == new.convert_ids_to_tokens(list(range(len(rows))))
    assert new.tokenize(text) == old.tokenize(text)
    assert len(set(rows) - set(seen.tolist())) > 256 + len(old.all_special_ids)


def test_tokens_that_span_words_cannot_be_cut(shared):
    with pytest.raises(InputError, match="GemmaTokenizer cannot be cut"):
        cut_vocabulary(tokenizer_of(shared, "mmbert"), [5])
