"""Training of an encoder by labels alone: texts of one label become alike, texts of two labels do not.

The idea is that of SetFit (Tunstall et al. 2022, "Efficient Few-Shot Learning Without Prompts", section 3.1): few
labels make many pairs. Deviates: a step compares a few texts, all with each other, so that each text is encoded once
for several pairs; see ``docs/decisions/0190-few-labels.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from bertkit.batch import collate
from bertkit.config.reading_settings import LossName
from bertkit.config.sentence_config import SentenceConfig
from bertkit.errors import ConfigError
from bertkit.model.models import BertForSequenceClassification
from bertkit.model.sentence_model import SentenceModel
from bertkit.model.text_comparison import ComparedTexts, Objective, TextComparison
from bertkit.ragged import Ints, Ragged
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.trainer.assembly import RunOptions, make_trainer
from bertkit.training.trainer.batch_plan import WholeSteps
from bertkit.training.trainer.callbacks import AnyTrainer

#: Texts of a step, how many of them have the same label, where there are as many, and the most pairs of them.
TEXTS, OF_LABEL, PAIRS = 16, 4, 32
#: Up to so many labels the loss is the squared error of the cosine against 1 for a pair of one label and 0 for others,
#: as in SetFit. That more labels are all at right angles is too much to ask of a few texts: of them only that pairs of
#: one label have the larger cosines (CoSENT).
FEW_LABELS = 8


@dataclass(frozen=True, slots=True)
class PairStep:
    """What a step compares: ``pairs`` int64 ``(P, 2)`` of places in ``rows``; ``same``: bool ``(P,)``, of one label."""

    rows: Ints
    pairs: Ints
    same: Ints


def pair_steps(labels_N: Ints, pairs_each: int, seed: int) -> list[PairStep]:
    """Steps that compare ``pairs_each`` pairs for each text, as many of one label as of two.

    All labels come equally often, and all texts of a label; a pure function of its arguments. A label with one text has
    no pair of its own.
    """
    _, counts = np.unique(labels_N, return_counts=True)
    assert len(counts) > 1, "training rows of one label were refused"
    if counts.max() == 1:
        raise ConfigError(
            "no label has two texts, so contrastive training has no two texts to make alike, and moving all of them "
            "apart makes the model worse; use few_shot_method='linear' (--few-shot-method linear), or give more texts"
        )
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, 0xFE))))
    drawn = _texts_of_steps(labels_N, generator)
    left = pairs_each * len(labels_N)
    steps: list[PairStep] = []
    while left > 0:
        step = _balanced(next(drawn), labels_N, generator)
        steps.append(step)
        left -= len(step.pairs)
    return steps


def _texts_of_steps(labels_N: Ints, generator: np.random.Generator) -> Iterator[Ints]:
    """Endlessly, the different texts of a step: of some labels, as far as possible :data:`OF_LABEL` of each."""
    labels = np.unique(labels_N)
    turns = _in_turn(labels, generator)
    texts = {int(label): _in_turn(np.flatnonzero(labels_N == label), generator) for label in labels}
    several = min(len(labels), max(2, TEXTS // OF_LABEL))
    each = TEXTS // several
    while True:
        chosen = list(dict.fromkeys(next(turns) for _ in range(several)))
        if len(chosen) < 2:  # the end of one turn was the beginning of the next
            continue
        yield np.unique([next(texts[label]) for label in chosen for _ in range(each)])


def _in_turn(values: Ints, generator: np.random.Generator) -> Iterator[int]:
    """Endlessly all values in a random order, each time another."""
    while True:
        yield from generator.permutation(values).tolist()


def _balanced(rows: Ints, labels_N: Ints, generator: np.random.Generator) -> PairStep:
    """Pairs of some texts, as many of one label as of two where there are both."""
    pairs = np.stack(np.triu_indices(len(rows), 1), axis=1)
    same = labels_N[rows[pairs[:, 0]]] == labels_N[rows[pairs[:, 1]]]
    kinds = [np.flatnonzero(same), np.flatnonzero(~same)]
    fewest = min(min(map(len, kinds)) or max(map(len, kinds)), PAIRS // 2)
    kept = np.sort(np.concatenate([generator.permutation(kind)[:fewest] for kind in kinds]))
    return PairStep(rows, pairs[kept], same[kept])


def contrast_loss(num_labels: int) -> LossName:
    """Which loss so many labels are trained with."""
    return "cosine" if num_labels <= FEW_LABELS else "cosent"


def contrast_labels(
    model: BertForSequenceClassification, train: Ragged, config: FinetuneConfig, seed: int, options: RunOptions
) -> AnyTrainer:
    """A trainer of the encoder of ``model`` on the labels of ``train``; the head is left as it is."""
    labels = np.asarray(train.labels)
    steps = pair_steps(labels, config.few_shot_pairs, seed)

    def batch_of(rows: list[int]) -> ComparedTexts:
        (step,) = (steps[row] for row in rows)
        same = torch.from_numpy(step.same.astype(np.float32))
        return ComparedTexts(collate(train, step.rows), torch.from_numpy(step.pairs), len(step.rows), same)

    tokens = [int(train.lengths[step.rows].sum()) for step in steps]
    plan = WholeSteps(tokens, batch_of, lambda epoch: [np.array([number]) for number in range(len(steps))])
    pooling = model.config.pooling
    sentences = SentenceModel(model.bert, SentenceConfig(pooling=(pooling,)))
    module = TextComparison(sentences, Objective(contrast_loss(len(np.unique(labels)))), config.max_tokens)
    assert config.learning_rate is not None, "settings must be resolved"
    return make_trainer(module, plan, config, options.loop(config, len(steps), config.learning_rate))
