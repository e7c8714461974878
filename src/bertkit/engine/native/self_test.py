"""Whether a library that was just compiled computes an encoder as numpy does: ``python -m ...self_test FILE``.

It runs in a process of its own, because a compiler's mistake may end the process.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from bertkit.engine.native.library import NativeLibrary, load
from bertkit.engine.native.library_cache import UnavailableError
from bertkit.engine.native.native_encoder import NativeEncoder
from bertkit.ragged import Floats
from bertkit.weights.parts import ByteMatrix, FloatMatrix, Layer, Shape

WIDTH, HEADS, INNER, LENGTHS = 32, 2, 48, (5, 1, 19)
#: The largest error of numbers around 1, by the kind of weights: about ten times what it is where all is right.
TOLERANCES = {"float32": 1e-5, "float24": 1e-3, "float16": 1e-2, "bfloat16": 0.2, "int8": 0.5}
Matrix = tuple[Floats, Floats]


def check(library: NativeLibrary) -> None:
    """Raises UnavailableError if a kind of weights gives other results than numpy."""
    chance = np.random.default_rng(0)
    sizes = ((3 * WIDTH, WIDTH), (WIDTH, WIDTH), (INNER, WIDTH), (WIDTH, INNER))
    matrices = [drawn(chance, *size) for size in sizes]
    norms = [(np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32))] * 2
    starts = np.cumsum([0, *LENGTHS]).astype(np.int32)
    x = chance.normal(size=(starts[-1], WIDTH)).astype(np.float32)
    expected = _encoded(x, starts.tolist(), matrices)
    factor = np.ones(3 * WIDTH, np.float32)  # scores are powers of two in the library
    factor[:WIDTH] = math.log2(math.e) / math.sqrt(WIDTH // HEADS)
    weight, bias = matrices[0]
    scaled = [(weight * factor[:, None], bias * factor), *matrices[1:]]
    for kind, made in in_kinds(scaled, library.bf16):
        encoder = NativeEncoder(
            library, Shape((0,), WIDTH, HEADS, INNER, "relu", 1e-12), [Layer(tuple(made), tuple(norms))]
        )
        for threads in (1, 2):
            error = np.abs(encoder(x, starts, threads=threads) - expected).max()
            if not error < TOLERANCES[kind]:  # NaN is not
                raise UnavailableError(f"with weights in {kind} its results differ by {error:.2g}")


def drawn(chance: np.random.Generator, outputs: int, inputs: int) -> Matrix:
    """A matrix whose products are around 1, and a bias."""
    weight = chance.normal(0.0, 1.0 / math.sqrt(inputs), (outputs, inputs)).astype(np.float32)
    return weight, chance.normal(0.0, 0.3, outputs).astype(np.float32)


def in_kinds(matrices: list[Matrix], bf16: bool) -> Iterator[tuple[str, list[FloatMatrix] | list[ByteMatrix]]]:
    """The matrices in each kind of weights, by its name."""
    yield "float32", [FloatMatrix(weight, bias) for weight, bias in matrices]
    yield "float24", [FloatMatrix(weight, bias, "float24") for weight, bias in matrices]
    yield "float16", [FloatMatrix(weight.astype(np.float16), bias, "float16") for weight, bias in matrices]
    if bf16:
        upper = [((weight.view(np.uint32) >> 16).astype(np.uint16).view(np.int16), bias) for weight, bias in matrices]
        yield "bfloat16", [FloatMatrix(weight, bias, "bfloat16") for weight, bias in upper]
    yield "int8", [_in_bytes(*matrix) for matrix in matrices]


def _in_bytes(weight: Floats, bias: Floats) -> ByteMatrix:
    scale = np.abs(weight).max(axis=1) / np.float32(63)
    inputs = weight.shape[1]
    smooth, none = np.ones(inputs, np.float32), np.zeros((0, len(bias)), np.float32)
    whole = np.rint(weight / scale[:, None]).astype(np.int8)
    return ByteMatrix(whole, scale, bias, smooth, None, np.zeros(0, np.int32), none, narrow=True)


def _encoded(x: Floats, starts: list[int], matrices: list[Matrix]) -> Floats:
    """One layer of BERT over each sequence by itself, with ReLU."""
    found = []
    (qkv, qkv_bias), (out, out_bias), (up, up_bias), (down, down_bias) = matrices
    for start, end in pairwise(starts):
        rows = x[start:end]
        parts = (rows @ qkv.T + qkv_bias).reshape(len(rows), 3, HEADS, -1)
        query, key, value = (parts[:, number].swapaxes(0, 1) for number in range(3))
        weights = np.exp(query @ key.swapaxes(1, 2) / math.sqrt(WIDTH // HEADS))
        attended = (weights / weights.sum(axis=2, keepdims=True) @ value).swapaxes(0, 1).reshape(rows.shape)
        rows = _normalized(rows + attended @ out.T + out_bias)
        found.append(_normalized(rows + np.maximum(rows @ up.T + up_bias, 0.0) @ down.T + down_bias))
    return np.concatenate(found)


def _normalized(x: Floats) -> Floats:
    centered: Floats = x - x.mean(axis=1, keepdims=True)
    normalized: Floats = centered / centered.std(axis=1, keepdims=True)
    return normalized


if __name__ == "__main__":
    try:
        check(load(Path(sys.argv[1])))
    except UnavailableError as error:
        sys.exit(str(error))
