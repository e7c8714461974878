"""The classifier that several files of tests export: torch's exporter then traces it once, see ``traced_once.py``."""

from __future__ import annotations

from pathlib import Path

import torch

from bertkit import BertForSequenceClassification
from pipeline_helpers import save_tiny

LABELS = {0: "bad", 1: "so-so", 2: "good"}


def save_classifier(folder: Path) -> Path:
    """A classifier with three labels and one layer, whose biases are not 0: a graph has no biases that are."""
    save_tiny(folder, BertForSequenceClassification, id2label=LABELS, max_position_embeddings=48, num_hidden_layers=1)
    model = BertForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.1, generator=torch.Generator().manual_seed(1))
    model.save_pretrained(folder)
    return folder
