"""``transformers.Trainer`` trains, evaluates and saves a model of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bertkit import BartConfig, BertConfig, BertForQuestionAnswering, BertForSequenceClassification
from bertkit.errors import ConfigError
from bertkit.model.padded import PackedModel

CONFIG = BertConfig(
    vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
    max_position_embeddings=30, num_labels=2,
)  # fmt: skip


class Rows(torch.utils.data.Dataset):
    def __init__(self, targets: dict[str, int]) -> None:
        self.targets = targets

    def __len__(self) -> int:
        return 16

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        inputs = {"input_ids": torch.tensor([2, 5 + row, 3]), "attention_mask": torch.ones(3, dtype=torch.int64)}
        return inputs | {name: torch.tensor(row % most) for name, most in self.targets.items()}


@pytest.mark.parametrize(
    ("model_class", "targets"),
    [
        (BertForSequenceClassification, {"labels": 2}),
        (BertForQuestionAnswering, {"start_positions": 2, "end_positions": 3}),
    ],
)
def test_trains_and_evaluates(model_class: type[PackedModel], targets: dict[str, int], tmp_path: Path) -> None:
    from transformers import Trainer, TrainingArguments

    torch.manual_seed(0)
    model = model_class(CONFIG)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    options = TrainingArguments(
        output_dir=str(tmp_path), num_train_epochs=1, per_device_train_batch_size=4, report_to=[], use_cpu=True,
        disable_tqdm=True, learning_rate=1e-2, save_strategy="no",
    )  # fmt: skip
    trainer = Trainer(model=model, args=options, train_dataset=Rows(targets), eval_dataset=Rows(targets))
    trainer.train()
    assert any(not torch.equal(before[name], p) for name, p in model.named_parameters())
    with torch.inference_mode():
        rows = [Rows(targets)[row] for row in range(16)]
        batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
        expected = float(model.eval()(**batch).loss)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-5)
    assert trainer.label_names == list(targets)


SAID_ELSEWHERE = ("gradient_checkpointing", "torchscript")


def test_what_the_trainer_asks_of_a_model() -> None:
    model = BertForSequenceClassification(CONFIG)
    model.config.use_cache = False  # one of the keys that change no arithmetic
    assert model.config == CONFIG
    assert "use_cache" not in model.config.to_dict()
    with pytest.raises(ConfigError, match=r"config\.hidden_size cannot be set"):
        model.config.hidden_size = 8
    for name, usual in {**dict.fromkeys(SAID_ELSEWHERE, False), "return_dict": True}.items():
        setattr(model.config, name, usual)  # as it is anyway
        told = rf"config\.{name} = {not usual} would do nothing: .*({not usual}|export)"
        for config in (model.config, BartConfig()):
            with pytest.raises(ConfigError, match=told):
                setattr(config, name, not usual)
    BartConfig().use_cache = False
    tables = sum(p.numel() for name, p in model.named_parameters() if "_embeddings" in name)
    assert model.num_parameters(exclude_embeddings=True) == model.num_parameters() - tables
    model.bert.requires_grad_(False)
    assert model.num_parameters(only_trainable=True) == 16 * 2 + 2
