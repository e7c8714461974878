"""The C library beside torch's modules for the families whose attention or layers are not BERT's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bertkit import BertModel
from bertkit.batch import pack
from bertkit.engine.backend import Pack, Wanted, WordPooling
from bertkit.engine.native.library import native_library
from bertkit.engine.native.native_backend import NativeBackend
from bertkit.engine.torch_backend import TorchBackend
from bertkit.errors import InputError
from bertkit.weights.head_weights import KINDS
from family_helpers import CASES, SHAPES, V, odd, pair
from parity_measures import ENGINE_LIMITS

#: What a family's own parts are; the others differ from BERT in values alone.
OWN = [shape for shape, (family, _) in SHAPES.items() if family in ("mpnet", "deberta-v2", "modernbert")]
#: One short text, several, texts longer than windows and linear buckets, one longer than the first tables.
BATCHES = [(1,), (5,), (17, 1, 30, 9), (130, 3, 64, 7, 1), (300,)]


def rows_of(lengths: tuple[int, ...]) -> Pack:
    chance = np.random.default_rng(sum(lengths))
    return Pack(chance.integers(2, V, sum(lengths)), np.zeros(sum(lengths), np.int64), lengths)


@pytest.mark.skipif(native_library() is None, reason="there is no C compiler")
@pytest.mark.parametrize("sizes", ["usual", "odd"])
@pytest.mark.parametrize("shape", OWN)
def test_the_library_computes_what_the_modules_do(shape: str, sizes: str, tmp_path: Path) -> None:
    changes = {**(odd(shape) if sizes == "odd" else {}), "max_position_embeddings": 400}
    _, model = pair(shape, "BertModel", tmp_path, **changes)
    assert isinstance(model, BertModel)
    wanted = [Wanted(("last_hidden_state",), pooling) for pooling in (None, ("cls",), ("mean",))]
    backends = [
        (precision, NativeBackend(tmp_path, "BertModel", precision, threads))
        for precision in ENGINE_LIMITS for threads in (1, 2)
    ]  # fmt: skip
    for lengths in BATCHES:
        given = rows_of(lengths)
        with torch.inference_mode():
            batch = pack([given.ids[start:end].tolist() for start, end in given.spans()])
            expected = model.forward_packed(batch).last_hidden_state.numpy()  # type: ignore[union-attr]
        for precision, backend in backends:
            for asked in wanted:
                found = backend.compute(given, asked)["last_hidden_state"]
                right = expected if asked.pooling is None else given.pool(expected, asked.pooling)
                assert np.abs(found - right).max() <= ENGINE_LIMITS[precision] * max(1.0, np.abs(right).max())


@pytest.mark.skipif(native_library() is None, reason="there is no C compiler")
@pytest.mark.parametrize("shape", SHAPES)
def test_without_torch_around_it_the_library_gives_the_same_bits(shape: str, tmp_path: Path) -> None:
    _, model = pair(shape, "BertModel", tmp_path, max_position_embeddings=400)
    assert isinstance(model, BertModel)
    backend = TorchBackend(model)
    asked = [Wanted(("last_hidden_state",), pooling) for pooling in (None, ("cls",))]
    assert backend._without_torch(rows_of((5,)), asked[0]) is None  # it is not packed yet
    for lengths in BATCHES:
        given = rows_of(lengths)
        for wanted in asked:
            modules = backend._computed(given, wanted)["last_hidden_state"]
            alone = backend._without_torch(given, wanted)
            if model.embeddings.projection is not None:
                assert alone is None
                continue
            assert alone is not None
            assert alone.dtype == np.float32
            np.testing.assert_array_equal(alone, modules)
    empty = rows_of((3, 0, 4))  # which the modules judge
    assert backend._without_torch(empty, asked[0]) is None
    ids = rows_of((3, 4)).ids
    ids[4] = model.config.vocab_size
    for outside in range(2):
        with pytest.raises(InputError, match=f"input_ids has {ids[4]}, outside 0"):
            backend.compute(Pack(ids, np.zeros(7, np.int64), (3, 4)), asked[outside])


@pytest.mark.slow
@pytest.mark.skipif(native_library() is None, reason="there is no C compiler")
@pytest.mark.parametrize(("shape", "head"), [(shape, head) for shape, head in CASES if head in KINDS])
def test_heads_without_torch(shape: str, head: str, tmp_path: Path) -> None:
    """Every head of every family, at all tokens and at some, beside torch's modules in float32."""
    _, model = pair(shape, head, tmp_path, max_position_embeddings=400)
    native, modules = NativeBackend(tmp_path, head, "fp32", 2), TorchBackend(model, "fp32")
    outputs = {"BertForQuestionAnswering": ("end_logits", "start_logits"), "BertModel": ("last_hidden_state",)}
    asked = [Wanted(outputs.get(head, ("logits",)))]
    if head == "BertModel" and model.pooler is not None:
        asked.append(Wanted(("pooler_output",)))
    if head == "BertForMaskedLM":
        pooled = [WordPooling("max"), WordPooling("sum", 2)]
        asked += [Wanted(("logits",), only_at=3), *(Wanted(("word_weights",), words=each) for each in pooled)]
    for lengths in BATCHES:
        given = rows_of(lengths)
        for wanted in asked:
            found, right = native.compute(given, wanted), modules.compute(given, wanted)
            assert found.keys() == right.keys()
            for name, values in found.items():
                assert values.shape == right[name].shape
                assert values.dtype == np.float32
                np.testing.assert_allclose(values, right[name], atol=2e-5, rtol=2e-5)
    encoder = native.encoder()
    vectors = encoder.compute(given, Wanted(("last_hidden_state",), ("mean",)))["last_hidden_state"]
    right = modules.encoder().compute(given, Wanted(("last_hidden_state",), ("mean",)))["last_hidden_state"]
    np.testing.assert_allclose(vectors, right, atol=2e-5, rtol=2e-5)


def test_another_window_is_left_to_torch(tmp_path: Path) -> None:
    """A setting that the config does not name: the library would compute what the config says."""
    _, model = pair("modernbert", "BertModel", tmp_path)
    backend = TorchBackend(model)
    assert (backend.weight_type is None) == (native_library() is None)
    local = next(layer.attention for layer in model.encoder.layer if layer.attention.reach is not None)
    local.attend = type(local.attend)(1)
    assert TorchBackend(model).weight_type is None
