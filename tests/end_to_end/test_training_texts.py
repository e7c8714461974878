"""BART and T5 that write, beyond what every kind of run shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from bertkit import pipeline
from bertkit.model.seq2seq.seq2seq_layers import CrossAttention
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from kind_runs import reversing
from kinds_data import LISTED, encoder_decoder
from pipeline_helpers import Command

KIND = "texts"
#: Rate and epochs with which each family learns to reverse lists of words.
LEARNING: dict[str, dict[str, Any]] = {
    "bart": {"learning_rate": 2e-3, "epochs": 10},
    "t5": {"learning_rate": 4.5e-3, "epochs": 12},
}
SMALL: dict[str, Any] = {"batch_size": 64, "max_target_length": 16, "precision": "fp32", "patience": 0}


@pytest.mark.slow
@pytest.mark.campaign  # the run takes ten seconds; a smaller one of ``test_denoising_pretraining.py`` is always made
def test_what_the_run_generates(run: Path, command: Command) -> None:
    pipe = pipeline(model=run)
    assert pipe(["oak pea", "ash bay cod"]) == [{"generated_text": "pea oak"}, {"generated_text": "cod bay ash"}]
    theirs = transformers.BartForConditionalGeneration.from_pretrained(run)
    ids = torch.tensor([pipe.tokenizer("ash bay cod")["input_ids"]])
    assert pipe.tokenizer.decode(theirs.generate(ids)[0], skip_special_tokens=True).strip() == "cod bay ash"
    assert theirs.generation_config.max_new_tokens == 16
    assert command("generate", "--model", run, "oak pea")[1] == "pea oak\n"


@pytest.mark.campaign
@pytest.mark.parametrize("family", ["bart", "t5"])
def test_without_cross_attention_nothing_is_learned(
    family: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T5 learns as BART does; a decoder that does not see the source only learns which words there are."""
    model = encoder_decoder(tmp_path / "start", LISTED, family)
    config = FinetuneConfig(**SMALL, **LEARNING[family])
    if family == "t5":
        assert finetune(reversing(), data, model, tmp_path / "run", config).mean["exact_match"] > 0.95
    right = CrossAttention.forward
    monkeypatch.setattr(CrossAttention, "forward", lambda self, *given, **more: 0 * right(self, *given, **more))
    blind = finetune(reversing(), data, model, tmp_path / "blind", config)
    assert blind.mean["exact_match"] < 0.05
