"""How much each token of a text moved one number that a model gave: by gradients, and by hiding words.

Letters of the names of tensors: S tokens of the text, K copies of it that are computed together, E width of the word
embeddings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertkit.batch import Batch, Layout, positions_of
from bertkit.engine.module_views import eval_view
from bertkit.model.models import HeadModel
from bertkit.model.output import ModelOutput

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
#: From the outputs of a batch to the number in question of each sequence, ``(K,)``.
Score = Callable[[ModelOutput, Layout], Tensor]
#: Tokens that are computed at once.
TOKENS_AT_ONCE = 1024
#: Integration begins with so many steps, which are doubled until the error is small enough, up to so many.
FIRST_STEPS, MOST_STEPS = 32, 512
#: Largest error of completeness, as a share of what is to be explained.
TOLERANCE = 0.01


@dataclass(frozen=True, slots=True)
class Gradients:
    """Integrated gradients of the tokens of a text.

    tokens: float64 ``(S,)``; they sum up to ``score - baseline_score``, but for ``error``, which is a share of it.
    """

    tokens: Floats
    score: float
    baseline_score: float
    steps: int
    error: float


class Attributor:
    """One text, of one sequence, that a model reads in eval mode whatever mode it is in.

    ids, types: int64 ``(S,)``, the tokens and their segments.
    special: bool ``(S,)``, the tokens that belong to no text, which no baseline replaces.
    score: what is explained.
    """

    def __init__(self, model: HeadModel, ids: Ints, types: Ints, special: Flags, score: Score) -> None:
        self.model, self.score = eval_view(model), score
        self._ids, self._types, self._special = (
            torch.from_numpy(each).to(model.device) for each in (ids, types, special)
        )
        self._at_once = max(1, TOKENS_AT_ONCE // len(ids))

    def integrated_gradients(
        self, baseline: int, *, most_steps: int = MOST_STEPS, advance: Callable[[int], None] = lambda count: None
    ) -> Gradients:
        """Sundararajan et al. 2017, along the line from the embedding of the token ``baseline`` to those of the text.

        The integral is that of Gauss and Legendre, as in ``captum``, by as many steps as completeness takes.
        """
        table: Any = self.model.bert.embeddings.word_embeddings
        with torch.no_grad():
            words_SE = table(self._ids)
            empty_SE = torch.where(self._special[:, None], words_SE, table(self._ids.new_tensor(baseline)))
            ends = self.score(*self._run(self._ids.repeat(2), torch.cat([words_SE, empty_SE]))).double().tolist()
        way_SE, whole, steps = words_SE - empty_SE, ends[0] - ends[1], FIRST_STEPS
        while True:
            places, weights = np.polynomial.legendre.leggauss(steps)
            total_SE = torch.zeros_like(words_SE, dtype=torch.float64)
            for start in range(0, steps, self._at_once):
                part = slice(start, start + self._at_once)
                share_K11 = words_SE.new_tensor((1 + places[part]) / 2)[:, None, None]
                x = (empty_SE + share_K11 * way_SE).flatten(0, 1).requires_grad_()
                with torch.enable_grad():
                    found = self.score(*self._run(self._ids.repeat(len(share_K11)), x)).sum()
                    (slope,) = torch.autograd.grad(found, x)
                by_step = slope.view(len(share_K11), *words_SE.shape).double()
                total_SE += torch.tensordot(by_step.new_tensor(weights[part] / 2), by_step, dims=1)
                advance(len(share_K11))
            tokens: Floats = (total_SE * way_SE).sum(dim=-1).cpu().numpy()
            error = abs(float(tokens.sum()) - whole) / max(abs(whole), np.finfo(np.float32).tiny)
            if error <= TOLERANCE or 2 * steps > most_steps:
                return Gradients(tokens, ends[0], ends[1], steps, error)
            steps *= 2

    def occlusion(self, words: Sequence[Sequence[int]], mask: int) -> Floats:
        """How far the score falls when the tokens of a word are masked: float64, one number a word."""
        ids_KS = self._ids.repeat(1 + len(words), 1)
        for row, tokens in enumerate(words, start=1):
            ids_KS[row, list(tokens)] = mask
        with torch.no_grad():
            scores = [self.score(*self._run(part.flatten())) for part in ids_KS.split(self._at_once)]
        found = torch.cat(scores).double().cpu()
        falls: Floats = (found[0] - found[1:]).numpy()
        return falls

    def outputs(self) -> ModelOutput:
        """Those of the text as it is."""
        with torch.no_grad():
            return self._run(self._ids)[0]

    def _run(self, ids: Tensor, embeds: Tensor | None = None) -> tuple[ModelOutput, Layout]:
        """The outputs of some copies of the text, end to end."""
        size = len(self._types)
        copies = len(ids) // size
        layout = Layout((size,) * copies)
        places = positions_of(layout.lengths).to(ids.device)
        batch = Batch(ids, self._types.repeat(copies), places, layout, inputs_embeds=embeds)
        return self.model.forward_packed(batch), layout
