"""The losses of DistilBERT, MiniLMv2 and TinyBERT against a few lines of other arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import entropy

from bertkit.batch import pack
from bertkit.errors import ConfigError
from bertkit.model.models import BertForMaskedLM, BertForPreTraining, BertModel
from bertkit.training.distillation.distill_settings import (
    PredictionDistillation,
    RelationDistillation,
    StateDistillation,
)
from bertkit.training.distillation.taught_networks import TaughtPredictions, TaughtRelations, TaughtStates
from pretrain_runs import SHAPE

SEQUENCES = [[2, 7, 4, 9, 3], [2, 8, 11, 3]]
LABELS = torch.tensor([-100, -100, 8, -100, -100, -100, 6, -100, -100])
BATCH = pack(SEQUENCES).with_target("labels", LABELS)
STILL = SHAPE.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def made(cls, seed, **changes):
    torch.manual_seed(seed)
    return cls(STILL.replace(initializer_range=0.3, **changes)).eval()


def means(taught):
    """Each term's mean, whose divisor is what the loop is told in advance."""
    terms, counts = taught.forward_packed(BATCH).loss_terms, taught.num_targets(BATCH)
    assert counts == {name: term.num_targets for name, term in terms.items()}
    return {name: float(term.mean().detach()) for name, term in terms.items()}


@pytest.mark.parametrize("positions", ["all", "masked"])
@pytest.mark.parametrize("cls", [BertForMaskedLM, BertForPreTraining])
def test_distilbert(cls, positions):
    student, teacher = made(cls, 0), made(BertForMaskedLM, 1)
    found = means(TaughtPredictions(student, teacher, PredictionDistillation(positions=positions)))
    logits = []
    for model in (student, teacher):
        out = model(**{"input_ids": torch.tensor([SEQUENCES[0]])}, output_hidden_states=True)
        second = model(input_ids=torch.tensor([SEQUENCES[1]]), output_hidden_states=True)
        name = "prediction_logits" if model is student and cls is BertForPreTraining else "logits"
        both = [torch.cat([getattr(each, name)[0] for each in (out, second)])]
        both.append(torch.cat([each.hidden_states[-1][0] for each in (out, second)]))
        logits.append([x.detach().double().numpy() for x in both])
    (ours, state), (theirs, told) = logits
    rows = np.arange(9) if positions == "all" else np.array([2, 6])
    soft = entropy(softmax(theirs[rows] / 2, 1), softmax(ours[rows] / 2, 1), axis=1).mean() * 4
    words = -np.log(softmax(ours[[2, 6]], 1)[[0, 1], [8, 6]]).mean()
    cosine = ((state * told).sum(1) / np.linalg.norm(state, axis=1) / np.linalg.norm(told, axis=1)).mean()
    wanted = {"soft": 5 * soft, "masked_lm": 2 * words, "cosine": 1 - cosine}
    assert found == pytest.approx(wanted, rel=1e-4)


def qkv_by_hand(encoder, ids, number):
    """Queries, keys and values of a layer for one text, from its input state and weights."""
    layer = encoder.encoder.layer[number].attention.qkv
    states = encoder(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states[number][0]
    return (states @ layer.weight.T + layer.bias).detach().double().numpy().reshape(len(ids), 3, -1)


def test_minilmv2_compares_models_of_other_widths():
    student = made(BertForPreTraining, 0)
    teacher = made(BertModel, 1, hidden_size=48, num_hidden_layers=3, num_attention_heads=3)
    found = means(TaughtRelations(student, teacher, RelationDistillation(relation_heads=4, teacher_layer=2)))
    sums = np.zeros(3)
    for ids in SEQUENCES:
        pair = qkv_by_hand(student.bert, ids, 1), qkv_by_hand(teacher, ids, 1)
        for kind in range(3):
            for head in range(4):
                rows = [np.split(x[:, kind], 4, axis=1)[head] for x in pair]
                said, told = (softmax(x @ x.T / np.sqrt(x.shape[1]), 1) for x in rows)
                sums[kind] += entropy(told, said, axis=1).sum()
    wanted = dict(zip(("queries", "keys", "values"), sums / (4 * 9), strict=True))
    assert found == pytest.approx(wanted, rel=1e-4)
    with pytest.raises(ConfigError, match="relation_heads=5 does not divide the student's width of 32"):
        TaughtRelations(student, teacher, RelationDistillation(relation_heads=5))
    with pytest.raises(ConfigError, match="teacher_layer=4, but the teacher has 3"):
        TaughtRelations(student, teacher, RelationDistillation(relation_heads=4, teacher_layer=4))


def scores_by_hand(qkv):
    """Attention scores of two heads."""
    queries, keys = (np.split(qkv[:, part], 2, axis=1) for part in (0, 1))
    return np.stack([q @ k.T / np.sqrt(q.shape[1]) for q, k in zip(queries, keys, strict=True)])


def test_tinybert_learns_every_second_layer():
    student = made(BertForPreTraining, 0)
    teacher = made(BertModel, 1, hidden_size=48, num_hidden_layers=4)
    taught = TaughtStates(student, teacher, StateDistillation(state_weight=2.0), seed=3)
    found = means(taught)
    matrix, bias = (x.detach().double().numpy() for x in (taught.project.weight, taught.project.bias))
    states, scores = 0.0, 0.0
    for ids in SEQUENCES:
        given = torch.tensor([ids])
        ours, theirs = (
            [x[0].detach().double().numpy() for x in model(input_ids=given, output_hidden_states=True).hidden_states]
            for model in (student.bert, teacher)
        )
        for mine, its in ((0, 0), (1, 2), (2, 4)):
            states += ((ours[mine] @ matrix.T + bias - theirs[its]) ** 2).sum()
        for mine, its in ((0, 1), (1, 3)):
            pair = qkv_by_hand(student.bert, ids, mine), qkv_by_hand(teacher, ids, its)
            both = [scores_by_hand(x) for x in pair]
            scores += ((both[0] - both[1]) ** 2).sum()
    wanted = {"states": 2.0 * states / (9 * 48), "attention": scores / (2 * (25 + 16))}
    assert found == pytest.approx(wanted, rel=1e-4)
    with pytest.raises(ConfigError, match="learns every k-th layer"):
        TaughtStates(student, made(BertModel, 1, num_hidden_layers=3), StateDistillation(), seed=0)
    with pytest.raises(ConfigError, match="2 attention heads, the teacher 4"):
        TaughtStates(student, made(BertModel, 1, num_attention_heads=4), StateDistillation(), seed=0)
    both = "learns every k-th layer .* 2 attention heads, the teacher 4.*for example --student 1x32 --set heads=4"
    with pytest.raises(ConfigError, match=both):
        TaughtStates(
            student, made(BertModel, 1, num_hidden_layers=3, num_attention_heads=4), StateDistillation(), seed=0
        )


def test_teachers_are_neither_trained_nor_saved():
    student, teacher = made(BertForMaskedLM, 0), made(BertForMaskedLM, 1)
    taught = TaughtPredictions(student, teacher, PredictionDistillation()).train()
    assert {id(p) for p in taught.parameters()} == {id(p) for p in student.parameters()}
    assert student.training
    assert not teacher.training
    sum(term.mean() for term in taught.forward_packed(BATCH).loss_terms.values()).backward()
    assert all(p.grad is None for p in teacher.parameters())
    assert all(p.grad is not None for p in student.bert.encoder.parameters())
    with pytest.raises(ConfigError, match="states have 32 numbers, the teacher's 48"):
        TaughtPredictions(student, made(BertForMaskedLM, 1, hidden_size=48), PredictionDistillation())
