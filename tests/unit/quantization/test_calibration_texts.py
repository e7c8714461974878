"""Which texts are drawn, and how they are read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from weakref import WeakSet

import pytest

from bertkit.errors import DataError
from bertkit.quantization.calibrate import MAX_TEXTS, MOST_HELD, draw_texts, encode
from bertkit.tasks import get_task
from bertkit.tokenization import AutoTokenizer, PreTrainedTokenizer


@pytest.fixture(scope="module")
def tokenizer(minilm: Path) -> PreTrainedTokenizer:
    return AutoTokenizer.from_pretrained(minilm)


def test_texts_are_drawn_evenly_from_a_stream() -> None:
    def numbers() -> Iterator[str]:
        for number in range(100_000):
            yield str(number)
            yield str(number)  # twice
            yield " "

    drawn = [int(text) for text in draw_texts(numbers(), "x")]
    assert len(drawn) == len(set(drawn)) == MAX_TEXTS
    assert drawn == sorted(drawn)
    tenths = [sum(low <= number < low + 10_000 for number in drawn) for low in range(0, 100_000, 10_000)]
    assert min(tenths) > 70
    assert max(tenths) < 130


def test_few_texts_are_in_memory() -> None:
    class Text(str):
        pass

    alive: WeakSet[Text] = WeakSet()

    def texts() -> Iterator[str]:
        for number in range(30_000):
            text = Text(number)
            alive.add(text)
            assert len(alive) < MOST_HELD + 100
            yield text

    assert len(draw_texts(texts(), "x")) == MAX_TEXTS


def test_few_different_texts_are_all_drawn() -> None:
    texts = [str(number % 150) for number in range(20_000)]
    assert draw_texts(texts, "x") == texts[:150]
    with pytest.raises(DataError, match="x has 99 different texts, and 100 are needed"):
        draw_texts([*texts[:99], *texts[:50]], "x")


def test_a_line_of_a_pair_task_is_a_pair(tokenizer: PreTrainedTokenizer) -> None:
    task = get_task("mrpc")
    found = encode(["a film\ta game", "one two\tthree"], tokenizer, 64, "x", task).rows
    pairs = tokenizer.encode_ragged(["a film", "one two"], ["a game", "three"], max_length=64)
    assert found.ids.tolist() == pairs.ids.tolist()
    assert found.token_type_ids.tolist() == pairs.token_type_ids.tolist()
    assert 1 in found.token_type_ids
    with pytest.raises(DataError, match=r"x: task mrpc reads pairs, so a line must be two texts .* got 'a film'"):
        encode(["a film", "one two\tthree"], tokenizer, 64, "x", task)


@pytest.mark.parametrize("task", [None, "sst2"])
def test_a_tab_is_white_space_elsewhere(tokenizer: PreTrainedTokenizer, task: str | None) -> None:
    found = encode(["a film\ta game"], tokenizer, 64, "x", None if task is None else get_task(task)).rows
    assert found.ids.tolist() == tokenizer.encode_ragged(["a film a game"], max_length=64).ids.tolist()
