"""The keywords of :class:`SentenceTransformer` and of its calls, and what some of them say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, TypedDict

import torch

from bertkit.errors import InputError
from bertkit.habits.keywords import known_keywords
from bertkit.habits.sentences.sentence_modules import SentenceModule
from bertkit.metrics.vector_precision import VectorPrecision

Output = Literal["sentence_embedding", "token_embeddings"]


class SentenceTransformerModelCardData:
    """Facts for a model card: accepted without an effect, because :func:`bertkit.finetune` writes the card."""

    def __init__(self, **facts: Any) -> None:
        vars(self).update(facts)


CrossEncoderModelCardData = SparseEncoderModelCardData = SentenceTransformerModelCardData


class SimilarityFunction(StrEnum):
    """How vectors are compared."""

    COSINE = "cosine"
    DOT_PRODUCT = DOT = "dot"
    EUCLIDEAN = "euclidean"
    MANHATTAN = "manhattan"

    @staticmethod
    def to_similarity_fn(similarity_function: str) -> Callable[..., Any]:
        """The function of ``util`` that compares each vector with each."""
        from bertkit.habits.sentences import compared_vectors

        name = SimilarityFunction(similarity_function)
        return getattr(compared_vectors, {"cosine": "cos_sim", "dot": "dot_score"}.get(name, f"{name}_sim"))  # type: ignore[no-any-return]

    @classmethod
    def possible_values(cls) -> list[str]:
        """Their names."""
        return [each.value for each in cls]


class ModelOptions(TypedDict, total=False):
    """Keywords of :class:`SentenceTransformer`; what has no effect is in :mod:`bertkit.habit_table`."""

    modules: Sequence[SentenceModule] | None
    device: str | torch.device | None
    prompts: Mapping[str, str] | None
    default_prompt_name: str | None
    similarity_fn_name: str | None
    revision: str | None
    truncate_dim: int | None
    model_kwargs: Mapping[str, Any] | None
    tokenizer_kwargs: Mapping[str, Any] | None
    processor_kwargs: Mapping[str, Any] | None
    backend: str


class EncodeOptions(TypedDict, total=False):
    """Keywords of :meth:`SentenceTransformer.encode`; see there."""

    sentences: str | Iterable[str]
    prompt: str | None
    prompt_name: str | None
    batch_size: int
    show_progress_bar: bool | None
    output_value: Output
    precision: VectorPrecision
    convert_to_numpy: bool
    convert_to_tensor: bool
    device: str | torch.device | list[str] | None
    normalize_embeddings: bool
    truncate_dim: int | None
    pool: Mapping[str, Any] | None
    chunk_size: int | None


def dtype_of(options: ModelOptions) -> torch.dtype | None:
    """The type of the weights, the only thing in ``model_kwargs`` that has an effect."""
    given = known_keywords("model_kwargs", options.get("model_kwargs") or {}, ("dtype", "torch_dtype"))
    name = given.get("dtype", given.get("torch_dtype"))
    if name is None or name == "auto" or isinstance(name, torch.dtype):
        return name if isinstance(name, torch.dtype) else None
    found = getattr(torch, str(name).removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise InputError(f"torch_dtype={name!r} is no type of torch, such as 'float16'")
    return found


def max_length_of(options: ModelOptions) -> int | None:
    """Most tokens of a text, the only thing in ``tokenizer_kwargs`` that has an effect."""
    given = {**(options.get("tokenizer_kwargs") or {}), **(options.get("processor_kwargs") or {})}
    most: int | None = known_keywords("tokenizer_kwargs", given, ("model_max_length",)).get("model_max_length")
    return most


#: How the names of models begin that are typed without the owner, ``sentence-transformers``.
_OWN_NAMES = (
    *("all-", "allenai-specter", "distiluse-", "gtr-t5-", "LaBSE", "msmarco-", "multi-qa-", "nli-", "paraphrase-"),
    *("quora-", "sentence-t5-", "static-", "stsb-", "use-cmlm-"),
)


def with_owner(model: str | Path) -> str | Path:
    """``sentence-transformers/NAME`` for the name of one of its models that is no folder here."""
    name = str(model)
    owned = isinstance(model, str) and "/" not in name and name.startswith(_OWN_NAMES) and not Path(name).exists()
    return f"sentence-transformers/{name}" if owned else model
