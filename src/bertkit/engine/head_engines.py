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
from typing import Any, Protocol

import numpy as np

from bertkit.engine.backend import Pack, Precision, Values, Wanted
from bertkit.engine.inference_engine import Advance, InferenceEngine, PartT
from bertkit.engine.native.native_backend import NativeBackend, why_not_native
from bertkit.errors import needs_bertkit
from bertkit.ragged import Floats, Ragged
from bertkit.system.model_sources import HEADS

_ENCODER = "BertModel"
_VECTORS = Wanted(("last_hidden_state",))
#: Classes of models whose outputs are of tokens.
_OF_TOKENS = ("BertForTokenClassification", "BertForQuestionAnswering")
#: What each head says of a row: by head and name of the output ``(width,)`` of the row, or ``(s, width)`` of its
#: tokens; ``(s,)`` where it has several outputs.
Said = dict[str, Values]


class Heads(Protocol):
    """Several heads, computed by the C library or by torch. configs: of the model of each."""

    @property
    def configs(self) -> Mapping[str, Any]: ...

    def say(self, hidden_TD: Floats, pack: Pack) -> Mapping[str, Values]:
        """The outputs of each head for the vectors of a pack: a row of a text or of each of its tokens."""


class SharedRows:
    """An encoder and the heads that read it; what they said of the rows of a while. classes: of each head's model."""

    def __init__(self, encoder: InferenceEngine, heads: Heads, classes: Mapping[str, str]) -> None:
        self.encoder, self.heads, self.classes = encoder, heads, classes
        self._now = local()

    @classmethod
    def load(
        cls,
        run: Path,
        classes: Mapping[str, str],
        *,
        device: Any = None,
        precision: Precision = "auto",
        threads: int | None = None,
        in_memory: bool = False,
    ) -> SharedRows:
        """Of a run folder: ``classes`` names the model class of each head; ``in_memory`` as in InferenceEngine.load."""
        run = run.absolute()
        places = {name: (run / HEADS / name, model_class) for name, model_class in classes.items()}
        reasons = [reason for place in places.values() if (reason := why_not_native(*place, device)) is not None]
        if not reasons:
            backend = NativeBackend(run, _ENCODER, precision, threads, places, in_memory=in_memory)
            return cls(InferenceEngine(backend), backend, classes)
        with needs_bertkit(f"{run}, which the compiled encoder does not compute ({reasons[0]}),"):
            from bertkit.engine.torch_heads import TorchHeads
        encoder = InferenceEngine.load(
            run, _ENCODER, device=device, precision=precision, threads=threads, in_memory=in_memory
        )
        return cls(encoder, TorchHeads(places), classes)

    def engines(self) -> dict[str, HeadEngine]:
        """The engine of each head."""
        return {name: HeadEngine(self, name) for name in self.classes}

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
        said: dict[bytes, Said] | None = getattr(self._now, "said", None)
        if said is None:  # nothing is kept, and every row is computed
            return list(self.encoder.run(rows, _VECTORS, self._read, advance))
        new = {key: row for row, key in enumerate(keys) if key not in said}
        advance(len(rows) - len(new))
        if new:
            found = self.encoder.run(rows.select(np.array(list(new.values()))), _VECTORS, self._read, advance)
            said.update(zip(new, found, strict=True))
        return [said[key] for key in keys]

    def _read(self, pack: Pack, values: Values) -> Sequence[Said]:
        """Every head on the vectors of a pack, in the thread that computed them."""
        found = [Said() for _ in pack.lengths]
        for name, outputs in self.heads.say(values["last_hidden_state"], pack).items():
            of_rows: list[dict[str, Floats]] = [{} for _ in found]
            for field, array in outputs.items():
                parts = pack.split(array) if self.classes[name] in _OF_TOKENS else list(array)
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
    def config(self) -> Any:
        return self.shared.heads.configs[self.name]

    @property
    def model_class(self) -> str:
        return self.shared.classes[self.name]

    def in_packs(
        self, rows: Ragged, wanted: Wanted, read: Callable[[Pack, Values], PartT], advance: Advance
    ) -> Iterator[tuple[Sequence[int], PartT]]:
        assert wanted.pooling is None, "only asked for what a head says"
        said = [each[self.name] for each in self.shared.of(rows, advance)]
        join = np.concatenate if self.model_class in _OF_TOKENS else np.stack
        values = {name: join([each[name] for each in said]) for name in wanted.outputs}
        yield range(len(rows)), read(Pack.of(rows), values)
