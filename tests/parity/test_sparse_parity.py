"""Weights of words beside transformers' logits and the plain formula; and beside sentence-transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bertkit import AutoTokenizer, BartConfig, BartForConditionalGeneration, BertForMaskedLM, pipeline
from bertkit.batch import pack
from bertkit.checkpoints.sparse_folder import SparseSettings
from bertkit.cli import main
from bertkit.errors import CheckpointError, InputError
from bertkit.model import word_weights as module
from bertkit.model.sparse_comparison import SparseComparison
from bertkit.model.word_weights import BLOCK, flops_loss, word_weights
from pipeline_helpers import TOLERANCES, save_tiny

transformers = pytest.importorskip("transformers")

TEXTS = ["The capital of France is Paris.", "hello", "A sentence that says more than one thing, and ends: here!"] * 2
TINY_TEXTS = ["the good film", "a", "not very good . it was a bad film", "dull scene"]


@pytest.fixture(scope="module")
def splade(shared: Path) -> Path:
    return shared / "models" / "bert-tiny-splade-mlm"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("mlm"), BertForMaskedLM)


def plain(folder: Path, texts: list[str], pooling: str = "max", logs: int = 1) -> Tensor:
    """One text at a time, without padding: ``(texts, V)``."""
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    rows = []
    for text in texts:
        with torch.inference_mode():
            logits = model(**tokenizer(text, return_tensors="pt")).logits[0]
        weights = torch.log(1 + torch.relu(logits))
        weights = torch.log(1 + weights) if logs == 2 else weights
        rows.append(weights.max(dim=0).values if pooling == "max" else weights.sum(dim=0))
    return torch.stack(rows)


def dense(found: Any, width: int) -> Any:
    rows = np.zeros((len(found), width), np.float32)
    for row, each in zip(rows, found, strict=True):
        row[each.ids] = each.weights
    return rows


def as_folder_of_sentence_transformers(model: Path, home: Path, **pooling: str) -> Path:
    home.mkdir()
    for file in model.iterdir():
        (home / file.name).write_bytes(file.read_bytes())
    kinds = {"": "MLMTransformer", "1_SpladePooling": "SpladePooling"}
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.sparse_encoder.models.{kind}"}
        for n, (path, kind) in enumerate(kinds.items())
    ]
    (home / "modules.json").write_text(json.dumps(modules))
    (home / "1_SpladePooling").mkdir()
    (home / "1_SpladePooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": None, **pooling}))
    return home


@pytest.mark.parametrize("precision", ["fp32", "auto"])
def test_splade_equals_the_formula(splade: Path, precision: Any) -> None:
    pipe = pipeline("sparse-encoding", model=splade, device="cpu", precision=precision)
    found, expected = pipe(TEXTS), plain(splade, TEXTS).numpy()
    assert np.abs(dense(found, expected.shape[1]) - expected).max() < 10 * TOLERANCES[precision]
    first = found[0]
    assert list(first.as_dict())[:4] == ["capital", "paris", "france", "french"]
    assert first.tokens == pipe.tokenizer.convert_ids_to_tokens(first.ids.tolist())
    assert (first.num_tokens, first.truncated) == (9, False)
    assert first.dot(found[2]) == pytest.approx(float(expected[0] @ expected[2]), abs=1e-3)
    assert list(pipe(TEXTS[0], top_k=2).as_dict()) == ["capital", "paris"]


@pytest.mark.parametrize("pooling", ["max", "sum"])
@pytest.mark.parametrize(("activation", "logs"), [("relu", 1), ("log1p_relu", 2)])
def test_other_settings_of_the_folder(tiny: Path, tmp_path: Path, pooling: str, activation: str, logs: int) -> None:
    home = as_folder_of_sentence_transformers(
        tiny, tmp_path / "home", pooling_strategy=pooling, activation_function=activation
    )
    pipe = pipeline("sparse-encoding", model=home, device="cpu", precision="fp32")
    expected = plain(tiny, TINY_TEXTS, pooling, logs).numpy()
    assert np.abs(dense(pipe(TINY_TEXTS), expected.shape[1]) - expected).max() < 1e-5
    assert np.abs(expected - plain(tiny, TINY_TEXTS).numpy()).max() > 0.01 or (pooling, logs) == ("max", 1), "control"


def test_never_the_logits_of_all_tokens(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks cut through texts, and the result and its gradients are those of one block."""
    model = BertForMaskedLM.from_pretrained(tiny)
    generator = np.random.default_rng(0)
    batch = pack([[2, *generator.integers(5, 70, size).tolist(), 3] for size in (60, 1, 17, 58, 40, 3)])
    rows: list[int] = []
    predict = model._predict_words

    def watched(encoded: Any) -> Tensor:
        rows.append(len(encoded.last_hidden_state))
        return predict(encoded)

    monkeypatch.setattr(model, "_predict_words", watched)
    for pooling in ("max", "sum"):
        expected = plain_of(model, batch, pooling)
        table = model.bert.embeddings.word_embeddings.weight
        (gradient,) = torch.autograd.grad(expected.square().sum(), table)
        for block in (7, BLOCK, 1000):
            monkeypatch.setattr(module, "BLOCK", block)
            rows.clear()
            found = word_weights(model, batch, pooling)
            assert max(rows) <= block
            assert sum(rows) == batch.layout.num_tokens
            torch.testing.assert_close(found, expected)
            again = torch.autograd.grad(found.square().sum(), table)[0]
            torch.testing.assert_close(again, gradient, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", ["roberta", "albert", "electra", "modernbert", "deberta-v3"])
def test_heads_of_other_families(kind: str) -> None:
    """ALBERT projects narrower vectors, ELECTRA's head is its generator's, ModernBERT's has no bias."""
    from bertkit import BertConfig
    from family_helpers import SHAPES

    model_type, values = next(shape for name, shape in SHAPES.items() if name.startswith(kind))
    torch.manual_seed(0)
    model = BertForMaskedLM(BertConfig.from_dict({"model_type": model_type, **values})).eval()
    batch = pack([[5, 7, 9, 4], [8, 6], [11, 12, 13]])
    torch.testing.assert_close(word_weights(model, batch), plain_of(model, batch, "max"))


def plain_of(model: BertForMaskedLM, batch: Any, pooling: str) -> Tensor:
    logits = model.forward_packed(batch).logits
    assert logits is not None
    parts = torch.log(1 + torch.relu(logits)).split(batch.layout.lengths)
    return torch.stack([part.max(dim=0).values if pooling == "max" else part.sum(dim=0) for part in parts])


def test_the_penalty_is_its_formula() -> None:
    """Paria et al. 2020: the sum over j of ``(1/n * sum over i of |w_ij|) ** 2``."""
    weights = torch.rand(5, 11, dtype=torch.float64, requires_grad=True)
    plainly = sum((sum(abs(weights[i, j].item()) for i in range(5)) / 5) ** 2 for j in range(11))
    assert float(flops_loss(weights.detach())) == pytest.approx(plainly)
    assert torch.autograd.gradcheck(flops_loss, weights)
    even, skewed = torch.full((4, 4), 0.25), torch.eye(4)[[0, 0, 0, 0]]
    assert flops_loss(even) < flops_loss(skewed), "control: a word that all texts have costs more than words apart"


def test_command(splade: Path, tmp_path: Path, capsys: Any) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    start = ["embed", "--model", str(splade), "--device", "cpu", "--sparse", *TEXTS[:2]]
    assert main(start) == 0
    assert capsys.readouterr().out.startswith("capital 2.66")
    assert main([*start, "--json"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed.splitlines()[1])["embedding"]["hello"] == pytest.approx(2.823, abs=0.01)
    assert main([*start, "--out", str(tmp_path / "a.jsonl")]) == 0
    assert (tmp_path / "a.jsonl").read_text() == printed
    assert main([*start, "--out", str(tmp_path / "a.npz")]) == 0
    matrix = sparse.load_npz(tmp_path / "a.npz")
    expected = plain(splade, TEXTS[:2]).numpy()
    assert matrix.shape == expected.shape
    assert np.abs(matrix.toarray() - expected).max() < 1e-3
    for option in (["--normalize"], ["--pooling", "max"], ["--out", str(tmp_path / "a.npy")]):
        assert main([*start, *option]) == 2


def test_what_is_refused(tiny: Path, splade: Path, tmp_path: Path) -> None:
    home = as_folder_of_sentence_transformers(tiny, tmp_path / "a", pooling_strategy="mean")
    with pytest.raises(CheckpointError, match="pooling_strategy 'mean'"):
        pipeline("sparse-encoding", model=home, device="cpu")
    home = as_folder_of_sentence_transformers(tiny, tmp_path / "b")
    (home / "sentence_bert_config.json").write_text('{"max_seq_length": 5}')
    pipe = pipeline("sparse-encoding", model=home, device="cpu")
    with pytest.raises(InputError, match="the limit is 5"):
        pipe(TINY_TEXTS[2])
    assert pipe(TINY_TEXTS[2], truncation=True).truncated
    with pytest.raises(InputError, match="top_k"):
        pipe("a", top_k=0)
    modules = json.loads((home / "modules.json").read_text())
    modules[1]["type"] = "sentence_transformers.sparse_encoder.models.SparseAutoEncoder"
    (home / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(CheckpointError, match="the modules MLMTransformer, SparseAutoEncoder"):
        pipeline("sparse-encoding", model=home, device="cpu")
    bart = BartForConditionalGeneration(BartConfig(vocab_size=len(pipe.tokenizer), d_model=16, encoder_layers=1,
                                                   decoder_layers=1, max_position_embeddings=16))  # fmt: skip
    with pytest.raises(CheckpointError, match="makes no sparse vectors"):
        pipeline("sparse-encoding", model=bart, tokenizer=pipe.tokenizer)


@pytest.mark.campaign
def test_sparse_encoder_of_sentence_transformers(splade: Path, tmp_path: Path) -> None:
    peers = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sparse_encoder.losses import FlopsLoss

    theirs = peers.SparseEncoder(str(splade), device="cpu")
    expected = theirs.encode(TEXTS, convert_to_sparse_tensor=False)
    theirs.save_pretrained(str(tmp_path / "saved"))
    for folder in (splade, tmp_path / "saved"):
        pipe = pipeline("sparse-encoding", model=folder, device="cpu", precision="fp32")
        assert np.abs(dense(pipe(TEXTS), expected.shape[1]) - expected.numpy()).max() < 1e-5
    penalty = FlopsLoss(theirs).compute_loss_from_embeddings(expected)
    assert float(flops_loss(expected)) == pytest.approx(float(penalty), rel=1e-6)


def test_what_training_writes_is_a_sparse_encoder(splade: Path, tmp_path: Path) -> None:
    network = BertForMaskedLM.from_pretrained(splade)
    settings = SparseSettings("max", 1, 12)
    SparseComparison(network, settings, query_flops=0.0, document_flops=0.0).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(splade).save_pretrained(tmp_path)
    theirs = pytest.importorskip("sentence_transformers").SparseEncoder(str(tmp_path), device="cpu")
    assert theirs.max_seq_length == 12
    expected = theirs.encode(TEXTS, convert_to_sparse_tensor=False).float().numpy()
    found = pipeline("sparse-encoding", model=tmp_path, device="cpu", precision="fp32")(TEXTS, truncation=True)
    for each, row in zip(found, expected, strict=True):
        own = np.zeros_like(row)
        own[each.ids] = each.weights
        assert np.abs(own - row).max() < 1e-5
        assert row.max() > 0.1
