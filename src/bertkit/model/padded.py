"""Calling a model with padded tensors: pack, run packed, unpack.

Every model class has two ways in. Called like a function it takes padded ``(B, S)`` tensors and returns padded ones;
``forward_packed`` takes a :class:`bertkit.batch.Batch` and returns flat ones. Padding is never computed: padded
positions of results are 0 and take no part in any loss.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from bertkit.batch import Batch, Padding, pack_padded
from bertkit.errors import InputError, did_you_mean
from bertkit.model.encoder import Encoder
from bertkit.model.output import ModelOutput
from bertkit.model.pretrained_model import PretrainedModel


class PackedModel(PretrainedModel):
    """Turns padded calls into packed ones."""

    #: Keywords of ``forward`` that a loss compares with; those in ``token_targets`` have one value a token.
    targets: ClassVar[tuple[str, ...]] = ()
    token_targets: ClassVar[tuple[str, ...]] = ()
    #: Output fields with one row a token.
    token_fields: ClassVar[tuple[str, ...]] = ("last_hidden_state",)

    def forward_packed(
        self, batch: Batch, *, output_attentions: bool = False, output_hidden_states: bool = False
    ) -> ModelOutput:
        """Run a packed batch; see the class."""
        raise AssertionError("each class has its own")

    def set_gradient_checkpointing(self, enabled: bool = True) -> None:
        """In training, keep only the input of each encoder layer and compute the layer again in the backward pass.

        The same losses and gradients, bit for bit, in a fraction of the memory and about a third more time.
        """
        for module in self.modules():
            if isinstance(module, Encoder):
                module.gradient_checkpointing = enabled

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        *,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
        return_dict: bool = True,
        **targets: Tensor | None,
    ) -> ModelOutput | tuple[Any, ...]:
        """Run a padded batch.

        Args:
            input_ids: int64 ``(B, S)``.
            attention_mask: ``(B, S)``, 1 at real tokens; None: all are real.
            token_type_ids: ``(B, S)``, the segment of each token; None: all 0.
            position_ids: ``(B, S)``, rows of the position table; None: the column number (RoBERTa: counted over the
                ids that are not ``pad_token_id``, from ``pad_token_id + 1`` on).
            inputs_embeds: ``(B, S, D)`` in place of the word embeddings.
            output_attentions: also return the attention probabilities of every layer.
            output_hidden_states: also return the embeddings and the output of every layer.
            return_dict: False returns a tuple of the fields that are not None.
            **targets: what the loss compares with; the class's ``targets`` names them.

        Raises:
            InputError: shapes or types that do not agree, ids outside their tables, an unknown keyword.
        """
        pair = self.config.family.pair_label  # ALBERT's word for it
        named = {"next_sentence_label" if name == pair else name: target for name, target in targets.items()}
        given = {name: target for name, target in named.items() if target is not None}
        for name in given:
            if name not in self.targets:
                raise InputError(
                    f"{type(self).__name__} takes no {name!r}{did_you_mean(name, self.targets)}; "
                    f"it takes {', '.join(self.targets) or 'no targets'}"
                )
        positions = self._positions(input_ids, position_ids, inputs_embeds)
        batch, padding = pack_padded(input_ids, attention_mask, token_type_ids, positions, inputs_embeds)
        for name, target in given.items():
            batch = batch.with_target(name, self._pack_target(name, target, padding))
        out = self.forward_packed(batch, output_attentions=output_attentions, output_hidden_states=output_hidden_states)
        self._unpack(out, padding)
        return out if return_dict else out.to_tuple()

    def _positions(self, ids: Tensor, positions: Tensor | None, inputs_embeds: Tensor | None) -> Tensor | None:
        """Positions counted from 0, as a batch has them; None where they are the column numbers."""
        first = self.config.first_position
        if first and positions is not None:
            return positions - first
        if not first or inputs_embeds is not None:
            return positions
        real = ids != self.config.pad_token_id
        return real.cumsum(-1) * real - 1

    def _pack_target(self, name: str, target: Tensor, padding: Padding) -> Tensor:
        if name not in self.token_targets:
            return target
        if target.shape != padding.shape:
            raise InputError(f"{name} must have the shape of input_ids {padding.shape}, got {tuple(target.shape)}")
        packed = padding.pack(target)
        lost = int((target != -100).sum() - (packed != -100).sum())
        if lost:
            raise InputError(f"{name} has {lost} targets where attention_mask is 0; set them to -100")
        return packed

    def _unpack(self, out: ModelOutput, padding: Padding) -> None:
        for name in self.token_fields:
            value = getattr(out, name)
            if value is not None:
                setattr(out, name, padding.unpack(value))
        if out.hidden_states is not None:
            out.hidden_states = tuple(padding.unpack(state) for state in out.hidden_states)
        if out.attentions is not None:
            out.attentions = tuple(padding.unpack_attention(probs) for probs in out.attentions)
