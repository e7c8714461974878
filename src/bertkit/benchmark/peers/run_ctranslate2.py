"""CTranslate2; see ``peer.py``. It takes ids without padding, and pads them itself."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import ctranslate2
import numpy as np

from peer import Floats, Ints, PaddedRunner, Setup, Texts, main

TYPES = {"fp32": "float32", "int8": "int8"}


def prepare(setup: Setup) -> None:
    """Convert the model."""
    converted = setup.work / "ctranslate2"
    if converted.exists():
        return
    with tempfile.TemporaryDirectory(dir=setup.work) as scratch:
        source, draft = Path(scratch) / "source", Path(scratch) / "converted"
        shutil.copytree(setup.model, source)
        # Newer configs leave out a key that the converter reads.
        config = {"position_embedding_type": "absolute", **setup.config}
        (source / "config.json").write_text(json.dumps(config), encoding="utf-8")
        ctranslate2.converters.TransformersConverter(str(source)).convert(str(draft))
        draft.rename(converted)


class Runner(PaddedRunner):
    """Its batches are lists of ids."""

    def __init__(self, encoder: ctranslate2.Encoder, has_segments: bool) -> None:
        super().__init__(lambda ids, mask, segments: np.empty(0, np.float32))
        self._encoder = encoder
        self._has_segments = has_segments

    def hidden(self, texts: Texts) -> list[Floats]:
        more = {"token_type_ids": _lists(texts.rows(texts.segments))} if self._has_segments else {}
        found = self._encoder.forward_batch(_lists(texts.rows(texts.ids)), **more).last_hidden_state
        states = np.array(found, copy=False)
        return [row[:length] for row, length in zip(states, texts.lengths.tolist(), strict=True)]


def _lists(rows: list[Ints]) -> list[list[int]]:
    return [row.tolist() for row in rows]


def load(setup: Setup) -> Runner:
    """Open the model."""
    prepare(setup)
    encoder = ctranslate2.Encoder(
        str(setup.work / "ctranslate2"),
        device="cpu",
        compute_type=TYPES[setup.precision],
        intra_threads=setup.threads,
        inter_threads=1,
    )
    return Runner(encoder, has_segments=setup.config.get("type_vocab_size", 0) > 1)


if __name__ == "__main__":
    main(load, prepare)
