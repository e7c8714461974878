"""A call of BertTokenizer returns what transformers' BertTokenizer returns, for any arguments that make sense."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertkit.errors import InputError
from tokenizer_helpers import CASES, Contestants, contestants

TEXTS = [
    "",
    "a",
    "The quick brown fox jumps over the lazy dog.",
    "unaffable antidisestablishmentarianism",
    "Ça fait 3,14 €; naïve café [MASK] [MASK]ing don't",
    "中文 mixed with English",
    "  spaces\tand\nlines  ",
    "\x00\x1f\u200b",
    "x" * 120,
    "one two three four five six seven eight nine ten eleven twelve",
]
text = st.sampled_from(TEXTS)
words = st.lists(st.sampled_from(["one", "Two", "unaffable", "", "don't", "中文", "[MASK]", "\x00"]), max_size=8)


@pytest.fixture(params=CASES)
def pair(request: pytest.FixtureRequest, shared: Path) -> Contestants:
    return contestants(shared, request.param)


@st.composite
def calls(draw: st.DrawFn) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of one call."""
    is_words = draw(st.booleans())
    one = words if is_words else text
    paired, batched = draw(st.booleans()), draw(st.booleans())
    if batched:
        size = draw(st.integers(1, 4))
        rows = st.lists(one, min_size=size, max_size=size)
        inputs = (draw(rows), draw(rows)) if paired else (draw(rows),)
        if is_words and not inputs[0][0]:
            inputs[0][0].append("one")  # transformers cannot tell a batch that starts with an empty row
    else:
        inputs = (draw(one), draw(one)) if paired else (draw(one),)
    flags = ["return_overflowing_tokens", "return_special_tokens_mask", "return_offsets_mapping", "return_length"]
    arguments = {flag: draw(st.booleans()) for flag in flags}
    arguments |= {
        "add_special_tokens": draw(st.booleans()),
        "padding": draw(st.sampled_from([False, True, "longest", "max_length", "do_not_pad"])),
        "truncation": draw(st.sampled_from([None, False, True, "longest_first", "only_first", "only_second"])),
        "max_length": draw(st.sampled_from([None, 3, 4, 5, 6, 7, 8, 12, 16, 40])),
        "stride": draw(st.sampled_from([0, 0, 1, 2])),
        "pad_to_multiple_of": draw(st.sampled_from([None, None, 4, 8])),
        "padding_side": draw(st.sampled_from([None, "left", "right"])),
        "return_token_type_ids": draw(st.sampled_from([None, False, True])),
        "return_attention_mask": draw(st.sampled_from([None, False])),
        "is_split_into_words": is_words,
    }
    return inputs, arguments


def outcome(tokenizer: Any, inputs: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
    """The result, or the error."""
    try:
        return tokenizer(*inputs, **arguments)
    except BaseException as error:  # the peer panics in Rust
        if isinstance(error, KeyboardInterrupt):
            raise
        return error


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("side", ["right", "left"])
@settings(suppress_health_check=list(HealthCheck))
@given(call=calls())
def test_random_calls(pair: Contestants, side: str, call: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    inputs, arguments = call
    pair.ours.truncation_side = pair.peer.truncation_side = side
    try:
        ours, peer = outcome(pair.ours, *call), outcome(pair.peer, *call)
    finally:
        pair.ours.truncation_side = pair.peer.truncation_side = "right"
    if isinstance(ours, InputError):
        assert isinstance(peer, BaseException) or _peer_ignores(inputs, arguments, str(ours)), (ours, peer)
        return
    assert not isinstance(ours, BaseException), ours
    if isinstance(peer, BaseException) and "stride" in str(peer):
        return  # which has no effect here: nothing is cut, or no windows are asked for
    assert not isinstance(peer, BaseException), peer
    assert {key: _plain(value) for key, value in ours.items()} == {key: _plain(value) for key, value in peer.items()}
    for row in range(len(peer.encodings)):
        assert ours.word_ids(row) == peer.word_ids(row)
        assert ours.sequence_ids(row) == peer.sequence_ids(row)
        assert ours.tokens(row) == peer.tokens(row)


def _peer_ignores(inputs: tuple[Any, ...], arguments: dict[str, Any], error: str) -> bool:
    """Where bertkit says no and transformers returns rows that are not what was asked for.

    It does not cut at all where ``max_length`` is less than the special tokens; where it is equal it empties both texts
    of a pair, whatever the strategy; a window of no tokens it returns whole, longer than ``max_length``; and it accepts
    "only_second" for single texts as long as none is too long.
    """
    num_special = (3 if len(inputs) == 2 else 2) * arguments["add_special_tokens"]
    max_length = arguments["max_length"] or 512
    return max_length <= num_special or "windows of 0 tokens" in error or "needs a second text" in error


def _plain(value: Any) -> Any:
    return [tuple(item) if isinstance(item, tuple) else item for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", ["pt", "np"])
@pytest.mark.parametrize("inputs", [("one text",), (["one text", "two [MASK] texts"],), (["a", "b c"], ["d e f", "g"])])
@pytest.mark.parametrize("offsets", [False, True])
def test_tensors(pair: Contestants, kind: str, inputs: tuple[Any, ...], offsets: bool) -> None:
    arguments = {"padding": True, "return_tensors": kind, "return_offsets_mapping": offsets, "return_length": True}
    ours, peer = pair.ours(*inputs, **arguments), pair.peer(*inputs, **arguments)
    assert list(ours) == list(peer)
    for key, value in ours.items():
        assert type(value) is type(peer[key])
        assert value.dtype == peer[key].dtype
        assert value.shape == peer[key].shape
        assert (value == peer[key]).all()
    if kind == "pt":
        assert ours.to("cpu").input_ids.device == torch.device("cpu")


def test_where_words_and_characters_are(pair: Contestants) -> None:
    inputs = ["Unaffable  words, don't", "x"], ["second café text", ""]
    ours, peer = pair.ours(*inputs, padding=True), pair.peer(*inputs, padding=True)
    for row in range(2):
        assert ours[row].ids == peer[row].ids
        for sequence in range(2):
            for at in range(24):
                assert ours.char_to_token(row, at, sequence) == peer.char_to_token(row, at, sequence)
                assert ours.char_to_word(row, at, sequence) == peer.char_to_word(row, at, sequence)
                assert _tuple(ours.word_to_tokens(row, at, sequence)) == _tuple(_peer_word(peer, row, at, sequence))
        for at in range(len(ours["input_ids"][row])):
            assert ours.token_to_word(row, at) == peer.token_to_word(row, at)
            assert ours.token_to_sequence(row, at) == peer.token_to_sequence(row, at)
            assert _tuple(ours.token_to_chars(row, at)) == _tuple(peer.token_to_chars(row, at))
    one = pair.ours("Unaffable  words")
    assert one.token_to_chars(1).start == 0
    assert one.char_to_token(11) == one.char_to_token(0, 11)
    assert _tuple(one.word_to_chars(1)) == (11, 16)


def _peer_word(peer: Any, row: int, word: int, sequence: int) -> Any:
    try:
        return peer.word_to_tokens(row, word, sequence)
    except TypeError:
        return None


def _tuple(span: Any) -> Any:
    return None if span is None else tuple(span)


def test_decode(pair: Contestants) -> None:
    chance = random.Random(1)
    rows = [[chance.randrange(len(pair.ours)) for _ in range(20)] for _ in range(300)]
    rows += [pair.ours(text).input_ids for text in [*TEXTS, "It's , well . don ' t do n't we 've ! ?"]]
    for skip in (False, True):
        assert pair.ours.batch_decode(rows, skip) == pair.peer.batch_decode(rows, skip)
        for row in rows:
            assert pair.ours.decode(row, skip, True) == pair.peer.decode(row, skip, clean_up_tokenization_spaces=True)
            tokens = pair.ours.convert_ids_to_tokens(row, skip)
            assert tokens == pair.peer.convert_ids_to_tokens(row, skip)
            assert pair.ours.convert_tokens_to_ids(tokens) == pair.peer.convert_tokens_to_ids(tokens)
    array = np.array(rows[:3])
    assert pair.ours.decode(torch.tensor(array)) == pair.ours.decode(array) == pair.peer.decode(array)
    assert (
        pair.ours.decode(list(array[0])) == pair.ours.decode(list(torch.tensor(array[0]))) == pair.peer.decode(rows[0])
    )
    assert pair.ours.decode(7) == pair.ours.decode(np.int64(7)) == pair.peer.decode(7)
    assert pair.ours.decode([]) == ""


def test_names_and_numbers(pair: Contestants) -> None:
    ours, peer = pair.ours, pair.peer
    for name in ("unk", "sep", "pad", "cls", "mask"):
        assert getattr(ours, f"{name}_token") == getattr(peer, f"{name}_token")
        assert getattr(ours, f"{name}_token_id") == getattr(peer, f"{name}_token_id")
    assert ours.vocab == ours.get_vocab() == peer.get_vocab()
    assert (len(ours), ours.vocab_size) == (len(peer), peer.vocab_size)
    assert ours.all_special_ids == peer.all_special_ids
    assert ours.all_special_tokens == peer.all_special_tokens
    assert ours.special_tokens_map == peer.special_tokens_map
    assert ours.convert_tokens_to_ids("no such token") == peer.convert_tokens_to_ids("no such token")
    assert ours.num_special_tokens_to_add(True) == peer.num_special_tokens_to_add(True) == 3
    assert ours.num_special_tokens_to_add() == peer.num_special_tokens_to_add() == 2
    for text in TEXTS:
        assert ours.tokenize(text) == peer.tokenize(text)
        assert ours.encode(text, "b") == peer.encode(text, "b")


def test_pad_as_a_collate_function(pair: Contestants) -> None:
    rows = [pair.ours(text) for text in TEXTS[:5]]
    for arguments in (
        {},
        {"pad_to_multiple_of": 8},
        {"padding": "max_length", "max_length": 40},
        {"padding_side": "left"},
    ):
        ours = pair.ours.pad(rows, return_tensors="pt", **arguments)
        peer = pair.peer.pad([dict(row) for row in rows], return_tensors="pt", **arguments)
        assert list(ours) == list(peer)
        assert all(torch.equal(ours[key], peer[key]) for key in peer)


@pytest.mark.parametrize("strategy", ["longest_first", "only_first", "only_second"])
def test_encode_ragged_cuts_as_a_call_does(pair: Contestants, strategy: str) -> None:
    chance = random.Random(2)
    vocabulary = "a the fox unaffable don't [MASK] 中文 x".split()
    texts = [" ".join(chance.choices(vocabulary, k=chance.randint(8, 20))) for _ in range(200)]
    seconds = [" ".join(chance.choices(vocabulary, k=chance.randint(1, 4))) for _ in range(200)]
    if strategy == "only_second":
        texts, seconds = seconds, texts
    for max_length in (None, 20, 33, 64):
        for special in (True, False):
            arguments = {"truncation": strategy, "max_length": max_length, "add_special_tokens": special}
            ragged = pair.ours.encode_ragged(texts, seconds, **arguments)
            peer = pair.peer(texts, seconds, **{**arguments, "truncation": strategy if max_length else False})
            assert [row.tolist() for row in ragged] == peer.input_ids
            assert [ragged.types(row).tolist() for row in range(200)] == peer.token_type_ids
            whole = pair.peer(texts, seconds, add_special_tokens=special).input_ids
            assert ragged.num_tokens_before.tolist() == [len(row) for row in whole]
            assert ragged.truncated.tolist() == [len(a) > len(b) for a, b in zip(whole, peer.input_ids, strict=True)]
            assert (ragged.ids.dtype, ragged.boundaries.dtype, ragged.token_type_ids.dtype) == (
                np.int32,
                np.int64,
                np.int8,
            )
