"""From texts to vectors that can be compared: an encoder, and what makes vectors of texts of its token vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from bertkit.batch import Batch, Layout
from bertkit.checkpoints.sentence_folder import SentenceParts, StepWeights, read_sentence_parts, write_sentence_parts
from bertkit.config.config_file import checkpoint_folder
from bertkit.config.sentence_config import Dense, LayerNorm, Normalize, SentenceConfig, Step
from bertkit.model.models import BertModel, HeadModel
from bertkit.model.pooling import pool_sentences
from bertkit.system.model_sources import resolve
from bertkit.system.paths import user_path
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer


class DenseStep(nn.Module):
    """See :class:`bertkit.config.sentence_config.Dense`."""

    def __init__(self, step: Dense) -> None:
        super().__init__()
        self.linear = nn.Linear(step.in_features, step.out_features, bias=step.bias)
        widens = step.residual and step.in_features != step.out_features
        self.residual = nn.Linear(step.in_features, step.out_features, bias=False) if widens else None
        self.activation = getattr(nn, step.activation)()
        self.adds_input = step.residual

    def forward(self, x_BD: Tensor) -> Tensor:
        """``(B, in)`` to ``(B, out)``."""
        found: Tensor = self.activation(self.linear(x_BD))
        if self.adds_input:
            found = found + (x_BD if self.residual is None else self.residual(x_BD))
        return found


class LayerNormStep(nn.Module):
    """See :class:`bertkit.config.sentence_config.LayerNorm`."""

    def __init__(self, step: LayerNorm) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(step.dimension)

    def forward(self, x_BD: Tensor) -> Tensor:
        """``(B, D)`` to ``(B, D)``."""
        found: Tensor = self.norm(x_BD)
        return found


class NormalizeStep(nn.Module):
    """See :class:`bertkit.config.sentence_config.Normalize`."""

    def forward(self, x_BD: Tensor) -> Tensor:
        """``(B, D)`` to ``(B, D)``, each of length 1."""
        return functional.normalize(x_BD, dim=-1)


class SentenceHead(nn.Module):
    """Token vectors to one vector of each text: pooling, then the steps of a config, with weights as torch draws them.

    The weights of step i are those of ``steps[i]`` under the names that sentence-transformers has for them.
    """

    def __init__(self, config: SentenceConfig, hidden_size: int, *, seed: int = 0) -> None:
        super().__init__()
        self.config, self.hidden_size = config, hidden_size
        self.width = config.widths(hidden_size)[-1]
        with torch.random.fork_rng(devices=()):  # weights are drawn below, and the global generator stays as it is
            self.steps = nn.ModuleList(_module_of(step) for step in config.steps)
        generator = torch.Generator().manual_seed(seed)
        for module in self.steps.modules():
            if isinstance(module, nn.Linear):
                bound = module.in_features**-0.5
                for parameter in module.parameters():
                    nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def forward(self, x_TD: Tensor, layout: Layout, skipped: int = 0) -> Tensor:
        """Packed token vectors ``(T, D)`` to vectors of texts ``(B, width)``; truncation is the caller's.

        ``skipped``: tokens of the prompt, [CLS] included, that a config without ``include_prompt`` leaves out.
        """
        x = pool_sentences(x_TD, layout, self.config.pooling, 0 if self.config.include_prompt else skipped)
        for step in self.steps:
            x = step(x)
        return x

    def parts(self) -> SentenceParts:
        """Settings and weights, as they are saved."""
        return SentenceParts(self.config, tuple(map(_arrays, self.steps)))


class SentenceModel(nn.Module):
    """An encoder and a :class:`SentenceHead`, whose default is the mean of the token vectors."""

    def __init__(self, encoder: BertModel, config: SentenceConfig | None = None, *, seed: int = 0) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = SentenceHead(config or SentenceConfig(), encoder.config.hidden_size, seed=seed)
        self.head.to(device=encoder.device, dtype=encoder.dtype)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        config: SentenceConfig | None = None,
        *,
        seed: int = 0,
        revision: str | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype | str | None = None,
    ) -> Self:
        """Load a folder of sentence-transformers, or any other checkpoint; in eval mode.

        ``config``: what follows the encoder, with new weights, whatever the folder says; None: as it says, and where it
        says nothing the mean of the token vectors.
        """
        path = resolve(name_or_path, revision=revision)
        encoder = BertModel.from_pretrained(path, device=device, dtype=dtype)
        if config is not None:
            return cls(encoder, config, seed=seed).eval()
        parts = read_sentence_parts(checkpoint_folder(path), encoder.config.hidden_size) or SentenceParts(
            SentenceConfig()
        )
        made = cls(encoder, parts.config)
        for step, weights in zip(made.head.steps, parts.weights, strict=True):
            step.load_state_dict({name: torch.from_numpy(x) for name, x in weights.items()})
        return made.eval()

    def forward(self, batch: Batch, skipped: int = 0) -> Tensor:
        """A packed batch to ``(B, width)``; see :class:`SentenceHead`."""
        hidden = self.encoder.forward_packed(batch).last_hidden_state
        assert hidden is not None
        found: Tensor = self.head(hidden, batch.layout, skipped)
        return found

    def save_pretrained(
        self, folder: str | Path, tokenizer: PreTrainedTokenizer | None = None, headed: HeadModel | None = None
    ) -> None:
        """Write a folder that bertkit and sentence-transformers load.

        ``tokenizer``: None: it is there already. ``headed``: a model with a head around the same encoder, which is
        saved in its place, head and all.
        """
        assert headed is None or headed.bert is self.encoder
        (headed or self.encoder).save_pretrained(folder)
        write_sentence_parts(user_path(folder), self.head.parts(), self.head.hidden_size)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)


def _module_of(step: Step) -> nn.Module:
    match step:
        case Dense():
            return DenseStep(step)
        case LayerNorm():
            return LayerNormStep(step)
        case Normalize():
            return NormalizeStep()


def _arrays(module: nn.Module) -> StepWeights:
    return {name: x.detach().float().cpu().numpy().copy() for name, x in module.state_dict().items()}
