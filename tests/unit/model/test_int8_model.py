"""Models in 8 bits as objects and as files: loading, saving, and files that are damaged. What they answer is judged in
``tests/unit/quantization``; this model is tiny and random."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertkit import BertForSequenceClassification, BertModel, pipeline
from bertkit.checkpoints.int8_folder import PLAIN_LANES
from bertkit.checkpoints.weight_files import INT8_FACTS
from bertkit.engine import torch_backend
from bertkit.engine.closeness import Closeness
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.engine.native import native_backend
from bertkit.engine.native.library import native_library
from bertkit.errors import CheckpointError, ConfigError, InputError
from bertkit.quantization import quantize as module
from forked_interpreter import run_forked
from pipeline_helpers import save_tiny

FILE = "model.int8.safetensors"
TEXTS = [f"{which} {what} is {how}" for which in ("a", "the", "no") for what in ("film", "end", "scene")
         for how in ("bad", "dull", "good", "very good", "very bad", "a film", "the end", "it", "no good", "and", "in",
                     "b")]  # fmt: skip


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("m") / "tiny", BertForSequenceClassification, num_labels=3)


@pytest.fixture(scope="module")
def made(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "NEAR_ENOUGH", Closeness(-1.0, -1.0, 0.0))
        return module.quantize(original, tmp_path_factory.mktemp("m") / "int8", TEXTS, any_speed=True).folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "int8"))


def vectors(model: object, folder: Path, **options: object) -> np.ndarray:
    found = pipeline("feature-extraction", model=model, tokenizer=folder, device="cpu", **options)(TEXTS[:9])
    return np.stack([each[0][0] for each in found])


def test_the_encoder_of_a_classifier(folder: Path, tmp_path: Path) -> None:
    whole, encoder = BertForSequenceClassification.from_pretrained(folder), BertModel.from_pretrained(folder)
    expected = vectors(encoder, folder)
    np.testing.assert_allclose(vectors(whole, folder, precision="int8"), expected, atol=1e-5)
    for name, model in (("encoder", encoder), ("own", whole.bert)):
        model.save_pretrained(tmp_path / name)
        np.testing.assert_allclose(vectors(BertModel.from_pretrained(tmp_path / name), folder), expected, atol=1e-5)
        with pytest.raises(InputError, match="whose head it lacks"):
            BertForSequenceClassification.from_pretrained(tmp_path / name)


def test_what_is_scored_is_the_model_as_it_is(folder: Path) -> None:
    engine = InferenceEngine.for_scoring(BertForSequenceClassification.from_pretrained(folder))
    assert engine.backend.precision == "int8"  # type: ignore[attr-defined]


def test_a_model_object_that_changes_is_followed(folder: Path) -> None:
    model = BertModel.from_pretrained(folder)
    pipe = pipeline("feature-extraction", model=model, tokenizer=folder, device="cpu")
    before = np.stack([each[0][0] for each in pipe(TEXTS[:9])])
    model.encoder.layer[0].ffn_up.scale.mul_(3.0)
    after = np.stack([each[0][0] for each in pipe(TEXTS[:9])])
    assert np.abs(after - before).max() > 1e-3
    model.save_pretrained(folder)
    np.testing.assert_allclose(after, vectors(BertModel.from_pretrained(folder), folder), atol=1e-5)


def test_a_float_model_saved_over_one_in_8_bits_is_what_is_read(original: Path, folder: Path) -> None:
    model = BertForSequenceClassification.from_pretrained(original)
    model.save_pretrained(folder)
    again = BertForSequenceClassification.from_pretrained(folder)
    assert again.quantization is None
    assert torch.equal(again.bert.encoder.layer[0].ffn_up.weight, model.bert.encoder.layer[0].ffn_up.weight)


@pytest.mark.parametrize("options", [{"pooling": "mean"}, {"num_labels": 2}, {"new_head": True}])
def test_it_gets_no_other_head(folder: Path, options: dict[str, object]) -> None:
    with pytest.raises(InputError, match="gets no other head, labels or pooling"):
        BertForSequenceClassification.from_pretrained(folder, **options)
    assert BertForSequenceClassification.from_pretrained(folder, num_labels=3, pooling="cls").config.num_labels == 3


LAYER = "bert.encoder.layer.1.ffn_up"
Harm = Callable[[dict[str, Tensor]], object]


def put(part: str, value: float, place: int = 0) -> Harm:
    return lambda state: state[f"{LAYER}.{part}"].view(-1).__setitem__(place, value)


def turn(name: str, dtype: torch.dtype) -> Harm:
    return lambda state: state.__setitem__(name, state[name].to(dtype))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (put("apart", -1), "ffn_up keeps inputs apart that are not numbers from 0 to"),
        (put("apart", 1_000_000, -1), "ffn_up keeps inputs apart that are not numbers from 0 to"),
        (put("apart", 31), "ascending"),
        (put("scale", 0.0), "ffn_up has a scale that is not above 0"),
        (put("scale", float("nan")), "not finite"),
        (put("smooth", -1.0), "factors of inputs below 0"),
        (
            lambda state: state[f"{LAYER}.smooth"].__setitem__(state[f"{LAYER}.apart"], 1.0),
            "ffn_up has factors of inputs apart that are not 0",
        ),
        (put("weight", -128), "weights below -127"),
        (turn(f"{LAYER}.scale", torch.float64), "does not fit config.json at 'bert.encoder.layer.1.ffn_up.scale'"),
        (turn(f"{LAYER}.smooth", torch.float16), "does not fit config.json"),
        (turn(f"{LAYER}.apart", torch.int32), "does not fit config.json"),
        (turn("bert.embeddings.word_embeddings.scale", torch.float16), "does not fit config.json"),
        (turn("bert.embeddings.LayerNorm.bias", torch.int8), "config.json at 'bert.embeddings.LayerNorm.bias'"),
        (lambda state: state["bert.embeddings.word_embeddings.column_scale"].zero_(), "scale that is not above 0"),
    ],
)
def test_damaged_numbers(folder: Path, harm: Harm, message: str) -> None:
    state = load_file(folder / FILE)
    harm(state)
    save_file(state, folder / FILE)
    facts = json.loads((folder / INT8_FACTS).read_text())
    (folder / INT8_FACTS).write_text(json.dumps({**facts, "sha256": None}))  # what is looked at beside the checksum
    with pytest.raises(CheckpointError, match=message):
        BertForSequenceClassification.from_pretrained(folder)


@pytest.mark.campaign
@pytest.mark.slow
def test_loading_imports_no_compiler(folder: Path) -> None:
    """Drawing random weights on the meta device imports one, which takes a second or two."""
    code = (
        "import sys, torch\n"
        "from bertkit import BertForSequenceClassification\n"
        f"BertForSequenceClassification.from_pretrained({str(folder)!r})\n"
        "assert not {'torch._dynamo', 'sympy'} & set(sys.modules)\n"
        "torch.nn.init.normal_(torch.empty(2, device='meta'))\n"
        "assert 'torch._dynamo' in sys.modules, 'the control'\n"
    )
    assert (done := run_forked(code)).returncode == 0, done.stderr


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_it_has_one_precision(folder: Path, precision: str) -> None:
    with pytest.raises(ConfigError, match="the model is in int8"):
        pipeline("text-classification", folder, device="cpu", precision=precision)


def test_it_says_when_it_will_be_slow(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that was quantized for this processor is slow only where there is no vectorized encoder."""
    pipeline("text-classification", folder, device="cpu")
    library = native_library()
    assert (library is None or library.lanes == PLAIN_LANES) == ("slow" in capsys.readouterr().err)
    for each in (native_backend, torch_backend):
        monkeypatch.setattr(each, "native_library", lambda: None)
    monkeypatch.setattr(native_backend, "why_not", lambda: "no C compiler was found")
    assert len(pipeline("text-classification", folder, device="cpu")(TEXTS[:5])) == 5
    assert capsys.readouterr().err.count("a model in 8 bits is slow without the compiled encoder") == 1
