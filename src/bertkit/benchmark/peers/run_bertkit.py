"""bertkit itself, as one more process; see ``peer.py``. It packs texts without padding, in any order."""

from __future__ import annotations

import numpy as np

from bertkit.engine.rows import run_rows
from bertkit.engine.torch_backend import TorchBackend
from bertkit.inference.feature_extraction import embed
from bertkit.inference.pipelines import pipeline
from bertkit.ragged import Ragged
from peer import Floats, Setup, Texts, main


class Runner:
    """The engine behind a feature-extraction pipeline, given ids."""

    def __init__(self, setup: Setup) -> None:
        import torch

        torch.set_num_threads(setup.threads)
        self.pipe = pipeline("feature-extraction", model=setup.model, device="cpu")

    def vectors(self, texts: Texts) -> Floats:
        return np.stack(self._run(texts, "mean"))

    def hidden(self, texts: Texts) -> list[Floats]:
        return self._run(texts, None)

    def all_vectors(self, texts: Texts, order: str) -> Floats:
        return self.vectors(texts)  # the engine sorts

    def _run(self, texts: Texts, pooling: str | None) -> list[Floats]:
        ids, segments = texts.ids.astype(np.int32), texts.segments.astype(np.int8)
        rows = Ragged(ids, texts.boundaries, segments, texts.lengths)
        return run_rows(rows, TorchBackend(self.pipe.model, embed(pooling, normalize=False)))


if __name__ == "__main__":
    main(Runner)
