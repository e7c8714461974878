"""The engine: any back-end, any number of callers, options that are checked, values that are not numbers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertkit import BertForQuestionAnswering, BertForSequenceClassification, BertModel, pipeline
from bertkit.engine.backend import LOGITS, SPAN_LOGITS, Pack, Wanted
from bertkit.engine.inference_engine import InferenceEngine, rows_of
from bertkit.engine.torch_backend import TorchBackend
from bertkit.errors import CheckpointError, ConfigError, InputError
from bertkit.export.onnx_export import export_onnx, load_for_export
from bertkit.ragged import Ragged, boundaries_of
from pipeline_helpers import save_tiny

TEXTS = [f"{'the film is good ' * (1 + n % 7)} {n}" for n in range(60)]


def rows(*lengths: int) -> Ragged:
    ids = np.random.default_rng(0).integers(5, 90, sum(lengths)).astype(np.int32)
    return Ragged(ids, boundaries_of(lengths), (ids % 2).astype(np.int8), np.array(lengths))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("m") / "tiny")


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_a_pack_has_the_rows_end_to_end() -> None:
    every = rows(3, 1, 5, 2)
    pack = Pack.of(every, [2, 0])
    assert pack.lengths == (5, 3)
    assert pack.spans() == [(0, 5), (5, 8)]
    np.testing.assert_array_equal(pack.ids, np.concatenate([every[2], every[0]]))
    np.testing.assert_array_equal(pack.token_type_ids, np.concatenate([every.types(2), every.types(0)]))
    assert pack.positions.tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert Pack.of(every.select([1])).positions.tolist() == [0]
    np.testing.assert_array_equal(Pack.of(every).ids, every.ids)
    assert [part.tolist() for part in pack.split(pack.ids)] == [every[2].tolist(), every[0].tolist()]


def test_outputs_are_those_of_the_model(tmp_path: Path) -> None:
    model = BertForQuestionAnswering.from_pretrained(save_tiny(tmp_path, BertForQuestionAnswering))
    given = rows(7, 2, 40, 1)
    found = InferenceEngine.for_scoring(model).token_outputs(given, SPAN_LOGITS)
    assert found.shape == (50, 2)
    for number, (start, end) in enumerate(Pack.of(given).spans()):
        ids, types = torch.from_numpy(given[number]).long(), torch.from_numpy(given.types(number)).long()
        with torch.inference_mode():
            out = model(ids[None], token_type_ids=types[None])
        np.testing.assert_allclose(found[start:end, 0], out.start_logits[0].numpy(), atol=1e-5)
        np.testing.assert_allclose(found[start:end, 1], out.end_logits[0].numpy(), atol=1e-5)


def test_options_are_checked(folder: Path) -> None:
    model = BertModel.from_pretrained(folder)
    with pytest.raises(ConfigError, match="precision must be one of auto, fp32, fp16, bf16, int8, got 'half'"):
        InferenceEngine.of(model, precision="half")  # type: ignore[arg-type]
    for threads in (0, -1, 1.5, True):
        with pytest.raises(ConfigError, match="threads must be a whole number from 1"):
            InferenceEngine.of(model, threads=threads)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected a model of bertkit, such as BertModel, got Linear"):
        InferenceEngine.of(torch.nn.Linear(2, 2))  # type: ignore[arg-type]
    engine = InferenceEngine.of(model, precision="fp32", threads=1)
    assert (engine.model, engine.device, engine.model_class) == (model, "cpu", "BertModel")
    assert engine.encoder() is engine


def test_a_call_uses_the_threads_that_it_may(folder: Path, two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    compute = TorchBackend.compute

    def watched(self: TorchBackend, pack: Pack, wanted: Wanted) -> Any:
        seen.append(torch.get_num_threads())
        return compute(self, pack, wanted)

    monkeypatch.setattr(TorchBackend, "compute", watched)
    model = BertModel.from_pretrained(folder)  # in fp32 torch computes its layers, not the library
    one, usual = (pipeline(model=model, tokenizer=folder, precision="fp32", threads=threads) for threads in (1, None))
    np.testing.assert_allclose(one("a film", pooling="mean"), usual("a film", pooling="mean"), atol=1e-6)
    assert seen == [1, 2]
    assert torch.get_num_threads() == 2


def test_values_that_are_not_finite_are_refused_while_scoring_too(tmp_path: Path) -> None:
    model = BertForSequenceClassification.from_pretrained(save_tiny(tmp_path, BertForSequenceClassification))
    engine = InferenceEngine.for_scoring(model)
    assert engine.row_outputs(rows(4, 9), LOGITS).shape == (2, 2)
    with torch.no_grad():
        model.classifier.bias[1] = float("inf")
    with pytest.raises(CheckpointError, match=r"the model's logits are not finite .*torch\.float32 is too narrow"):
        engine.row_outputs(rows(4, 9), LOGITS)


def test_only_at_some_tokens(tmp_path: Path) -> None:
    from bertkit import BertForMaskedLM

    model = BertForMaskedLM.from_pretrained(save_tiny(tmp_path, BertForMaskedLM))
    given = rows(6, 3, 8)
    token = int(given.ids[4])
    backend = TorchBackend.of(model)
    every = backend.compute(Pack.of(given), LOGITS)["logits"]
    some = backend.compute(Pack.of(given), Wanted(("logits",), only_at=token))["logits"]
    np.testing.assert_allclose(some, every[given.ids == token], atol=1e-5)
    assert 1 <= len(some) < len(every)
    assert backend.compute(Pack.of(given), Wanted(("logits",), only_at=4))["logits"].shape == (0, every.shape[1])


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("exported", [False, True])
def test_many_callers_at_once(folder: Path, tmp_path: Path, exported: bool) -> None:
    model: Path = folder
    if exported:
        given = load_for_export(folder)
        export_onnx(given.model, given.tokenizer, tmp_path / "onnx", check=False)
        model = tmp_path / "onnx"
    pipe = pipeline("feature-extraction", model=model, device="cpu")
    expected = np.stack(pipe(TEXTS, pooling="mean"))
    parts = [slice(start, start + 7) for start in range(0, 56, 7)] * 6
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda part: np.stack(pipe(TEXTS[part], pooling="mean")), parts))
    for part, vectors in zip(parts, found, strict=True):
        np.testing.assert_allclose(vectors, expected[part], atol=1e-5)


def test_results_do_not_keep_their_pack(folder: Path) -> None:
    """A caller who keeps one vector of a million must not keep the others with it."""
    engine = InferenceEngine.of(BertModel.from_pretrained(folder))
    found = engine.run(rows(5, 5, 5), Wanted(("last_hidden_state",), ("mean",)), rows_of)
    assert all(vector.base is None for vector in found)
