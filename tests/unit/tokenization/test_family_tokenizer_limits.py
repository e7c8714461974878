"""The fast paths of byte-level BPE and unigram: very long input, and the bounds of their dictionaries."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit.tokenization import PreTrainedTokenizer
from bertkit.tokenization.fast import chunk_cache as chunks
from bertkit.tokenization.fast import piece_lookup as parts
from tokenizer_families import small

#: One family for each way through the code.
FAMILIES = ("roberta", "modernbert", "albert", "deberta-v2", "mpnet", "mmbert")
#: Texts that are one thing again and again.
UNITS = ("a", " ", "\n", "é", "<mask>", "<mask> ", "🙂", "the hello ", "\u0301", "中", "\x00", "\ud800", "a\n", ",")
LENGTH = 100_000


@pytest.fixture(scope="module", params=FAMILIES)
def made(request: pytest.FixtureRequest, shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What makes a new tokenizer of a family."""
    folder = tmp_path_factory.mktemp(request.param)
    return lambda **settings: small(request.param, shared, folder, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_long_texts(made: Any, unit: str) -> None:
    """Time is linear, or nearly so: a quadratic step would take hours."""
    tokenizer: PreTrainedTokenizer = made()
    text = unit * (LENGTH // len(unit))
    ids = tokenizer.encode_ragged([text, "a"])
    assert np.array_equal(ids[0], tokenizer(text, return_offsets_mapping=True).input_ids)
    assert ids.num_tokens_before[1] == len(tokenizer("a").input_ids)


@pytest.mark.slow
@pytest.mark.parametrize("arrow_chars", [0, 10**9])
def test_results_do_not_depend_on_what_was_seen_before(
    made: Any, monkeypatch: pytest.MonkeyPatch, arrow_chars: int
) -> None:
    """With room for hardly anything, and blocks of hardly any text, the ids are the same."""
    texts = [f"word{number} un{number}the, <mask> {number % 7}  é\u0301 x\ny" for number in range(120)] * 2 + [""]
    expected = made().encode_ragged(texts)
    for name, value in {"MAX_CHUNKS": 8, "MAX_CHUNK_IDS": 30, "BLOCK_CHARS": 40, "BATCH_CHARS": 90,
                        "MAX_CACHED_CHARS": 6, "ARROW_CHARS": arrow_chars}.items():  # fmt: skip
        monkeypatch.setattr(chunks, name, value)
    monkeypatch.setattr(parts, "SLICE_CHUNKS", 3)
    tokenizer = made()
    for _ in range(2):
        found = tokenizer.encode_ragged(texts)
        assert np.array_equal(found.ids, expected.ids)
        assert np.array_equal(found.boundaries, expected.boundaries)
    encoder = tokenizer._fast
    assert max(map(len, list(encoder._chunks)[encoder._num_known :]), default=0) <= 6
    assert len(encoder._chunks) < encoder._num_known + 100


def test_threads_share_a_tokenizer(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "MAX_CHUNKS", 50)
    monkeypatch.setattr(chunks, "BATCH_CHARS", 200)
    texts = [f"word{number} un{number}the <mask>" for number in range(300)]
    tokenizer, expected = made(), made().encode_ragged(texts).ids
    wrong: list[int] = []

    def work(part: int) -> None:
        if not all(np.array_equal(tokenizer.encode_ragged(texts).ids, expected) for _ in range(3)):
            wrong.append(part)

    threads = [threading.Thread(target=work, args=(part,)) for part in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_no_texts(made: Any) -> None:
    tokenizer: PreTrainedTokenizer = made()
    ragged = tokenizer.encode_ragged([], [])
    assert (len(ragged), ragged.ids.shape) == (0, (0,))
    assert all(column == [] for column in tokenizer([], padding=True, return_offsets_mapping=True).values())
    pair = tokenizer.encode_ragged(["", "a"], ["", ""])
    assert pair.lengths.tolist()[0] == tokenizer.num_special_tokens_to_add(True)
