"""How fast the host makes batches of pre-training: tokens a second by threads, without a model.

    python benchmarks/host_batches.py

What ``bertkit pretrain --num-workers N`` does beside a GPU, here with nothing between two steps: examples are taken
from documents in memory, masked and packed by :class:`bertkit.data.examples.pretrain_batches.PretrainData`, some steps
ahead by :class:`bertkit.training.trainer.batch_plan.Prefetched`. Wall time, so nothing else must run on the machine.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from bertkit.batch import Batch
from bertkit.data.examples.masking import MaskVocabulary
from bertkit.data.examples.pairs import Rules
from bertkit.data.examples.pretrain_batches import PretrainData
from bertkit.training.trainer.batch_plan import Prefetched
from gpu_text import MadeUpText, names_of

THREADS = (1, 2, 4)
VOCABULARY, LENGTH, BATCH_SIZE, MAX_TOKENS = 30_522, 128, 256, 32_768
#: Tokens of the documents; steps whose batches are compared; seconds of each number of threads.
NUM_TOKENS, COMPARED, SECONDS = 4_000_000, 4, 2.0


def measure(num_tokens: int = NUM_TOKENS, seconds: float = SECONDS) -> Iterator[dict[str, Any]]:
    """A line for each number of threads; it holds if the batches of the first steps are those of one thread."""
    text = MadeUpText(VOCABULARY, num_tokens)
    rules, vocabulary = Rules(max_seq_length=LENGTH), MaskVocabulary.of(names_of(VOCABULARY))
    data = PretrainData(text, vocabulary, rules, batch_size=BATCH_SIZE, max_tokens=MAX_TOKENS)
    expected = [checksum(data.micro_batches(step)) for step in range(COMPARED)]
    for threads in THREADS:
        with Prefetched(data, num_workers=threads) as plan:
            found = [checksum(plan.micro_batches(step)) for step in range(COMPARED)]
            step, tokens, begun = COMPARED, 0, time.perf_counter()
            while time.perf_counter() - begun < seconds:
                tokens += sum(batch.layout.num_tokens for batch in plan.micro_batches(step))
                step += 1
            speed = round(tokens / (time.perf_counter() - begun))
        yield {"threads": threads, "tokens_per_s": speed, "holds": found == expected}


def checksum(batches: list[Batch]) -> int:
    """Of ids, segments and labels, in their order."""
    found = 0
    for batch in batches:
        for tensor in (batch.input_ids, batch.token_type_ids, batch.targets["labels"]):
            found = zlib.crc32(np.ascontiguousarray(tensor.numpy()), found)
    return found


if __name__ == "__main__":
    for line in measure():
        print(json.dumps(line), flush=True)
