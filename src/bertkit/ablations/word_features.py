"""Tagging words from vectors that stay as they are (Devlin et al. 2019, section 5.3): only a linear layer is trained.

Deviates from the paper, which puts two layers of BiLSTM on the vectors: with a logistic regression the score is that of
the vectors. They are standardized first, so that layers of different scales can be mixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.ablations.plan import Features
from bertkit.batch import Batch, split_by_budget
from bertkit.errors import ConfigError
from bertkit.model.models import BertModel
from bertkit.tasks.examples import Examples
from bertkit.tasks.registry import Task
from bertkit.tasks.run_rows import Scored, read_rows, score_set
from bertkit.tasks.tokens.features import IGNORED, TokenWindows
from bertkit.tasks.tokens.task import TaggedExample
from bertkit.tasks.tokens.workflow import TokenWorkflow
from bertkit.tasks.workflow import Predicted, workflow_of
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.training.finetuning.finetune_settings import FinetuneConfig

#: C of the logistic regression, as scikit-learn calls it, and its iterations at most.
STRENGTH, MAX_ITERATIONS = 0.01, 200
#: Tokens that a model reads at once.
MAX_TOKENS = 4096


class FeatureTagger(nn.Module):
    """Vectors of chosen layers ``(P, L, D)`` to label scores ``(P, C)``."""

    def __init__(self, features: Features, num_layers: int, width: int, num_labels: int) -> None:
        super().__init__()
        self.mix = features.mix
        self.weights = nn.Parameter(torch.zeros(num_layers)) if self.mix == "weighted" else None
        self.linear = nn.Linear(num_layers * width if self.mix == "concatenated" else width, num_labels)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x_PLD: Tensor) -> Tensor:
        if self.mix == "concatenated":
            logits: Tensor = self.linear(x_PLD.flatten(1))
            return logits
        # The sum of the scores of each layer: those of the summed vectors, for a small fraction of the work.
        scores_PLC = F.linear(x_PLD, self.linear.weight)
        if self.weights is not None:
            scores_PLC = scores_PLC * len(self.weights) * self.weights.softmax(0)[:, None]
        return scores_PLC.sum(1) + self.linear.bias


def score_features(
    models: Sequence[Path], task: Task, data: Path, features: Features, config: FinetuneConfig
) -> tuple[Scored, dict[str, float]]:
    """Scores on dev, and the learned weight of each layer, if there are any.

    Of several models, which must have one tokenizer, the vectors of each piece are concatenated.
    """
    workflow = workflow_of(task)
    assert isinstance(workflow, TokenWorkflow)
    rows = read_rows(workflow, data, config)
    tokenizer = AutoTokenizer.from_pretrained(models[0])
    loaded = [BertModel.from_pretrained(path).eval() for path in models]
    settings = config.resolved(model=loaded[0].config, num_train_rows=len(rows.train), longest=128, head="token")
    sets = [cast("Examples[TaggedExample]", part) for part in (rows.train, rows.dev)]
    encoded = [workflow.encode(part, tokenizer, settings, labelled=True) for part in sets]
    x, held = (torch.cat([_vectors(m, workflow, part, features.layers) for m in loaded], dim=-1) for part in encoded)
    labels_P = _labels(encoded[0])
    mean, deviation = x.mean(0), x.std(0) + 1e-6
    x, held = (x - mean) / deviation, (held - mean) / deviation
    tagger = FeatureTagger(features, x.shape[1], x.shape[2], len(workflow.task.labels))
    fit(tagger, x, labels_P)
    with torch.inference_mode():
        outputs = tagger(held).numpy()
    scored = score_set(workflow, Predicted(sets[1], encoded[1], outputs, {}), "dev", settings=settings)
    weights = () if tagger.weights is None else tagger.weights.softmax(0).tolist()
    return scored, {f"layer {layer}": weight for layer, weight in zip(features.layers, weights, strict=False)}


def _labels(encoded: TokenWindows) -> Tensor:
    assert encoded.labels is not None
    return torch.from_numpy(encoded.labels[encoded.places])


def _vectors(model: BertModel, workflow: TokenWorkflow, encoded: TokenWindows, layers: Sequence[int]) -> Tensor:
    """The states of every piece in the chosen layers, float32 ``(P, L, D)``."""
    depth = model.config.num_hidden_layers
    if wrong := [layer for layer in layers if not -depth - 1 <= layer <= depth]:
        raise ConfigError(
            f"layer {wrong[0]} of a model with {depth} layers; give 0 (embeddings) to {depth}, or from -1"
        )
    lengths = encoded.rows.lengths.tolist()
    found = torch.empty(len(encoded.rows.ids), len(layers), model.config.hidden_size)
    for part in split_by_budget(range(len(lengths)), lengths, MAX_TOKENS):
        batch: Batch = workflow.collate(encoded, part)
        with torch.inference_mode():
            states = model.forward_packed(batch, output_hidden_states=True).hidden_states
        assert states is not None
        places = np.concatenate([np.arange(*encoded.rows.boundaries[row : row + 2]) for row in part])
        found[torch.from_numpy(places)] = torch.stack([states[layer] for layer in layers], dim=1)
    return found[torch.from_numpy(encoded.places)]


def fit(tagger: FeatureTagger, x_PLD: Tensor, labels_P: Tensor) -> None:
    """Train to the minimum of the mean cross-entropy plus the squared weights of the linear layer over ``2 C P``.

    That is the objective of scikit-learn's ``LogisticRegression``, which has no mixture of layers.
    """
    kept = (labels_P != IGNORED).nonzero().squeeze(1)
    x_PLD, labels_P = x_PLD[kept], labels_P[kept]
    optimizer = torch.optim.LBFGS(tagger.parameters(), max_iter=MAX_ITERATIONS, line_search_fn="strong_wolfe")

    def objective() -> Tensor:
        optimizer.zero_grad()
        penalty = tagger.linear.weight.square().sum() / (2 * STRENGTH * len(labels_P))
        loss = F.cross_entropy(tagger(x_PLD), labels_P) + penalty
        loss.backward()
        return loss

    optimizer.step(objective)
