"""What a model returns: one dataclass for every head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from bertkit.habit_table import no_attribute
from bertkit.model.losses import LossTerm


@dataclass(slots=True, repr=False)
class ModelOutput:
    """Results of one forward pass; what was not asked for, or what the head does not compute, is None.

    Shapes are those of a padded call (B sequences of width S); a packed call has ``(T, ...)`` in place of
    ``(B, S, ...)``. Padded positions hold zeros.

    loss: scalar, mean over the targets, when labels were given.
    logits: ``(B, C)`` sequence heads, ``(B, S, C)`` token heads, ``(B, S, V)`` masked LM, ``(B, choices)``.
    start_logits, end_logits: ``(B, S)``, question answering.
    prediction_logits, seq_relationship_logits: ``(B, S, V)`` and ``(B, 2)``, pre-training.
    last_hidden_state: ``(B, S, D)``, the top layer.
    pooler_output: ``(B, D)``, tanh of a linear layer on [CLS]; None for a model without pooler. Of a BART with a
        classifier the vector that this reads.
    hidden_states: L + 1 tensors ``(B, S, D)``: the embeddings, then every layer.
    attentions: L tensors ``(B, N, S, S)``: probabilities after softmax, before dropout; packed: L lists of B
        tensors ``(N, s, s)``.
    loss_terms: the parts of the loss by name, each a sum and what it is divided by, for accumulation over
        micro-batches; pre-training has ``masked_lm`` and ``next_sentence``, the other heads have ``loss``.

    Fields can be read as ``out.logits``, ``out["logits"]``, or by number among those that are not None (``out[0]``).
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    start_logits: Tensor | None = None
    end_logits: Tensor | None = None
    prediction_logits: Tensor | None = None
    seq_relationship_logits: Tensor | None = None
    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Any, ...] | None = None
    loss_terms: dict[str, LossTerm] | None = None

    @property
    def sop_logits(self) -> Tensor | None:
        """``seq_relationship_logits`` by its name in ALBERT."""
        return self.seq_relationship_logits

    def keys(self) -> list[str]:
        """Names of the fields that are present, in order; ``loss_terms`` is left out."""
        names = (f.name for f in fields(self) if f.name != "loss_terms")
        return [name for name in names if getattr(self, name) is not None]

    def values(self) -> list[Any]:
        """The present fields, in order."""
        return [getattr(self, name) for name in self.keys()]

    def items(self) -> list[tuple[str, Any]]:
        """Names and values of the present fields, in order."""
        return [(name, getattr(self, name)) for name in self.keys()]

    def to_tuple(self) -> tuple[Any, ...]:
        """The present fields, in order."""
        return tuple(self.values())

    def get(self, name: str, default: Any = None) -> Any:
        """A field that is present, else ``default``."""
        return getattr(self, name) if name in self.keys() else default

    def __len__(self) -> int:
        return len(self.keys())

    def __repr__(self) -> str:
        return f"ModelOutput({', '.join(f'{name}={getattr(self, name)!r}' for name in self.keys())})"

    def __getattr__(self, name: str) -> Any:
        raise no_attribute(self, "output.", name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __getitem__(self, key: str | int | slice) -> Any:
        if isinstance(key, str):
            if key not in self.keys():
                raise KeyError(f"{key!r} is not in this output; it has {self.keys()}")
            return getattr(self, key)
        return self.to_tuple()[key]
