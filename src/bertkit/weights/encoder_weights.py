"""The weights of a whole encoder by name, and the parts that the C library takes, made of them one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertkit.checkpoints.read_values import as_bfloat16, drop_pages
from bertkit.config.bert_config import BertConfig
from bertkit.ragged import Floats, Ids
from bertkit.weights.parts import (
    ACTIVATIONS,
    ByteMatrix,
    ByteTable,
    FloatMatrix,
    Layer,
    Matrix,
    Norm,
    Positions,
    Shape,
    Table,
    WeightType,
)
from bertkit.weights.positions import positions_of, rotary_bases

#: Arrays by the names of a model's tensors: float32, or int8 and what belongs to it.
Arrays = Mapping[str, NDArray[Any]]
#: The largest absolute weight of a matrix that is narrow.
_NARROW = 63


class EncoderWeights(NamedTuple):
    """An encoder: its config, and its arrays by the names of :class:`bertkit.model.models.BertModel`.

    order: the stored layer at each depth. A matrix or a table is in 8 bits where its weight is int8.
    read_once: nobody else has the arrays of the layers. What is frozen are the fields: :meth:`layers` then removes from
        ``arrays`` what it has given, so that it can be called once, and a model is in memory once.
    """

    config: BertConfig
    arrays: dict[str, NDArray[Any]]
    order: tuple[int, ...]
    read_once: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the layers, in float32."""
        return sum(array.nbytes for name, array in self.arrays.items() if name.startswith("encoder."))

    @property
    def shape(self) -> Shape:
        """Sizes and settings."""
        config = self.config
        assert config.hidden_act in ACTIVATIONS
        return Shape(
            order=self.order,
            width=config.hidden_size,
            heads=config.num_attention_heads,
            inner=config.intermediate_size,
            activation=config.hidden_act,
            eps=config.layer_norm_eps,
            gated=config.family.pre_norm,
        )

    def layers(self, kept_as: WeightType) -> Iterator[Layer]:
        """The stored layers, one by one, with matrices in a type; those in 8 bits stay so.

        Of a checkpoint (:attr:`read_once`) each layer's arrays are let go when the next one is asked for.
        """
        factor_3D = np.ones(3 * self.config.hidden_size, np.float32)
        factor_3D[: self.config.hidden_size] = math.log2(math.e) * self.scale
        for number in range(max(self.order) + 1):
            name = f"encoder.layer.{number}."
            scores = self._scores(number)  # which may read the matrix of queries as it is in the file
            yield Layer(
                matrices=(
                    # The library wants scores as powers of two: softmax(x) is 2^(x log2 e), scaled.
                    matrix_of(self.arrays, f"{name}attention.qkv", kept_as, factor_3D, in_place=self.read_once),
                    matrix_of(self.arrays, f"{name}attention.out", kept_as),
                    matrix_of(self.arrays, f"{name}ffn_up", kept_as),
                    matrix_of(self.arrays, f"{name}ffn_down", kept_as),
                ),
                norms=self._norms(name),
                **scores,
            )
            for own in [each for each in self.arrays if self.read_once and each.startswith(name)]:
                drop_pages(self.arrays.pop(own))

    @property
    def scale(self) -> float:
        """What scores of content are multiplied with."""
        config = self.config
        if not self._is("disentangled"):
            return float(config.head_size**-0.5)
        return 1 / math.sqrt(config.head_size * (1 + len({"c2p", "p2c"} & set(config.pos_att_type or []))))

    def _is(self, scores: str) -> bool:
        return self.config.family.scores == scores

    def _norms(self, layer: str) -> tuple[Norm | None, ...]:
        names = ["attention_norm", "ffn_norm"]
        if self.config.family.pre_norm:
            names.reverse()
        return tuple(norm_of(self.arrays, layer + name) for name in names)

    def _scores(self, number: int) -> dict[str, Any]:
        """The fields of :class:`Layer` on what a layer's scores depend on."""
        if self._is("rotary"):
            kind = self.config.layer_kinds[number]
            return {"half": self.config.reach_of(kind), "base": rotary_bases(self.config).index(kind)}
        if self._is("disentangled"):
            keys, queries = self.distances(number)
            # Queries of the content are scaled in the library, those of distances are not.
            scale = np.float32(self.scale * math.log2(math.e))
            return {"distances": (keys, None if queries is None else queries * scale)}
        return {}

    def distances(self, number: int) -> tuple[Floats | None, Floats | None]:
        """Keys and queries of distances ``(E, D)``, through matrices of their own, or those of the content."""
        attention = f"encoder.layer.{number}.attention."
        width, kinds = self.config.hidden_size, self.config.pos_att_type or []
        vectors_ED = self.arrays["encoder.positions.table.weight"]
        if (norm := norm_of(self.arrays, "encoder.positions.LayerNorm")) is not None:
            vectors_ED = normalized(vectors_ED, norm, self.config.layer_norm_eps)

        def through(own: str, part: slice) -> Floats:
            if f"{attention}{own}.weight" in self.arrays:
                return linear(self.arrays, attention + own, vectors_ED)
            return linear(self.arrays, f"{attention}qkv", vectors_ED, part)

        keys = through("position_key", slice(width, 2 * width)) if "c2p" in kinds else None
        queries = through("position_query", slice(0, width)) if "p2c" in kinds else None
        return keys, queries

    @property
    def final_norm(self) -> Norm | None:
        """After the top layer."""
        return norm_of(self.arrays, "encoder.final_norm")

    @property
    def positions(self) -> Callable[[int], Positions] | None:
        """Makes what attention knows of positions in texts of at most so many tokens; None: it knows nothing."""
        if self._is("content"):
            return None
        return partial(positions_of, self.config, biases_EN=self.arrays.get("encoder.positions.table.weight"))

    @property
    def tables(self) -> dict[str, Table]:
        """The tables of the embeddings, by the name of the ids that are looked up there."""
        names = {"input_ids": "word", "position_ids": "position", "token_type_ids": "token_type"}
        return {
            ids: table_of(self.arrays, f"embeddings.{name}_embeddings")
            for ids, name in names.items()
            if f"embeddings.{name}_embeddings.weight" in self.arrays
        }

    @property
    def embedding_norm(self) -> Norm:
        """After the sum of the embeddings."""
        norm = norm_of(self.arrays, "embeddings.LayerNorm")
        assert norm is not None
        return norm

    def projection(self, kept_as: WeightType) -> Matrix | None:
        """From the width of the embeddings to that of the encoder; None: they are equal."""
        name = "embeddings.projection"
        return matrix_of(self.arrays, name, kept_as) if f"{name}.weight" in self.arrays else None


def matrix_of(
    arrays: Arrays, name: str, kept_as: WeightType, factor_N: Floats | None = None, *, in_place: bool = False
) -> Matrix:
    """A linear layer, in 8 bits if its weight is, else in a type; each output times its factor.

    in_place: the weights of the array in float32 may be overwritten.
    """
    weight = arrays[f"{name}.weight"]
    if weight.dtype == np.int8:
        factors = np.float32(1.0) if factor_N is None else factor_N
        apart: Ids = arrays[f"{name}.apart"].astype(np.int32)
        return ByteMatrix(
            weight=weight,
            scale=arrays[f"{name}.scale"] * factors,
            bias=arrays[f"{name}.bias"] * factors,
            smooth=np.ascontiguousarray(arrays[f"{name}.smooth"]),
            shift=arrays.get(f"{name}.shift"),
            apart=apart,
            apart_weights=np.ascontiguousarray(arrays[f"{name}.apart_weight"] * factors),
            narrow=max(int(weight.max()), -int(weight.min())) <= _NARROW,
        )
    bias = arrays.get(f"{name}.bias")
    bias = np.zeros(len(weight), np.float32) if bias is None else bias
    if factor_N is not None:
        weight = np.multiply(weight, factor_N[:, None], out=weight if in_place else None)
        bias = bias * factor_N
    if kept_as in ("float32", "float24"):
        return FloatMatrix(np.ascontiguousarray(weight), np.ascontiguousarray(bias), kept_as)
    if kept_as == "bfloat16":
        return FloatMatrix(as_bfloat16(weight), bias, kept_as)
    # In multiples of a power of two with which the largest weight is near the end of float16's range.
    largest = float(np.abs(weight).max())
    unit = 2.0 ** (math.frexp(largest)[1] - 15) if math.isfinite(largest) else 1.0
    return FloatMatrix((weight / np.float32(unit)).astype(np.float16), bias, kept_as, unit)


def linear(arrays: Arrays, name: str, x: Floats, outputs: slice = slice(None)) -> Floats:
    """Some outputs of a linear layer, ``(..., in)`` to ``(..., out)``; in 8 bits as in
    :class:`bertkit.model.kernels.byte_linear.ByteLinear`.
    """
    weight, bias = arrays[f"{name}.weight"][outputs], arrays.get(f"{name}.bias")
    if weight.dtype != np.int8:
        found: Floats = x @ weight.T
    else:
        values, shift = x * arrays[f"{name}.smooth"], arrays.get(f"{name}.shift")
        values = values if shift is None else np.maximum(values + shift, 0)
        step = np.abs(values).max(axis=-1, keepdims=True) / np.float32(127 if shift is None else 255)
        whole = np.rint(np.divide(values, step, out=np.zeros_like(values), where=step > 0))
        found = whole @ weight.T.astype(np.float32) * (step * arrays[f"{name}.scale"][outputs])
        found += x[..., arrays[f"{name}.apart"]] @ arrays[f"{name}.apart_weight"][:, outputs]
    return found if bias is None else found + bias[outputs]


def norm_of(arrays: Arrays, name: str) -> Norm | None:
    """Scale and shift of a LayerNorm, which may have no bias; None where there is none of this name."""
    scale = arrays.get(f"{name}.weight")
    if scale is None:
        return None
    shift = arrays.get(f"{name}.bias")
    scale = np.ascontiguousarray(scale)
    return scale, np.zeros_like(scale) if shift is None else np.ascontiguousarray(shift)


def table_of(arrays: Arrays, name: str) -> Table:
    """A table of embeddings, in 8 bits if its weight is."""
    weight = np.ascontiguousarray(arrays[f"{name}.weight"])
    if weight.dtype == np.int8:
        return ByteTable(weight, arrays[f"{name}.scale"], arrays[f"{name}.column_scale"])
    return weight


def normalized(x: Floats, norm: Norm, eps: float) -> Floats:
    """Rows of mean 0 and variance 1, scaled and shifted: LayerNorm in float32."""
    centered = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centered).mean(axis=-1, keepdims=True)
    found: Floats = centered / np.sqrt(variance + np.float32(eps)) * norm[0] + norm[1]
    return found
