"""Files of byte-level BPE and unigram tokenizers: loading, saving, choosing the class, messages about damage."""

from __future__ import annotations

import copy
import json
import pickle
import random
import struct
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, processors

import bertkit
from bertkit.errors import BertkitError, CheckpointError, InputError
from bertkit.tokenization import (
    AddedToken,
    AlbertTokenizer,
    AutoTokenizer,
    BertTokenizer,
    CamembertTokenizer,
    DebertaV2Tokenizer,
    DistilBertTokenizer,
    ElectraTokenizer,
    RobertaTokenizer,
    XLMRobertaTokenizer,
    templates,
)
from bertkit.tokenization.auto_tokenizer import CLASSES as NAMED
from bertkit.tokenization.auto_tokenizer import TOKENIZER_FILES, tokenizer_class
from bertkit.tokenization.backend import _processor
from bertkit.tokenization.family_vocabularies import check_charsmap
from bertkit.tokenization.formats.large_merges import read_large_json
from bertkit.tokenization.formats.unigram_files import parse_sentencepiece
from bertkit.tokenization.post_processors import post_processors
from tokenizer_families import CLASSES, FAMILIES, model_file, model_type, modernbert_peer, peer_class, small
from tokenizer_helpers import vocab_file

#: The files that tokenizers had before there was a ``tokenizer.json``.
ORIGINALS = ("vocab.json", "merges.txt", "vocab.txt", "spiece.model", "spm.model", "sentencepiece.bpe.model")
TEXTS = ["Hello <mask> [MASK] world, don't", "  é 中文 [E1] x[E1]y", "", "a\tb \n c 2000, 9,"]


@pytest.fixture(params=FAMILIES)
def saved(request: pytest.FixtureRequest, shared: Path, tmp_path: Path) -> tuple[str, Any, Path]:
    """A family, a small tokenizer of it, and the folder where it was saved."""
    folder = tmp_path / "saved"
    ours = small(request.param, shared, tmp_path, model_max_length=64)
    ours.save_pretrained(folder)
    return request.param, ours, folder


def change(path: Path, edit: Callable[[Any], None]) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    edit(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def same(ours: Any, other: Any) -> None:
    """Two tokenizers agree, whichever package they are of."""
    for text in TEXTS:
        wanted = {"return_offsets_mapping": True, "return_special_tokens_mask": True, "return_token_type_ids": True}
        for pair in (None, "second 中"):
            a, b = ours(text, pair, **wanted), other(text, pair, **wanted)
            assert {key: list(value) for key, value in a.items()} == {key: list(value) for key, value in b.items()}
            assert a.word_ids() == b.word_ids()
            assert ours(text, pair).input_ids == a.input_ids
    assert len(ours) == len(other)
    assert ours.mask_token_id == other.mask_token_id


def test_round_trip(saved: tuple[str, Any, Path]) -> None:
    family, ours, folder = saved
    again = AutoTokenizer.from_pretrained(folder)
    assert type(again) is CLASSES[family]
    same(again, ours)
    not_compared = {"added": None, "source": None, "merges_source": None, "model": None}
    assert vars(again._vocabulary) | not_compared == vars(ours._vocabulary) | not_compared
    assert set(again._vocabulary.never_split) == set(ours._vocabulary.never_split)
    assert again._settings() == ours._settings()
    same(type(again).from_pretrained(folder / "tokenizer.json", model_max_length=64), ours)
    peer = peer_class(family).from_pretrained(folder)
    same(again, peer)
    assert peer.model_max_length == 64
    peer.save_pretrained(folder.parent / "theirs")
    same(AutoTokenizer.from_pretrained(folder.parent / "theirs"), peer)
    original = CLASSES[family].kind.files[0]
    assert (folder / original).is_file()


def test_the_original_files_alone(saved: tuple[str, Any, Path]) -> None:
    family, ours, folder = saved
    (folder / "tokenizer.json").unlink()
    if family == "mmbert":  # which has no others
        with pytest.raises(CheckpointError, match=r"saved has no tokenizer\.json; it is not the folder of a GemmaTok"):
            CLASSES[family].from_pretrained(folder)
        return
    same(CLASSES[family].from_pretrained(folder), ours)  # type: ignore[attr-defined]
    if family == "modernbert":  # whose special tokens are not in its vocabulary
        return
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        (folder / name).unlink()
    same(CLASSES[family].from_pretrained(folder), ours)  # type: ignore[attr-defined]


def test_added_tokens(saved: tuple[str, Any, Path]) -> None:
    family, ours, folder = saved
    if family != "mmbert":
        (folder / "tokenizer.json").unlink()
    config = folder / "tokenizer_config.json"
    token = {"content": "[E1]", "special": True, "normalized": False, "lstrip": False, "rstrip": True}
    change(config, lambda content: content["added_tokens_decoder"].update({str(len(ours)): token}))
    again: Any = AutoTokenizer.from_pretrained(folder)
    assert again.convert_tokens_to_ids("[E1]") == len(ours)
    assert again("x [E1]  y", add_special_tokens=False).input_ids.count(len(ours)) == 1
    assert again._fast is not None
    again.save_pretrained(folder)
    same(again, peer_class(family).from_pretrained(folder))


def test_arguments_of_from_pretrained(saved: tuple[str, Any, Path]) -> None:
    family, _, folder = saved
    assert AutoTokenizer.from_pretrained(folder, use_fast=True, model_max_length=9).model_max_length == 9
    with pytest.raises(InputError, match=r"has no argument 'paddingside' \(did you mean 'padding_side'"):
        AutoTokenizer.from_pretrained(folder, paddingside="left")
    if family == "albert":
        assert not AutoTokenizer.from_pretrained(folder, do_lower_case=False).do_lower_case  # type: ignore[attr-defined]


def test_pickle_and_copy(saved: tuple[str, Any, Path]) -> None:
    _, ours, _ = saved
    same(pickle.loads(pickle.dumps(ours)), ours)
    same(copy.deepcopy(ours), ours)


def test_words(saved: tuple[str, Any, Path]) -> None:
    family, ours, folder = saved
    words = ["Hello", "don't", "中文"]
    if family in ("roberta", "modernbert"):
        with pytest.raises(InputError, match="add_prefix_space=True"):
            ours(words, is_split_into_words=True)
        ours = AutoTokenizer.from_pretrained(folder, add_prefix_space=True)
        assert ours(words, is_split_into_words=True).input_ids == ours("Hello don't 中文").input_ids
    if family == "modernbert":
        peer = modernbert_peer(ours, add_prefix_space=True)
    else:
        peer = peer_class(family).from_pretrained(folder, add_prefix_space=True)
    a, b = (each(words, is_split_into_words=True, return_offsets_mapping=True) for each in (ours, peer))
    assert (a.input_ids, a.offset_mapping, a.word_ids()) == (b.input_ids, b.offset_mapping, b.word_ids())


def test_truncation_windows_and_padding(saved: tuple[str, Any, Path]) -> None:
    family, ours, folder = saved
    peer = peer_class(family).from_pretrained(folder)
    chance = random.Random(6)
    texts, pairs = ([" ".join(chance.choices("abc the hello 中".split(), k=20)) for _ in range(6)] for _ in range(2))
    calls: list[dict[str, Any]] = [
        {"truncation": True, "max_length": 9},
        {"truncation": "only_second", "max_length": 90, "return_overflowing_tokens": True, "stride": 2},
        {"truncation": True, "max_length": 16, "padding": "max_length", "padding_side": "left"},
        {"padding": True, "pad_to_multiple_of": 8, "return_length": True},
    ]
    for arguments in calls:
        for inputs in ((texts, pairs), (texts,)):
            if arguments.get("truncation") == "only_second" and len(inputs) == 1:
                continue
            windows = arguments.get("return_overflowing_tokens", False)  # of which the peer's segments are not right
            wanted = {"return_token_type_ids": not windows, "return_special_tokens_mask": True, **arguments}
            a, b = ours(*inputs, **wanted), peer(*inputs, **wanted)
            assert {key: list(value) for key, value in a.items()} == {key: list(value) for key, value in b.items()}
    ragged = ours.encode_ragged(texts, pairs, max_length=20)
    assert [row.tolist() for row in ragged] == peer(texts, pairs, truncation=True, max_length=20).input_ids
    assert ragged.num_tokens_before.tolist() == [len(row) for row in peer(texts, pairs).input_ids]
    assert ("token_type_ids" in ours("a")) == (family in ("albert", "deberta-v2"))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["albert", "xlm-roberta", "camembert"])
def test_transformers_reads_the_same_from_a_model_file(shared: Path, tmp_path: Path, family: str) -> None:
    """Its own reader, by way of the ``sentencepiece`` package; ALBERT's numbers with a comma apart."""
    file = model_file(family, shared, tmp_path)
    ours = CLASSES[family](file)  # type: ignore[abstract]
    peer = peer_class(family).from_pretrained(tmp_path)
    assert ours.get_vocab() == peer.get_vocab()
    texts = [text.replace(",", " ;") for text in TEXTS if "<mask>" not in text]
    if family == "albert":  # it also makes tokens that are never split of what users of SentencePiece defined
        texts = [text for text in texts if not set(text) & set('()"-.–£€')]
    for text in texts:
        assert ours(text).input_ids == peer(text).input_ids


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DistilBertTokenizer", "ElectraTokenizer", "BertTokenizer", "MobileBertTokenizer"])
def test_word_piece_classes(shared: Path, tmp_path: Path, name: str) -> None:
    BertTokenizer(vocab_file(shared, "uncased")).save_pretrained(tmp_path)
    change(tmp_path / "tokenizer_config.json", lambda content: content.update(tokenizer_class=name + "Fast"))
    ours = AutoTokenizer.from_pretrained(tmp_path)
    classes = {"DistilBertTokenizer": DistilBertTokenizer, "ElectraTokenizer": ElectraTokenizer}
    assert type(ours) is classes.get(name, BertTokenizer)
    assert ("token_type_ids" in ours("a", "b")) == (name != "DistilBertTokenizer")
    assert ours("Hello", "b").input_ids == BertTokenizer.from_pretrained(tmp_path)("Hello", "b").input_ids
    ours.save_pretrained(tmp_path)
    assert type(bertkit.AutoTokenizer.from_pretrained(tmp_path)) is type(ours)


@pytest.mark.slow
def test_the_class_is_found_by_what_is_there(saved: tuple[str, Any, Path]) -> None:
    family, ours, folder = saved
    (folder / "tokenizer_config.json").unlink()
    (folder / "config.json").write_text(json.dumps({"model_type": model_type(family)}), encoding="utf-8")
    assert type(AutoTokenizer.from_pretrained(folder)) is type(ours)
    (folder / "config.json").unlink()
    if family != "camembert":
        for name in ORIGINALS:
            (folder / name).unlink(missing_ok=True)
    assert type(AutoTokenizer.from_pretrained(folder)) is type(ours)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"nothing says which model it belongs to|is not a tokenizer's folder"):
        AutoTokenizer.from_pretrained(folder)
    (folder / "config.json").write_text(
        '{"model_type": "xlnet", "tokenizer_class": "XLNetTokenizer"}', encoding="utf-8"
    )
    with pytest.raises(CheckpointError, match=r"XLNetTokenizer.*bertkit does not have.*there are AlbertTokenizer"):
        AutoTokenizer.from_pretrained(folder)
    with pytest.raises(InputError, match=r"call AutoTokenizer\.from_pretrained"):
        AutoTokenizer()


def test_the_model_of_a_tokenizer_json_overrules_the_model_type(saved: tuple[str, Any, Path]) -> None:
    """Small multilingual models are BERTs with XLM-R's vocabulary, and their files name no class of ours."""
    family, ours, folder = saved
    for name in ORIGINALS:
        (folder / name).unlink(missing_ok=True)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "tokenizer_class": "PreTrainedTokenizerFast"}))
    for named in ("bert", model_type(family)):
        (folder / "config.json").write_text(json.dumps({"model_type": named}), encoding="utf-8")
        found = AutoTokenizer.from_pretrained(folder)
        assert type(found) is type(ours)
        assert found("Hello world").input_ids == ours("Hello world").input_ids


# What is said about files that are damaged, or of another tokenizer


def bpe(**changes: Any) -> Callable[[Any], None]:
    return lambda content: content["model"].update(changes)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (bpe(dropout=0.1), "model.dropout is 0.1, which bertkit does not implement"),
        (bpe(unk_token="zzz"), "model.unk_token is 'zzz', which is not in model.vocab"),
        (bpe(byte_fallback=True), "model.byte_fallback is True"),
        (bpe(type="WordPiece"), "holds a WordPiece model; RobertaTokenizer reads BPE"),
        (bpe(merges=[["a"]]), "merge 0 must be two tokens"),
        (bpe(merges=[["Ġ", "zzz"]]), r"has 100 merges.*delete the file"),
        (bpe(vocab={"a": "b"}), "tokens and their whole numbers"),
        (lambda content: content.update(normalizer={"type": "NFC"}), "normalizer must be null"),
        (lambda content: content["pre_tokenizer"].update(use_regex=False), "pre_tokenizer must be ByteLevel"),
        (lambda content: content.update(pre_tokenizer={"type": "Whitespace"}), "pre_tokenizer must be ByteLevel"),
        (lambda content: content.update(post_processor={"type": "ByteLevel"}), "post_processor must put"),
        (lambda content: content["model"]["vocab"].update({"Ā": 9999}), r"in .*tokenizer.json it has"),
    ],
)
def test_damaged_bpe_json(shared: Path, tmp_path: Path, edit: Callable[[Any], None], message: str) -> None:
    small("roberta", shared, tmp_path).save_pretrained(tmp_path)
    change(tmp_path / "tokenizer.json", edit)
    with pytest.raises(CheckpointError, match=message):
        AutoTokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("merges.txt", "#version: 0.2\nĠ t\nab\n", r"merges.txt:3 must be two tokens"),
        ("merges.txt", "Ġ t\nzz q\n", r"merges.txt: merge 1 joins 'zz' and 'q', but 'zz' is not in .*vocab.json"),
        ("vocab.json", "[1]", "holds a list, expected an object"),
        ("vocab.json", '{"a": 0}', "must number its"),
        ("vocab.json", '{"a": -1}', "whole numbers, 0 to .*, got {'a': -1"),
        ("vocab.json", '{"a": 0, "a": 1}', "has 'a' more than once"),
    ],
)
def test_damaged_bpe_files(shared: Path, tmp_path: Path, name: str, content: str, message: str) -> None:
    small("roberta", shared, tmp_path).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError, match=message):
        RobertaTokenizer.from_pretrained(tmp_path)


def test_a_byte_without_a_token(shared: Path, tmp_path: Path) -> None:
    ours = small("roberta", shared, tmp_path)
    vocab = {token: number for number, token in enumerate(token for token in ours.vocab if token != "Ġ")}
    with pytest.raises(CheckpointError, match="no token for 1 of the 256 bytes"):
        RobertaTokenizer(vocab, [])
    with pytest.raises(InputError, match="vocab_file and merges_file"):
        RobertaTokenizer(vocab)


def unigram(**changes: Any) -> Callable[[Any], None]:
    return lambda content: content["model"].update(changes)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (unigram(type="BPE"), "holds a BPE model; XLMRobertaTokenizer reads Unigram"),
        (unigram(byte_fallback=True), "byte_fallback"),
        (unigram(unk_id=10**6), "unk_id must be the place of a piece"),
        (unigram(vocab=[["a", "b"]]), "piece 0 must be a text and a score"),
        (lambda content: content["model"]["vocab"].append(["<s>", 0.0]), "'<s>' has the id 0, but 400 in model.vocab"),
        (lambda content: content["model"]["vocab"].append(["▁", 0.0]), "has '▁' twice"),
        (lambda content: content.update(normalizer={"type": "Lowercase"}), "not what XLMRobertaTokenizer does"),
        (lambda content: content.update(normalizer={"type": "NFC"}), "not what XLMRobertaTokenizer does"),
        (lambda content: content["normalizer"].update(precompiled_charsmap="AAAA"), "charsmap is damaged"),
        (lambda content: content["normalizer"].update(precompiled_charsmap="%"), "must be base64"),
        (lambda content: content["pre_tokenizer"]["pretokenizers"].pop(0), "WhitespaceSplit and Metaspace"),
        (lambda content: content["pre_tokenizer"]["pretokenizers"][1].update(prepend_scheme="first"), "every word"),
        (lambda content: content["post_processor"]["pair"].pop(), "post_processor must put"),
    ],
)
def test_damaged_unigram_json(shared: Path, tmp_path: Path, edit: Callable[[Any], None], message: str) -> None:
    small("xlm-roberta", shared, tmp_path).save_pretrained(tmp_path)
    change(tmp_path / "tokenizer.json", edit)
    with pytest.raises(CheckpointError, match=message):
        XLMRobertaTokenizer.from_pretrained(tmp_path)


def test_variants_of_a_unigram_json(shared: Path, tmp_path: Path) -> None:
    """What older and newer converters of transformers write comes to the same."""
    ours = small("xlm-roberta", shared, tmp_path)
    ours.save_pretrained(tmp_path)

    def as_sequence(content: Any) -> None:
        blanks = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
        steps = [content["normalizer"], {"type": "Strip", "strip_left": False, "strip_right": True}, blanks]
        content["normalizer"] = {"type": "Sequence", "normalizers": steps}
        content["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}

    change(tmp_path / "tokenizer.json", as_sequence)
    same(XLMRobertaTokenizer.from_pretrained(tmp_path), ours)


def test_model_files_of_another_layout(shared: Path, tmp_path: Path) -> None:
    albert = model_file("albert", shared, tmp_path)
    with pytest.raises(CheckpointError, match="must begin with <unk>, <s>, </s>"):
        XLMRobertaTokenizer(albert)
    with pytest.raises(CheckpointError, match="must begin with <unk>"):
        CamembertTokenizer(albert)
    with pytest.raises(CheckpointError, match="does not exist"):
        AlbertTokenizer(tmp_path / "none.model")
    with pytest.raises(InputError, match="pass either vocab"):
        AlbertTokenizer()
    with pytest.raises(CheckpointError, match="is not a SentencePiece model"):
        AlbertTokenizer(vocab_file(shared, "uncased"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x0a\x08\x0a\x01a\x15\x00\x00\x80\xbf" * 300_001, "more than 300,000 fields"),
        (b"\x0a\x12" + b"\x78\x00" * 9, "more than 8 fields"),
        (b"\x12\xc2\x9a\x0c" + b"\x78\x00" * 100_001, "more than 100,000 fields"),
        (b"\x0a\x01\x0a", "not a SentencePiece model"),
        (b"\x0a\x08\x0a\x01a\x15\x00\x00\xc0\x7f", "invalid piece 'a': kind 1, score nan"),
        (b"\x0a\x08\x0a\x01\xff\x15\x00\x00\x80\xbf", "a piece is not UTF-8 text"),
    ],
)
def test_model_files_with_parts_without_end(data: bytes, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        parse_sentencepiece(data, Path("x.model"))


def test_pieces_for_bytes(shared: Path, tmp_path: Path) -> None:
    """DeBERTa's fast tokenizers never use them; elsewhere they would be misread."""
    file = tmp_path / "spm.model"
    file.write_bytes(b"\x0a\x0f\x0a\x06<0x00>\x15\x00\x00\x80\xbf\x18\x06")
    with pytest.raises(CheckpointError, match=r"as bytes .*which bertkit does not implement"):
        XLMRobertaTokenizer(file)
    with pytest.raises(CheckpointError, match="no piece for unknown text"):
        DebertaV2Tokenizer(file)


def test_damaged_model_files(shared: Path, tmp_path: Path) -> None:
    """Cut off, with changed bytes, with bytes of chance: always our error, or a model."""
    whole = model_file("albert", shared, tmp_path, num_pieces=60).read_bytes()
    chance = random.Random(7)
    refused = 0
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        data = data[: chance.randrange(len(data))] if chance.random() < 0.3 else data
        try:
            model = parse_sentencepiece(bytes(data), Path("x.model"))
            if model.charsmap:
                check_charsmap(model.charsmap, "x.model")
        except BertkitError:
            refused += 1
    assert refused > 50


def test_damaged_charsmaps_never_reach_the_engine(shared: Path, tmp_path: Path) -> None:
    charsmap = AlbertTokenizer(model_file("albert", shared, tmp_path, num_pieces=60))._vocabulary.charsmap
    assert charsmap is not None
    check_charsmap(charsmap, "it")
    (size,) = struct.unpack_from("<I", charsmap)
    outside = charsmap[:4] + struct.pack("<I", 0x7FFFFC00 & ~0x80000000) + charsmap[8:]
    beyond = charsmap[:4] + struct.pack("<I", 0x80000000 | (len(charsmap) - size)) + charsmap[8:]
    for damaged in (b"", b"\x00" * 3, charsmap[:100], struct.pack("<I", 2**31) + charsmap[4:], outside, beyond):
        with pytest.raises(CheckpointError, match="precompiled_charsmap is damaged"):
            check_charsmap(damaged, "it")


def test_settings_that_are_not_computed(saved: tuple[str, Any, Path]) -> None:
    family, _, folder = saved
    config = folder / "tokenizer_config.json"
    if family != "modernbert":  # which has no such token
        change(config, lambda content: content.update(eos_token="a"))
        with pytest.raises(CheckpointError, match=r"eos_token is 'a', but sep_token is"):
            AutoTokenizer.from_pretrained(folder)
    others: dict[str, tuple[str, Any]] = {
        "roberta": ("errors", "strict"),
        "modernbert": ("errors", "strict"),
        "mpnet": ("never_split", ["a"]),
        "mmbert": ("add_eos_token", True),
    }
    key, value = others.get(family, ("sp_model_kwargs", {"enable_sampling": True}))
    change(config, lambda content: content.update({"eos_token": None, key: value}))
    with pytest.raises(CheckpointError, match=f"{key} is .*computes only"):
        AutoTokenizer.from_pretrained(folder)


def test_tokens_that_only_the_engine_finds(shared: Path, tmp_path: Path) -> None:
    """A token that must stand alone turns the fast path off, not the result wrong."""
    for family in ("roberta", "albert"):
        plain = small(family, shared, tmp_path)
        token = AddedToken("xy", len(plain), single_word=True)
        ours: Any = small(family, shared, tmp_path, added_tokens=[token])
        assert ours._fast is None
        assert (ours("xyz").input_ids + ours("xy").input_ids).count(len(plain)) == 1
        assert ours.encode_ragged(["a xy b"])[0].tolist() == ours("a xy b", return_offsets_mapping=True).input_ids


@given(
    tokens=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, unique=True),
    pretty=st.booleans(),
    other=st.booleans(),
)
def test_a_vocabulary_that_is_spelled_alike_is_not_parsed_again(
    tokens: list[str], pretty: bool, other: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("json") / "tokenizer.json"
    vocab = {token: number for number, token in enumerate(["[UNK]", *tokens])}
    Tokenizer(models.WordPiece(vocab, unk_token="[UNK]")).save(str(file), pretty=pretty)
    beside = {**vocab, tokens[-1]: len(vocab)} if other else vocab
    whole, _ = read_large_json(file)
    found, _ = read_large_json(file, beside)
    assert found == whole
    assert (found["model"]["vocab"] is beside) != other, "the control: another vocabulary is not taken"


def test_another_vocabulary_than_the_models_is_none_of_it(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text('{"old": {"vocab": {"a": 0}}, "model": {"type": "WordPiece", "vocab": {"b": 0}}}')
    assert read_large_json(file, {"a": 0})[0]["model"]["vocab"] == {"b": 0}
    assert read_large_json(file, {"a": 0})[0]["old"] == {"vocab": {"a": 0}}
    file.write_text('{"old": {"vocab": {"a": 0}}, "model": {"type": "WordPiece", "vocab": {}}}')
    assert read_large_json(file, {"a": 0})[0]["model"]["vocab"] == {}
    file.write_text('{"model": {"type": "WordPiece", "vocab": {"a": 0, "a": 0}}}')
    with pytest.raises(CheckpointError, match="more than once"):
        read_large_json(file, {"a": 0})


@pytest.mark.parametrize("template", [templates.BERT, templates.ROBERTA, templates.MMBERT, templates.T5])
def test_rows_are_described_as_the_package_writes_them(template: templates.Template) -> None:
    first, last = ("[CLS]", 5), ("[SEP]", 7)
    for description, _ in post_processors(template, first, last):
        made: Any = _processor(description)
        assert json.loads(made.__getstate__()) == description


def test_parts_of_bert_and_roberta_are_described_as_the_package_writes_them() -> None:
    first, last = ("[CLS]", 5), ("[SEP]", 7)
    peers: list[Any] = [
        processors.TemplateProcessing(
            single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=[first, last]
        ),
        processors.BertProcessing(last, first),
    ]
    described = [each for each, _ in post_processors(templates.BERT, first, last)]
    assert described == [json.loads(peer.__getstate__()) for peer in peers]
    flags = product((True, False), repeat=2)
    peers = [processors.RobertaProcessing(last, first, trims, adds) for trims, adds in flags]
    described = [each for each, _ in post_processors(templates.ROBERTA, first, last)]
    assert described[-4:] == [json.loads(peer.__getstate__()) for peer in peers]


def test_files_of_all_classes_are_fetched() -> None:
    assert {*TOKENIZER_FILES} == {name for each in {*NAMED.values()} for name in tokenizer_class(each).kind.files}


@pytest.mark.parametrize("ids", [(5, 6), (6, 5), (5, 5)])
def test_an_added_token_that_is_listed_twice_has_one_id(ids: tuple[int, int]) -> None:
    words = {token: number for number, token in enumerate(("[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"))}
    added = [AddedToken("x", number) for number in ids]
    if ids == (5, 5):
        assert len(BertTokenizer(words, added_tokens=added)) == 6
        return
    with pytest.raises(CheckpointError, match="each number once"):
        BertTokenizer(words, added_tokens=added)


def test_one_is_not_true_in_a_part(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    BertTokenizer(
        {token: number for number, token in enumerate(("[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"))}
    ).save_pretrained(folder)
    change(folder / "tokenizer.json", lambda content: content["normalizer"].update(lowercase=1))
    with pytest.raises(CheckpointError, match="normalizer"):
        AutoTokenizer.from_pretrained(folder)
