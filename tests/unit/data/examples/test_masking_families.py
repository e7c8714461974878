"""Masked words with the tokenizers of every family: shares, special tokens, whole words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit.data.examples.masking import Masking, MaskVocabulary
from bertkit.data.examples.pairs import Rules
from bertkit.data.examples.pretrain_batches import PretrainData
from bertkit.data.examples.word_pieces import continuing
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import ConfigError, DataError
from bertkit.tokenization import BertTokenizer, PreTrainedTokenizer, RobertaTokenizer, XLMRobertaTokenizer
from store_families import BLANKS, DOCUMENTS, MASKED, oracle, store_of, tokenizer_of
from tokenizer_families import bpe_files

#: Words that the small tokenizers cut, without signs, so that words are what stands between blanks.
PLAIN = [
    ["the wanderers marvelled at mountainous glaciers", "nobody understood whispering clockmakers"],
    ["forgotten harbours remembered thunderstorms and shipwrecks", "a"],
    ["seventeen grandmothers embroidered handkerchiefs"],
]


def masked(
    store: TokenStore, tokenizer: PreTrainedTokenizer, length: int = 64, **how: Any
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Input ids and labels of every example of an epoch, of whole documents only if they fit."""
    rules = Rules("mlm", length, short_seq_prob=0.0, seed=5, masking=Masking(**how))
    data = PretrainData(store, MaskVocabulary.of_tokenizer(tokenizer), rules, batch_size=8, max_tokens=4096)
    found = []
    for step in range(data.steps_per_epoch):
        for batch in data.micro_batches(step):
            for start, end in batch.layout.spans():
                part = slice(start, end)
                found.append((batch.input_ids[part].numpy(), batch.targets["labels"][part].numpy()))
    return found


@pytest.mark.parametrize("family", MASKED)
def test_shares_and_special_tokens(family: str, shared: Path, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(family, shared, tmp_path)
    examples = masked(store_of(tokenizer, tmp_path, DOCUMENTS * 100), tokenizer)
    special = [number for number in tokenizer.all_special_ids if number != tokenizer.unk_token_id]
    inputs, labels = (np.concatenate(column) for column in zip(*examples, strict=True))
    chosen = labels != -100
    original = np.where(chosen, labels, inputs)
    assert all(row[0] == tokenizer.cls_token_id and row[-1] == tokenizer.sep_token_id for row, _ in examples)
    assert not np.isin(labels[chosen], special).any(), "a special token is never to be guessed"
    wanted = sum(max(1, round(len(row) * 0.15)) for row, _ in examples)
    assert chosen.sum() == wanted
    count = int(chosen.sum())
    assert count > 2000
    hidden = chosen & (inputs == tokenizer.mask_token_id)
    changed = chosen & ~hidden & (inputs != original)
    assert not np.isin(inputs[changed], tokenizer.all_special_ids).any(), "nor put in the place of another"
    spread = 4 * np.sqrt(0.16 / count)  # four standard deviations
    assert abs(hidden.sum() / count - 0.8) < spread
    assert abs(changed.sum() / count - 0.1) < spread
    assert (inputs[~chosen] == original[~chosen]).all()


@pytest.mark.parametrize("family", MASKED)
def test_whole_words_are_masked_whole(family: str, shared: Path, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(family, shared, tmp_path)
    theirs = oracle(tokenizer, tmp_path / "saved")
    store = store_of(tokenizer, tmp_path, PLAIN * 20)
    # The words of every document, as ids, by the whole document's.
    known = {}
    for document in PLAIN:
        words: list[list[int]] = []
        for number, sentence in enumerate(document):
            for place, word in enumerate(sentence.split()):
                blank = " " if family in BLANKS and (number or place) else ""
                words.append(theirs.encode(blank + word, add_special_tokens=False).ids)
        known[tuple(number for word in words for number in word)] = [len(word) for word in words]
    assert max(max(sizes) for sizes in known.values()) > 3
    assert _torn_words(masked(store, tokenizer, 256, unit="whole-word"), tokenizer, known) == 0
    assert _torn_words(masked(store, tokenizer, 256, unit="token"), tokenizer, known) > 20


def _torn_words(examples: list[Any], tokenizer: PreTrainedTokenizer, known: dict[tuple[int, ...], list[int]]) -> int:
    """Words of which a part is to be guessed."""
    torn = documents = 0
    for inputs, labels in examples:
        original = np.where(labels == -100, inputs, labels)
        ends = np.flatnonzero((original == tokenizer.sep_token_id) & (labels == -100))
        for start, end in zip(np.append(0, ends[:-1]) + 1, ends, strict=True):
            sizes = known.get(tuple(original[start:end].tolist()))
            if sizes is None:  # cut where an example ends
                continue
            documents += 1
            for word in np.split(labels[start:end] != -100, np.cumsum(sizes)[:-1]):
                torn += bool(word.any() and not word.all())
    assert documents > 20
    return torn


@pytest.mark.slow
def test_where_words_begin(shared: Path, tmp_path: Path) -> None:
    """In the published layouts: blanks, signs, ideographs, halves of characters, added tokens."""
    for family, cases in {
        "roberta": {"Ġthe": False, "the": True, ".": False, "'s": True, "Ġ(": False, "âĢĵ": False, "<mask>": False},
        "modernbert": {"Ġthe": False, "ing": True, "  ": False, "[MASK]": False, "Ã": True, ".": False, "Ċ": False},
        "albert": {"▁the": False, "ing": True, ",": False, "▁": False, "'": False, "[SEP]": False},
        "mmbert": {"▁the": False, "ing": True, ",": False, "▁": False, "\n\n": False, "<0xE2>": True, "<table>": False},
    }.items():
        whole = family == "roberta"  # with all tokens of the published vocabulary
        tokenizer = RobertaTokenizer(*bpe_files(family, shared)) if whole else tokenizer_of(family, shared, tmp_path)
        found = continuing(tokenizer)
        assert found is not None
        assert len(found) == len(tokenizer)
        assert {token: bool(found[tokenizer.vocab[token]]) for token in cases} == cases, family


def test_ideographs_begin_words() -> None:
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "▁", "今天", "天气", "です", "cat", "!", "▁cat", "é", "<mask>"]
    tokenizer = XLMRobertaTokenizer([(piece, -1.0) for piece in pieces])
    found = continuing(tokenizer)
    assert found is not None
    assert [piece for piece, continues in zip(pieces, found, strict=True) if continues] == ["<unk>", "cat", "é"]


def test_what_cannot_be_masked_is_refused(shared: Path, tmp_path: Path) -> None:
    words = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "film", "s"])}
    tokenizer = BertTokenizer(words, prefix="")
    store = store_of(tokenizer, tmp_path, [["film films"] * 3])
    with pytest.raises(ConfigError, match=r"masking='whole-word' needs to know where words begin.*'token'"):
        masked(store, tokenizer, unit="whole-word")
    assert masked(store, tokenizer, unit="token")
    with pytest.raises(DataError, match=r"T5Tokenizer.* has no cls_token and no .*mask_token"):
        MaskVocabulary.of_tokenizer(tokenizer_of("t5", shared, tmp_path))


@pytest.mark.parametrize("family", ["modernbert", "camembert", "deberta-v2", "mmbert"])
def test_replacements_are_tokens_that_texts_have(family: str, shared: Path, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(family, shared, tmp_path)
    drawn = tokenizer.convert_ids_to_tokens(MaskVocabulary.of_tokenizer(tokenizer).replacements.tolist())
    unused = {"modernbert": "[unused3]", "camembert": "<unk>NOTUSED", "deberta-v2": "<0x41>"}
    never = {**unused, "mmbert": "<unused3>"}[family]
    assert never in tokenizer.vocab
    assert never not in drawn
    assert not set(drawn) & set(tokenizer.all_special_tokens)
    assert len(drawn) > len(tokenizer) - 400
