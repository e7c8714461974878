"""Folders of sentence-transformers: both published forms, back again, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import bertkit
from bertkit import CheckpointError, ConfigError, InputError, pipeline
from bertkit.checkpoints.sentence_folder import SentenceParts, read_sentence_parts, saved_pooling, write_sentence_parts
from bertkit.config.sentence_config import POOLING_MODES, Dense, LayerNorm, Normalize, SentenceConfig
from sentence_folders import WIDTH, dense, pooling, sentence_folder, weights_of

OLD = {
    "word_embedding_dimension": WIDTH, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True,
    "pooling_mode_max_tokens": True, "pooling_mode_mean_sqrt_len_tokens": False,
}  # fmt: skip
FULL = [
    pooling("mean", "cls", include_prompt=False),
    dense(2 * WIDTH, 24, module_input_name="sentence_embedding", module_output_name="sentence_embedding"),
    ("LayerNorm", {"dimension": 24}),
    dense(24, 16, "linear.Identity", bias=False, use_residual=True),
    dense(16, 16, "activation.GELU", use_residual=True),
    ("Normalize", {}),
]
SETTINGS = {
    "__version__": {"sentence_transformers": "6.2.0"}, "model_type": "SentenceTransformer",
    "prompts": {"query": "query: ", "document": None, "s2s": "compare: "}, "default_prompt_name": "s2s",
    "similarity_fn_name": "dot", "truncate_dim": 12,
}  # fmt: skip
#: What release 6 writes.
READING = {
    "transformer_task": "feature-extraction", "module_output_name": "token_embeddings",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
}  # fmt: skip


def change(file: Path, *keys: Any, value: Any) -> None:
    """Set a value in a JSON file; no keys: all of it."""
    content = json.loads(file.read_text()) if file.exists() else {}
    inside = content
    for key in keys[:-1]:
        inside = inside[key]
    if keys:
        inside[keys[-1]] = value
    file.write_text(json.dumps(content if keys else value))


def test_every_module_is_read_and_written_again(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "m", FULL, SETTINGS, READING)
    parts = read_sentence_parts(folder, WIDTH)
    assert parts is not None
    assert parts.config == SentenceConfig(
        pooling=("mean", "cls"),
        include_prompt=False,
        steps=(
            Dense(in_features=2 * WIDTH, out_features=24),
            LayerNorm(dimension=24),
            Dense(in_features=24, out_features=16, bias=False, activation="Identity", residual=True),
            Dense(in_features=16, out_features=16, activation="GELU", residual=True),
            Normalize(),
        ),
        prompts={"query": "query: ", "document": "", "s2s": "compare: "},
        default_prompt_name="s2s",
        similarity="dot",
        dimensions=12,
    )
    for number, ((kind, config), weights) in enumerate(zip(FULL[1:], parts.weights, strict=True), start=2):
        expected = weights_of(kind, config, number)
        assert weights.keys() == expected.keys()
        assert all(np.array_equal(weights[name], expected[name]) for name in expected)
    write_sentence_parts(tmp_path / "again", parts, WIDTH)
    again = read_sentence_parts(tmp_path / "again", WIDTH)
    assert again is not None
    assert again.config == parts.config
    assert [sorted(x) for x in again.weights] == [sorted(x) for x in parts.weights]
    assert all(np.array_equal(a[k], b[k]) for a, b in zip(again.weights, parts.weights, strict=True) for k in a)


def test_the_older_form_of_pooling_and_of_lengths(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "m", [("Pooling", OLD)], {"__version__": {}}, None)
    change(folder / "sentence_roberta_config.json", value={"max_seq_length": 20, "do_lower_case": True})
    parts = read_sentence_parts(folder, WIDTH)
    assert parts is not None
    assert parts.config == SentenceConfig(pooling=("max", "mean"), max_length=20, lower_case=True)


@pytest.mark.parametrize("mode", POOLING_MODES)
def test_one_mode_is_written_so_that_every_release_reads_it(tmp_path: Path, mode: Any) -> None:
    write_sentence_parts(tmp_path, SentenceParts(SentenceConfig(pooling=(mode,), steps=(Normalize(),)), ({},)), WIDTH)
    written = json.loads((tmp_path / "1_Pooling" / "config.json").read_text())
    flags = {name for name, value in written.items() if name.startswith("pooling_mode_") and value is True}
    assert flags == {f"pooling_mode_{mode}" + {"cls": "_token", "max": "_tokens", "mean": "_tokens",
                                              "weightedmean": "_tokens"}.get(mode, "")}  # fmt: skip
    assert written["word_embedding_dimension"] == WIDTH
    assert saved_pooling(tmp_path) == (mode,)
    types = [entry["type"] for entry in json.loads((tmp_path / "modules.json").read_text())]
    assert types == [f"sentence_transformers.models.{kind}" for kind in ("Transformer", "Pooling", "Normalize")]


def test_a_folder_that_says_nothing(tmp_path: Path) -> None:
    assert read_sentence_parts(tmp_path, WIDTH) is None
    assert saved_pooling(tmp_path) == ()


@pytest.fixture(scope="module")
def simple(tmp_path_factory: pytest.TempPathFactory) -> Path:
    modules = [pooling("mean"), dense(WIDTH, 16), ("Normalize", {})]
    return sentence_folder(tmp_path_factory.mktemp("simple") / "m", modules, {}, {})


MODULES, POOLING, DENSE = "modules.json", "1_Pooling/config.json", "2_Dense/config.json"
TRANSFORMERS, BERT = "config_sentence_transformers.json", "sentence_bert_config.json"


@pytest.mark.parametrize(
    ("file", "keys", "value", "message"),
    [
        (MODULES, (3, "type"), "sentence_transformers.models.WeightedLayerPooling", "WeightedLayerPooling'.*not have"),
        (MODULES, (3, "type"), "custom_st.Normalize", "'custom_st.Normalize', which bertkit does not have"),
        (MODULES, (3, "type"), "sentence_transformers.models.Pooling", "Transformer, then a Pooling, then"),
        (MODULES, (0, "path"), "0_Transformer", "encoder in '0_Transformer'.*save it again"),
        (MODULES, (2, "path"), "../other", "only one in the same folder is safe"),
        (MODULES, (2, "kwargs"), ["task"], "kwargs"),
        (MODULES, (2, "extra"), 1, "unknown field 'extra'"),
        (MODULES, (), {}, "holds no list of modules"),
        (MODULES, (), [], "lists the modules none"),
        (POOLING, ("pooling_mode",), "first", "pooling_mode"),
        (POOLING, ("pooling_mode",), ["cls", "cls"], "several different ones"),
        (POOLING, ("pooling_mode",), None, "names no way of pooling; there are cls, max, mean"),
        (POOLING, ("pooling_mode_median_tokens",), True, "unknown field 'pooling_mode_median_tokens'"),
        (POOLING, ("embedding_dimension",), 16, "token vectors of 16 numbers, but those of the encoder have 32"),
        (DENSE, ("activation_function",), "torch.nn.modules.activation.Hardswish", "Hardswish'.*does not have"),
        (DENSE, ("activation_function",), "os.system", "'os.system'"),
        (DENSE, ("module_input_name",), "token_embeddings", "module_input_name = 'token_embeddings'"),
        (DENSE, ("in_features",), 31, "step 1 after pooling, Dense, reads vectors of 31 numbers, and gets 32"),
        (DENSE, ("out_features",), 15, "does not fit"),
        (DENSE, ("bias",), False, "does not fit"),
        (DENSE, ("gated",), True, "unknown field 'gated'"),
        (TRANSFORMERS, ("similarity_fn_name",), "maxsim", "similarity_fn_name = 'maxsim'"),
        (TRANSFORMERS, ("model_type",), "SparseEncoder", "model_type = 'SparseEncoder'"),
        (TRANSFORMERS, ("task_prompts",), {}, "unknown field 'task_prompts'"),
        (TRANSFORMERS, ("default_prompt_name",), "quary", "'quary': there are the prompts query, document"),
        (TRANSFORMERS, ("prompts",), {"query": 3}, "prompts.query"),
        (BERT, ("max_seq_length",), "512", "max_seq_length"),
        (BERT, ("model_args",), {"attn_implementation": "eager"}, "model_args"),
        (BERT, ("transformer_task",), "fill-mask", "transformer_task = 'fill-mask'"),
        (BERT, ("modality_config",), {"image": {}}, "unknown field 'modality_config.image'"),
        (BERT, ("query_length",), 32, "query_length"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_by_name(
    simple: Path, tmp_path: Path, file: str, keys: tuple[Any, ...], value: Any, message: str
) -> None:
    folder = shutil.copytree(simple, tmp_path / "m")
    assert read_sentence_parts(folder, WIDTH) is not None  # control
    change(folder / file, *keys, value=value)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_sentence_parts(folder, WIDTH)
    assert str(folder) in str(caught.value)


def test_weights_that_cannot_be_used(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "m", [pooling("mean"), dense(WIDTH, 16)])
    file = folder / "2_Dense" / "model.safetensors"
    weights = weights_of(*dense(WIDTH, 16), 2)
    save_file({**weights, "linear.bias": np.full(16, np.nan, np.float32)}, file)
    with pytest.raises(CheckpointError, match=r"value 0 of 'linear.bias' is not finite"):
        read_sentence_parts(folder, WIDTH)
    save_file({**weights, "linear.bias": np.zeros(16, np.int32)}, file)
    with pytest.raises(CheckpointError, match="has the type I32, expected floats"):
        read_sentence_parts(folder, WIDTH)
    save_file({name: x.astype(np.float16) for name, x in weights.items()}, file)
    parts = read_sentence_parts(folder, WIDTH)
    assert parts is not None
    np.testing.assert_allclose(parts.weights[0]["linear.weight"], weights["linear.weight"], atol=1e-3)
    file.rename(file.with_name("pytorch_model.bin"))
    with pytest.raises(CheckpointError, match=r"a pickle.*\n  bertkit convert --trust-pickle"):
        read_sentence_parts(folder, WIDTH)
    file.with_name("pytorch_model.bin").unlink()
    with pytest.raises(CheckpointError, match="does not exist"):
        read_sentence_parts(folder, WIDTH)


def test_settings_that_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="expected one mode or several different ones"):
        SentenceConfig(pooling=())
    with pytest.raises(ConfigError, match="'pasage': there are the prompts query, document, passage"):
        SentenceConfig(prompts={"passage": "p"}, default_prompt_name="pasage")
    config = SentenceConfig(prompts={"passage": "p: "}, steps=(LayerNorm(dimension=8),))
    with pytest.raises(InputError, match="LayerNorm, reads vectors of 8 numbers, and gets 32"):
        config.widths(32)
    assert config.prompt() == config.prompt(prompt_name="query") == config.prompt("") == ""
    assert config.prompt(prompt_name="passage") == "p: "
    with pytest.raises(InputError, match=r"no prompt 'pasage' \(did you mean 'passage'\?\)"):
        config.prompt(prompt_name="pasage")
    with pytest.raises(InputError, match="not both"):
        config.prompt("a", "query")


@pytest.mark.parametrize(
    ("kind", "path", "message"),
    [
        ("Router", "", "first module is 'Router', which sends queries and documents to models of their own"),
        ("Asym", "", "first module is 'Asym', which sends queries"),
        ("CLIPModel", "", "first module is 'CLIPModel', which bertkit does not have"),
        ("Transformer", "0_Transformer", "has the encoder in '0_Transformer', as before release 2"),
    ],
)
def test_folders_that_begin_with_another_module(kind: str, path: str, message: str, tmp_path: Path) -> None:
    """Said by whatever opens the folder, and not that one file or another is missing."""
    types = [f"sentence_transformers.models.{each}" for each in (kind, "Normalize")]
    entries = [{"idx": at, "name": str(at), "path": path if at == 0 else "1", "type": t} for at, t in enumerate(types)]
    (tmp_path / "modules.json").write_text(json.dumps(entries), encoding="utf-8")
    for opens in (
        lambda: pipeline("feature-extraction", model=tmp_path),
        lambda: pipeline(model=tmp_path),
        lambda: bertkit.SentenceEncoder(tmp_path),
        lambda: bertkit.AutoModel.from_pretrained(tmp_path),
    ):
        with pytest.raises(CheckpointError, match=message):
            opens()
