"""Vectors of texts: prompts, lengths, precisions, and the same by every way that leads to them."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.torch import load_file

import bertkit
from bertkit import CheckpointError, InputError, SentenceEncoder, pipeline
from bertkit.batch import pack
from bertkit.checkpoints.sentence_folder import SentenceParts
from bertkit.cli import main
from bertkit.config.sentence_config import Dense, Normalize, SentenceConfig
from bertkit.inference.sentence_steps import sentence_vectors
from bertkit.metrics.vector_precision import quantized
from bertkit.model.convert import convert
from bertkit.model.sentence_model import SentenceModel
from pipeline_helpers import save_tiny
from sentence_folders import WIDTH, dense, pooling, sentence_folder

TEXTS = ["a good film", "it was dull", "the end of the great scene was not very good", "a"]
SETTINGS = {
    "prompts": {"query": "is it: ", "passage": "the scene is ", "bad": "not "},
    "default_prompt_name": "bad",
    "similarity_fn_name": "dot",
}
PROMPTS = SETTINGS["prompts"]


@pytest.mark.parametrize(("rows", "depth", "width"), [(1, 3, 5), (37, 300, 701), (16, 20_000, 2)])
def test_a_linear_layer_of_any_size_is_the_product_in_float64(rows: int, depth: int, width: int) -> None:
    """It is computed in pieces, of which the last may be smaller, or a single column too large."""
    random = np.random.default_rng(0)
    x, weight = (random.normal(size=shape).astype(np.float32) for shape in ((rows, depth), (width, depth)))
    config = SentenceConfig(steps=(Dense(in_features=depth, out_features=width, bias=False, activation="Identity"),))
    found = sentence_vectors(x, SentenceParts(config, ({"linear.weight": weight},)))
    assert_allclose(found, x.astype(np.float64) @ weight.T, atol=1e-5 * depth**0.5, rtol=1e-4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    modules = [pooling("mean", "max"), dense(2 * WIDTH, 16), ("Normalize", {})]
    return sentence_folder(tmp_path_factory.mktemp("sentences") / "m", modules, SETTINGS, {"max_seq_length": 16})


@pytest.fixture(scope="module")
def encoder(folder: Path) -> SentenceEncoder:
    return SentenceEncoder(folder, precision="fp32", device="cpu")


@pytest.fixture(scope="module")
def expected(folder: Path, encoder: SentenceEncoder) -> np.ndarray:
    """Of the texts without a prompt, by the module that is trained."""
    ids = [encoder.tokenizer(text).input_ids for text in TEXTS]
    with torch.no_grad():
        return SentenceModel.from_pretrained(folder)(pack(ids)).numpy()


def near(found: Any, expected: Any, atol: float = 1e-5) -> bool:
    return np.shape(found) == np.shape(expected) and np.allclose(found, expected, rtol=0, atol=atol)


def test_vectors_in_order_whatever_the_shape_of_the_call(encoder: SentenceEncoder, expected: np.ndarray) -> None:
    assert near(encoder.encode(TEXTS, prompt=""), expected)
    assert near(encoder.encode(iter(TEXTS), prompt=""), expected)
    assert near(encoder.encode(TEXTS[0], prompt=""), expected[0])
    assert encoder.encode([]).shape == (0, encoder.width) == (0, 16)
    many = encoder.encode([TEXTS[number % 4] for number in range(200)], prompt="")
    assert near(many, expected[np.arange(200) % 4])
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: encoder.encode(TEXTS, prompt=""), range(8)):
            assert near(found, expected)


def test_prompts_by_text_and_name(encoder: SentenceEncoder, expected: np.ndarray) -> None:
    def written(prompt: str) -> Any:
        return encoder.encode([prompt + text for text in TEXTS], prompt="")

    assert near(encoder.encode(TEXTS), written("not "))
    assert near(encoder.encode(TEXTS, prompt="a "), written("a "))
    assert near(encoder.encode(TEXTS, prompt_name="passage"), written(PROMPTS["passage"]))
    assert near(encoder.encode_query(TEXTS), written(PROMPTS["query"]))
    assert near(encoder.encode_document(TEXTS), written(PROMPTS["passage"]))
    assert near(encoder.encode_document(TEXTS, prompt="a "), written("a "))
    assert near(encoder.encode_query(TEXTS, prompt_name="bad"), written("not "))
    assert near(encoder.encode(TEXTS, prompt_name="document"), expected)  # there is none, so it is empty
    assert not near(written("not "), expected, 1e-3)  # control
    with pytest.raises(InputError, match=r"no prompt 'querry'.*did you mean 'query'"):
        encoder.encode(TEXTS, prompt_name="querry")
    with pytest.raises(InputError, match="not both"):
        encoder.encode_query(TEXTS, prompt="a", prompt_name="query")


def test_a_model_s_own_document_prompt_comes_first(tmp_path: Path) -> None:
    settings = {"prompts": {"passage": "scene ", "document": "a ", "corpus": "it "}}
    encoder = SentenceEncoder(sentence_folder(tmp_path / "m", [pooling("mean")], settings))
    assert near(encoder.encode_document(TEXTS), encoder.encode(TEXTS, prompt="a "))
    assert near(encoder.encode_query(TEXTS), encoder.encode(TEXTS, prompt=""))


@pytest.mark.parametrize("modes", [("mean",), ("cls", "weightedmean")])
def test_a_prompt_that_is_read_and_not_pooled(tmp_path: Path, modes: tuple[str, ...]) -> None:
    folder = sentence_folder(tmp_path / "m", [pooling(*modes, include_prompt=False)], {"prompts": {"query": "it is "}})
    encoder, model = SentenceEncoder(folder, precision="fp32"), SentenceModel.from_pretrained(folder)
    ids = [encoder.tokenizer("it is " + text).input_ids for text in TEXTS]
    with torch.no_grad():
        without, with_prompt = model(pack(ids), skipped=3).numpy(), model(pack(ids)).numpy()  # [CLS] it is
    assert near(encoder.encode_query(TEXTS), without)
    assert not near(with_prompt, without, 1e-3)  # control
    with pytest.raises(InputError, match="the prompt 'it is ' has 3 tokens, and at most 3 are read"):
        encoder.encode_query(TEXTS, max_length=3, truncation=True)


def test_lengths_are_those_of_the_folder(encoder: SentenceEncoder) -> None:
    long = "film " * 30
    with pytest.raises(InputError, match=r"text 0 .* has 32 tokens, special tokens included; the limit is 16"):
        encoder.encode([long], prompt="")
    cut = encoder.encode([long], prompt="", truncation=True)
    assert near(cut, encoder.encode(["film " * 14], prompt=""))
    assert not near(cut, encoder.encode([long], prompt="", max_length=64), 1e-4)


def test_a_folder_overrules_its_tokenizer(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "m", [pooling("mean")], None, {"max_seq_length": 40})
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "model_max_length": 20}))
    texts = ["film " * 35]
    assert SentenceEncoder(folder).encode(texts).shape == (1, WIDTH)
    with pytest.raises(InputError, match="the limit is 20"):  # control
        pipeline("feature-extraction", folder)(texts)


def test_lower_case_keeps_special_tokens(tmp_path: Path) -> None:
    said = [{"do_lower_case": True}, {"do_lower_case": False}]
    folders = [sentence_folder(tmp_path / str(n), [pooling("mean")], None, reading) for n, reading in enumerate(said)]
    for folder in folders:
        (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False, "model_max_length": 64}))
    lowers, keeps = (SentenceEncoder(folder) for folder in folders)
    assert near(lowers.encode(["A Good [MASK] FILM"]), keeps.encode(["a good [MASK] film"]))
    assert not near(keeps.encode(["A Good [MASK] FILM"]), keeps.encode(["a good [MASK] film"]), 1e-3)  # control


def test_normalization_and_dimensions(encoder: SentenceEncoder, expected: np.ndarray) -> None:
    bare = encoder.encode(TEXTS, prompt="", normalize=False)
    assert near(bare / np.linalg.norm(bare, axis=1, keepdims=True), expected)
    assert not near(bare, expected, 1e-2)
    assert near(encoder.encode(TEXTS, prompt="", dimensions=5), expected[:, :5])
    short = encoder.encode(TEXTS, prompt="", dimensions=5, normalize=True)
    assert near(short, expected[:, :5] / np.linalg.norm(expected[:, :5], axis=1, keepdims=True))
    assert encoder.encode([], dimensions=5).shape == (0, 5)
    with pytest.raises(InputError, match="must be from 1 to 16"):
        encoder.encode(TEXTS, dimensions=17)
    with pytest.raises(InputError, match="needs one vector per text: set pooling="):
        encoder.pipeline(TEXTS, dimensions=5)


def test_fewer_bits(encoder: SentenceEncoder, expected: np.ndarray) -> None:
    found = encoder.encode(TEXTS, prompt="", precision="int8", calibration=expected)
    assert found.dtype == np.int8
    assert np.abs(found.astype(int) - quantized(expected, "int8", expected)).max() <= 1
    assert_array_equal(encoder.encode(TEXTS, prompt="", precision="ubinary"), np.packbits(expected > 0, axis=1))
    assert encoder.encode(TEXTS[0], precision="binary").shape == (2,)
    with pytest.raises(InputError, match="need ranges"):
        encoder.encode(TEXTS, precision="uint8")
    assert encoder.precision_loss(expected, "int8").spearman > 0.9
    with pytest.raises(InputError, match="no option batch"):
        encoder.encode(TEXTS, batch=3)  # type: ignore[call-arg]


def test_similarity_is_that_of_the_config(encoder: SentenceEncoder, expected: np.ndarray, tmp_path: Path) -> None:
    longer = 2 * expected
    assert_allclose(encoder.similarity(longer, expected), longer @ expected.T, atol=1e-5)
    assert_allclose(encoder.similarity_pairwise(longer, expected), 2, atol=1e-5)
    plain = SentenceEncoder(save_tiny(tmp_path / "plain"))
    assert plain.config == SentenceConfig()
    assert_allclose(plain.similarity_pairwise(longer, expected), 1, atol=1e-5)


def test_saved_and_loaded_again(encoder: SentenceEncoder, expected: np.ndarray, tmp_path: Path) -> None:
    encoder.save_pretrained(tmp_path / "again")
    again = SentenceEncoder.from_pretrained(tmp_path / "again", precision="fp32")
    assert again.config == encoder.config
    assert near(again.encode(TEXTS, prompt=""), expected)


def test_a_model_object_and_a_config_of_one_s_own(folder: Path, encoder: SentenceEncoder, expected: np.ndarray) -> None:
    model = SentenceModel.from_pretrained(folder)
    made = SentenceEncoder(model.encoder, encoder.tokenizer, sentence=model.head.parts())
    assert near(made.encode(TEXTS, prompt=""), expected, 1e-4)
    first = SentenceEncoder(folder, sentence=SentenceConfig(pooling=("cls",), steps=(Normalize(),)))
    whole = pipeline("feature-extraction", folder)(TEXTS)
    assert near(first.encode(TEXTS), [x[0, 0] / np.linalg.norm(x[0, 0]) for x in whole], 1e-4)
    with pytest.raises(InputError, match="has Dense, whose weights it does not hold"):
        SentenceEncoder(folder, sentence=SentenceConfig(steps=(Dense(in_features=WIDTH, out_features=4),)))


def test_modules_that_bertkit_lacks_stop_only_vectors_of_texts(folder: Path, tmp_path: Path) -> None:
    odd = shutil.copytree(folder, tmp_path / "odd")
    text = (odd / "modules.json").read_text().replace("models.Normalize", "models.CNN")
    (odd / "modules.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"models.CNN', which bertkit does not have"):
        SentenceEncoder(odd)
    pipe = pipeline("feature-extraction", odd)
    assert near(pipe("a film"), pipeline("feature-extraction", folder)("a film"))
    with pytest.raises(CheckpointError, match=r"models.CNN"):
        pipe("a film", pooling="model")
    assert pipe("a film", pooling="mean").shape == (WIDTH,)


def test_pipelines_and_commands_give_the_same(
    folder: Path, encoder: SentenceEncoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vectors = encoder.encode(TEXTS, prompt_name="passage")
    pipe = pipeline("feature-extraction", folder, prompt_name="passage")
    assert near(np.stack(pipe(TEXTS, pooling="model")), vectors, 1e-4)
    compared = pipeline("sentence-similarity", folder)(TEXTS[0], TEXTS[1:], prompt_name="passage")
    assert near(compared, (vectors @ vectors[0])[1:], 1e-4)
    options = ["-m", str(folder), "--prompt-name", "passage", "-q"]
    assert main(["embed", *options, "--out", str(tmp_path / "v.npy"), *TEXTS]) == 0
    assert near(np.load(tmp_path / "v.npy"), vectors, 1e-4)
    assert main(["similarity", *options, *TEXTS]) == 0
    printed = [float(line.split()[0]) for line in capsys.readouterr().out.splitlines()]
    assert near(printed, (vectors @ vectors[0])[1:], 1e-3)


def test_the_command_writes_fewer_bits(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known, out = tmp_path / "known.npy", tmp_path / "v.npy"
    assert main(["embed", "-m", str(folder), "--out", str(known), *TEXTS]) == 0
    options = ["embed", "-m", str(folder), "--out", str(out), "--vector-precision"]
    assert main([*options, "int8", "--calibration", str(known), *TEXTS]) == 0
    assert "int8 vectors have 25.0% of the size; of 4 vectors" in capsys.readouterr().err
    assert_array_equal(np.load(out), quantized(np.load(known), "int8", np.load(known)))
    assert main([*options, "binary", *TEXTS]) == 0
    assert_array_equal(np.load(out), quantized(np.load(known), "binary"))
    narrow = tmp_path / "narrow.npy"
    np.save(narrow, np.load(known)[:, :-1])
    for wrong, message in (
        (["int8"], "int8 needs ranges"),
        (["float32", "--calibration", str(known)], "for --vector-precision other than float32"),
        (["int8", "--calibration", str(tmp_path / "no.npy")], "no file"),
        (["int8", "--calibration", str(folder / "vocab.txt")], "not a .npy file of vectors"),
        (["int8", "--calibration", str(out)], "holds int8 of shape"),
        (["int8", "--calibration", str(narrow)], "numbers, and these have"),
        (["binary", "--calibration", str(narrow)], "numbers, and these have"),
    ):
        assert main([*options, *wrong, *TEXTS]) != 0
        told = capsys.readouterr().err
        assert message in told
        assert "of the size" not in told, "no loss of other vectors is stated"


@pytest.mark.slow
@pytest.mark.parametrize("pickled", [False, pytest.param(True, marks=pytest.mark.campaign)])
def test_a_conversion_keeps_the_modules(folder: Path, encoder: SentenceEncoder, pickled: bool, tmp_path: Path) -> None:
    source = shutil.copytree(folder, tmp_path / "source")
    if pickled:
        weights = source / "2_Dense" / "model.safetensors"
        torch.save(load_file(weights), weights.with_name("pytorch_model.bin"))
        weights.unlink()
    done = convert(source, tmp_path / "made", trust_pickle=pickled)
    assert "vectors of texts: pooling mean, max, then Dense, Normalize" in done.notes
    assert near(SentenceEncoder(tmp_path / "made", precision="fp32").encode(TEXTS), encoder.encode(TEXTS))
    with_head = save_tiny(tmp_path / "head", bertkit.BertForMaskedLM)
    (with_head / "modules.json").write_text((source / "modules.json").read_text().replace("Dense", "SpladePooling"))
    assert "modules.json was left out" in convert(with_head, tmp_path / "words").notes[0]
