"""Whatever the lengths, windows and batches: every text gets its own result, in its own place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertkit import pipeline
from bertkit.engine import torch_backend
from bertkit.engine.backend import LOGITS, Pack, Wanted
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.engine.rows import WindowSize, pack_by_length, stream
from bertkit.inference import pipeline_base
from bertkit.ragged import Ragged, boundaries_of
from pipeline_helpers import save_tiny
from shuffled_packs import shuffled


@pytest.fixture(scope="module")
def pipe(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return pipeline("feature-extraction", model=save_tiny(tmp_path_factory.mktemp("m") / "tiny"), device="cpu")


pytestmark = pytest.mark.usefixtures("packs")


def letters(lengths: Sequence[int], seed: int) -> list[str]:
    chance = np.random.default_rng(seed)
    return [" ".join(chance.choice(list("abcdefghij"), size=length)) for length in lengths]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(0, 60), min_size=1, max_size=30),
    seed=st.integers(0, 2**16),
    tokens=st.integers(1, 200),
    window=st.integers(1, 12),
    lazy=st.booleans(),
    pooling=st.sampled_from(["mean", "max", "cls"]),
)
def test_a_text_gets_the_same_result_in_any_company(
    pipe: Any,
    monkeypatch: pytest.MonkeyPatch,
    lengths: list[int],
    seed: int,
    tokens: int,
    window: int,
    lazy: bool,
    pooling: str,
) -> None:
    texts = letters(lengths, seed)
    alone = np.stack([pipe(text, pooling=pooling) for text in texts])
    with monkeypatch.context() as patch:
        patch.setattr(torch_backend, "MAX_TOKENS_PER_BATCH", tokens)
        patch.setattr(pipeline_base, "TEXTS", WindowSize(window, max(1, window // 2), 10_000))
        together = np.stack(list(pipe(iter(texts) if lazy else texts, pooling=pooling)))
    np.testing.assert_allclose(together, alone, atol=1e-5, rtol=0)


def test_order_would_be_noticed(pipe: Any) -> None:
    """The control: two different texts differ by far more than the tolerance above."""
    a, b = pipe(["a b c", "c b a"], pooling="mean")
    assert np.abs(a - b).max() > 1e-2


@given(
    lengths=st.lists(st.integers(1, 40), max_size=60),
    tokens=st.integers(1, 100),
    window=st.integers(1, 20),
    characters=st.integers(1, 200),
    threads=st.integers(1, 3),
    lazy=st.booleans(),
)
def test_the_engine_gives_one_answer_an_item_in_order(
    lengths: list[int], tokens: int, window: int, characters: int, threads: int, lazy: bool
) -> None:
    """With a back-end that only reports what it was given. An item is one row or two, of its number, repeated."""
    advanced: list[int] = []
    size = WindowSize(window, max(1, window // 3), characters)

    def encode(items: list[tuple[int, int]], first: int) -> Any:
        assert items[0][0] == first
        assert len(items) <= window
        assert sum(length for _, length in items[:-1]) < characters
        sizes = [[length] if number % 2 else [length, 2] for number, length in items]
        flat = [row for rows in sizes for row in rows]
        ids = np.repeat([number for (number, _), rows in zip(items, sizes, strict=True) for _ in rows], flat)
        rows = Ragged(ids.astype(np.int32), boundaries_of(flat), np.zeros(len(ids), np.int8), np.array(flat))

        def answers(results: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
            source = iter(results)
            return ([next(source) for _ in rows] for rows in sizes)

        return rows, answers

    backend = Reporting(tokens, threads)
    items = enumerate(lengths)
    weight = lambda item: item[1]  # noqa: E731
    engine: Any = InferenceEngine(backend)  # type: ignore[arg-type]

    def run(rows: Ragged, advance: Any) -> Any:
        return engine.run(rows, LOGITS, number_and_length, advance)

    found = list(stream(items, encode, run, size=size, weight=weight, lazy=lazy, advance=advanced.append))
    assert found == [[(n, length)] if n % 2 else [(n, length), (n, 2)] for n, length in enumerate(lengths)]
    assert sum(advanced) == len(lengths)
    assert all(total <= tokens or count == 1 for total, count in backend.seen)


class Reporting:
    """What each row holds, and how long it is."""

    packs_ahead = 0

    def __init__(self, max_tokens: int, threads: int) -> None:
        self.max_tokens, self.threads = max_tokens, threads
        self.seen: list[tuple[int, int]] = []

    def num_threads(self, lengths: np.ndarray) -> int:
        return self.threads

    def in_thread(self, alone: bool) -> Any:
        assert alone or self.threads > 1
        return nullcontext()

    def compute(self, pack: Pack, wanted: Wanted) -> dict[str, np.ndarray]:
        assert wanted is LOGITS
        self.seen.append((len(pack.ids), len(pack.lengths)))
        return {"logits": pack.ids.astype(np.float32)}


def number_and_length(pack: Pack, values: Any) -> list[tuple[int, int]]:
    rows = pack.split(values["logits"])
    assert all(len(set(row.tolist())) == 1 for row in rows)
    return [(int(row[0]), len(row)) for row in rows]


def test_shuffled_packs_are_the_same_in_another_order() -> None:
    """The control of the fixture ``packs``."""
    lengths = np.arange(1, 41)
    one, other = pack_by_length(lengths, 100), shuffled(lengths, 100)
    assert one != other
    assert sorted(map(sorted, one)) == sorted(map(sorted, other))
