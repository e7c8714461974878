"""A head on a frozen encoder: every text is encoded once, not once per epoch.

The features are what ``BertForSequenceClassification`` feeds its head, so the trained head put back into the full model
predicts the same: with mean or max pooling, these vectors; otherwise the pooled [CLS] vectors of BERT and ALBERT, whose
pooler comes with the encoder, and the [CLS] vectors themselves where the layer after them is trained with the head
(RoBERTa, DistilBERT, ELECTRA, ModernBERT, and a checkpoint without a pooler); of a BART, whose head has a layer too,
the decoder's vector at the end of the text. They are cached on disk, keyed by the
hash of the weights and of the token ids, and bounded in size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.engine.backend import Wanted
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.errors import counted
from bertkit.model.losses import class_loss
from bertkit.model.models import BertForSequenceClassification, HeadModel
from bertkit.model.output import ModelOutput
from bertkit.model.seq2seq.reading_heads import BartForSequenceClassification
from bertkit.ragged import Floats, GroupSet, Ragged
from bertkit.system.console import say
from bertkit.training.finetuning.feature_cache import read_features, write_features

if TYPE_CHECKING:
    from bertkit.model.auto import AnyModel

Classifier = BertForSequenceClassification | BartForSequenceClassification
CLASSIFIERS = (BertForSequenceClassification, BartForSequenceClassification)
#: Fields of the config that do not change the vectors.
_OF_THE_HEAD = {"id2label", "problem_type", "architectures", "pooling", "activation_fn"}


@dataclass(frozen=True, slots=True)
class VectorBatch:
    """Rows of frozen features: ``vectors`` float ``(B, D)``; ``targets`` as in :class:`bertkit.batch.Batch`."""

    vectors: Tensor
    targets: Mapping[str, Tensor] = field(default_factory=dict)

    def to(self, device: torch.device | str) -> VectorBatch:
        """The same batch on ``device``."""
        moved = {name: target.to(device) for name, target in self.targets.items()}
        return VectorBatch(self.vectors.to(device), moved)


class FrozenHead(nn.Module):
    """The head of a full model, trained on vectors. It shares the model's parameters: nothing has to be copied back."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.pooler: nn.Module | None = None
        self.dropout: nn.Module
        self.classifier: nn.Module
        if isinstance(model, BartForSequenceClassification):
            self.dropout, self.classifier = nn.Identity(), model.classification_head
        else:
            self.pooler = model.layer or (model.bert.pooler if has_own_pooler(model) else None)
            self.dropout, self.classifier = model.dropout, model.classifier
        self._owner = (model,)  # in a tuple, so that the encoder does not become a part of this module

    def read(self, vectors_BD: Tensor) -> Tensor:
        """What the classifier reads of the vectors."""
        return vectors_BD if self.pooler is None else self.pooler(vectors_BD)

    def forward_packed(self, batch: VectorBatch) -> ModelOutput:
        """Logits ``(B, C)``; with targets also the loss."""
        model = self._owner[0]
        logits = self.classifier(self.dropout(self.read(batch.vectors)))
        if not batch.targets:
            return ModelOutput(logits=logits)
        labels, rows = batch.targets["labels"], batch.targets.get("row_weights")
        term = class_loss(logits, labels, model.config.problem_type, model.class_weights, rows)
        return ModelOutput(logits=logits, loss=term.mean(), loss_terms={"loss": term})

    def num_targets(self, batch: VectorBatch) -> dict[str, float]:
        """As the full model counts them."""
        return self._owner[0].num_targets(batch)  # type: ignore[arg-type]

    def logits(self, vectors: Floats, features: Ragged | GroupSet) -> Floats:
        """Logits of all rows without gradients: float32 ``(n, C)``; of a row in windows, the mean of theirs."""
        self.eval()
        with torch.inference_mode():
            given = torch.from_numpy(vectors).to(next(self.parameters()).device)
            found = self.forward_packed(VectorBatch(given)).logits
            assert found is not None
            out: Floats = found.cpu().numpy()
        windows = windows_apart(self._owner[0], features)
        return out if windows is None else windows.mean(out)


def has_own_pooler(model: AnyModel) -> bool:
    """Whether the layer between encoder and classifier belongs to the head, not to the encoder.

    It does in some families, and where the checkpoint had no pooler, so that one was drawn with the head.
    """
    if not isinstance(model, HeadModel) or model.layer is not None:  # BART's has a layer
        return True
    drawn = model.load_report is not None and "pooler" in model.load_report.new_parts
    return model.uses_pooler and (drawn or model.kind in model.config.family.poolers)


def windows_apart(model: Classifier, features: Ragged | GroupSet) -> GroupSet | None:
    """The rows, if each has one vector per window; None if a row has one vector.

    One is enough for a linear head, whose mean logits are those of the mean vector, but not for a layer of its own.
    """
    return features if isinstance(features, GroupSet) and has_own_pooler(model) else None


def frozen_vectors(
    model: Classifier, features: Ragged | GroupSet, *, cache: Path | None = None, label: str = "encoding"
) -> Floats:
    """The vector of every row that the head reads, float32 ``(n, D)``; puts the model into eval mode.

    For a row in windows it is the mean over them, or one per window (:func:`windows_apart`). ``cache``: None computes.
    """
    if isinstance(features, GroupSet):
        vectors = frozen_vectors(model, features.sequences, cache=cache, label=label)
        return vectors if windows_apart(model, features) else features.mean(vectors)
    file = None if cache is None else cache / f"{_key(model, features)}.safetensors"
    if file is not None and (found := read_features(file, (len(features), model.config.hidden_size))) is not None:
        say(f"{label}: {counted(len(features), 'row')} found in the feature cache ({file})")
        return found

    wanted = Wanted(("pooler_output",))
    if not isinstance(model, BartForSequenceClassification) and (
        model.config.pooling != "cls" or has_own_pooler(model)
    ):
        wanted = Wanted(("last_hidden_state",), (model.config.pooling,))
    vectors = InferenceEngine.for_scoring(model).encoder().row_outputs(features, wanted, label=label)
    if file is not None:
        write_features(file, vectors)
    return vectors


def freeze_encoder(model: AnyModel) -> None:
    """Train only the head's own parts, for heads that :class:`FrozenHead` does not fit."""
    prefixes = tuple(
        prefix for prefix in model.head_prefixes if has_own_pooler(model) or not prefix.startswith("bert.pooler.")
    )
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith((*prefixes, "layer.")))


def _key(model: Classifier, features: Ragged) -> str:
    encoder: nn.Module
    if isinstance(model, BartForSequenceClassification):
        kind, encoder = "end-1", model.model
    else:
        pooling, encoder = model.config.pooling, model.bert
        kind = f"{pooling}-1" if pooling != "cls" else "first-1" if has_own_pooler(model) else "pooled-1"
    digest = hashlib.sha256(kind.encode())
    digest.update(model.config.model_dump_json(exclude=_OF_THE_HEAD).encode())
    for name, parameter in encoder.named_parameters():
        if has_own_pooler(model) and name.startswith("pooler."):
            continue  # of the head: its vectors come before it
        digest.update(name.encode())
        digest.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    for array in (features.ids, features.token_type_ids, features.boundaries):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
