"""What heads say, computed by torch from vectors that any back-end has made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from bertkit.engine.backend import Pack, Values, Wanted
from bertkit.engine.torch_backend import batch_of
from bertkit.model.auto import class_named
from bertkit.model.models import HeadModel
from bertkit.model.shared_encoder import head_outputs
from bertkit.ragged import Floats

_VECTORS = Wanted(("last_hidden_state",))


class TorchHeads:
    """The heads of models by name, made of the checkpoint and the class of each. configs: of each."""

    def __init__(self, places: Mapping[str, tuple[Path, str]]) -> None:
        self._models = {name: _head(*place) for name, place in places.items()}
        self.configs = {name: model.config for name, model in self._models.items()}

    def say(self, hidden_TD: Floats, pack: Pack) -> dict[str, Values]:
        """The outputs of each head."""
        batch = batch_of(pack, _VECTORS)
        with torch.inference_mode():
            x_TD = torch.from_numpy(hidden_TD)
            said = {name: head_outputs(model, x_TD, batch) for name, model in self._models.items()}
            return {name: {field: out[field].numpy() for field in out} for name, out in said.items()}


def _head(folder: Path, model_class: str) -> HeadModel:
    model = class_named(model_class).from_pretrained(folder)
    assert isinstance(model, HeadModel)
    model.bert.embeddings, model.bert.encoder = nn.Identity(), nn.Identity()  # type: ignore[assignment]
    return model.eval()
