"""``quantize`` on a real model: the gate, the folder, and everything that reads it."""

from __future__ import annotations

import json
import lzma
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from bertkit import BertForSequenceClassification, BertModel, pipeline
from bertkit.checkpoints.inspect_int8 import inspect_int8
from bertkit.checkpoints.int8_figures import Speed
from bertkit.engine.closeness import NEAR_ENOUGH, Closeness, closeness
from bertkit.errors import BertkitError, CheckpointError, ConfigError, DataError, InputError
from bertkit.inference.evaluate import evaluate_run
from bertkit.model.kernels.byte_linear import ByteEmbedding, ByteLinear
from bertkit.quantization import quantize as module
from bertkit.quantization.byte_matrices import Inputs
from bertkit.quantization.calibrate import MIN_TEXTS, observe
from bertkit.quantization.quantize import Quantized, quantize
from bertkit.system.processor import find_processor
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_settings import FinetuneConfig

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def texts(shared: Path) -> list[str]:
    with lzma.open(shared / "data" / "glue" / "SST-2" / "train.tsv.xz", "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    return sorted({line.split("\t")[0] for line in lines[1:4000] if len(line) > 60})[:400]


@pytest.fixture(scope="module")
def lower(minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lower two layers of the model."""
    whole = BertModel.from_pretrained(minilm)
    model = BertModel(whole.config.replace(num_hidden_layers=2))
    names = model.state_dict().keys()
    model.load_state_dict({name: x for name, x in whole.state_dict().items() if name in names})
    folder = tmp_path_factory.mktemp("lower") / "model"
    shutil.copytree(minilm, folder, ignore=shutil.ignore_patterns("model.safetensors"))
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def done(lower: Path, texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Quantized:
    return quantize(lower, tmp_path_factory.mktemp("int8") / "out", texts[:120], any_speed=True)


@pytest.fixture(scope="module")
def run(minilm: Path, shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    settings = FinetuneConfig(freeze_encoder=True, epochs=10, max_train_rows=400, baseline=False)
    finetune("sst2", shared / "data" / "glue" / "SST-2", minilm, folder, settings)
    return folder


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibration fails: what can be refused before it must have been refused."""

    def observe(*given: object) -> None:
        raise AssertionError("found out too late")

    monkeypatch.setattr(module, "observe", observe)


def vectors(model: Any, texts: list[str], **options: Any) -> np.ndarray[Any, Any]:
    return np.stack(pipeline("feature-extraction", model, pooling="mean", **options)(texts))


def keeps_vectors(done: Quantized, original: Path, texts: list[str]) -> None:
    found = closeness(vectors(done.folder, texts), vectors(original, texts))
    assert found.cosine_mean >= NEAR_ENOUGH.cosine_mean
    assert found.cosine_p1 >= NEAR_ENOUGH.cosine_p1
    assert done.closeness.within(NEAR_ENOUGH)


def test_other_texts_keep_their_vectors(done: Quantized, lower: Path, texts: list[str]) -> None:
    keeps_vectors(done, lower, texts[200:])


@pytest.mark.campaign
def test_a_whole_model_keeps_them(minilm: Path, texts: list[str], tmp_path: Path) -> None:
    keeps_vectors(quantize(minilm, tmp_path / "out", texts[:120], any_speed=True), minilm, texts[200:])


def test_it_is_a_quarter_of_the_size(done: Quantized, lower: Path) -> None:
    original = (lower / "model.safetensors").stat().st_size
    assert done.original_bytes == original
    assert done.num_bytes < 0.29 * original


@pytest.mark.parametrize("size", [17_000_000, 19_000_000])
def test_a_model_that_grows_is_said_to(size: int, tmp_path: Path) -> None:
    """One stored in 16 bits whose word table, which a head reads as well, stays in float32."""
    speed = Speed(0.002, 0.001, 0.2, 0.1)
    made = Quantized(
        tmp_path, "BertForMaskedLM", 8, 100, 0.0, (), 12, Closeness(1.0, 1.0, 1.0), None, speed, size, 18_000_000
    )
    assert ("LARGER: the original is stored in 16 bits" in made.render()) == (size > 18_000_000)


def test_torch_computes_the_same_without_the_library(done: Quantized, texts: list[str]) -> None:
    model = BertModel.from_pretrained(done.folder)
    tokens = pipeline("feature-extraction", done.folder, pooling="mean").tokenizer(texts[0], return_tensors="pt")
    with torch.inference_mode():
        plain = model(**tokens).last_hidden_state[0].mean(dim=0).numpy()
    assert closeness(plain[None], vectors(done.folder, texts[:1])).cosine_mean > 0.9995


def test_the_folder_goes_both_ways(done: Quantized, tmp_path: Path, texts: list[str]) -> None:
    model = BertModel.from_pretrained(done.folder)
    assert isinstance(model.encoder.layer[0].ffn_up, ByteLinear)
    assert isinstance(model.embeddings.word_embeddings, ByteEmbedding)
    model.save_pretrained(tmp_path / "again")
    for name in ("vocab.txt", "tokenizer_config.json", "tokenizer.json"):
        shutil.copy(done.folder / name, tmp_path / "again")
    assert np.array_equal(vectors(tmp_path / "again", texts[:5]), vectors(done.folder, texts[:5]))


@pytest.mark.campaign
def test_a_run_keeps_its_task_and_its_score(run: Path, shared: Path, tmp_path: Path, texts: list[str]) -> None:
    data = shared / "data" / "glue" / "SST-2"
    result = quantize(run, tmp_path / "int8", texts[:120], dev=data / "dev.tsv", any_speed=True)
    assert result.dev is not None
    assert result.dev.rows == 872
    original, quantized = (evaluate_run("sst2", data, path).scores["accuracy"] for path in (run, result.folder))
    assert (result.dev.original, result.dev.quantized) == (original, quantized)
    assert original > 0.7  # it has learned something
    assert abs(original - quantized) < 0.02
    assert f"accuracy {quantized:.4f}" in (tmp_path / "int8" / "README.md").read_text(encoding="utf-8")
    first, second = (pipeline("text-classification", path)(texts[200:240]) for path in (run, result.folder))
    assert all(one["label"] == two["label"] or one["score"] < 0.53 for one, two in zip(first, second, strict=True))


def test_the_card_says_what_it_was_judged_on(done: Quantized) -> None:
    card = (done.folder / "README.md").read_text(encoding="utf-8")
    assert "calibrated and judged on: 120 texts, 0.0% of their tokens unknown" in card
    assert f"times for many, on {find_processor()}" in card
    assert inspect_int8(done.folder).quantization.measured.speed == done.speed


def test_inspect_says_what_is_in_bytes(done: Quantized) -> None:
    found = inspect_int8(done.folder)
    assert len(found.matrices) == 8 - len(done.kept)
    assert len(found.tables) == 3
    assert "encoder.layer.0.attention.qkv" in found.render()


@pytest.mark.campaign
def test_an_export_answers_as_the_model(done: Quantized, tmp_path: Path, texts: list[str]) -> None:
    from bertkit.export.onnx_export import export_onnx, load_for_export

    given = load_for_export(done.folder)
    export_onnx(given.model, given.tokenizer, tmp_path / "onnx")
    found = closeness(vectors(tmp_path / "onnx", texts[:50]), vectors(done.folder, texts[:50]))
    assert found.cosine_mean > 0.999
    assert (tmp_path / "onnx" / "model.onnx_data").stat().st_size < 1.1 * done.num_bytes


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda folder: BertModel.from_pretrained(folder).train(), InputError, "cannot be trained"),
        (lambda folder: BertModel.from_pretrained(folder, new_head=True), InputError, "gets no other head"),
        (lambda folder: BertModel.from_pretrained(folder, dtype=torch.bfloat16), InputError, "8 bits"),
        (lambda folder: BertForSequenceClassification.from_pretrained(folder), InputError, "quantize the result"),
        (lambda folder: pipeline("feature-extraction", folder, precision="bf16"), ConfigError, "in int8"),
    ],
)
def test_what_cannot_be_done_with_it(
    done: Quantized, call: Callable[[Path], object], error: type[BertkitError], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(done.folder)


def change_facts(folder: Path, **changes: object) -> None:
    facts = json.loads((folder / "quantization.json").read_text())
    (folder / "quantization.json").write_text(json.dumps({**facts, **changes}))


def damage_scale(folder: Path) -> None:
    state = load_file(folder / "model.int8.safetensors")
    state["encoder.layer.1.ffn_up.scale"][3] = float("nan")
    save_file(state, folder / "model.int8.safetensors")


def drop_tensor(folder: Path) -> None:
    state = load_file(folder / "model.int8.safetensors")
    del state["encoder.layer.1.ffn_up.smooth"]
    save_file(state, folder / "model.int8.safetensors")


def flip_bit(folder: Path) -> None:
    content = bytearray((folder / "model.int8.safetensors").read_bytes())
    content[-4] ^= 1
    (folder / "model.int8.safetensors").write_bytes(content)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (damage_scale, "ffn_up.scale has values that are not finite"),
        (drop_tensor, r"does not fit config.json at 'encoder.layer.1.ffn_up.smooth'"),
        (lambda folder: change_facts(folder, version=99), "of version 99"),
        (lambda folder: (folder / "quantization.json").unlink(), "has no quantization.json"),
        (lambda folder: (folder / "model.int8.safetensors").write_bytes(b"x" * 100), "is not a whole safetensors file"),
    ],
)
def test_damaged_folders(done: Quantized, tmp_path: Path, harm: Callable[[Path], None], message: str) -> None:
    shutil.copytree(done.folder, tmp_path / "copy")
    harm(tmp_path / "copy")
    with pytest.raises(CheckpointError, match=message):
        BertModel.from_pretrained(tmp_path / "copy")


def test_weights_that_cannot_be_opened(done: Quantized, tmp_path: Path) -> None:
    weights = Path(shutil.copytree(done.folder, tmp_path / "copy")) / "model.int8.safetensors"
    weights.unlink()
    weights.mkdir()
    with pytest.raises(CheckpointError, match="is a folder, expected a file"):
        BertModel.from_pretrained(tmp_path / "copy")


def test_weights_that_have_changed(done: Quantized, tmp_path: Path) -> None:
    shutil.copytree(done.folder, tmp_path / "copy")
    flip_bit(tmp_path / "copy")
    file = tmp_path / "copy" / "model.int8.safetensors"
    with pytest.raises(CheckpointError, match=rf"is not as bertkit wrote it.*\n  bertkit inspect --accept {file}$"):
        BertModel.from_pretrained(tmp_path / "copy")
    save_file(load_file(file), file)  # the control: without the checksum nothing sees it
    BertModel.from_pretrained(tmp_path / "copy")


def test_too_few_texts_and_another_language(lower: Path, tmp_path: Path, texts: list[str]) -> None:
    with pytest.raises(DataError, match=f"has 99 different texts, and {MIN_TEXTS} are needed"):
        quantize(lower, tmp_path / "out", [*texts[:99], *texts[:50]])
    foreign = [f"{chr(0x10900 + n % 20)}{chr(0x10A00 + n // 20)} ∀{n}" for n in range(150)]
    with pytest.raises(DataError, match=r"are \[UNK\]"):
        quantize(lower, tmp_path / "out", foreign)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("no_work")
def test_a_folder_that_cannot_be_written_is_refused_first(
    lower: Path, tmp_path: Path, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"'\.' cannot be replaced; give the name of a new folder"):
        quantize(lower, ".", texts)
    Path("file").touch()
    with pytest.raises(ConfigError, match="file/below is a file, or lies in one"):
        quantize(lower, "file/below/out", texts)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.campaign
@pytest.mark.usefixtures("no_work")
def test_dev_rows_that_cannot_be_scored_are_refused_first(
    lower: Path, run: Path, shared: Path, tmp_path: Path, texts: list[str]
) -> None:
    unlabelled = tmp_path / "dev.tsv"
    unlabelled.write_text("sentence\na film\na game\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not a run folder of 'bertkit finetune', so --dev cannot be scored"):
        quantize(lower, tmp_path / "out", texts, dev=unlabelled)
    with pytest.raises(DataError, match="label"):
        quantize(run, tmp_path / "out", texts, dev=unlabelled)
    with pytest.raises(DataError, match=r"missing\.tsv does not exist"):
        quantize(run, tmp_path / "out", texts, dev=tmp_path / "missing.tsv")


@pytest.mark.campaign
def test_what_does_not_pass_is_not_written(
    lower: Path, tmp_path: Path, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NEAR_ENOUGH", Closeness(0.999999, 0.999999, 1.0))
    judged: list[int] = []
    view = module._view

    def noted(model: Any, rounded: Any, **given: Any) -> Any:
        judged.append(len(rounded))
        return view(model, rounded, **given)

    monkeypatch.setattr(module, "_view", noted)
    with pytest.raises(CheckpointError, match=r"same nearest neighbour 100% or more is needed\. Nothing was") as caught:
        quantize(lower, tmp_path / "out", texts[:100])
    # The last that was judged is what the message speaks of.
    assert f"even with {8 - judged[-1]} of 8 matrices in float32" in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.campaign
def test_what_was_seen_is_let_go_matrix_by_matrix(
    lower: Path, tmp_path: Path, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: WeakSet[Inputs] = WeakSet()
    left: list[int] = []
    rounding = module.byte_linear

    def noted(linear: Any, inputs: Inputs, *given: Any) -> Any:
        left.append(len(alive))
        return rounding(linear, inputs, *given)

    def observed(*given: Any) -> dict[str, Inputs]:
        found = observe(*given)
        alive.update(found.values())
        return found

    monkeypatch.setattr(module, "byte_linear", noted)
    monkeypatch.setattr(module, "observe", observed)
    quantize(lower, tmp_path / "out", texts[:100], any_speed=True)
    assert left == [8, 7, 6, 5, 4, 3, 2, 1]
    assert not alive


@pytest.mark.campaign
def test_what_is_not_faster_is_not_written(
    lower: Path, tmp_path: Path, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "compare_speed", lambda *given: Speed(1.0, 2.0, 1.0, 2.0))
    with pytest.raises(CheckpointError, match=r"not faster on this machine: 0\.50 times"):
        quantize(lower, tmp_path / "out", texts[:100])
    assert not list(tmp_path.iterdir())


@pytest.mark.campaign
def test_matrices_that_need_it_stay_in_float32(
    lower: Path, tmp_path: Path, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without = quantize(lower, tmp_path / "without", texts[:120], any_speed=True).closeness
    monkeypatch.setattr(module, "NEAR_ENOUGH", Closeness(1.0 - 0.9 * (1.0 - without.cosine_mean), 0.9, 0.0))
    done = quantize(lower, tmp_path / "out", texts[:120], any_speed=True)
    assert 0 < len(done.kept) < done.num_matrices / 2
    model = BertModel.from_pretrained(done.folder)
    for name in done.kept:
        assert not isinstance(model.get_submodule(name), ByteLinear)
    assert set(inspect_int8(done.folder).quantization.kept) == set(done.kept)
