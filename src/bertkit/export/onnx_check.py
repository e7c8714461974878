"""A graph compared with its model: run by ONNX Runtime on batches of random shapes.

A graph in float32 gives each number that the model gives. In 8 bits a value that lies between two whole numbers may be
rounded the other way, and a tiny difference becomes a step: there the outputs are compared as a whole.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bertkit.batch import pack
from bertkit.engine.closeness import NEAR_ENOUGH, closeness
from bertkit.engine.onnx_backend import open_session, reason_of
from bertkit.errors import CheckpointError
from bertkit.export.onnx_graph import kind_of, predicts_words
from bertkit.model.padded import PackedModel
from bertkit.ragged import Floats

#: Largest allowed difference from the model in float32: absolute, and relative for large values.
TOLERANCE = 1e-4
#: In 8 bits, the norm of all differences of an output by that of the output: vectors of the same length with the
#: cosine of :data:`NEAR_ENOUGH` are so far apart.
MAX_RELATIVE = math.sqrt(2.0 * (1.0 - NEAR_ENOUGH.cosine_mean))
#: The outputs whose rows are used as vectors, so that the angle of each matters; the others are scores.
VECTORS = ("last_hidden_state", "pooler_output")
NUM_CHECKS = 6
#: Tokens of the longest text that is checked: attention in a graph takes the square of them, for every head.
MOST_TOKENS = 1024


def check_graph(path: Path, model: PackedModel, variant: str, *, seed: int = 0) -> float:
    """The largest difference between a graph and its model; CheckpointError if the graph computes something else."""
    session = open_session(path)
    names = [found.name for found in session.get_inputs()]
    outputs = [found.name for found in session.get_outputs()]
    generator, worst = np.random.default_rng(seed), 0.0
    squares: dict[str, list[tuple[float, float]]] = defaultdict(list)
    longest = min(model.config.max_input_length, MOST_TOKENS)
    fixed = {0: [1], 1: [longest, min(2, longest)]}  # a single token, the longest text; the others are random
    for number in range(NUM_CHECKS):
        lengths = fixed.get(number) or generator.integers(1, min(longest, 40) + 1, generator.integers(1, 6)).tolist()
        feeds, expected = _case(model, variant, lengths, generator)
        try:
            found = session.run(None, {name: feeds[name].numpy() for name in names})
        except Exception as error:  # as in open_session
            reason = reason_of(error)[:300]
            raise CheckpointError(
                f"{path.name} fails for sequences of {lengths} tokens: {reason}. Nothing was written"
            ) from None
        for name, array in zip(outputs, found, strict=True):
            ours = expected[name]
            if array.shape != ours.shape or not np.isfinite(array).all():
                told = f"shape {array.shape}, expected {ours.shape}; finite: {np.isfinite(array).all()}"
            else:
                difference = np.abs(array - ours)
                worst = max(worst, float(difference.max(initial=0.0)))
                real = ours > np.finfo(ours.dtype).min  # no logit of a place at padding
                squares[name].append((float(np.square(difference[real]).sum()), float(np.square(ours[real]).sum())))
                judge = _wrong_numbers if model.quantization is None else _wrong_vectors
                told = judge(name, array, ours)
            if told:
                raise _differs(path, f"{name} of sequences of {lengths} tokens has {told}")
    for name, sums in squares.items() if model.quantization is not None else ():
        lost, whole = np.sqrt(np.sum(sums, axis=0))
        if lost > MAX_RELATIVE * whole + TOLERANCE:
            told = f"differences of norm {lost:.2g} in values of norm {whole:.2g}, allowed {MAX_RELATIVE:.1%}"
            raise _differs(path, f"{name} of {NUM_CHECKS} batches has {told}")
    return worst


def _differs(path: Path, told: str) -> CheckpointError:
    return CheckpointError(
        f"{path.name} does not compute what the model does: {told}. Nothing was written; please report this"
    )


def _wrong_numbers(name: str, found: Floats, expected: Floats) -> str:
    """What is wrong with an output in float32; empty if nothing is."""
    difference = np.abs(found - expected)
    if (difference <= TOLERANCE * np.maximum(1.0, np.abs(expected))).all():
        return ""
    return f"a largest difference of {difference.max():.1e}, allowed {TOLERANCE:.0e}"


def _wrong_vectors(name: str, found: Floats, expected: Floats) -> str:
    """What is wrong with the directions of vectors in 8 bits; empty if nothing is, or if there are no vectors."""
    if name not in VECTORS or not found.size:
        return ""
    width = found.shape[-1]
    real = np.abs(expected).max(axis=-1).ravel() > 0.0  # a padded graph gives 0 at padding
    near = closeness(found.reshape(-1, width)[real], expected.reshape(-1, width)[real])
    # Neighbours of random tokens say nothing.
    if replace(near, near_neighbour=1.0).within(NEAR_ENOUGH):
        return ""
    return f"{near.cosines()}, where {NEAR_ENOUGH.cosine_mean:g} ({NEAR_ENOUGH.cosine_p1:g}) or more is needed"


def _case(
    model: PackedModel, variant: str, lengths: list[int], generator: np.random.Generator
) -> tuple[dict[str, Tensor], dict[str, Floats]]:
    """Random inputs of a graph, and the outputs of the model for them."""
    config, choice = model.config, kind_of(model) == "choice"
    ids = [generator.integers(0, config.vocab_size, n) for n in lengths]
    for row in ids:  # some families mask the padding id; tokenizers never use it for a real token
        row[row == config.pad_token_id] = (config.pad_token_id + 1) % config.vocab_size
    segments = [np.sort(generator.integers(0, max(1, config.type_vocab_size), n)) for n in lengths]
    batch = pack([row.tolist() for row in ids], [row.tolist() for row in segments])
    with torch.inference_mode():
        if variant == "packed":
            feeds = {"input_ids": batch.input_ids, "token_type_ids": batch.token_type_ids}
            feeds["cu_seqlens"] = batch.layout.cu_seqlens().long()
            if predicts_words(model):
                rows = generator.permutation(batch.layout.num_tokens)[: generator.integers(0, batch.layout.num_tokens)]
                feeds["logit_rows"] = torch.from_numpy(np.sort(rows))
                batch = replace(batch, logit_rows=feeds["logit_rows"])
            out = model.forward_packed(batch)
        else:
            real = torch.arange(max(lengths))[None, :] < torch.tensor(lengths)[:, None]
            if len(lengths) > 2:  # padding before the last text, as some tokenizers do
                real[-1] = real[-1].flip(0)
            feeds = {name: torch.zeros(real.shape, dtype=torch.int64) for name in ("input_ids", "token_type_ids")}
            feeds["input_ids"].fill_(config.pad_token_id)
            feeds["input_ids"][real], feeds["token_type_ids"][real] = batch.input_ids, batch.token_type_ids
            feeds["attention_mask"] = real.long()
            out = model(**{name: x[:, None] if choice else x for name, x in feeds.items()})
    return feeds, {name: (out[name].flatten() if choice else out[name]).numpy() for name in out}
