"""The vectors of texts by a sentence model, in eval mode: what is scored, and what negatives are found with."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bertkit.engine.backend import Check, Pack, Values, Wanted
from bertkit.engine.inference_engine import InferenceEngine, stop_nothing
from bertkit.model.sentence_model import SentenceModel
from bertkit.ragged import Floats, Ragged
from bertkit.system.console import Progress


class VectorEngine:
    """Computes vectors of a sentence model, whose later changes are followed; it is put into eval mode."""

    def __init__(self, sentences: SentenceModel) -> None:
        self.sentences = sentences.eval()
        self.engine = InferenceEngine.for_scoring(sentences.encoder)

    @property
    def model(self) -> SentenceModel:
        """The model object."""
        return self.sentences

    @property
    def device(self) -> str:
        """Where it computes."""
        return self.engine.device

    def vectors(self, rows: Ragged, advance: Callable[[int], None]) -> Floats:
        """The vector of each row, float32 ``(B, D)``; ``advance`` gets the number of rows after each pack."""
        wanted = Wanted(("last_hidden_state",), self.sentences.head.config.pooling)
        return self.engine.matrix(rows, wanted, self._read, advance)

    def shown_vectors(self, rows: Ragged, *, check: Check = stop_nothing, label: str) -> Floats:
        """The same; ``check`` is called between packs, and a progress bar says ``label``."""
        check()
        with Progress(len(rows), label=label, unit="texts", check=check) as bar:
            return self.vectors(rows, bar.advance)

    def _read(self, pack: Pack, values: Values) -> Floats:
        (pooled_BD,) = values.values()
        encoder = self.sentences.encoder
        with torch.inference_mode():
            x_BD = torch.from_numpy(pooled_BD).to(encoder.device, encoder.dtype)
            for step in self.sentences.head.steps:
                x_BD = step(x_BD)
            found: Floats = x_BD.float().cpu().numpy()
        return found
