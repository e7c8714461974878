"""Word vectors out of an encoder: every token of its vocabulary is read alone, and what comes out is kept.

The way of model2vec (Tulkens & van Dongen 2024), by its published description: ``[CLS] token [SEP]`` through the
encoder, the mean of what comes out; principal components; and because a mean gives every word the same share, weights
that are small for frequent words, ``a / (a + p)`` (Arora et al. 2017), with ``p`` by Zipf's law, for vocabularies are
sorted by frequency. Deviates: the tokenizer stays whole; tokens that no text has get no rank, and zeros.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertkit.checkpoints.static_folder import write_static_folder
from bertkit.engine.backend import Wanted
from bertkit.errors import ConfigError, InputError
from bertkit.inference.feature_extraction import FeatureExtractionPipeline
from bertkit.inference.pipelines import pipeline
from bertkit.inference.protocol import short_name
from bertkit.ragged import Floats, Ints, Ragged, boundaries_of
from bertkit.system.atomic_files import check_new_folder, new_folder
from bertkit.system.paths import user_path
from bertkit.system.untrusted_files import Json
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

#: Of a smoothed inverse frequency, as in the paper.
SIF = 1e-4
_UNUSED = re.compile(r"\[unused\d+\]|<unused\d+>|<extra_id_\d+>|madeupword\d+")


@dataclass(frozen=True, slots=True)
class DistilledWords:
    """What was written: so many tokens, numbers of a vector, the share of variance that they keep, and bytes."""

    out: str
    tokens: int
    dimensions: int
    variance: float
    bytes: int

    def to_dict(self) -> dict[str, Json]:
        """For JSON."""
        return asdict(self)

    def render(self) -> str:
        """For people."""
        return (
            f"{self.out}: {self.tokens:,} word vectors of {self.dimensions} numbers, which keep {self.variance:.1%} of "
            f"the variance; {self.bytes / 1e6:.1f} MB"
        )


def distill_words(
    model: str | Path, out: str | Path, *, dimensions: int = 256, sif: float | None = SIF, **computing: Any
) -> DistilledWords:
    """Make word vectors of an encoder, in a new folder that loads wherever a sentence encoder does.

    bertkit, model2vec and sentence-transformers read the folder.

    Args:
        model: any encoder: a folder, a name on the Hub, an exported model.
        out: the folder; it must not exist, or be empty.
        dimensions: numbers of a vector; all, if the encoder has fewer.
        sif: the constant of the weights by frequency; None: all words alike.
        **computing: ``device``, ``precision`` and ``threads``, see :func:`bertkit.pipeline`.

    Raises:
        ConfigError: a setting out of bounds.
        InputError: word vectors already.
        CheckpointError: no model there, or ``out`` has other files.
    """
    if dimensions < 1:
        raise ConfigError(f"dimensions must be a whole number from 1, got {dimensions}")
    if sif is not None and not 0 < sif < 1:
        raise ConfigError(f"sif must be between 0 and 1, or None for no weights, got {sif}")
    target = user_path(out)
    check_new_folder(target)
    pipe: FeatureExtractionPipeline = pipeline("feature-extraction", model, **computing)
    if pipe.engine.model_class == "StaticEmbedding":
        raise InputError(f"{model} holds word vectors already; distill an encoder")
    table_VD, variance = distilled_table(pipe, dimensions, sif)
    with new_folder(target) as draft:
        pipe.tokenizer.save_pretrained(draft)
        how: dict[str, Json] = {
            "tokenizer_name": short_name(model),
            "apply_pca": dimensions,
            "sif_coefficient": sif,
            "pooling": "mean",
        }
        write_static_folder(draft, table_VD, how)
    size = sum(file.stat().st_size for file in target.iterdir())
    return DistilledWords(str(out), len(table_VD), table_VD.shape[1], variance, size)


def distilled_table(pipe: FeatureExtractionPipeline, dimensions: int, sif: float | None) -> tuple[Floats, float]:
    """A vector for each token ``(V, D)``, zeros for those that no text has; and the share of variance kept."""
    tokenizer = pipe.tokenizer
    used = used_tokens(tokenizer)
    if len(used) < 2:
        raise InputError(f"the tokenizer has {len(used)} tokens besides special ones; word vectors need at least 2")
    vectors_ND = pipe.engine.row_outputs(
        _alone(used, tokenizer), Wanted(("last_hidden_state",), ("mean",)), label="reading the vocabulary"
    )
    reduced_ND, variance = principal_components(vectors_ND, dimensions)
    table_VD = np.zeros((len(tokenizer), reduced_ND.shape[1]), np.float32)
    table_VD[used] = reduced_ND * zipf_weights(len(used), sif)[:, None]
    return table_VD, variance


def used_tokens(tokenizer: PreTrainedTokenizer) -> Ints:
    """Ids of the tokens that texts have, from frequent to rare: no special tokens, no spare ones."""
    special = set(tokenizer.all_special_ids)
    names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    return np.array(
        [at for at, name in enumerate(names) if at not in special and not _UNUSED.fullmatch(name)], np.int64
    )


def principal_components(x_ND: Floats, dimensions: int) -> tuple[Floats, float]:
    """The centered vectors in their first principal components, and the share of variance that these have."""
    centered_ND = x_ND.astype(np.float64)
    centered_ND -= centered_ND.mean(axis=0)
    variances, axes = np.linalg.eigh(centered_ND.T @ centered_ND)
    kept = min(dimensions, x_ND.shape[1])
    total = float(variances.sum())
    share = float(variances[::-1][:kept].sum()) / total if total > 0 else 1.0
    return (centered_ND @ axes[:, ::-1][:, :kept]).astype(np.float32), min(1.0, share)


def zipf_weights(count: int, sif: float | None) -> npt.NDArray[np.float32]:
    """``a / (a + p)`` of words sorted by frequency, where the word of rank r has ``p`` in proportion to 1 / (r + 1)."""
    if sif is None:
        return np.ones(count, np.float32)
    shares = 1 / np.arange(2.0, count + 2)
    weights: npt.NDArray[np.float32] = (sif / (sif + shares / shares.sum())).astype(np.float32)
    return weights


def _alone(used: Ints, tokenizer: PreTrainedTokenizer) -> Ragged:
    """Rows of one token each, between special tokens."""
    place = int(tokenizer.template.begins)
    row = np.insert(tokenizer.encode_ragged([""]).ids, place, 0)
    ids_BS = np.tile(row, (len(used), 1))
    ids_BS[:, place] = used
    sizes = np.full(len(used), len(row))
    return Ragged(ids_BS.ravel(), boundaries_of(sizes), np.zeros(ids_BS.size, np.int8), sizes)
