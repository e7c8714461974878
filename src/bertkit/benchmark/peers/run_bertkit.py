"""bertkit itself, as one more process; see ``peer.py``. It packs texts without padding, in any order."""

from __future__ import annotations

import numpy as np

from bertkit import pipeline
from bertkit.config.sentence_config import PoolingMode
from bertkit.engine.export_folder import is_export
from bertkit.inference.feature_extraction import hidden_states
from bertkit.ragged import Ragged
from peer import Floats, Setup, Texts, main


class Runner:
    """The engine behind a feature-extraction pipeline, given ids instead of texts."""

    batch_size: int | None = None

    def __init__(self, setup: Setup) -> None:
        # Torch has the number of threads from OMP_NUM_THREADS, and would set one that is given for every call.
        threads = setup.threads if is_export(setup.model) else None
        pipe = pipeline(
            "feature-extraction", model=setup.model, device="cpu", precision=setup.precision, threads=threads
        )
        self._engine = pipe.engine

    def vectors(self, texts: Texts) -> Floats:
        return np.stack(self._run(texts, ("mean",)))

    def hidden(self, texts: Texts) -> list[Floats]:
        return self._run(texts, None)

    def _run(self, texts: Texts, modes: tuple[PoolingMode, ...] | None) -> list[Floats]:
        ids, segments = texts.ids.astype(np.int32), texts.segments.astype(np.int8)
        rows: list[Floats] = self._engine.run(
            Ragged(ids, texts.boundaries, segments, texts.lengths), *hidden_states(modes)
        )
        return rows


if __name__ == "__main__":
    main(Runner)
