"""Pipelines on exported models say what those on the model itself say, for every task and way of calling."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import bertkit
from bertkit import pipeline, visualize
from bertkit.checkpoints.huggingface import find_weights
from bertkit.cli import main
from bertkit.engine.onnx_backend import OnnxBackend
from bertkit.errors import CheckpointError, ConfigError, InputError, MissingExtraError
from bertkit.export.onnx_export import export_onnx, load_for_export
from bertkit.inference.sparse_encoding import SparseEmbedding
from pipeline_helpers import WORDS, save_tiny

# One export is asked as its model is in tests/unit/export/test_onnx_export.py.
pytestmark = [pytest.mark.campaign, pytest.mark.usefixtures("traced_once")]

LONG = "the film was good . in the end a great scene , and not very dull " * 12
#: Without the repetitions of :data:`LONG`: no two of its spans have the same score.
UNLIKE = " ".join(np.random.default_rng(1).choice([word for word in WORDS if word.isalpha()], 90))
TEXTS = ["the film is good", "bad", "a very dull scene . not good at all !"] * 3
MASKED = ["the [MASK] is good", "a [MASK] film [MASK] dull", "it was [MASK] bad"]
PAIRS = [("the film", "was good"), ("bad", "the end of a very dull scene"), ("not", "good")]
ASKED = [{"question": "was it good ?", "context": LONG}, {"question": "a film ?", "context": "it is a great film"}]
CHOICES = [
    {"context": "the film was good", "choices": ["it is a great end", "dull", "not a film"]},
    {"context": "a dull scene", "choices": ["good", "bad"], "start": "it was"},
]
#: Name -> class, what its config has, its decision, the task, and inputs with options of calls.
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], str, list[tuple[Any, dict[str, Any]]]]] = {
    "vectors": ("BertModel", {}, {}, "feature-extraction", [
        (TEXTS, {"pooling": "mean"}), (TEXTS, {"pooling": "max", "normalize": True}), (TEXTS, {"pooling": "cls"}),
        ("one text", {}), (LONG, {"pooling": "mean", "truncation": True, "max_length": 30}),
        (PAIRS, {"pooling": "cls"}),
    ]),
    "similarity": ("BertModel", {}, {}, "sentence-similarity", [
        (PAIRS, {}), (PAIRS[1], {"pooling": "cls"}), ({"source_sentence": TEXTS[0], "sentences": TEXTS}, {}),
    ]),
    "masks": ("BertForMaskedLM", {}, {}, "fill-mask", [
        (MASKED, {}), (MASKED[0], {"top_k": 3}), (MASKED, {"targets": ["good", "bad"]}),
        ("a [MASK] " + LONG, {"truncation": True}),
    ]),
    "labels": (
        "BertForSequenceClassification",
        {"id2label": {0: "no", 1: "yes"}},
        {"temperature": 1.5, "thresholds": {"yes": 0.31}, "max_length": 24, "long_texts": "windows", "overlap": 4},
        "text-classification",
        [(TEXTS, {}), (TEXTS, {"top_k": None}), (TEXTS[1], {"function_to_apply": "none", "top_k": 2}), (LONG, {}),
         (LONG, {"truncation": "head_tail"}), ([LONG], {"truncation": True, "top_k": "chosen"})],
    ),
    "several": (
        "BertForSequenceClassification",
        {"id2label": {0: "x", 1: "y", 2: "z"}, "problem_type": "multi_label_classification", "pooling": "mean"},
        {"thresholds": {"x": 0.5, "y": 0.2, "z": 0.7}},
        "text-classification",
        [(TEXTS, {"top_k": "chosen"}), (TEXTS, {}), (PAIRS, {"top_k": None})],
    ),
    "entities": (
        "BertForTokenClassification",
        {"id2label": {0: "O", 1: "B-A", 2: "I-A", 3: "B-B", 4: "I-B"}},
        {"max_length": 32},
        "token-classification",
        [(TEXTS, {}), *((LONG, {"aggregation_strategy": way}) for way in ("simple", "first", "average", "max")),
         ([["the", "film"], ["good"]], {"is_split_into_words": True}), (LONG, {"stride": 3, "ignore_labels": []})],
    ),
    "answers": (
        "BertForQuestionAnswering",
        {},
        {"max_length": 40, "doc_stride": 16, "max_query_length": 12, "max_answer_length": 8, "null_threshold": -0.4},
        "question-answering",
        [(ASKED, {}), ({**ASKED[0], "context": UNLIKE}, {"top_k": 4}),
         (ASKED, {"handle_impossible_answer": False, "max_seq_len": 30})],
    ),
    "choices": ("BertForMultipleChoice", {}, {}, "multiple-choice", [
        (CHOICES, {}), (CHOICES[1], {"truncation": True}),
    ]),
    "ranking": ("BertForSequenceClassification", {"id2label": {0: "relevance"}}, {"max_length": 24}, "text-ranking", [
        ([{"query": "the film", "documents": TEXTS[:3]}, {"query": "bad", "documents": [*TEXTS[1:3], "the end"]}], {}),
        ({"query": "the film", "documents": [LONG, "bad"]}, {"truncation": True, "function_to_apply": "none"}),
    ]),
    "words": ("BertForMaskedLM", {}, {}, "sparse-encoding", [(TEXTS, {}), (LONG, {"truncation": True, "top_k": 9})]),
    "follows": ("BertForNextSentencePrediction", {}, {}, "next-sentence", [(PAIRS, {}), (PAIRS[0], {})]),
    "padded": ("BertForMaskedLM", {}, {}, "fill-mask", [(MASKED, {}), ("a [MASK] " + LONG, {"truncation": True})]),
}  # fmt: skip

#: Cases that ask the model of another one.
SAME_EXPORT = {"words": "masks", "similarity": "vectors"}
#: Task -> the one that the model's head alone tells.
INFERRED = {
    "sentence-similarity": "feature-extraction",
    "sparse-encoding": "fill-mask",
    "text-ranking": "text-classification",
}


@pytest.fixture(scope="module")
def folders(once: Callable[..., Any]) -> dict[str, tuple[Path, Path]]:
    """Name -> model folder, exported folder."""
    made: dict[str, tuple[Path, Path]] = once("exports-of-pipelines", make_folders)
    return made


def make_folders(folder: Path) -> dict[str, tuple[Path, Path]]:
    made: dict[str, tuple[Path, Path]] = {}
    for name, (cls, settings, decision, _, _) in CASES.items():
        if name in SAME_EXPORT:
            made[name] = made[SAME_EXPORT[name]]
            continue
        root = folder / name
        root.mkdir()
        model = save_tiny(root / "model", getattr(bertkit, cls), num_hidden_layers=1, **settings)
        if decision:
            (model / "decision.json").write_text(json.dumps(decision), encoding="utf-8")
        given = load_for_export(model)
        variants = ("padded",) if name == "padded" else ("packed",)
        export_onnx(given.model, given.tokenizer, root / "onnx", variants=variants, decision=given.decision,
                    beside=given.beside, check=False)  # fmt: skip
        made[name] = model, root / "onnx"
    return made


def same(found: Any, expected: Any) -> None:
    """Equal, numbers to 1e-4. The order of scores nearer to each other than that is nobody's promise: none may be."""
    assert type(found) is type(expected)
    if isinstance(expected, list) and all(isinstance(one, dict) and "score" in one for one in expected):
        gaps = -np.diff([one["score"] for one in expected])
        assert gaps.min(initial=1.0) < 0 or gaps.min(initial=1.0) > 5e-4, "inputs with ties say nothing of an order"
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            same(found[key], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    elif isinstance(expected, SparseEmbedding):
        same(found.as_dict(), expected.as_dict())
    elif isinstance(expected, np.ndarray):
        np.testing.assert_allclose(found, expected, atol=1e-4)
        assert found.truncated == expected.truncated
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=1e-4)
    else:
        assert found == expected


def test_an_export_is_drawn_like_its_model_but_shows_no_layers(folders: dict[str, tuple[Path, Path]]) -> None:
    model, export = folders["vectors"]
    maps = [visualize.embeddings(WORDS, model=folder) for folder in (model, export)]
    np.testing.assert_allclose(maps[1].projection.places, maps[0].projection.places, atol=1e-3)
    told = "is an exported model: a graph, without a model object, and so without layers; use the model"
    with pytest.raises(InputError, match=told):
        visualize.embeddings(WORDS, model=export, layer=1)
    space = visualize.anisotropy(WORDS, export)
    assert (space.layers, told in space.notes[0]) == ([], True)


@pytest.mark.usefixtures("packs")
@pytest.mark.parametrize("name", CASES)
def test_the_export_says_what_the_model_says(folders: dict[str, tuple[Path, Path]], name: str) -> None:
    *_, task, calls = CASES[name]
    ours, theirs = (pipeline(task, model=folder, device="cpu", precision="fp32") for folder in reversed(folders[name]))
    for inputs, options in calls:
        same(ours(inputs, **options), theirs(inputs, **options))
    inputs, options = calls[0]
    same(list(ours(iter(inputs), **options)), theirs(inputs, **options))
    assert pipeline(model=folders[name][1]).task == INFERRED.get(task, task)


def test_another_text_is_told_apart(folders: dict[str, tuple[Path, Path]]) -> None:
    """The control of the comparison."""
    pipe = pipeline("feature-extraction", model=folders["vectors"][1])
    with pytest.raises(AssertionError):
        same(pipe("a good film", pooling="mean"), pipe("a bad film", pooling="mean"))


def test_words_are_predicted_at_the_masks_only(
    folders: dict[str, tuple[Path, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = pipeline(model=folders["masks"][1])
    asked: list[int] = []
    run = OnnxBackend.run

    def watched(self: Any, ids: Any, segments: Any, bounds: Any, rows: Any = None) -> Any:
        found = run(self, ids, segments, bounds, rows)
        asked.append(len(found["logits"]))
        return found

    monkeypatch.setattr(OnnxBackend, "run", watched)
    pipe(MASKED)
    assert asked == [4]


def test_what_an_export_cannot_do_is_said(folders: dict[str, tuple[Path, Path]]) -> None:
    vectors = folders["vectors"][1]
    pipe = pipeline(model=vectors)
    with pytest.raises(InputError, match="an exported model: a graph, without a model object"):
        pipe.model  # noqa: B018
    assert (str(pipe.device), pipe.config.hidden_size) == ("cpu", 32)
    with pytest.raises(CheckpointError, match="is an export of a BertModel, and this needs a BertForMaskedLM"):
        pipeline("fill-mask", model=vectors)
    with pytest.raises(CheckpointError, match=r"export of a BertForMaskedLM.*--task feature-extraction"):
        pipeline("feature-extraction", model=folders["masks"][1])
    with pytest.raises(ConfigError, match=r"exported in fp32.*leave precision='int8' out"):
        pipeline(model=vectors, precision="int8")
    with pytest.raises(ConfigError, match=r"threads must be a whole number from 1.*got 0"):
        pipeline(model=vectors, threads=0)
    with pytest.raises(ConfigError, match="precision must be one of auto, fp32, fp16, bf16, int8, got 'fp8'"):
        pipeline(model=vectors, precision="fp8")
    assert pipeline(model=vectors, precision="fp32", threads=1)("a film", pooling="mean").shape == (32,)


def copy_of(folder: Path, target: Path) -> Path:
    for path in folder.rglob("*"):
        if path.is_file():
            (target / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
            (target / path.relative_to(folder)).write_bytes(path.read_bytes())
    return target


@pytest.mark.parametrize("name", ["decision.json", "model_packed.onnx", "model.onnx_data"])
def test_files_that_changed_are_noticed(folders: dict[str, tuple[Path, Path]], tmp_path: Path, name: str) -> None:
    copy, draw = copy_of(folders["labels"][1], tmp_path / "copy"), random.Random(0)
    content = (copy / name).read_bytes()
    first = content.index(b"1.5") if name == "decision.json" else 0
    for _ in range(1 if first else 20):
        changed = bytearray(content)
        changed[first or draw.randrange(len(content))] ^= 1 << (0 if first else draw.randrange(8))
        (copy / name).write_bytes(changed)
        with pytest.raises(CheckpointError, match=rf"{name} is not as bertkit wrote it.*\n  bertkit inspect --accept "):
            pipeline(model=copy)
    (copy / name).write_bytes(content)
    pipeline(model=copy)
    (copy / name).unlink()
    if name != "decision.json":
        with pytest.raises(CheckpointError, match=rf"{name} is missing"):
            pipeline(model=copy)


@pytest.mark.parametrize("name", ["model.onnx_data", "decision.json"])
def test_what_was_changed_on_purpose_is_accepted(
    folders: dict[str, tuple[Path, Path]], tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = copy_of(folders["labels"][1], tmp_path / "copy")
    content = bytearray((copy / name).read_bytes())
    content[content.index(b"1.5") if name == "decision.json" else 0] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"inspect --accept {copy / name}$"):
        pipeline(model=copy)
    assert main(["inspect", "--accept", str(copy / name)]) == 0
    assert capsys.readouterr().out == f"accepted: {copy / name}\n"
    pipeline(model=copy)(TEXTS)


def test_exports_of_earlier_versions_are_opened(folders: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    copy = copy_of(folders["labels"][1], tmp_path / "copy")
    manifest = json.loads((copy / "export.json").read_text())
    del manifest["crc32"], manifest["problem_type"], manifest["precision"]
    for more in ({}, {"files": {"config.json": {"bytes": 10, "sha256": "0" * 64}}}):
        (copy / "export.json").write_text(json.dumps({**manifest, **more}))
        assert pipeline(model=copy)(TEXTS) == pipeline(model=folders["labels"][1])(TEXTS)


def test_config_tokenizer_and_card_may_be_edited(folders: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    copy = copy_of(folders["labels"][1], tmp_path / "copy")
    edit(copy / "config.json", id2label={"0": "nein", "1": "ja"}, label2id={"nein": 0, "ja": 1})
    (copy / "README.md").write_text("mine")
    (copy / "decision.json").unlink()
    found = pipeline(model=copy)(TEXTS, top_k=None)
    assert {answer["label"] for row in found for answer in row} == {"nein", "ja"}


def edit(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}), encoding="utf-8")


@pytest.mark.parametrize("names", [["x"], ["x", "y", "z"], [f"label {number}" for number in range(1000)]])
def test_other_labels_than_the_graph_has_are_refused(
    folders: dict[str, tuple[Path, Path]], tmp_path: Path, names: list[str]
) -> None:
    copy = copy_of(folders["labels"][1], tmp_path / "copy")
    labels = dict(enumerate(names))
    edit(copy / "config.json", id2label=labels, label2id={name: number for number, name in labels.items()})
    with pytest.raises(CheckpointError, match=rf"labels in id2label is {len(names):,}, but logits has 2 columns"):
        pipeline(model=copy)


@pytest.mark.parametrize(
    ("case", "changes", "told"),
    [
        ("labels", {"problem_type": "regression"}, "problem_type 'regression', but the exported model had None"),
        ("several", {"problem_type": None}, "problem_type None, but the exported model had 'multi_label_class"),
        ("vectors", {"hidden_size": 64}, "hidden_size is 64, but last_hidden_state has 32 columns"),
        ("masks", {"vocab_size": 4000}, "vocab_size is 4,000, but logits has"),
    ],
)
def test_a_config_that_says_something_else_than_the_graph_is_refused(
    folders: dict[str, tuple[Path, Path]], tmp_path: Path, case: str, changes: dict[str, Any], told: str
) -> None:
    copy = copy_of(folders[case][1], tmp_path / "copy")
    edit(copy / "config.json", **changes)
    with pytest.raises(CheckpointError, match=told):
        pipeline(CASES[case][3], model=copy)
    edit(copy / "config.json", **{name: None for name in changes if name == "problem_type" and case == "labels"})
    if case == "labels":
        edit(copy / "config.json", problem_type="single_label_classification")
        pipeline(model=copy)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"variants": {"packed": {"file": "../other"}}},
            r"packed variant is in '../other', expected model_packed.onnx",
        ),
        ({"variants": {}}, "variants = "),
        ({"variants": {"flat": {"file": "model.onnx"}}}, "variants.flat"),
        ({"model": None}, "model = None"),
        ({"precision": "fp8"}, "precision = 'fp8'"),
        (
            {"variants": {"packed": {"file": "model_packed.onnx", "largest_difference": "1"}}},
            "largest_difference = '1'",
        ),
        ({"opset": 0}, "opset = 0"),
        ({"token_outputs": "logits"}, "token_outputs = 'logits'"),
        ({"optset": 20}, r"unknown field 'optset' \(did you mean 'opset'\?\)"),
    ],
)
def test_a_manifest_edited_by_hand(
    folders: dict[str, tuple[Path, Path]], tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    copy = copy_of(folders["labels"][1], tmp_path / "copy")
    edit(copy / "export.json", **changes)
    with pytest.raises(CheckpointError, match=rf"export\.json is damaged: .*{told}"):
        pipeline(model=copy)


def test_a_graph_that_asks_for_too_much_memory(
    folders: dict[str, tuple[Path, Path]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    copy = copy_of(folders["labels"][1], tmp_path / "copy")
    path = copy / "model_packed.onnx"
    graph = onnx.load(path, load_external_data=False)
    size = onnx.helper.make_tensor("huge", onnx.TensorProto.INT64, [2], [1 << 23, 1 << 23])
    graph.graph.initializer.append(size)
    zero = onnx.helper.make_node("Expand", ["logits", "huge"], ["spread"])
    (old,) = (output for output in graph.graph.output if output.name == "logits")
    graph.graph.node.append(zero)
    graph.graph.output.remove(old)
    graph.graph.output.append(onnx.helper.make_tensor_value_info("spread", onnx.TensorProto.FLOAT, [None, None]))
    path.write_bytes(graph.SerializeToString())
    assert main(["inspect", "--accept", str(copy)]) == 0
    capfd.readouterr()
    assert main(["classify", "the film", "--model", str(copy)]) == 4
    assert "Traceback" not in capfd.readouterr().err


def test_inspect_describes_an_export(
    folders: dict[str, tuple[Path, Path]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy_of(folders["labels"][1], tmp_path / "copy")
    assert main(["inspect", str(folder), "--verify"]) == 0
    told = capsys.readouterr().out
    assert "BertForSequenceClassification as ONNX, fp32, for use only" in told
    assert "labels: 'no', 'yes'" in told
    assert "packed: model_packed.onnx, input_ids, cu_seqlens, token_type_ids -> logits" in told
    assert "the graphs and their weights have the checksums" in told
    assert main(["inspect", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["config"]["num_hidden_layers"], found["export"]["opset"]) == (1, 20)
    assert main(["inspect", str(folder), "--against", str(folders["labels"][0])]) == 2
    (folder / "vocab.txt").write_bytes(b"\n" + (folder / "vocab.txt").read_bytes()[1:])
    with pytest.raises(CheckpointError, match=r"vocab\.txt"):
        pipeline(model=folder)
    (folder / "model.onnx_data").write_bytes((folder / "model.onnx_data").read_bytes()[:-1])
    assert main(["inspect", str(folder)]) == 4
    assert "model.onnx_data is not as bertkit wrote it" in capsys.readouterr().err


def test_looking_at_an_export_says_what_it_is(folders: dict[str, tuple[Path, Path]]) -> None:
    with pytest.raises(CheckpointError, match=r"has an ONNX graph.*an export is for use only"):
        find_weights(folders["vectors"][1])


@pytest.mark.parametrize("name", ["model_packed.onnx", "model.onnx_data"])
def test_a_missing_file_that_the_manifest_does_not_list(
    folders: dict[str, tuple[Path, Path]], tmp_path: Path, name: str
) -> None:
    copy = copy_of(folders["vectors"][1], tmp_path / "copy")
    manifest = json.loads((copy / "export.json").read_text())
    del manifest["crc32"]
    (copy / "export.json").write_text(json.dumps(manifest))
    (copy / name).unlink()
    with pytest.raises(CheckpointError, match=rf"{name} does not exist; copy|cannot be run: .*{name}"):
        pipeline(model=copy)


def test_without_the_runtime(folders: dict[str, tuple[Path, Path]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"needs 'onnxruntime'.* Run: pip install onnxruntime$"):
        pipeline(model=folders["vectors"][1])


def test_a_graph_of_another_time(folders: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    copy = copy_of(folders["vectors"][1], tmp_path / "copy")
    path = copy / "model_packed.onnx"
    graph = onnx.load(path, load_external_data=False)
    graph.opset_import[0].version = 99
    path.write_bytes(graph.SerializeToString())
    manifest = json.loads((copy / "export.json").read_text())
    del manifest["crc32"]
    (copy / "export.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=r"newer than ONNX Runtime.*pip install -U onnxruntime, or .* --opset"):
        pipeline(model=copy)
    path.write_bytes(b"no graph")
    with pytest.raises(CheckpointError, match=r"model_packed\.onnx cannot be run: "):
        pipeline(model=copy)


def test_a_folder_name_that_is_no_text(folders: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """The runtime opens neither graph nor weights by such a name."""
    copy = copy_of(folders["vectors"][1], tmp_path / "caf\udce9")
    pipes = [pipeline(model=model, device="cpu", precision="fp32") for model in (copy, folders["vectors"][0])]
    same(*(pipe("a film", pooling="mean") for pipe in pipes))
