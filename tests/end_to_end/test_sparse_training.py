"""Training of sparse vectors: they find more and have fewer words, and the folder works everywhere."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertkit
from bertkit.cli import main
from bertkit.config.bert_config import BertConfig
from bertkit.errors import CheckpointError, ConfigError
from bertkit.inference.evaluate import evaluate_run
from bertkit.model.models import BertForMaskedLM
from bertkit.system.interrupts import Interrupted
from bertkit.tasks import check_task, get_task
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.trainer.callbacks import Callback
from embedding_data import TOPICS, untrained, write_data

QUICK: dict[str, Any] = {"epochs": 6, "batch_size": 16, "learning_rate": 5e-3, "precision": "fp32", "max_length": 12}
TASK = get_task("sparse-pairs")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs, a masked LM that knows nothing, and a finished run."""
    folder = tmp_path_factory.mktemp("sparse")
    write_data(folder / "data", "pairs", train=240)
    untrained(folder / "start", sentence=False)
    torch.manual_seed(0)
    BertForMaskedLM(BertConfig.from_json_file(folder / "start" / "config.json")).save_pretrained(folder / "start")
    finetune(TASK, folder / "data", folder / "start", folder / "run", FinetuneConfig(**QUICK))
    return folder


def test_trained_vectors_find_more(place: Path) -> None:
    before = evaluate_run(TASK, place / "data", place / "start", write=False)
    after = evaluate_run(TASK, place / "data", place / "run", write=False)
    told = json.loads((place / "run" / "metrics.json").read_text())
    assert after.scores == pytest.approx({k: v for k, v in told["scores"].items() if k != "loss"}, abs=1e-5)
    assert after.scores["ndcg@10"] > before.scores["ndcg@10"] + 0.2
    assert told["interval"][0] <= after.scores["ndcg@10"] <= told["interval"][1]
    assert told["baseline"]["name"] == "BM25"
    assert told["protocol"]["document_flops"] == 3e-5


def test_the_scores_are_those_of_the_pipelines_vectors(place: Path) -> None:
    pipe = bertkit.pipeline("sparse-encoding", model=place / "run")
    assert pipe.max_length == 12
    rows = [json.loads(line) for line in (place / "run" / "predictions-dev.jsonl").read_text().splitlines()]
    anchors, positives = (pipe([row[name] for row in rows]) for name in ("text", "text_pair"))
    products = np.array([[anchor.dot(positive) for positive in positives] for anchor in anchors])
    assert [row["predicted"] for row in rows] == pytest.approx(products.diagonal().tolist(), rel=1e-3)
    ranks = (products > products.diagonal()[:, None]).sum(axis=1)
    scores = json.loads((place / "run" / "metrics.json").read_text())["scores"]
    assert scores["recall@1"] == pytest.approx((ranks == 0).mean(), abs=1e-6)
    assert scores["query_words"] == pytest.approx(np.mean([len(anchor.ids) for anchor in anchors]), abs=0.3)
    assert len(rows) == TOPICS


def test_a_stronger_penalty_leaves_fewer_words(place: Path) -> None:
    settings = FinetuneConfig(**QUICK, query_flops=0.3, document_flops=0.3, baseline=False)
    strict = finetune(TASK, place / "data", place / "start", place / "strict", settings)
    usual = json.loads((place / "run" / "metrics.json").read_text())["scores"]
    assert strict.scores["document_words"] < usual["document_words"]


class _Stop(Callback):
    def on_step(self, trainer: Any, record: Any) -> None:
        if trainer.at.step == 20:
            signal.raise_signal(signal.SIGINT)


def test_a_stopped_run_goes_on_with_its_penalty(place: Path) -> None:
    given = (TASK, place / "data", place / "start", place / "stopped", FinetuneConfig(**QUICK))
    with pytest.raises(Interrupted):
        finetune(*given, callbacks=[_Stop()])
    finetune(*given, resume=True)
    names = ("model.safetensors", "predictions-dev.jsonl")
    assert all((place / "stopped" / name).read_bytes() == (place / "run" / name).read_bytes() for name in names)


def test_commands_and_refusals(place: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["embed", "--sparse", "--model", str(place / "run"), "aq ar as", "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["embedding"]
    where = ["--data", str(place / "data"), "--model", str(place / "start"), "--out", str(tmp_path / "run"), "-q"]
    assert main(["finetune", "sparse-pairs", *where, "--temperature", "0.1"]) == 2
    assert "has no effect" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="lora"):
        finetune(TASK, place / "data", place / "start", tmp_path / "run", FinetuneConfig(lora=2))
    untrained(tmp_path / "encoder", sentence=False)
    with pytest.raises(CheckpointError, match="masked-lm head"):
        finetune(TASK, place / "data", tmp_path / "encoder", tmp_path / "run", FinetuneConfig(**QUICK))
    assert check_task(TASK, place / "data")[-1].startswith("the task survives")
