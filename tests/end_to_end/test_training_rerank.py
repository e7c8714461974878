"""Rerankers, beyond what every kind of run shows: the command, negatives, losses, other software that loads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit import pipeline
from bertkit.cli import main
from bertkit.errors import DataError
from bertkit.inference.evaluate import evaluate_run
from bertkit.inference.runs import open_run
from bertkit.metrics.probabilities import sigmoid
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from kind_runs import Made
from pipeline_helpers import Command

KIND = "rerank"
QUICK = {"learning_rate": 3e-3, "epochs": 3, "batch_size": 8, "max_length": 24}


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def rows_of(run: Path) -> list[Any]:
    return [json.loads(line) for line in (run / "predictions-dev.jsonl").read_text().splitlines()]


def test_the_baseline_beside_a_random_order(made: Made) -> None:
    told = made.told()
    assert told["baseline"]["name"] == "BM25"
    low, high = told["baseline"]["random_order_intervals"]["mrr@10"]
    assert low < (1 + 1 / 2 + 1 / 3) / 3 < high
    assert told["seeds"][0]["label_entropy"] == pytest.approx(np.log(3), abs=1e-4)
    assert "model - BM25" in evaluate_run("rerank", made.data, made.run, write=False).table


def test_the_command_ranks_as_the_run_did(made: Made, command: Command) -> None:
    rows, model = made.rows(), ("rerank", "--model", made.run, "--device", "cpu")
    code, out, _ = command(*model, "--json", "--data", made.data / "dev.csv")
    assert code == 0
    told = [json.loads(line) for line in out.splitlines()]
    assert [[found["index"] for found in one["ranking"]] for one in told] == [row["predicted"] for row in rows]
    code, out, _ = command(*model, "--top-k", 1, rows[0]["query"], *rows[0]["documents"])
    assert code == 0
    assert out.rstrip().endswith(f"  {rows[0]['predicted'][0]}  {told[0]['ranking'][0]['text']}")
    code, _, err = command(*model, "--top-k", 1, rows[0]["query"])
    assert (code, "no text" in err) == (2, True)


def test_a_file_is_predicted(run: Path, data: Path, tmp_path: Path) -> None:
    file = tmp_path / "more.csv"
    file.write_text("query,document\na film,dull the film\na film,great the film\n")
    out = tmp_path / "out.jsonl"
    assert main(["predict", "--model", str(run), str(file), "--out", str(out), "--device", "cpu"]) == 0
    (row,) = (json.loads(line) for line in out.read_text().splitlines())
    assert (row["query"], row["predicted"], row["truncated"]) == ("a film", [1, 0], False)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["pointwise", "lambda"])
def test_other_losses_learn_it_too(start: Path, data: Path, tmp_path: Path, loss: str) -> None:
    config = FinetuneConfig(**{**QUICK, "rank_loss": loss, "baseline": False})
    result = finetune("rerank", data, start, tmp_path / "run", config)
    assert result.mean["mrr@10"] >= 0.9
    assert not result.replaced


def test_negatives_from_the_command_line(start: Path, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text("q,positive\n" + "".join(f"the film {n},the good film {n} scene\n" for n in range(40)))
    options = ["finetune", "rerank", "--data", str(file), "--model", str(start), "--text", "q", "--epochs", "1"]
    options += ["--device", "cpu", "--max-length", "24", "--restarts", "0"]
    assert main([*options, "--out", str(tmp_path / "none")]) == 3
    assert "--negatives N" in capsys.readouterr().err
    assert main([*options, "--out", str(tmp_path / "run"), "--negatives", "3"]) == 0
    told = read(tmp_path / "run" / "metrics.json")
    assert told["protocol"]["data"]["dev_held_out_of_train"]
    assert (told["protocol"]["negatives"], told["protocol"]["searcher"]) == (3, "bm25")
    rows = rows_of(tmp_path / "run")
    assert all(len(row["documents"]) == 4 for row in rows)
    again = evaluate_run(open_run(tmp_path / "run").task, file, tmp_path / "run", write=False)
    assert [row["documents"] for row in again.predictions] == [row["documents"] for row in rows], "the same negatives"
    out = tmp_path / "out.jsonl"
    assert main(["predict", "--model", str(tmp_path / "run"), str(file), "--out", str(out), "--device", "cpu"]) == 0
    assert all(len(json.loads(line)["documents"]) == 1 for line in out.read_text().splitlines()), "the file as it is"
    assert main([*options, "--out", str(tmp_path / "other"), "--multi-label"]) == 2
    assert "task rerank does not take --multi-label, but task csv does" in capsys.readouterr().err
    csv = ["finetune", "csv", "--data", str(file), "--model", str(start), "--out", str(tmp_path / "x")]
    assert main([*csv, "--negatives", "3"]) == 2
    assert "but task rerank does" in capsys.readouterr().err


def test_labels_that_a_loss_does_not_take(start: Path, data: Path, tmp_path: Path) -> None:
    text = (data / "train.csv").read_text().replace(",1\n", ",31\n")
    for loss in ("pointwise", "lambda"):
        (tmp_path / "train.csv").write_text(text)
        config = FinetuneConfig(**{**QUICK, "rank_loss": loss})
        with pytest.raises(DataError, match=r"a label is 31.*--rank-loss listwise"):
            finetune("rerank", tmp_path, start, tmp_path / "run", config)


@pytest.mark.campaign
def test_cross_encoder_of_sentence_transformers(run: Path, tmp_path: Path) -> None:
    """Both ways: it loads our run with equal scores, and we load what it saves, also with another activation."""
    import torch

    peers = pytest.importorskip("sentence_transformers")
    rows = rows_of(run)
    pairs = [(row["query"], text) for row in rows for text in row["documents"]]
    theirs = peers.CrossEncoder(str(run), device="cpu", max_length=24)
    expected = theirs.predict(pairs)
    assert expected == pytest.approx(sigmoid(np.concatenate([row["logits"] for row in rows])), abs=1e-5)
    for number, activation in enumerate((torch.nn.Sigmoid(), torch.nn.Identity())):
        folder = tmp_path / str(number)
        peers.CrossEncoder(str(run), device="cpu", activation_fn=activation).save_pretrained(str(folder))
        pipe = pipeline("text-ranking", model=folder, device="cpu", precision="fp32")
        pipe.model.save_pretrained(tmp_path / "ours")  # with the activation in config.json
        pipe.tokenizer.save_pretrained(tmp_path / "ours")
        ours = peers.CrossEncoder(str(tmp_path / "ours"), device="cpu")
        assert type(ours.activation_fn) is type(activation)
        loaded = peers.CrossEncoder(str(folder), device="cpu")
        for row in rows:
            ranked = loaded.rank(row["query"], row["documents"])
            ours = pipe(row["query"], row["documents"])
            assert [found["index"] for found in ours] == [int(found["corpus_id"]) for found in ranked]
            assert [found["score"] for found in ours] == pytest.approx([float(r["score"]) for r in ranked], abs=1e-5)


@pytest.mark.campaign
def test_lambda_loss_of_sentence_transformers() -> None:
    import torch

    from bertkit.model.reranker import lambda_loss

    losses = pytest.importorskip("sentence_transformers.cross_encoder.losses")

    class Given:
        """A model that gives these scores."""

        num_labels, device = 1, torch.device("cpu")

        def __init__(self, scores: torch.Tensor) -> None:
            self.scores = scores

        def preprocess(self, pairs: Any, **_: Any) -> dict[str, torch.Tensor]:
            return {"scores": self.scores}

        def __call__(self, tokens: Any) -> Any:
            return tokens

    generator = torch.Generator().manual_seed(0)
    for size in (2, 5, 12):
        scores, gains = (
            torch.randn(size, generator=generator),
            torch.randint(0, 4, (size,), generator=generator).float(),
        )
        gains[0] = 3.0
        theirs = losses.LambdaLoss(Given(scores), mini_batch_size=-1)([["q"], [["d"] * size]], [gains])
        pairs = int((gains[:, None] > gains[None, :]).sum())
        ours = lambda_loss(scores, gains, torch.tensor([0, size]))
        assert float(ours.total) == pytest.approx(float(theirs) * pairs, rel=1e-5)
