"""What a student of a corpus is compared with in its teacher: predictions, states, relations, attention.

Letters of the array shapes: T tokens of a batch, V vocabulary, D width, N heads, H width of a head, A relation heads,
s tokens of one sequence. Every loss is a sum and what its mean divides by (:class:`bertkit.model.losses.LossTerm`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.batch import Layout
from bertkit.model.attention import SelfAttention
from bertkit.model.losses import LossTerm
from bertkit.model.models import BertModel


def prediction_loss(student_RV: Tensor, teacher_RV: Tensor, temperature: float) -> LossTerm:
    """``T^2 KL(softmax(t / T) || softmax(s / T))`` of each row (Sanh et al. 2019, section 2: "distillation loss")."""
    said_RV, wanted_RV = (F.log_softmax(x.float() / temperature, dim=-1) for x in (student_RV, teacher_RV))
    total = F.kl_div(said_RV, wanted_RV, reduction="sum", log_target=True) * temperature**2
    return LossTerm(total, float(len(student_RV)))


def direction_loss(student_TD: Tensor, teacher_TD: Tensor) -> LossTerm:
    """1 - cosine of the states of each token (Sanh et al. 2019, section 2: "cosine embedding loss")."""
    cosine_T = F.cosine_similarity(student_TD.float(), teacher_TD.float(), dim=-1)
    return LossTerm((1 - cosine_T).sum(), float(len(cosine_T)))


def relation_loss(student_TD: Tensor, teacher_TD: Tensor, layout: Layout, num_heads: int) -> LossTerm:
    """How far apart two relations of tokens are (Wang et al. 2021, "MiniLMv2", equations 5 to 7).

    The vectors, such as the queries of all heads side by side, are cut anew into ``num_heads`` relation heads, whatever
    the widths D of student and teacher. A relation is ``softmax(x x' / sqrt(D / A))`` over the tokens of a sequence.
    The loss is KL(teacher || student), its mean over relation heads and tokens.
    """
    total = student_TD.new_zeros((), dtype=torch.float32)
    for start, end in layout.spans():
        said, wanted = (_relation(x[start:end].float(), num_heads) for x in (student_TD, teacher_TD))
        total = total + F.kl_div(said, wanted, reduction="sum", log_target=True)
    return LossTerm(total, float(num_heads * len(student_TD)))


def _relation(x_sD: Tensor, num_heads: int) -> Tensor:
    """Logarithms of the relation ``(A, s, s)``."""
    x_AsH = x_sD.unflatten(-1, (num_heads, -1)).transpose(0, 1)
    scores = x_AsH @ x_AsH.transpose(1, 2) / math.sqrt(x_AsH.shape[-1])
    return F.log_softmax(scores, dim=-1)


def attention_loss(student_T3D: Tensor, teacher_T3D: Tensor, layout: Layout, num_heads: int) -> LossTerm:
    """Squared difference of the attention scores before softmax (Jiao et al. 2020, "TinyBERT", equation 7), mean."""
    total = student_T3D.new_zeros((), dtype=torch.float32)
    for start, end in layout.spans():
        said, wanted = (_scores(x[start:end].float(), num_heads) for x in (student_T3D, teacher_T3D))
        total = total + F.mse_loss(said, wanted, reduction="sum")
    return LossTerm(total, float(num_heads * sum(length * length for length in layout.lengths)))


def _scores(qkv_s3D: Tensor, num_heads: int) -> Tensor:
    q_sNH, k_sNH, _ = qkv_s3D.unflatten(-1, (num_heads, -1)).unbind(1)
    return torch.einsum("qnh,knh->nqk", q_sNH, k_sNH) / math.sqrt(q_sNH.shape[-1])


def state_loss(student_TD: Tensor, teacher_TE: Tensor, project: nn.Module) -> LossTerm:
    """Squared difference of states, the student's projected to the teacher's width (Jiao et al. 2020, equation 8)."""
    difference = F.mse_loss(project(student_TD).float(), teacher_TE.float(), reduction="sum")
    return LossTerm(difference, float(teacher_TE.numel()))


def queries_keys_values(encoder: BertModel, layers: Sequence[int]) -> list[nn.Module]:
    """What computes queries, keys and values of these layers; the caller has checked that they are BERT's."""
    found: list[nn.Module] = []
    for number in layers:
        attention = encoder.encoder.layer[number].attention
        assert isinstance(attention, SelfAttention)
        found.append(attention.qkv)
    return found


def has_plain_attention(encoder: BertModel) -> bool:
    """Whether queries, keys and values alone say how tokens attend, as in BERT, in layers with weights of their own."""
    plain = all(type(getattr(layer, "attention", None)) is SelfAttention for layer in encoder.encoder.layer)
    return plain and len(encoder.encoder.layer) == encoder.config.num_hidden_layers


@contextmanager
def captured(modules: Sequence[nn.Module]) -> Iterator[Mapping[int, Tensor]]:
    """What the modules return inside the block, by their place in the sequence."""
    found: dict[int, Tensor] = {}
    handles = []
    for place, module in enumerate(modules):

        def keep(_: nn.Module, __: tuple[Tensor, ...], output: Tensor, place: int = place) -> None:
            found[place] = output

        handles.append(module.register_forward_hook(keep))
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()
