"""Batches on several threads: the same results in the same order, and nothing left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertkit import pipeline
from bertkit.engine import windows_of_texts as engine
from pipeline_helpers import save_tiny

TEXTS = [f"{'the film is good ' * (1 + n % 9)} {n}" for n in range(200)]


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def embed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(engine, "MAX_TOKENS_PER_BATCH", 64)
    return pipeline("feature-extraction", model=save_tiny(tmp_path), device="cpu")


def test_results_do_not_depend_on_the_number_of_threads(embed: Any, threads: None, monkeypatch: Any) -> None:
    seen = set()
    compute = engine._compute

    def watched(*arguments: Any) -> Any:
        seen.add((threading.get_ident(), torch.get_num_threads()))
        return compute(*arguments)

    monkeypatch.setattr(engine, "_compute", watched)
    many = embed(TEXTS, pooling="mean")
    assert threading.get_ident() not in {thread for thread, _ in seen}  # else nothing was tested
    assert {count for _, count in seen} == {1}
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    one = embed(TEXTS, pooling="mean")
    np.testing.assert_allclose(np.stack(many), np.stack(one), atol=1e-6)
    assert not np.allclose(np.stack(many), np.stack(one)[::-1], atol=1e-2)  # the order can be seen


def test_an_error_in_a_thread_is_the_callers_error(embed: Any, threads: None, monkeypatch: Any) -> None:
    compute = engine._compute

    def failing(function: Any, batch: Any) -> Any:
        if batch.layout.max_seqlen < 10:
            raise ValueError("a fault in one batch")
        return compute(function, batch)

    monkeypatch.setattr(engine, "_compute", failing)
    with pytest.raises(ValueError, match="a fault in one batch"):
        embed(TEXTS, pooling="mean")
    assert torch.get_num_threads() == 2
    found: list[int] = []
    later = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert found == [2]
