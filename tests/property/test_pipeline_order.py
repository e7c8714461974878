"""Whatever the lengths, windows and batches: every text gets its own result, in its own place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertkit import pipeline
from bertkit.batch import Batch
from bertkit.engine import windows_of_texts as engine
from bertkit.inference.pipeline_inputs import Text
from pipeline_helpers import save_tiny


@pytest.fixture(scope="module")
def pipe(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return pipeline("feature-extraction", model=save_tiny(tmp_path_factory.mktemp("m") / "tiny"), device="cpu")


def letters(lengths: Sequence[int], seed: int) -> list[str]:
    chance = np.random.default_rng(seed)
    return [" ".join(chance.choice(list("abcdefghij"), size=length)) for length in lengths]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
        patch.setattr(engine, "MAX_TOKENS_PER_BATCH", tokens)
        patch.setattr(engine, "WINDOW_TEXTS", window)
        patch.setattr(engine, "FIRST_WINDOW_TEXTS", max(1, window // 2))
        together = np.stack(list(pipe(iter(texts) if lazy else texts, pooling=pooling)))
    np.testing.assert_allclose(together, alone, atol=1e-5, rtol=0)


def test_order_would_be_noticed(pipe: Any) -> None:
    """The control: two different texts differ by far more than the tolerance above."""
    a, b = pipe(["a b c", "c b a"], pooling="mean")
    assert np.abs(a - b).max() > 1e-2


@settings(max_examples=200, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 40), max_size=60),
    tokens=st.integers(1, 100),
    window=st.integers(1, 20),
    truncate=st.booleans(),
)
def test_the_engine_gives_one_result_a_text_in_order(
    lengths: list[int], tokens: int, window: int, truncate: bool
) -> None:
    """With a model that only reports what it was given: ids, positions and lengths reach it intact."""
    seen: list[int] = []

    def compute(batch: Batch) -> list[tuple[int, int]]:
        seen.append(batch.layout.num_tokens)
        assert torch.is_inference_mode_enabled()
        for start, end in batch.layout.spans():
            assert batch.position_ids[start:end].tolist() == list(range(end - start))
        return [(int(batch.input_ids[start]), end - start) for start, end in batch.layout.spans()]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "MAX_TOKENS_PER_BATCH", tokens)
        patch.setattr(engine, "WINDOW_TEXTS", window)
        texts = [Text("x" * length, None) for length in lengths]
        limit = 20 if truncate else 100
        done = list(
            engine.run(
                iter(texts),
                Numbering(),
                compute,
                limit=limit,
                truncate=truncate,
                device=torch.device("cpu"),
                lazy=False,
            )
        )
    expected = [min(length + 2, limit) for length in lengths]
    assert [item.index for item in done] == list(range(len(lengths)))
    assert [item.text for item in done] == texts
    assert [item.num_tokens for item in done] == expected
    assert [item.value for item in done] == [(length, size) for length, size in zip(lengths, expected, strict=True)]
    assert [item.truncated for item in done] == [length + 2 > limit for length in lengths]
    assert all(total <= max(tokens, 42) for total in seen)


class Numbering:
    """A tokenizer whose text of n characters becomes n + 2 tokens that all say n."""

    model_max_length = 1000

    def encode_ragged(self, texts: Sequence[str], text_pairs: Any = None, **options: Any) -> Any:
        whole = [len(text) + 2 for text in texts]
        limit = options.get("max_length") or max(whole)
        kept = [min(length, limit) for length in whole]
        return Ragged(
            ids=np.repeat([len(text) for text in texts], kept).astype(np.int32),
            boundaries=np.concatenate([[0], np.cumsum(kept)]).astype(np.int64),
            token_type_ids=np.zeros(sum(kept), np.int8),
            num_tokens_before=np.array(whole, np.int64),
        )


class Ragged:
    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)
