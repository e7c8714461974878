"""Batches and callers on several threads, models in training mode: right results, and nothing left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertkit import BertForSequenceClassification, BertModel, BertTokenizer, pipeline
from bertkit.engine import torch_backend
from bertkit.engine.module_views import eval_view
from bertkit.engine.native.library import native_library
from bertkit.engine.native.native_backend import NativeBackend
from bertkit.engine.torch_backend import TorchBackend
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
    monkeypatch.setattr(torch_backend, "MAX_TOKENS_PER_BATCH", 64)
    path = save_tiny(tmp_path)
    return pipeline("feature-extraction", model=BertModel.from_pretrained(path), tokenizer=path, device="cpu")


def watch(monkeypatch: pytest.MonkeyPatch, before: Any) -> None:
    """Call ``before`` with the pack, in the thread that computes it."""
    compute = TorchBackend.compute

    def watched(backend: Any, pack: Any, wanted: Any) -> Any:
        before(pack)
        return compute(backend, pack, wanted)

    monkeypatch.setattr(TorchBackend, "compute", watched)


@pytest.mark.parametrize(
    ("lengths", "expected"), [([10] * 102, 1), ([10] * 103, 2), ([512] * 15, 1), ([512] * 16, 2), ([4096] * 9, 1)]
)
def test_threads_work_on_their_own_where_each_has_much_to_do(
    lengths: list[int], expected: int, embed: Any, threads: None
) -> None:
    assert embed.engine.backend.num_threads(np.array(lengths)) == expected


@pytest.mark.skipif(native_library() is None, reason="there is no C compiler")
def test_a_checkpoint_without_torch_has_as_many_threads(tmp_path: Path, threads: None) -> None:
    path = save_tiny(tmp_path)
    pipe = pipeline("feature-extraction", model=path, device="cpu")
    assert isinstance(pipe.engine.backend, NativeBackend)
    assert [pipe.engine.backend.num_threads(np.array([10] * rows)) for rows in (102, 103)] == [1, 2]
    many = pipe(TEXTS, pooling="mean")
    one = pipeline("feature-extraction", model=path, device="cpu", threads=1)(TEXTS, pooling="mean")
    np.testing.assert_array_equal(np.stack(many), np.stack(one))


def test_results_do_not_depend_on_the_number_of_threads(
    embed: Any, threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()
    watch(monkeypatch, lambda pack: seen.add((threading.get_ident(), torch.get_num_threads())))
    many = embed(TEXTS, pooling="mean")
    assert threading.get_ident() not in {thread for thread, _ in seen}  # else nothing was tested
    assert {count for _, count in seen} == {1}
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    one = embed(TEXTS, pooling="mean")
    np.testing.assert_allclose(np.stack(many), np.stack(one), atol=1e-6)
    assert not np.allclose(np.stack(many), np.stack(one)[::-1], atol=1e-2)  # the order can be seen


def test_other_threads_keep_their_number_of_threads(embed: Any, threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server starts threads at any time; one that starts while a call is computed must not stay slow for ever."""
    found: list[int] = []

    def start_another(pack: Any) -> None:
        other = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
        other.start()
        other.join()

    watch(monkeypatch, start_another)
    embed(TEXTS, pooling="mean")
    assert set(found) == {2}


def test_an_error_in_a_thread_is_the_callers_error(embed: Any, threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(pack: Any) -> None:
        if max(pack.lengths) < 10:
            raise ValueError("a fault in one batch")

    watch(monkeypatch, fail)
    with pytest.raises(ValueError, match="a fault in one batch"):
        embed(TEXTS, pooling="mean")
    assert torch.get_num_threads() == 2


def training_pipe(folder: Path, task: str, model_class: Any) -> Any:
    """A pipeline over a model object that is being trained, with so much dropout that none of it can go unseen."""
    path = save_tiny(folder, model_class, hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5)
    model = model_class.from_pretrained(path)
    model.train()
    return pipeline(task, model=model, tokenizer=BertTokenizer.from_pretrained(path), device="cpu")


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("task", ["feature-extraction", "text-classification", "token-classification"])
def test_no_dropout_gets_into_a_model_in_training_mode(
    task: str, tmp_path: Path, threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_backend, "MAX_TOKENS_PER_BATCH", 64)
    head = {"feature-extraction": BertModel, "text-classification": BertForSequenceClassification}
    from bertkit import BertForTokenClassification

    pipe = training_pipe(tmp_path, task, head.get(task, BertForTokenClassification))
    frozen = next(module for module in pipe.model.modules() if isinstance(module, torch.nn.LayerNorm)).eval()
    options = {"pooling": "mean"} if task == "feature-extraction" else {}
    found = [pipe(TEXTS * 3, **options) for _ in range(3)]
    assert pipe.model.training
    assert not frozen.training, "a part that was in eval mode stays in it"
    pipe.model.eval()
    expected = pipe(TEXTS * 3, **options)
    for again in found:
        compare(again, expected)


def compare(found: list[Any], expected: list[Any]) -> None:
    if isinstance(expected[0], np.ndarray):
        np.testing.assert_allclose(np.stack(found), np.stack(expected), atol=1e-4)  # torch's, and those of 24 bits
        return
    flat = [[*item] if isinstance(item, list) else [item] for item in found]
    right = [[*item] if isinstance(item, list) else [item] for item in expected]
    for ours, theirs in zip(flat, right, strict=True):
        assert [item.get("label", item.get("entity")) for item in ours] == [
            item.get("label", item.get("entity")) for item in theirs
        ]
        assert [item["score"] for item in ours] == pytest.approx([item["score"] for item in theirs], abs=1e-4)


@pytest.mark.slow
def test_callers_on_several_threads_share_one_pipeline(
    tmp_path: Path, threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also over a model in training mode: none of the callers may put dropout back while another computes."""
    monkeypatch.setattr(torch_backend, "MAX_TOKENS_PER_BATCH", 64)
    pipe = training_pipe(tmp_path, "feature-extraction", BertModel)
    parts = [TEXTS[start : start + 25] for start in range(0, 200, 25)] * 2
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda part: np.stack(pipe(part, pooling="mean")), parts))
    pipe.model.eval()
    for part, vectors in zip(parts, found, strict=True):
        np.testing.assert_allclose(vectors, np.stack(pipe(part, pooling="mean")), atol=1e-4)


def test_the_eval_view_shares_parameters_and_follows_them() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.9), torch.nn.ModuleList()).train()
    view = eval_view(model)
    assert not any(module.training for module in view.modules())
    assert all(module.training for module in model.modules())
    assert [name for name, _ in view.named_modules()] == [name for name, _ in model.named_modules()]
    assert view[0].weight is model[0].weight
    model.eval()
    assert eval_view(model) is model
