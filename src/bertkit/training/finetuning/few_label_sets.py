"""Few-shot training of texts with any number of labels: as of one label, where texts with the same labels are alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from bertkit.model.models import BertForSequenceClassification
from bertkit.ragged import Ragged
from bertkit.system.console import say
from bertkit.training.finetuning.few_shot import CONTRASTED
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.fit import FitOptions
from bertkit.training.finetuning.frozen_encoder import FrozenHead, frozen_vectors
from bertkit.training.finetuning.label_contrast import contrast_labels
from bertkit.training.finetuning.linear_head import NEVER, logistic, read_by
from bertkit.training.trainer.assembly import run_trainer
from bertkit.training.trainer.generators import seed_generators
from bertkit.training.trainer.used_words import only_used_words


def fit_few_label_sets(
    model: BertForSequenceClassification,
    train: Ragged,
    flags_NC: npt.NDArray[np.int64],
    config: FinetuneConfig,
    *,
    seed: int,
    options: FitOptions,
) -> None:
    """Train the encoder by pairs of texts and the head by a logistic regression for each label, in place.

    flags_NC: 1 where a label applies. Texts with the same set of labels become alike; where no set has two texts, the
    encoder stays as it is.
    """
    seed_generators(seed)
    sets, numbers = np.unique(flags_NC, axis=0, return_inverse=True)
    numbers = numbers.reshape(-1)
    if config.contrasts and len(sets) > 1 and np.bincount(numbers).max() > 1:
        apart = replace(train, labels=numbers.astype(np.int64))
        with only_used_words(model, train.ids):
            run_trainer(contrast_labels(model, apart, config, seed, options), options)
    elif config.contrasts:
        say("no two texts with the same labels and others with different ones: only the head is trained")
    head = FrozenHead(model)
    features = read_by(head, frozen_vectors(model, train, label="encoding train"))
    classifier = head.classifier
    assert isinstance(classifier, torch.nn.Linear)
    with torch.no_grad():
        for label, flags in enumerate(flags_NC.T):
            if len(np.unique(flags)) < 2:  # of all texts or of none: so of every other
                classifier.weight[label] = 0.0
                classifier.bias[label] = -NEVER if flags[0] else NEVER
                continue
            weights_2D, bias_2 = logistic(features, flags, CONTRASTED, num_labels=2)
            classifier.weight[label] = torch.from_numpy(weights_2D[1] - weights_2D[0])
            classifier.bias[label] = float(bias_2[1] - bias_2[0])
    model.eval()
