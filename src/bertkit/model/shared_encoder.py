"""Models of several tasks with one encoder between them, and their folder: the encoder once, each head beside it::

    FOLDER/config.json  model.safetensors           the encoder: load FOLDER like any encoder
    FOLDER/heads/NAME/config.json  head.safetensors     load FOLDER/heads/NAME like any model of its task

Multi-task learning with hard parameter sharing (Caruana 1997; for BERT Liu et al. 2019, MT-DNN).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.checkpoints.adapter_folder import FINGERPRINT_KEY, base_fingerprint
from bertkit.checkpoints.huggingface import find_weights
from bertkit.checkpoints.names import TABLES
from bertkit.checkpoints.save_folder import write_folder
from bertkit.config.bert_config import BertConfig
from bertkit.model.class_specs import spec_of
from bertkit.model.loading import published
from bertkit.model.models import BertForSequenceClassification, BertForTokenClassification, BertModel, HeadModel
from bertkit.model.output import ModelOutput
from bertkit.ragged import Floats
from bertkit.system.model_sources import HEAD, HEADS


@dataclass(frozen=True, slots=True)
class HeadBatch:
    """A batch of one head, with its targets."""

    head: str
    rows: Batch

    def to(self, device: torch.device | str) -> HeadBatch:
        """The same batch on ``device``."""
        return replace(self, rows=self.rows.to(device))


class SharedEncoder(nn.Module):
    """Models by name, with the embeddings and encoder layers of the first one, each with its own head and pooler."""

    def __init__(self, models: Mapping[str, HeadModel]) -> None:
        super().__init__()
        self.names = tuple(models)
        self.models = nn.ModuleList(models.values())
        first = self[self.names[0]].bert
        for name in self.names[1:]:
            self[name].bert.embeddings, self[name].bert.encoder = first.embeddings, first.encoder

    def __getitem__(self, name: str) -> HeadModel:
        model = self.models[self.names.index(name)]
        assert isinstance(model, HeadModel)
        return model

    def items(self) -> Iterator[tuple[str, HeadModel]]:
        """Name and model of each head."""
        return ((name, self[name]) for name in self.names)

    def forward_packed(self, batch: HeadBatch) -> ModelOutput:
        """The outputs of the batch's head, its loss under the name of the head in ``loss_terms``."""
        out = self[batch.head].forward_packed(batch.rows)
        if out.loss_terms:
            (term,) = out.loss_terms.values()
            out.loss_terms = {batch.head: term}
        return out

    def num_targets(self, batch: HeadBatch) -> dict[str, float]:
        """What the loss of the batch's head is divided by."""
        (count,) = self[batch.head].num_targets(batch.rows).values()
        return {batch.head: count}

    @torch.no_grad()
    def start_head(self, name: str, logits_C: Floats) -> None:
        """Set the bias of a new classifier so that it starts at ``logits_C``; one from a checkpoint is left alone.

        A bias moves by about the learning rate per step, and each head gets few steps. Starting at zero, the encoder
        would have to learn the label frequencies instead, at the expense of the other heads.
        """
        model = self[name]
        assert isinstance(model, BertForSequenceClassification | BertForTokenClassification)
        bias = model.classifier.bias
        if not bias.any():  # a new classifier has a bias of zeros
            bias.copy_(torch.from_numpy(logits_C))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the encoder, and each head in ``heads/NAME``; errors as for any model."""
        folder = Path(folder)
        save_encoder(self[self.names[0]].bert, folder)
        for name, model in self.items():
            save_head(model, folder, name)


def head_outputs(model: HeadModel, x_TD: Tensor, batch: Batch) -> ModelOutput:
    """What a classifier says, without a loss, of the vectors ``(T, D)`` that an encoder has computed of a batch."""
    assert model.reads != "words", "only asked of classifiers"
    read = x_TD[batch.layout.first_rows(x_TD.device)] if model.reads == "pooled" else x_TD
    pooled, out = None if model.bert.pooler is None else model.bert.pooler(read), ModelOutput()
    model._head(ModelOutput(last_hidden_state=read, pooler_output=pooled), batch, out)
    return out


def save_encoder(bert: BertModel, folder: Path) -> None:
    """Write an encoder alone, without its pooler, as the model of ``folder``."""
    config = bert.config.replace(problem_type=None, id2label=BertConfig().id2label)
    if not config.family.head_layer:
        config = config.replace(pooling="cls")
    with torch.device("meta"):
        alone = BertModel(config, add_pooling_layer=False)
    alone.embeddings, alone.encoder = bert.embeddings, bert.encoder
    alone.save_pretrained(folder)


def save_head(model: HeadModel, run: Path, name: str) -> None:
    """Write a model's head and pooler as ``run/heads/NAME``, in place of any weights there; ``run`` has the encoder."""
    config, tensors = published(model)
    spec, table = spec_of(model), TABLES[config.model_type]
    shared = {name for part, _, names in table.names(spec, config) if part == "encoder" for name in names}
    own: dict[str, Tensor] = {name: tensor for name, tensor in tensors.items() if name not in shared}
    mark = {FINGERPRINT_KEY: base_fingerprint(find_weights(run).tensors, table)}
    write_folder(run / HEADS / name, config, own, HEAD, metadata=mark)
