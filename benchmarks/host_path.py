"""The host's share of embedding: from token ids to the float32 matrix, with an encoder that costs nothing.

    python benchmarks/host_path.py

The engine, as it serves a GPU: packs of 32,768 tokens, a vector for each row, scaled to length 1, windows of 2,048
texts put back in the order of the input. The encoder gives the first rows of one array, so that what is measured is
what a card would wait for. It is measured twice: as with a card, which pools itself, and pooled by the CPU with
:func:`bertkit.model.pooling.pool_segments`. Processor time of one thread, because others may use the machine.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch

from bertkit.batch import Layout
from bertkit.checkpoints.sentence_folder import SentenceParts
from bertkit.config.sentence_config import Normalize, SentenceConfig
from bertkit.engine.backend import Pack, Values, Wanted
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.engine.rows import TEXTS
from bertkit.engine.torch_backend import MAX_TOKENS_PER_DEVICE_BATCH
from bertkit.inference.sentence_steps import sentence_vectors
from bertkit.model.pooling import pool_segments
from bertkit.ragged import Floats, Ints, Ragged, boundaries_of

NUM_TEXTS, SHORTEST, LONGEST, WIDTH = 200_000, 5, 20, 384
#: Texts a second of the host, so that the card is the limit.
GOAL = 150_000


class NoEncoder:
    """The back-end of a GPU without the GPU: constant vectors of rows, or of tokens, which it pools as there."""

    config, model_class, model, place, dtype = None, "BertModel", None, "cpu", "float32"
    max_tokens = MAX_TOKENS_PER_DEVICE_BATCH
    packs_ahead = 1

    def __init__(self, pools: bool) -> None:
        self.pools = pools
        self.hidden_TD = torch.randn(self.max_tokens, WIDTH, generator=torch.Generator().manual_seed(0))

    def compute(self, pack: Pack, wanted: Wanted) -> Values:
        """The mean of the vectors of each row's tokens; without pooling, one vector of the array for each row."""
        assert wanted.pooling == ("mean",)
        if not self.pools:
            return {"last_hidden_state": self.hidden_TD[: len(pack.lengths)].numpy()}
        layout = Layout(pack.lengths)
        pooled_BD = pool_segments(self.hidden_TD[: len(pack.ids)], layout, "mean", wanted.skipped)
        return {"last_hidden_state": pooled_BD.numpy()}

    def num_threads(self, lengths: Ints) -> int:
        return 1

    def in_thread(self, alone: bool) -> AbstractContextManager[None]:
        return nullcontext()


def some_texts(count: int, seed: int = 0) -> Ragged:
    """Rows of 5 to 20 ids as a token store has them."""
    chance = np.random.default_rng(seed)
    sizes = chance.integers(SHORTEST, LONGEST + 1, count)
    ids = chance.integers(1_000, 30_000, int(sizes.sum()), dtype=np.int32)
    return Ragged(ids, boundaries_of(sizes), np.zeros(len(ids), np.int8), sizes)


def embedded(rows: Ragged, backend: NoEncoder, window: int = TEXTS.items) -> Floats:
    """Unit vectors of all rows, window by window, as :meth:`bertkit.SentenceEncoder.encode` makes them."""
    engine = InferenceEngine(backend)  # type: ignore[arg-type]
    parts = SentenceParts(SentenceConfig(steps=(Normalize(),)), ({},))
    wanted = Wanted(("last_hidden_state",), parts.config.pooling)

    def read(pack: Pack, values: Values) -> Floats:
        return sentence_vectors(values["last_hidden_state"], parts)

    starts = range(0, len(rows), window)
    return np.concatenate([engine.matrix(part_of(rows, start, window), wanted, read) for start in starts])


def part_of(rows: Ragged, start: int, count: int) -> Ragged:
    """Consecutive rows: views."""
    edges = rows.boundaries[start : start + count + 1]
    own = slice(int(edges[0]), int(edges[-1]))
    return Ragged(
        rows.ids[own], edges - edges[0], rows.token_type_ids[own], rows.num_tokens_before[start : start + count]
    )


def measure(rounds: int = 3) -> Iterator[dict[str, Any]]:
    """Texts a second of one thread, the best of some rounds, and whether it is enough."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    rows, few = some_texts(NUM_TEXTS), some_texts(5_000)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    try:
        for pools, found in seconds.items():
            backend = NoEncoder(pools)
            embedded(few, backend)  # warm
            for _ in range(rounds):
                start = time.process_time()
                embedded(rows, backend)
                found.append(time.process_time() - start)
    finally:
        torch.set_num_threads(before)
    speed, pooling = (round(NUM_TEXTS / min(found)) for found in seconds.values())
    yield {
        "texts_per_s": speed,
        "goal": GOAL,
        "seconds": [round(x, 3) for x in seconds[False]],
        "texts_per_s_if_the_cpu_pools": pooling,
        "holds": speed >= GOAL,
    }


if __name__ == "__main__":
    for line in measure():
        print(json.dumps(line))
