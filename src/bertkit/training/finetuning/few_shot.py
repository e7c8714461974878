"""Fine-tuning on a handful of labels: an encoder that labels have trained by pairs, or a frozen one, and a linear head.

The result is an ordinary text classifier, whose head reads the pooled vector of a text.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bertkit.errors import ConfigError, counted
from bertkit.model.models import BertForSequenceClassification
from bertkit.ragged import Ragged
from bertkit.tasks.examples import Example
from bertkit.tasks.hold_out import deal, text_key
from bertkit.tasks.workflow import AnyWorkflow, Predicted
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.fit import Dev, Fit, FitOptions
from bertkit.training.finetuning.frozen_encoder import FrozenHead, frozen_vectors
from bertkit.training.finetuning.label_contrast import contrast_labels
from bertkit.training.finetuning.linear_head import STRENGTHS, choose_strength, fit_linear_head, read_by
from bertkit.training.trainer.assembly import run_trainer
from bertkit.training.trainer.generators import seed_generators
from bertkit.training.trainer.loop_options import Progression, Record
from bertkit.training.trainer.used_words import only_used_words

if TYPE_CHECKING:
    from bertkit.model.auto import AnyModel

#: Fine-tuning on at most so many rows, at most so many of the median label, tells of ``--few-shot``.
FEW_ROWS, FEW_OF_LABEL = 2_000, 64
#: Inverse strength of the penalty after the encoder was trained. Cross-validation cannot choose it: the labels of all
#: rows have already shaped the vectors.
CONTRASTED = 3.0
#: Parts of the rows, by which the strength of the penalty of a linear head on a frozen encoder is chosen.
FOLDS = 5


def check_few_shot(workflow: AnyWorkflow, config: FinetuneConfig, *, encoder: bool) -> None:
    """Refuse (ConfigError) what cannot be learned this way; ``encoder``: the start checkpoint is one."""
    if not config.few_shot:
        return
    if not workflow.has_one_label:
        raise ConfigError(
            f"few_shot is for texts or pairs of texts with one label each; task {workflow.task.name} has scores, "
            "several labels per text, something else than texts, or a teacher. Leave it out"
        )
    if not encoder:
        raise ConfigError("few_shot compares vectors of texts, which an encoder-decoder does not have; leave it out")


def advice_on(workflow: AnyWorkflow, rows: Sequence[Example], config: FinetuneConfig) -> str:
    """A line on ``few_shot`` for a run that has few labels and might be better with it; empty for others."""
    if config.few_shot or not workflow.has_one_label or len(rows) > FEW_ROWS:
        return ""
    counts = Counter(row.label for row in rows)
    if statistics.median(counts.values()) > FEW_OF_LABEL:
        return ""
    few = f"{counted(len(rows), 'training row')} {'is' if len(rows) == 1 else 'are'} few"
    return f"{few}: few_shot=True (--few-shot) compares ways to learn from them"


def can_cross_validate(rows: Sequence[Example]) -> bool:
    """Whether two labels have two different texts or more."""
    texts = {(row.label, text_key(row)) for row in rows}
    labels = [label for label, _ in texts]
    return sum(labels.count(label) > 1 for label in set(labels)) > 1


def fit_few_labels(
    model: AnyModel,
    workflow: AnyWorkflow,
    rows: Sequence[Example],
    train: Ragged,
    dev: Dev | None,
    config: FinetuneConfig,
    *,
    seed: int,
    options: FitOptions,
) -> Fit:
    """As :func:`fit`, by a method of ``config``; ``train`` has more than the labelled ``rows`` with method "pseudo"."""
    assert isinstance(model, BertForSequenceClassification), "check_few_shot refused the others"
    seed_generators(seed)
    at, log, labels = Progression(step=1, best_step=1), options.log, np.asarray(train.labels)
    if config.contrasts:
        at = _contrast(model, train, config, seed, options)
    head = FrozenHead(model)
    vectors = frozen_vectors(model, train, cache=None if config.contrasts else options.cache, label="encoding train")
    features, strength = read_by(head, vectors), CONTRASTED
    if not config.contrasts:
        can = can_cross_validate(rows)
        strength = choose_strength(features, labels, np.array(deal(rows, FOLDS, config.seed))) if can else STRENGTHS[0]
    loss = fit_linear_head(head, features, labels, strength)
    record: Record = {"step": at.step, "epoch": 1, "train_loss": loss}
    if not config.contrasts:
        log({"step": 1, "epoch": 1.0, "loss": loss})
    if dev is not None:
        outputs = workflow.outputs(workflow.scoring_engine(model), dev.encoded, label="evaluating")
        found = Predicted(dev.examples, dev.encoded, outputs, {})
        scores = workflow.score(replace(found, decision=workflow.decide(found, config)))
        record |= {f"dev_{name}": value for name, value in scores.items()}
    log({"event": "epoch", **record, "seconds": round(at.seconds, 1)})
    at.epochs, at.best_step = [record], at.step
    return Fit(model.eval(), at, False, workflow.loss_floor(train, config), None)


def _contrast(
    model: BertForSequenceClassification, train: Ragged, config: FinetuneConfig, seed: int, options: FitOptions
) -> Progression:
    def steps_alone(record: Record) -> None:
        if "event" not in record:
            options.log(record)

    given = replace(options, log=steps_alone, identity={**options.identity, "seed": seed})
    with only_used_words(model, train.ids):
        return run_trainer(contrast_labels(model, train, config, seed, given), given)
