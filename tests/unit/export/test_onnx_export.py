"""Exported graphs compute what the model computes, on shapes that they were not traced with.

The check that every export makes is itself the comparison with the model, run by ONNX Runtime; here also a control that
it can fail, and ways of use. All heads of all families are in ``parity/test_onnx_parity.py``.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

import bertkit
from bertkit import BertConfig, BertTokenizer
from bertkit.cli import main
from bertkit.config.decision import read_decision
from bertkit.errors import CheckpointError, ConfigError, InputError
from bertkit.export import onnx_check, onnx_export, onnx_graph
from bertkit.export.onnx_export import check_graph, export_onnx
from bertkit.inference.onnx_model import OnnxModel, open_session
from onnx_helpers import LABELS, save_classifier
from pipeline_helpers import save_tiny

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("traced_once")]

TEXTS = ["the film is good", "a very dull scene . not good at all !", "bad"]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier with three labels and a decision, as a run folder has it."""
    folder = save_classifier(tmp_path_factory.mktemp("model"))
    (folder / "decision.json").write_text('{"temperature": 1.5}', encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def exported(classifier: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The classifier exported by the command."""
    folder = tmp_path_factory.mktemp("out") / "onnx"
    assert main(["export", str(classifier), "--out", str(folder), "--variant", "both", "--quiet"]) == 0
    return folder


def test_tokenizer_labels_and_decision_travel(classifier: Path, exported: Path) -> None:
    assert {"config.json", "vocab.txt", "tokenizer.json", "decision.json", "export.json", "README.md"} <= {
        path.name for path in exported.iterdir()
    }
    config = BertConfig.from_pretrained(exported)
    assert config.id2label == LABELS
    assert config.architectures == ["BertForSequenceClassification"]
    text = "A very dull scene."
    ours, theirs = (BertTokenizer.from_pretrained(folder)(text)["input_ids"] for folder in (classifier, exported))
    assert ours == theirs
    assert read_decision(exported) == read_decision(classifier) == {"temperature": 1.5}


def test_the_manifest_says_what_is_there(exported: Path) -> None:
    manifest = json.loads((exported / "export.json").read_text())
    assert manifest["opset"] == onnx_export.OPSET
    assert list(manifest["variants"]) == ["padded", "packed"]
    padded, packed = manifest["variants"].values()
    assert list(padded["inputs"]) == ["input_ids", "attention_mask", "token_type_ids"]
    assert all(axes == ["batch", "sequence"] for axes in padded["inputs"].values())
    assert packed["inputs"] == {"input_ids": ["tokens"], "cu_seqlens": ["sequences + 1"], "token_type_ids": ["tokens"]}
    for facts in (padded, packed):
        assert facts["outputs"] == {"logits": ["batch"]}
        assert 0 <= facts["largest_difference"] <= 1e-4
    assert manifest["token_outputs"] == []


def test_axes_are_free_and_nothing_of_the_machine_is_inside(exported: Path) -> None:
    for name in ("model.onnx", "model_packed.onnx"):
        content = (exported / name).read_bytes()
        assert b"site-packages" not in content
        assert str(Path(bertkit.__file__).parent).encode() not in content
        model = onnx.load_from_string(content)
        onnx.checker.check_model(exported / name)
        assert [one.version for one in model.opset_import if one.domain == ""] == [onnx_export.OPSET]
        for value in model.graph.input:
            assert all(axis.dim_param and not axis.dim_value for axis in value.type.tensor_type.shape.dim)


@pytest.mark.parametrize("variant", ["packed", "padded"])
def test_it_says_what_the_pipeline_says(classifier: Path, exported: Path, variant: str) -> None:
    found = OnnxModel(exported, variant)(TEXTS)
    logits = np.stack(found["logits"])
    assert logits.shape == (3, 3)
    expected = bertkit.pipeline("text-classification", model=str(classifier), precision="fp32")(
        TEXTS, top_k=None, function_to_apply="none"
    )
    for row, labels in zip(logits, expected, strict=True):
        assert {LABELS[n]: pytest.approx(float(x), abs=1e-4) for n, x in enumerate(row)} == {
            one["label"]: one["score"] for one in labels
        }


def test_texts_that_do_not_fit_are_refused_or_cut(exported: Path) -> None:
    model = OnnxModel(exported)
    long = "good " * 100
    with pytest.raises(InputError, match=r"text 1 \(counted from 0\) has 102 tokens, .* the limit is 48"):
        model(["bad", long])
    assert len(model(["bad", long], truncation=True)["logits"]) == 2
    with pytest.raises(InputError, match="no text"):
        model([])


@pytest.mark.parametrize("variant", ["packed", "padded"])
@pytest.mark.parametrize(
    ("ids", "segments", "bounds", "told"),
    [
        ([2, -1, 3], [0, 0, 0], [0, 3], r"input_ids has -1, outside 0 \.\.\. "),
        ([2, 10**6, 3], [0, 0, 0], [0, 3], "input_ids has 1000000"),
        ([2, 5, 3], [0, 2, 0], [0, 3], r"token_type_ids has 2, outside 0 \.\.\. 1"),
        ([2, 5, 3], [0, 0, 0], [0, 3, 3], "sequence 1 has 0 tokens, not 1 to 48"),
        ([2] * 49, [0] * 49, [0, 49], "sequence 0 has 49 tokens"),
        ([2, 5, 3], [0, 0, 0], [0, 2], "do not fit the boundaries"),
        ([], [], [0], "do not fit the boundaries"),
    ],
)
def test_what_a_graph_would_answer_nonsense_for_is_refused(
    exported: Path, variant: str, ids: list[int], segments: list[int], bounds: list[int], told: str
) -> None:
    arrays = (np.array(values, dtype=np.int64) for values in (ids, segments, bounds))
    with pytest.raises(InputError, match=told):
        OnnxModel(exported, variant).run(*arrays)


def test_a_graph_gives_a_text_that_is_padded_on_the_left_the_answer_of_the_text(exported: Path) -> None:
    short, long = [2, 7, 9, 3], [2, 8, 9, 10, 11, 12, 3]
    ids = np.array([[0] * 3 + short, long])
    session = open_session(exported / "model.onnx")

    def logits(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return session.run(["logits"], {"input_ids": ids, "attention_mask": mask, "token_type_ids": 0 * ids})[0]

    alone = logits(np.array([short]), np.ones((1, 4), np.int64))
    np.testing.assert_allclose(logits(ids, (ids != 0).astype(np.int64))[:1], alone, atol=1e-5)
    assert np.abs(logits(np.array([[5] * 3 + short]), np.ones((1, 7), np.int64)) - alone).max() > 1e-3  # a control


def test_one_graph_unless_asked_and_its_card(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(classifier), "--out", str(tmp_path / "out")]) == 0
    assert [path.name for path in (tmp_path / "out").glob("*.onnx")] == ["model_packed.onnx"]
    told = capsys.readouterr().err
    assert "graph 1 of 1: model_packed.onnx" in told
    assert "comparing model_packed.onnx with the model" in told
    card = (tmp_path / "out" / "README.md").read_text()
    for said in ("model_packed.onnx", "such as -1", "`attention_mask` is 0 everywhere", "more than 48 tokens"):
        assert said in card
    assert OnnxModel(tmp_path / "out").variant == "packed"


def test_the_check_sees_another_model(classifier: Path, exported: Path) -> None:
    """A control: one weight moved by a thousandth of its sd is told apart."""
    model = bertkit.BertForSequenceClassification.from_pretrained(classifier)
    for variant, name in (("padded", "model.onnx"), ("packed", "model_packed.onnx")):
        assert check_graph(exported / name, model, variant, seed=7) <= 1e-4
    with torch.no_grad():
        model.bert.encoder.layer[0].attention.out.bias[0] += 0.003
    for variant, name in (("padded", "model.onnx"), ("packed", "model_packed.onnx")):
        with pytest.raises(
            CheckpointError, match=rf"{name} does not compute what the model does: logits .*allowed 1e-04"
        ):
            check_graph(exported / name, model, variant)


def test_the_longest_text_that_is_checked(classifier: Path, exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph with fewer positions than the model passes if no text has more, and its failure is told."""
    model = bertkit.BertForSequenceClassification.from_pretrained(classifier)
    weights, table = model.state_dict(), "bert.embeddings.position_embeddings.weight"
    longer = bertkit.BertForSequenceClassification(model.config.replace(max_position_embeddings=64)).eval()
    longer.load_state_dict({**weights, table: torch.cat([weights[table], weights[table][:16]])})
    graph = exported / "model_packed.onnx"
    told = r"^model_packed\.onnx fails for sequences of \[64, 2\] tokens: .*\. Nothing was written$"
    with pytest.raises(CheckpointError, match=told):
        check_graph(graph, longer, "packed")
    monkeypatch.setattr(onnx_check, "MOST_TOKENS", 48)
    assert check_graph(graph, longer, "packed") <= 1e-4


def test_a_failed_check_leaves_nothing(classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: object, **__: object) -> float:
        raise CheckpointError("made to fail")

    monkeypatch.setattr(onnx_export, "check_graph", wrong)
    monkeypatch.setattr(onnx_export.torch.onnx, "export", lambda *_, **__: Written())
    model = bertkit.BertForSequenceClassification.from_pretrained(classifier).prepack()
    attends = [layer.attention.attend for layer in model.bert.encoder.layer]
    with pytest.raises(CheckpointError, match="made to fail"):
        export_onnx(model, None, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    assert [layer.attention.attend for layer in model.bert.encoder.layer] == attends
    assert all(layer.ffn_up._packed is not None for layer in model.bert.encoder.layer)


class Written:
    """What torch's exporter returns, without the work."""

    model_proto = onnx.ModelProto()

    class model:  # noqa: N801
        class graph:  # noqa: N801
            all_nodes = staticmethod(list)


def test_requests_that_cannot_be_met(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = bertkit.BertForSequenceClassification.from_pretrained(classifier)
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").touch()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for folder, options, told in (
        (full, {}, "exists and is not empty"),
        (full / "file" / "new", {}, "is a file, or lies in one"),
        (".", {}, "name of a new folder, not the current one"),
        (tmp_path / "a", {"opset": 9}, "opset must be from 18 to 23, got 9"),
        (tmp_path / "a", {"variants": ()}, "variants must be some of padded, packed"),
        (tmp_path / "a", {"variants": ("packed", "packed")}, "each once"),
    ):
        with pytest.raises(ConfigError, match=told):
            export_onnx(model, None, folder, **options)
    with pytest.raises(InputError, match=r"float32 model on the CPU, got torch\.bfloat16"):
        export_onnx(model.to(torch.bfloat16), None, tmp_path / "a")
    assert main(["export", str(classifier), "--out", str(tmp_path / "b"), "--task", "fill-maks"]) == 2
    assert "unknown task 'fill-maks' (did you mean 'fill-mask'?)" in capsys.readouterr().err
    assert main(["export", str(classifier), "--out", str(tmp_path / "b"), "--task", "fill-mask"]) == 4
    assert "not a masked language model" in capsys.readouterr().err
    with pytest.raises(CheckpointError, match=r"is not an exported model: it has no export\.json"):
        OnnxModel(classifier)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "here"]


def test_only_our_encoders_are_taken_for_a_bare_encoder(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    assert type(onnx_export.load_for_export(folder)[0]) is bertkit.BertModel
    values = json.loads((folder / "config.json").read_text())
    for other in ("BertLMHeadModel", "BertModelWithHeads", "SomeModel"):
        (folder / "config.json").write_text(json.dumps({**values, "architectures": [other]}))
        with pytest.raises(ConfigError, match=rf"class {other}.*; give a task: feature-extraction, fill-mask"):
            onnx_export.load_for_export(folder)
        assert type(onnx_export.load_for_export(folder, "feature-extraction")[0]) is bertkit.BertModel
    (folder / "config.json").write_text(json.dumps({**values, "architectures": None}))
    with pytest.raises(ConfigError, match="does not say what the model is for; give a task") as caught:
        onnx_export.load_for_export(folder)
    said = '{"architectures": ["BertModel"]}'  # what to write where a command has no --task
    assert said[1:-1] in str(caught.value)
    (folder / "config.json").write_text(json.dumps({**values, **json.loads(said)}))
    assert type(onnx_export.load_for_export(folder)[0]) is bertkit.BertModel


def test_the_layouts_of_the_graph_are_those_of_the_model(classifier: Path) -> None:
    """The traced forms run as they are, against the model's own buckets; every length, no exporter in between."""
    model = bertkit.BertModel.from_pretrained(classifier)
    generator = np.random.default_rng(0)
    packed, padded = onnx_graph.PackedGraph(model).eval(), onnx_graph.PaddedGraph(model).eval()
    for lengths in ([1], [1, 1, 1], [48], [5, 48, 1, 9], [7, 7]):
        bounds = np.cumsum([0, *lengths])
        ids = torch.from_numpy(generator.integers(1, model.config.vocab_size, bounds[-1]))
        types = torch.from_numpy(generator.integers(0, 2, bounds[-1]))
        real = torch.arange(max(lengths))[None, :] < torch.tensor(lengths)[:, None]
        ids_BS, types_BS = torch.zeros(real.shape, dtype=torch.int64), torch.zeros(real.shape, dtype=torch.int64)
        ids_BS[real], types_BS[real] = ids, types
        with torch.inference_mode():
            expected = model(ids_BS, real, types_BS)
            with onnx_graph.traceable(model):
                flat, pooled = packed(ids, torch.from_numpy(bounds), types)
                rows, pooled_too = padded(ids_BS, real.long(), types_BS)
        torch.testing.assert_close(rows, expected.last_hidden_state, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(flat, expected.last_hidden_state[real], rtol=1e-5, atol=1e-5)
        for ours in (pooled, pooled_too):
            torch.testing.assert_close(ours, expected.pooler_output, rtol=1e-5, atol=1e-5)


@pytest.mark.campaign
def test_no_answer_is_at_padding(tmp_path: Path) -> None:
    """Logits that are all below 0: at padding the exported ones are as low as the model's own, not 0."""
    model = bertkit.BertForQuestionAnswering.from_pretrained(
        save_tiny(tmp_path / "model", bertkit.BertForQuestionAnswering)
    )
    with torch.no_grad():
        model.qa_outputs.bias.fill_(-50.0)
    export_onnx(model, None, tmp_path / "out", variants=("padded",))
    session = open_session(tmp_path / "out" / "model.onnx")
    ids, mask = torch.tensor([[2, 5, 6, 3, 0, 0], [2, 5, 6, 7, 8, 3]]), torch.tensor([[1, 1, 1, 1, 0, 0], [1] * 6])
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
    found = session.run(["start_logits", "end_logits"], {name: x.numpy() for name, x in inputs.items()})
    expected = model(**inputs)
    for ours, theirs in zip(found, (expected.start_logits, expected.end_logits), strict=True):
        assert (theirs[mask != 0] < 0).all()
        np.testing.assert_allclose(ours, theirs.detach(), rtol=1e-4, atol=1e-4)
        assert (ours.argmax(axis=1) < mask.sum(dim=1).numpy()).all()


@pytest.mark.campaign
def test_a_model_without_segments(tmp_path: Path) -> None:
    """Its packed graph has two inputs only, and is compared with the model."""
    folder = save_tiny(tmp_path / "model", model_type="distilbert", type_vocab_size=0, num_hidden_layers=1)
    exported = export_onnx(bertkit.BertModel.from_pretrained(folder), None, tmp_path / "out")
    assert list(exported.variants["packed"]["inputs"]) == ["input_ids", "cu_seqlens"]
    assert exported.variants["packed"]["largest_difference"] <= 1e-4


def test_the_command_works_on_the_processor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "bertkit-tiny-en", "--out", str(tmp_path / "out"), "--device", "cuda"]) == 2
    assert "--device cuda has no effect" in capsys.readouterr().err
