"""What a model is computed with: precisions, weights that are let go, and models that change while they are in use."""

from __future__ import annotations

import copy
import gc
import pickle
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bertkit import BertForMaskedLM, BertForSequenceClassification, BertModel, pipeline
from bertkit.checkpoints.read_values import read_values
from bertkit.engine import torch_backend
from bertkit.engine.backend import Precision
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.engine.native import native_backend
from bertkit.engine.native.library import NativeLibrary, native_library, why_not
from bertkit.engine.native.native_encoder import NativeEncoder
from bertkit.engine.torch_backend import TorchBackend
from bertkit.errors import CheckpointError, ConfigError, InputError
from bertkit.model.attention import attend_reference
from bertkit.model.encoder import EncoderLayer
from bertkit.system.processor import find_processor
from bertkit.weights import checkpoint_weights
from pipeline_helpers import save_tiny

TEXTS = ["a film", "the end was bad, and dull!", "it is a very good scene of the film", "b"]
#: How far vectors may be from torch's, whose numbers are about 1.
TOLERANCES: dict[Precision, float] = {"fp32": 1e-5, "auto": 1e-4, "fp16": 1e-2, "bf16": 0.1}
WEIGHT_TYPES = {"fp32": "float32", "auto": "float24", "fp16": "float16", "bf16": "bfloat16"}


@pytest.fixture(autouse=True)
def library() -> NativeLibrary:
    found = native_library()
    if found is None:
        pytest.skip(f"the library cannot be had here: {why_not()}")
    return found


@pytest.fixture(autouse=True)
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor whose cache is too small for any model."""
    set_cache(monkeypatch, 0)


def set_cache(monkeypatch: pytest.MonkeyPatch, size: int | None) -> None:
    monkeypatch.setattr(native_backend, "find_processor", lambda: find_processor()._replace(cache=size))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Weights with which the layers matter, but do not make each rounding many times as large.
    return save_tiny(tmp_path_factory.mktemp("m") / "tiny", initializer_range=0.15)


def in_torch(model: BertModel, folder: Path) -> np.ndarray:
    """What the modules compute, without any library."""
    pipe = pipeline(model=model, tokenizer=folder, precision="fp32", device="cpu")
    assert pipe.engine.backend.weight_type is None
    return np.stack(pipe(TEXTS, pooling="mean"))


def vectors(pipe: Any) -> np.ndarray:
    return np.stack(pipe(TEXTS, pooling="mean"))


@pytest.mark.parametrize("precision", TOLERANCES)
def test_precisions_of_a_loaded_pipeline(folder: Path, precision: Precision, library: NativeLibrary) -> None:
    if precision == "bf16" and not library.bf16:
        pytest.skip("this processor has no bf16 products")
    pipe = pipeline("feature-extraction", model=folder, device="cpu", precision=precision)
    assert pipe.engine.backend.weight_type == WEIGHT_TYPES[precision]
    expected = in_torch(BertModel.from_pretrained(folder), folder)
    off = np.abs(vectors(pipe) - expected).max()
    assert off < TOLERANCES[precision]
    narrower = {"auto": 1e-7, "fp16": 1e-5, "bf16": 1e-3}
    assert off > narrower.get(precision, -1.0)  # the control: each keeps what it says


def test_auto_keeps_all_bits_of_weights_that_stay_in_the_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = sum(weight.nbytes for weight in BertModel.from_pretrained(folder).encoder.parameters())
    expected = in_torch(BertModel.from_pretrained(folder), folder)
    for cache, weight_type in ((2 * layers, "float32"), (2 * layers - 1, "float24"), (None, "float24")):
        set_cache(monkeypatch, cache)
        pipe = pipeline("feature-extraction", model=folder, device="cpu")
        assert pipe.engine.backend.weight_type == weight_type
        assert (np.abs(vectors(pipe) - expected).max() < 1e-6) == (weight_type == "float32")
    set_cache(monkeypatch, 2**40)
    shared = pipeline(model=BertModel.from_pretrained(folder), tokenizer=folder, device="cpu")
    assert shared.engine.backend.weight_type == "float24", "its owner keeps the float32 weights as well"


@pytest.mark.parametrize("precision", ["auto", "fp16"])
def test_a_model_object_is_computed_in_the_library_too(folder: Path, precision: Precision) -> None:
    model = BertModel.from_pretrained(folder)
    pipe = pipeline(model=model, tokenizer=folder, precision=precision, device="cpu")
    assert pipe.engine.backend.weight_type == WEIGHT_TYPES[precision]
    np.testing.assert_allclose(vectors(pipe), in_torch(model, folder), atol=TOLERANCES[precision])


@pytest.mark.campaign
def test_the_layers_weights_are_let_go_and_come_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: dict[str, weakref.ref[Any]] = {}

    def watched(*arguments: Any, **more: Any) -> Any:
        arrays = read_values(*arguments, **more)
        read.update({name: weakref.ref(array) for name, array in arrays.items()})
        return arrays

    monkeypatch.setattr(checkpoint_weights, "read_values", watched)
    pipe = pipeline("feature-extraction", model=folder, device="cpu")
    before = vectors(pipe)
    gc.collect()
    layers = [array() for name, array in read.items() if name.startswith("encoder.layer.")]
    assert len(layers) > 10
    assert not any(array is not None for array in layers)
    assert read["embeddings.word_embeddings.weight"]() is not None, "the tables are read where they are"
    model = pipe.model
    assert pipe.model is model
    np.testing.assert_allclose(vectors(pipe), before, atol=1e-6)
    np.testing.assert_allclose(before, in_torch(model, folder), atol=1e-4)
    gc.collect()
    assert pipe.model is model, "from now on it is kept"


def test_a_pipeline_whose_model_nobody_asks_for_makes_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Path] = []
    load = BertModel.from_pretrained
    monkeypatch.setattr(BertModel, "from_pretrained", lambda path, **more: (loaded.append(path), load(path, **more))[1])
    pipe = pipeline("feature-extraction", model=folder, device="cpu")
    vectors(pipe)
    vectors(pipe)
    assert loaded == []
    assert pipe.model is pipe.model
    assert len(loaded) == 1


def change_a_weight(model: Any) -> None:
    with torch.no_grad():
        model.encoder.layer[1].ffn_down.weight[3] += 1.0


def change_a_norm(model: Any) -> None:
    with torch.no_grad():
        model.encoder.layer[0].attention_norm.bias[3] = 2.0


def change_a_word(model: Any) -> None:
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[:, 0] += 2.0


def replace_a_module(model: Any) -> None:
    old = model.encoder.layer[0].ffn_up
    model.encoder.layer[0].ffn_up = type(old)(old.in_features, old.out_features)


def replace_a_parameter(model: Any) -> None:
    linear = model.encoder.layer[0].attention.out
    linear.weight = nn.Parameter(linear.weight.detach() * 2.0)


def replace_data(model: Any) -> None:
    linear = model.encoder.layer[0].attention.out
    linear.weight.data = linear.weight.data * 2.0


def swap_layers(model: Any) -> None:
    model.encoder.layer[0], model.encoder.layer[1] = model.encoder.layer[1], model.encoder.layer[0]


def load_others(model: Any) -> None:
    torch.manual_seed(3)
    model.load_state_dict(type(model)(model.config).state_dict())


def train_a_step(model: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    ids = torch.arange(5, 15)[None]
    model(ids).last_hidden_state.pow(3).mean().backward()
    optimizer.step()


def train_with_a_fused_optimizer(model: Any) -> None:
    """It does not tell torch that it changes a weight."""
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=0.1, fused=True)
    model(torch.arange(5, 15)[None]).last_hidden_state.pow(3).mean().backward()
    optimizer.step()
    model.eval()


CHANGES = [
    change_a_weight, change_a_norm, change_a_word, replace_a_module, replace_a_parameter, replace_data, swap_layers,
    load_others, train_a_step, train_with_a_fused_optimizer,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("from_path", [False, True])
def test_a_model_that_changes_is_followed(folder: Path, from_path: bool, change: Callable[[Any], None]) -> None:
    given: Any = folder if from_path else BertModel.from_pretrained(folder)
    pipe = pipeline("feature-extraction", model=given, tokenizer=folder, device="cpu")
    before = vectors(pipe)
    model = pipe.model
    change(model)
    after = vectors(pipe)
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_allclose(after, in_torch(model, folder), atol=3e-4)
    assert pipe.engine.backend.weight_type == "float24", "still the library's"


class AddedRank(nn.Module):
    """A linear layer with an adapter."""

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__()
        self.plain, self.down, self.up = plain, nn.Linear(plain.in_features, 2), nn.Linear(2, plain.out_features)

    def forward(self, x: torch.Tensor, activation: str = "none") -> torch.Tensor:
        out: torch.Tensor = self.plain(x) + self.up(self.down(x))
        return nn.functional.gelu(out) if activation == "gelu" else out


class Halved(EncoderLayer):
    def forward(self, *args: Any, **more: Any) -> Any:
        out, probs = super().forward(*args, **more)
        return out * 0.5, probs


def add_an_adapter(model: Any) -> None:
    model.encoder.layer[0].ffn_down = AddedRank(model.encoder.layer[0].ffn_down)


def hook_a_layer(model: Any) -> None:
    model.encoder.layer[0].register_forward_hook(lambda module, given, out: (out[0] * 0.5, out[1]))


def choose_a_kernel(model: Any) -> None:
    model.encoder.layer[0].attention.attend = lambda *args: attend_reference(*args) * 0.5


def change_eps(model: Any) -> None:
    model.encoder.layer[0].ffn_norm.eps = 0.5


def change_a_class(model: Any) -> None:
    layer = Halved(model.config).eval()
    layer.load_state_dict(model.encoder.layer[0].state_dict())
    model.encoder.layer[0] = layer


@pytest.mark.parametrize("change", [add_an_adapter, hook_a_layer, choose_a_kernel, change_eps, change_a_class])
@pytest.mark.parametrize("in_use", [False, True])
def test_what_the_library_does_not_know_is_computed_in_torch(
    folder: Path, in_use: bool, change: Callable[[Any], None]
) -> None:
    torch.manual_seed(4)
    model = BertModel.from_pretrained(folder)
    pipe = pipeline("feature-extraction", model=model, tokenizer=folder, device="cpu")
    before = vectors(pipe)
    change(model)
    if not in_use:
        pipe = pipeline("feature-extraction", model=model, tokenizer=folder, device="cpu")
    after = vectors(pipe)
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_array_equal(after, in_torch(model, folder))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda given: pickle.loads(pickle.dumps(given))])
@pytest.mark.parametrize("from_path", [False, True])
def test_pipelines_can_be_copied(folder: Path, from_path: bool, copied: Callable[[Any], Any]) -> None:
    given: Any = folder if from_path else BertModel.from_pretrained(folder)
    pipe = pipeline("feature-extraction", model=given, tokenizer=folder, device="cpu", threads=2, precision="fp16")
    before = vectors(pipe)
    other = copied(pipe)
    np.testing.assert_array_equal(vectors(other), before)
    change_a_weight(other.model)
    assert np.abs(vectors(other) - before).max() > 1e-3
    np.testing.assert_array_equal(vectors(pipe), before)


def test_a_model_that_cannot_be_loaded_again(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Path(shutil.copytree(folder, tmp_path / "own"))
    monkeypatch.chdir(tmp_path)
    pipe = pipeline("feature-extraction", model="own", device="cpu")
    before = vectors(pipe)
    own.rename(tmp_path / "away")
    with pytest.raises(CheckpointError):
        _ = pipe.model
    np.testing.assert_array_equal(vectors(pipe), before)
    Path(tmp_path, "away").rename(own)
    monkeypatch.chdir(folder)
    assert isinstance(pipe.model, BertModel)  # by its place, wherever the process is now


def test_the_packed_weights_go_with_their_pipeline(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[NativeEncoder]] = []
    make = NativeEncoder.__init__

    def noted(encoder: NativeEncoder, *args: Any, **options: Any) -> None:
        made.append(weakref.ref(encoder))
        make(encoder, *args, **options)

    monkeypatch.setattr(NativeEncoder, "__init__", noted)
    gc.disable()
    try:
        for given in (folder, BertModel.from_pretrained(folder)):
            pipe = pipeline("feature-extraction", model=given, tokenizer=folder, device="cpu")
            vectors(pipe)
            assert sum(each() is not None for each in made) == 1
            del pipe
            assert all(each() is None for each in made)
    finally:
        gc.enable()


@pytest.mark.parametrize("from_path", [False, True])
def test_dropout_stays_out(folder: Path, from_path: bool) -> None:
    given: Any = folder if from_path else BertModel.from_pretrained(folder)
    pipe = pipeline("feature-extraction", model=given, tokenizer=folder, device="cpu")
    before = vectors(pipe)
    pipe.model.train()
    np.testing.assert_allclose(vectors(pipe), before, atol=1e-4)
    assert pipe.model.training
    train_a_step(pipe.model)
    assert np.abs(vectors(pipe) - before).max() > 1e-3


def test_a_model_that_is_moved_to_another_type_is_followed(folder: Path) -> None:
    model = BertModel.from_pretrained(folder)
    pipe = pipeline(model=model, tokenizer=folder, device="cpu")
    before = vectors(pipe)
    model.to(torch.bfloat16)
    after = vectors(pipe)
    assert pipe.engine.backend.weight_type is None
    assert 1e-4 < np.abs(after - before).max() < 0.2
    model.to(torch.float32)
    again = vectors(pipe)
    assert pipe.engine.backend.weight_type == "float24"
    np.testing.assert_allclose(again, in_torch(model, folder), atol=1e-4)


def test_two_heads_of_one_encoder_are_followed(tmp_path: Path) -> None:
    """A masked-LM head reads the table of words; a change of it is seen in both places."""
    path = save_tiny(tmp_path, BertForMaskedLM)
    pipe = pipeline("fill-mask", model=path, device="cpu")
    before = pipe("the [MASK] is good")[0]["score"]
    with torch.no_grad():
        pipe.model.bert.embeddings.word_embeddings.weight *= 0.5
    same = pipeline(model=pipe.model, tokenizer=path, precision="fp32", task="fill-mask", device="cpu")
    found = pipe("the [MASK] is good")[0]
    assert found["score"] == pytest.approx(same("the [MASK] is good")[0]["score"], abs=1e-4)
    assert found["score"] != pytest.approx(before, abs=1e-3)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_library_uses_the_threads_that_it_may(folder: Path, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    call = NativeEncoder.__call__

    def watched(self: NativeEncoder, *arrays: Any, threads: int, **more: Any) -> Any:
        seen.append(threads)
        return call(self, *arrays, threads=threads, **more)

    monkeypatch.setattr(NativeEncoder, "__call__", watched)
    vectors(pipeline("feature-extraction", model=folder, device="cpu", threads=threads))
    assert set(seen) == {threads}


def stand_in(bf16: bool) -> NativeLibrary:
    functions: Any = None
    return NativeLibrary(Path("none.so"), functions, 0, "avx2", 8, False, bf16)


def test_bf16_needs_a_processor_with_bf16(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (native_backend, torch_backend):
        monkeypatch.setattr(module, "native_library", lambda: stand_in(bf16=False))
    said = r"this processor has no bf16 products \(it has 256-bit vectors, variant avx2\); use precision 'auto'"
    with pytest.raises(ConfigError, match=said):
        pipeline("feature-extraction", model=folder, device="cpu", precision="bf16")
    with pytest.raises(ConfigError, match=said):
        InferenceEngine.of(BertModel.from_pretrained(folder), precision="bf16")
    monkeypatch.setattr(torch_backend, "native_library", lambda: stand_in(bf16=True))
    assert InferenceEngine.of(BertModel.from_pretrained(folder), precision="bf16").backend.weight_type == "bfloat16"  # type: ignore[attr-defined]


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_16_bits_need_the_library(folder: Path, precision: Precision, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (native_backend, torch_backend):
        monkeypatch.setattr(module, "native_library", lambda: None)
        monkeypatch.setattr(module, "why_not", lambda: "no C compiler was found")
    with pytest.raises(ConfigError, match=f"precision '{precision}' needs the compiled encoder: no C compiler was fou"):
        pipeline("feature-extraction", model=folder, device="cpu", precision=precision)
    pipe = pipeline("feature-extraction", model=folder, device="cpu")
    assert pipe.engine.backend.weight_type is None
    np.testing.assert_allclose(vectors(pipe), in_torch(BertModel.from_pretrained(folder), folder), atol=1e-5)


def test_models_that_the_library_does_not_compute(folder: Path) -> None:
    said = "only unchanged encoders in float32 with a usual activation run there. Use 'auto'"
    with pytest.raises(ConfigError, match=said):
        pipeline("feature-extraction", model=folder, device="cpu", precision="fp16", dtype=torch.bfloat16)
    pipe = pipeline("feature-extraction", model=folder, device="cpu", dtype=torch.bfloat16)
    assert pipe.engine.backend.weight_type is None
    np.testing.assert_allclose(vectors(pipe), in_torch(BertModel.from_pretrained(folder), folder), atol=0.1)


def test_int8_needs_a_model_in_int8(folder: Path) -> None:
    said = "the model is not in int8; make one that is with: bertkit quantize MODEL --out FOLDER"
    with pytest.raises(ConfigError, match=said):
        pipeline("feature-extraction", model=folder, device="cpu", precision="int8")
    with pytest.raises(ConfigError, match=said):
        TorchBackend.of(BertModel.from_pretrained(folder), precision="int8")


def hide_a_huge_weight(model: BertModel) -> None:
    """An inner unit that is never on, with weights beside which float16 loses all others."""
    layer = model.encoder.layer[0]
    with torch.no_grad():
        layer.ffn_up.bias[0] = -1000.0
        layer.ffn_down.weight[:, 0] = 1e15


def nearly_cancel(model: BertModel) -> None:
    """Two inner units of large weights, of which 8 bits leave too little to tell what remains of both together."""
    layer = model.encoder.layer[1]
    with torch.no_grad():
        layer.ffn_up.weight[:2] = 0.0
        layer.ffn_up.bias[:2] = 2.0
        layer.ffn_down.weight[:, 0] = 400.0 + 100.0 * torch.rand(32, generator=torch.Generator().manual_seed(0))
        layer.ffn_down.weight[:, 1] -= layer.ffn_down.weight[:, 0]


@pytest.mark.parametrize(("precision", "spoil"), [("fp16", hide_a_huge_weight), ("bf16", nearly_cancel)])
def test_16_bits_that_change_the_answers_are_refused(
    folder: Path, precision: Precision, spoil: Callable[[BertModel], None], library: NativeLibrary, tmp_path: Path
) -> None:
    if precision == "bf16" and not library.bf16:
        pytest.skip("this processor has no bf16 products")
    model = BertModel.from_pretrained(folder)
    accepted = pipeline(model=model, tokenizer=folder, precision=precision, device="cpu")
    assert vectors(accepted).shape == (4, 32)  # the control: as it was, it passes
    spoil(model)
    (tmp_path / "spoiled").mkdir()
    model.save_pretrained(tmp_path / "spoiled")
    said = f"precision '{precision}' changes this model's answers too much: cosine .*; use 'auto'"
    for given in (model, tmp_path / "spoiled"):
        pipe = pipeline("feature-extraction", model=given, tokenizer=folder, precision=precision, device="cpu")
        with pytest.raises(ConfigError, match=said):
            vectors(pipe)
        with pytest.raises(ConfigError, match=said):
            vectors(pipe)  # and not only once
        usual = pipeline("feature-extraction", model=given, tokenizer=folder, device="cpu")
        np.testing.assert_allclose(vectors(usual), in_torch(model, folder), atol=0.05)


def test_an_id_that_the_model_does_not_know_is_reported(folder: Path) -> None:
    from bertkit.engine.backend import Wanted
    from bertkit.engine.inference_engine import rows_of
    from bertkit.ragged import Ragged, boundaries_of

    engine = InferenceEngine.load(folder, "BertModel", device="cpu")
    ids = np.array([2, 7, 30_000, 3], np.int32)
    rows = Ragged(ids, boundaries_of([4]), np.zeros(4, np.int8), np.array([4]))
    with pytest.raises(InputError, match="input_ids has 30000, outside 0"):
        engine.run(rows, Wanted(("last_hidden_state",), ("mean",)), rows_of)


def test_a_damaged_weight_is_reported(tmp_path: Path) -> None:
    from bertkit.errors import CheckpointError

    model = BertForSequenceClassification.from_pretrained(save_tiny(tmp_path, BertForSequenceClassification))
    with torch.no_grad():
        model.bert.encoder.layer[0].ffn_up.weight[5, 5] = float("nan")
    pipe = pipeline("text-classification", model=model, tokenizer=tmp_path, device="cpu")
    assert pipe.engine.backend.weight_type == "float24"
    with pytest.raises(CheckpointError, match="logits are not finite"):
        pipe("a film")
