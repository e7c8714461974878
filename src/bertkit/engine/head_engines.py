"""Several heads on one encoder: each has an engine of its own, and what one of them asks for is computed for all.

While :meth:`SharedRows.kept` is entered, a row of token ids goes through the encoder once, whichever engine asks first;
what all heads say of it is kept, which is little beside its vectors. Rows that another head reads otherwise (cut at
another place, in windows) are rows of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from threading import local

import numpy as np
import torch
from torch import nn

from bertkit.engine.backend import Pack, Precision, Values, Wanted
from bertkit.engine.inference_engine import InferenceEngine, Read, ResultT
from bertkit.engine.torch_backend import batch_of
from bertkit.model.auto import class_named
from bertkit.model.models import BertModel, HeadModel
from bertkit.model.shared_encoder import head_outputs
from bertkit.ragged import Ragged
from bertkit.system.model_sources import HEADS

_VECTORS = Wanted(("last_hidden_state",))
#: What each head says of a row: by head and name of the output ``(width,)`` of the row, ``(s, width)`` of its tokens.
Said = dict[str, Values]


class SharedRows:
    """An encoder and the heads that read it; what they said of the rows of a while."""

    def __init__(self, encoder: InferenceEngine, heads: Mapping[str, HeadModel]) -> None:
        self.encoder = encoder
        self.heads = {name: _alone(model) for name, model in heads.items()}
        self._now = local()

    @classmethod
    def load(
        cls,
        run: Path,
        classes: Mapping[str, str],
        *,
        device: object = None,
        precision: Precision = "auto",
        threads: int | None = None,
    ) -> SharedRows:
        """Of a run folder: ``classes`` names the model class of each head."""
        encoder = InferenceEngine.load(run, BertModel.__name__, device=device, precision=precision, threads=threads)
        heads: dict[str, HeadModel] = {}
        for name, model_class in classes.items():
            model = class_named(model_class).from_pretrained(run / HEADS / name)
            assert isinstance(model, HeadModel)
            heads[name] = model
        return cls(encoder, heads)

    def engines(self) -> dict[str, HeadEngine]:
        """The engine of each head."""
        return {name: HeadEngine(self, name) for name in self.heads}

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Inside, what was said of a row is kept for the other heads of this thread."""
        self._now.said = {}
        try:
            yield
        finally:
            del self._now.said

    def of(self, rows: Ragged, advance: Callable[[int], None]) -> list[Said]:
        """The heads' outputs for each row."""
        ids, types, size = rows.ids.tobytes(), rows.token_type_ids.tobytes(), rows.ids.itemsize
        spans = pairwise(rows.boundaries.tolist())
        keys = [ids[start * size : end * size] + types[start:end] for start, end in spans]
        said: dict[bytes, Said] = getattr(self._now, "said", {})
        new = {key: row for row, key in enumerate(keys) if key not in said}
        advance(len(rows) - len(new))
        if new:
            found = self.encoder.run(rows.select(np.array(list(new.values()))), _VECTORS, self._read, advance)
            said.update(zip(new, found, strict=True))
        return [said[key] for key in keys]

    def _read(self, pack: Pack, values: Values) -> Sequence[Said]:
        """Every head on the vectors of a pack, in the thread that computed them."""
        batch, found = batch_of(pack, _VECTORS), [Said() for _ in pack.lengths]
        with torch.inference_mode():
            x_TD = torch.from_numpy(values["last_hidden_state"])
            for name, model in self.heads.items():
                out = head_outputs(model, x_TD, batch)
                of_rows: list[dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]] = [{} for _ in found]
                for field in out:
                    array = out[field].numpy()
                    parts = pack.split(array) if field in model.token_fields else list(array)
                    for row, part in zip(of_rows, parts, strict=True):
                        row[field] = part.copy()
                for said, row in zip(found, of_rows, strict=True):
                    said[name] = row
        return found


class HeadEngine(InferenceEngine):
    """The engine of one of several heads; it computes on the CPU what they add to their encoder."""

    def __init__(self, shared: SharedRows, name: str) -> None:
        super().__init__(shared.encoder.backend)
        self.shared, self.name = shared, name

    @property
    def config(self) -> object:  # type: ignore[override]
        return self.shared.heads[self.name].config

    @property
    def model_class(self) -> str:
        return type(self.shared.heads[self.name]).__name__

    def run(
        self, rows: Ragged, wanted: Wanted, read: Read[ResultT], advance: Callable[[int], None] = lambda count: None
    ) -> list[ResultT]:
        assert wanted.pooling is None, "only asked for what a head says"
        said = [each[self.name] for each in self.shared.of(rows, advance)]
        of_tokens = self.shared.heads[self.name].token_fields
        values = {
            name: (np.concatenate if name in of_tokens else np.stack)([each[name] for each in said])
            for name in wanted.outputs
        }
        return list(read(Pack.of(rows), values))


def _alone(model: HeadModel) -> HeadModel:
    model.bert.embeddings, model.bert.encoder = nn.Identity(), nn.Identity()  # type: ignore[assignment]
    return model.eval()
