"""Gemma's tokenizer: what its file may say, and the merges at the end of the file, which are parsed some at a time."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from bertkit.errors import CheckpointError, InputError
from bertkit.tokenization import AddedToken, AutoTokenizer, GemmaTokenizer, RobertaTokenizer
from bertkit.tokenization.formats import large_merges
from bertkit.tokenization.formats.large_merges import parse_merges, read_large_json
from mmbert_tokenizer import mmbert
from tokenizer_families import family_contestants

WHOLE = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
#: Tokens that look like the ends of lists.
SIGNS = ['"', "\\", "]", "[", ",", "],[", '"]]', "]]}}", "merges", '"merges": [', "é", "🙂", "\n", "\x00"]


@pytest.fixture
def saved(shared: Path, tmp_path: Path) -> Path:
    mmbert(shared, 800).save_pretrained(tmp_path)
    return tmp_path


def change(folder: Path, edit: Callable[[Any], Any]) -> None:
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    edit(content)
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def model(**changes: Any) -> Callable[[Any], None]:
    return lambda content: content["model"].update(changes)


def set_to(**changes: Any) -> Callable[[Any], None]:
    return lambda content: content.update(changes)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (model(byte_fallback=1), r"model\.byte_fallback is 1; GemmaTokenizer computes only byte_fallback=True"),
        (model(fuse_unk=False), r"model\.fuse_unk is False; GemmaTokenizer computes only fuse_unk=True"),
        (model(ignore_merges=True), r"model\.ignore_merges is True, which bertkit does not implement"),
        (model(dropout=0.1), r"model\.dropout is 0\.1"),
        (model(end_of_word_suffix="x"), r"model\.end_of_word_suffix is 'x'"),
        (model(unk_token=None), r"has no model\.unk_token"),
        (model(unk_token="zzz"), r"model\.unk_token is 'zzz', which is not in model\.vocab"),
        (model(merges=[["a", "zzz"]]), r"merge 0 joins 'a' and 'zzz', but 'zzz' is not in"),
        (model(merges=[["a", "b"], ["a", "b", "c"]]), r"merge 1 must be two tokens, got ' \[\"a\", \"b\", \"c\"\]'"),
        (model(merges=["a b", "a"]), r"merge 1 must be two tokens, got 'a'"),
        (set_to(normalizer=None), r"the normalizer must replace each blank by '▁', got None"),
        (set_to(normalizer={"type": "Prepend", "prepend": "▁"}), "the normalizer must replace each blank"),
        (lambda content: content["pre_tokenizer"].update(prepend_scheme="first"), "pre_tokenizer must be Metaspace"),
        (lambda content: content["pre_tokenizer"].update(split=False), "the pre_tokenizer must be Metaspace"),
        (set_to(pre_tokenizer={"type": "Whitespace"}), "the pre_tokenizer must be Metaspace"),
        (set_to(decoder={"type": "ByteFallback"}), "the decoder must replace '▁' by blanks"),
        (set_to(post_processor=None), "has no post_processor"),
        (lambda content: content["post_processor"]["single"].pop(), "post_processor must put .*CLS. A .SEP. B .SEP."),
        (lambda content: content["post_processor"]["pair"].insert(3, content["post_processor"]["pair"][0]), "must put"),
    ],
)
def test_what_is_refused(saved: Path, edit: Callable[[Any], None], message: str) -> None:
    change(saved, edit)
    with pytest.raises(CheckpointError, match=message):
        GemmaTokenizer.from_pretrained(saved)


@pytest.mark.parametrize("splitter", [WHOLE, None])
def test_text_that_is_not_cut(saved: Path, splitter: Any) -> None:
    """As Gemma's own files, of which those for encoders add rows with both ends."""
    change(saved, set_to(pre_tokenizer=splitter))
    ours: Any = AutoTokenizer.from_pretrained(saved)
    assert not ours.add_prefix_space
    engine = Tokenizer.from_file(str(saved / "tokenizer.json"))
    for text in ("The  river\n ran", " a", "a ", "▁ <mask> x"):
        expected = engine.encode(text)
        assert ours(text).input_ids == expected.ids
        assert ours(text, return_offsets_mapping=True).offset_mapping == expected.offsets
    with pytest.raises(InputError, match="add_prefix_space=True"):
        ours(["a", "b"], is_split_into_words=True)
    ours.save_pretrained(saved / "again")
    assert json.loads((saved / "again" / "tokenizer.json").read_text(encoding="utf-8"))["pre_tokenizer"] == WHOLE


def test_the_class_that_a_folder_names(saved: Path) -> None:
    """The published files name any class, older ones Gemma's; the file decides what is computed."""
    config = saved / "tokenizer_config.json"
    values = json.loads(config.read_text(encoding="utf-8"))
    assert values["tokenizer_class"] == "PreTrainedTokenizerFast"
    ids = AutoTokenizer.from_pretrained(saved)("The river").input_ids
    for name in ("GemmaTokenizer", "GemmaTokenizerFast", "TokenizersBackend"):
        config.write_text(json.dumps({**values, "tokenizer_class": name}), encoding="utf-8")
        found = AutoTokenizer.from_pretrained(saved)
        assert type(found) is GemmaTokenizer
        assert found("The river").input_ids == ids
    config.write_text(json.dumps({**values, "add_bos_token": True}), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"add_bos_token is True; this tokenizer computes only add_bos_token=N"):
        AutoTokenizer.from_pretrained(saved)


def test_bytes_and_unknown_characters() -> None:
    """A character of which a byte has no token is unknown, and such characters in a row are one token."""
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "▁", "a", "<0xC3>", "<0xA9>"]
    ours = GemmaTokenizer({token: number for number, token in enumerate(tokens)}, [])
    assert ours.tokenize("aé üß\ta") == ["▁", "a", "<0xC3>", "<0xA9>", "▁", "<unk>", "a"]
    assert ours.decode(ours("aé").input_ids, skip_special_tokens=True) == " aé"
    known = {token: number for number, token in enumerate(token for token in tokens if token != "<unk>")}
    with pytest.raises(CheckpointError, match="must be in the vocabulary, not an added token"):
        GemmaTokenizer(known, [], added_tokens=[AddedToken("<unk>", 8)])


# The merges at the end of a file


def write(path: Path, merges: list[Any], **how: Any) -> dict[str, int]:
    vocab = {sign: number for number, sign in enumerate(SIGNS)}
    content = {"added_tokens": [], "model": {"type": "BPE", "vocab": vocab, "merges": merges}}
    path.write_text(json.dumps(content, **how), encoding="utf-8")
    return vocab


@pytest.mark.parametrize("how", [{}, {"indent": 2, "ensure_ascii": False}, {"separators": (",", ":")}])
def test_merges_are_cut_out_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Any) -> None:
    path = tmp_path / "tokenizer.json"
    merges = [[left, right] for left in SIGNS for right in SIGNS]
    vocab = write(path, merges, **how)
    content, text = read_large_json(path)
    assert content["model"] == {"type": "BPE", "vocab": vocab, "merges": []}
    found = parse_merges(text, vocab, path)
    assert [list(pair) for pair in found] == merges
    own = {token: token for token in vocab}
    assert all(left is own[left] and right is own[right] for left, right in found)
    # The rest is as small as a vocabulary may be, however long the merges are.
    monkeypatch.setattr(large_merges, "MAX_VOCABULARY_BYTES", 500)
    assert path.stat().st_size > 2_000
    assert read_large_json(path)[1] == text
    monkeypatch.setattr(large_merges, "MAX_VOCABULARY_BYTES", 50)
    with pytest.raises(CheckpointError, match=r"without merges at its end; such a file has at most 50\. Fetch"):
        read_large_json(path)
    monkeypatch.setattr(large_merges, "MAX_MERGES", len(merges) - 1)
    with pytest.raises(CheckpointError, match="has more than 195 merges"):
        parse_merges(text, vocab, path)


@pytest.mark.parametrize("merges", [[], ["a b"], [["a", "b"], "a b"]])
def test_other_merges_stay_where_they_are(tmp_path: Path, merges: list[Any]) -> None:
    path = tmp_path / "tokenizer.json"
    write(path, merges)
    content, text = read_large_json(path)
    assert (content["model"]["merges"], text) == (merges, b"")  # type: ignore[index,call-overload]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('["a", "b"],', r"merge 0 must be two tokens"),
        ('["a", "b"], ', r"merge 1 must be two tokens, got ' '"),
        ('["a", "b"] ["a", "b"]', r"merge 0 must be two tokens"),
        ('["a", "b"], ["a"]', r"merge 1 must be two tokens, got ' \[\"a\"\]'"),
        ('["a", "b"], ["a", 1]', r"merge 1 must be two tokens"),
        ('["a", "b"], [["a", "b"]]', r"merge 1 must be two tokens"),
        ('["a", "\\q"]', r"is not JSON behind merge 0: Invalid"),
        ('["a", "b\n"]', r"is not JSON behind merge 0: Invalid control character"),
    ],
)
def test_damaged_merges(text: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        parse_merges(text.encode(), {"a": 0}, Path("tokenizer.json"))


def test_merges_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text('{"model": {"type": "BPE", "vocab": {"a": 0}}, "other": {"merges": [["a", "a"]]}}')
    with pytest.raises(CheckpointError, match="has merges that are not those of its model"):
        read_large_json(path)


def test_other_bpe_reads_its_merges_the_same_way(tmp_path: Path) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *alphabet, "th", "the", "<mask>"]
    ours = RobertaTokenizer({token: at for at, token in enumerate(tokens)}, [("t", "h"), ("th", "e")])
    ours.save_pretrained(tmp_path)
    assert read_large_json(tmp_path / "tokenizer.json")[1]
    assert RobertaTokenizer.from_pretrained(tmp_path / "tokenizer.json")._vocabulary.merges == ours._vocabulary.merges


PAIRS = [("a house", "the long road"), ("one", "two, three"), ("", "x"), ("dogs and cats", "")]


@pytest.mark.parametrize("kind", [0, 1])
def test_token_types_of_pairs_are_those_of_the_file(kind: int, shared: Path, tmp_path: Path) -> None:
    """Files of this kind give the second text of a pair type 0 or 1; models read neither."""
    mmbert(shared, 800).save_pretrained(tmp_path)
    file = tmp_path / "tokenizer.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    for piece in content["post_processor"]["pair"][-2:]:
        next(iter(piece.values()))["type_id"] = kind
    file.write_text(json.dumps(content), encoding="utf-8")
    peer, (first, second) = Tokenizer.from_file(str(file)), zip(*PAIRS, strict=True)
    expected = [row.type_ids for row in peer.encode_batch(PAIRS)]
    assert {max(row) for row in expected} == {kind}
    loaded = GemmaTokenizer.from_pretrained(tmp_path)
    loaded.save_pretrained(tmp_path / "again")
    again = GemmaTokenizer.from_pretrained(tmp_path / "again")
    grown = pickle.loads(pickle.dumps(loaded))
    grown.add_tokens(["<new>"])
    for ours in (loaded, again, pickle.loads(pickle.dumps(again)), grown):
        for more in ({}, {"return_offsets_mapping": True}):
            found = ours([*first], [*second], return_token_type_ids=True, **more)
            assert found["token_type_ids"] == expected
        assert "token_type_ids" not in ours("a", "b")
        assert [row.type_ids for row in ours.backend_tokenizer.encode_batch(PAIRS)] == expected
        assert not ours.encode_ragged([*first], [*second]).token_type_ids.any()


@pytest.mark.parametrize("family", ["mmbert", "roberta"])
def test_decoded_text_keeps_its_blanks(family: str, shared: Path, tmp_path: Path) -> None:
    """A clean-up for words joined by blanks would take blanks away that the text has, as transformers says as well."""
    tokenizer = mmbert(shared, 800) if family == "mmbert" else family_contestants(shared, family).ours
    text = " Well , he does n't know ; we 've left ."
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    tokenizer.save_pretrained(tmp_path)
    peer = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    for clean in (None, False, True):
        found = tokenizer.decode(ids, clean_up_tokenization_spaces=clean)
        assert found == peer.decode(ids, clean_up_tokenization_spaces=clean)
        assert found.endswith(text)
