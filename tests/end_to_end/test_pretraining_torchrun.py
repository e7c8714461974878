"""The command under ``torchrun``: two processes train what one does."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
import torch

from bertkit.cli import main
from pretrain_runs import weights
from training_helpers import TWO_PROCESSES

BERT = ["--preset", "bert-tiny", "--word-embeddings", "cooccurrence"]
BART = """# Small.
[model]
preset = "bart-base"
d_model = 48
encoder_layers = 1
decoder_layers = 1
max_position_embeddings = 64
"""


@pytest.mark.parametrize(
    ("family", "mode"),
    [
        ("bert", "ddp"),
        pytest.param("bert", "fsdp", marks=pytest.mark.campaign),
        pytest.param("bart", "ddp", marks=pytest.mark.campaign),
    ],
)
def test_two_processes_train_what_one_does(stores, tmp_path, capsys, family, mode) -> None:
    (tmp_path / "bart.toml").write_text(BART)
    model = BERT if family == "bert" else ["--recipe", str(tmp_path / "bart.toml")]
    command = ["pretrain", str(stores[0].path), *model, "--max-seq-length", "32", "--batch-size", "9"]
    command += ["--max-steps", "5", "--dropout", "0", "--learning-rate", "1e-3", "--dev", str(stores[1].path)]
    command += ["--dev-examples", "16", "--no-curve", "--json", "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    assert main([*command, "--out", str(tmp_path / "one")]) == 0
    whole = [*TWO_PROCESSES, "-m", "bertkit", *command, "--out", str(tmp_path / "two"), "--parallel", mode]
    done = subprocess.run(whole, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stdout.splitlines()) == 1, "rank 0 alone speaks"
    told = [json.loads(capsys.readouterr().out), json.loads(done.stdout)]
    for name in ("masked_lm_loss", "next_sentence_loss") if family == "bert" else ("denoising_loss",):
        assert told[0][name] == pytest.approx(told[1][name], abs=1e-5)
    logs = [(tmp_path / name / "log.jsonl").read_text().splitlines() for name in ("one", "two")]
    losses = [[json.loads(line)["loss"] for line in log if "event" not in json.loads(line)] for log in logs]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert len(losses[1]) == 5
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert one.keys() == two.keys()
    for key, value in one.items():
        # Adam turns rounding into a step of up to the rate where a gradient is nearly 0.
        assert torch.allclose(value, two[key], atol=2e-3), key
    assert json.loads((tmp_path / "two" / "metrics.json").read_text())["hardware"]["processes"] == 2
