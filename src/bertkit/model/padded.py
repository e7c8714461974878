"""Calling a model with padded tensors: pack, run packed, unpack.

Every model can be called in two ways. Like a function, it takes padded ``(B, S)`` tensors and returns padded ones;
``forward_packed`` takes a :class:`bertkit.batch.Batch` and returns flat ones. Padding is never computed: padded
positions of results are 0, of ``start_logits`` and ``end_logits`` the smallest value of their type, and take no part in
any loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature, unwrap
from typing import Any, ClassVar, ParamSpec, TypeVar

import torch
from torch import Tensor

from bertkit.batch import Batch, Padding, pack_padded, padded_positions
from bertkit.errors import InputError
from bertkit.habit_table import remedy
from bertkit.model.output import ModelOutput
from bertkit.model.pretrained_model import PretrainedModel

P = ParamSpec("P")
ResultT = TypeVar("ResultT")
#: Attribute of a ``forward`` made by :func:`_naming_targets`: itself. A decorator's copy of it is another function's.
_OURS = "_named"


class PackedModel(PretrainedModel):
    """Turns padded calls into packed ones."""

    #: Keywords of ``forward`` that a loss compares with; those in ``token_targets`` have one value per token.
    targets: ClassVar[tuple[str, ...]] = ()
    token_targets: ClassVar[tuple[str, ...]] = ()
    #: Whether targets at padded positions are dropped; otherwise they must be -100.
    allows_padded_targets: ClassVar[bool] = False
    #: Whether a loss can be computed from some of ``targets``.
    allows_some_targets: ClassVar[bool] = False
    #: Output fields with one row per token.
    token_fields: ClassVar[tuple[str, ...]] = ("last_hidden_state",)
    #: Those of them whose softmax is over the tokens of a text.
    place_fields: ClassVar[tuple[str, ...]] = ()
    #: Read by ``transformers.Trainer``: the loss divides by the targets of its own batch.
    accepts_loss_kwargs: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = unwrap(
            cls.forward, stop=lambda found: getattr(found, _OURS, None) is not found
        )  # not a user's decorators
        cls.forward = _naming_targets(own, cls.targets)  # type: ignore[method-assign]

    def forward_packed(
        self, batch: Batch, *, output_attentions: bool = False, output_hidden_states: bool = False
    ) -> ModelOutput:
        """Run a packed batch; see the class."""
        raise AssertionError("every subclass overrides this")

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        *,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool = True,
        **targets: Tensor | None,
    ) -> ModelOutput | tuple[Any, ...]:
        """Run a padded batch; for multiple choice every input has an axis of choices after the batch axis.

        Args:
            input_ids: integers ``(B, S)``; may be left out where ``inputs_embeds`` is given.
            attention_mask: ``(B, S)``, 1 at real tokens; None: all are real.
            token_type_ids: ``(B, S)``, the segment of each token; None: all 0.
            position_ids: ``(B, S)``, rows of the position table; None: the column number, from the first column that
                ``attention_mask`` does not hide (RoBERTa: counted over the ids that are not ``pad_token_id``, from
                ``pad_token_id + 1`` on).
            inputs_embeds: ``(B, S, D)`` in place of the word embeddings.
            output_attentions: also return the attention probabilities of every layer. None: as the config says.
            output_hidden_states: also return the embeddings and the output of every layer. None: as the config says.
            return_dict: False returns a tuple of the fields that are not None.
            **targets: what the loss compares with; the class's ``targets`` names them. A target of one value a sequence
                may have the shape ``(B,)`` or ``(B, 1)`` and any integer type.

        Raises:
            InputError: an argument that is no tensor, shapes or types that do not agree, ids outside their tables, an
                unknown keyword; padding inside a text where attention depends on distances.

        Deviates: ``transformers`` counts columns also where a text is padded on the left, and gives a head the vector
        of the padding in column 0. Here a text's outputs do not depend on the padding.
        """
        output_attentions, output_hidden_states = self.config.returned(output_attentions, output_hidden_states)
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
        }
        batch, padding, num_choices = self.pack(inputs, targets)
        out = self.forward_packed(batch, output_attentions=output_attentions, output_hidden_states=output_hidden_states)
        for name in self.token_fields:
            if (value := getattr(out, name)) is not None:
                unpack = padding.unpack_places if name in self.place_fields else padding.unpack
                setattr(out, name, unpack(value))
        if out.hidden_states is not None:
            out.hidden_states = tuple(padding.unpack(state) for state in out.hidden_states)
        if out.attentions is not None:
            out.attentions = tuple(padding.unpack_attention(probs) for probs in out.attentions)
        if self.has_choices and out.logits is not None:
            out.logits = out.logits.view(-1, num_choices)
        return out if return_dict else out.to_tuple()

    def pack(self, inputs: Mapping[str, Any], targets: Mapping[str, Tensor | None]) -> tuple[Batch, Padding, int]:
        """What :meth:`forward` is given as a packed batch with its targets, where it was padded, and the choices each.

        Raises:
            InputError: as :meth:`forward`.
        """
        given = self._given(targets)
        num_choices, tensors = self._merge_choices(_checked(inputs, self.config.embedding_width))
        ids = tensors.get("input_ids")
        if ids is None:
            ids = torch.zeros(tensors["inputs_embeds"].shape[:-1], dtype=torch.int64, device=self.device)
        mask, segments, embeds = (tensors.get(name) for name in ("attention_mask", "token_type_ids", "inputs_embeds"))
        positions = self.positions(ids, mask, tensors.get("position_ids"), embeds)
        batch, padding = pack_padded(
            ids, mask, segments, positions, embeds, longest_with_gaps=self.config.longest_with_gaps
        )
        for name, target in given.items():
            batch = batch.with_target(name, self._pack_target(name, target, padding, num_choices))
        return batch, padding, num_choices

    def _given(self, targets: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
        """The targets that are not None, by their names here; integers as int64."""
        given = {}
        for word, target in targets.items():
            name = "next_sentence_label" if word == self.config.family.pair_label else word  # ALBERT has another word
            if target is None:
                continue
            if name not in self.targets:
                raise InputError(
                    f"{type(self).__name__} takes no {word!r}{remedy('forward', word, self.targets)}; "
                    f"it takes {', '.join(self.targets) or 'no targets'}"
                )
            if not isinstance(target, Tensor):
                raise InputError(f"{word} must be a tensor, got {type(target).__name__}: use torch.tensor({word})")
            given[name] = target if target.is_floating_point() else target.long()
        if given and not self.allows_some_targets and (missing := [name for name in self.targets if name not in given]):
            raise InputError(f"give {' and '.join(self.targets)}, or neither: {missing[0]} is missing")
        return given

    def _merge_choices(self, tensors: dict[str, Tensor]) -> tuple[int, dict[str, Tensor]]:
        """The number of choices, and the inputs with batch and choices as one axis; 1 where there are no choices."""
        axes = 3 if self.has_choices else 2
        for name, x in tensors.items():
            if x.ndim != axes + (name == "inputs_embeds"):
                shape = "(batch, choices, sequence" if self.has_choices else "(batch, sequence"
                width = ", width)" if name == "inputs_embeds" else ")"
                raise InputError(f"{name} must have shape {shape}{width}, got {tuple(x.shape)}")
        if not self.has_choices:
            return 1, tensors
        return next(iter(tensors.values())).shape[1], {name: x.flatten(0, 1) for name, x in tensors.items()}

    def positions(
        self, ids: Tensor, mask: Tensor | None, given: Tensor | None = None, embeds: Tensor | None = None
    ) -> Tensor | None:
        """Positions ``(B, S)`` counted from 0, as a batch has them; None where they are the column numbers."""
        pad = None if embeds is not None else self.config.pad_token_id
        return padded_positions(ids, mask, given, self.config.first_position, pad)

    def _pack_target(self, name: str, target: Tensor, padding: Padding, num_choices: int) -> Tensor:
        if name not in self.token_targets:
            rows = padding.shape[0] // num_choices
            target = target.squeeze(1) if target.ndim == 2 and target.shape[1] == 1 else target
            if target.ndim == 0 or len(target) != rows:
                per = "question" if self.has_choices else "sequence"
                raise InputError(
                    f"{name} must have one value or row for each {per}, {rows} in all, got shape {tuple(target.shape)}"
                )
            return target
        if target.shape != padding.shape:
            raise InputError(f"{name} must have the shape of input_ids {padding.shape}, got {tuple(target.shape)}")
        packed = padding.pack(target)
        lost = int((target != -100).sum() - (packed != -100).sum())
        if lost and not self.allows_padded_targets:
            raise InputError(f"{name} has {lost} targets where attention_mask is 0; set them to -100")
        return packed


def _naming_targets(forward: Callable[P, ResultT], targets: Sequence[str]) -> Callable[P, ResultT]:
    """``forward`` with the targets in its signature: ``transformers.Trainer`` drops columns not named there."""

    @wraps(forward)
    def named(*args: P.args, **options: P.kwargs) -> ResultT:
        return forward(*args, **options)

    given = signature(forward)
    parameters = [p for p in given.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
    own = [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in targets if name not in given.parameters]
    vars(named).update({"__signature__": given.replace(parameters=[*parameters, *own]), _OURS: named})
    return named


def _checked(inputs: Mapping[str, Any], width: int) -> dict[str, Tensor]:
    """The inputs that are not None, all of them tensors."""
    for name, x in inputs.items():
        if x is None or isinstance(x, Tensor):
            continue
        hint = ""
        if isinstance(x, str | Mapping) or name == "input_ids":
            hint = "; make the inputs with the tokenizer: model(**tokenizer(texts, padding=True, return_tensors='pt'))"
        raise InputError(f"{name} must be a tensor, got {type(x).__name__}{hint}")
    given = {name: x for name, x in inputs.items() if x is not None}
    embeds = given.get("inputs_embeds")
    if embeds is None and "input_ids" not in given:
        raise InputError("give input_ids or inputs_embeds")
    if embeds is not None and (not embeds.is_floating_point() or embeds.shape[-1:] != (width,)):
        raise InputError(
            f"inputs_embeds must be floats of width {width}, got {embeds.dtype} of shape {tuple(embeds.shape)}"
        )
    return given
