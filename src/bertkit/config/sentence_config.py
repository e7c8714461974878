"""How token vectors become the vector of a text: pooling and what follows it, prompts, length.

The vocabulary is that of sentence-transformers (Reimers & Gurevych 2019, and the files that its releases write);
:mod:`bertkit.checkpoints.sentence_folder` reads and writes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, get_args

from bertkit.errors import InputError, did_you_mean
from bertkit.system.validated_settings import Field, Settings

PoolingMode = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
POOLING_MODES: tuple[PoolingMode, ...] = get_args(PoolingMode)
#: How two vectors are compared; distances are negative, so that more is nearer.
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]
#: What may follow the matrix of a dense step, by the name of its class in ``torch.nn``.
Activation = Literal["Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid"]
#: Prompts that every model has, empty where its folder says nothing of them.
QUERY, DOCUMENT = "query", "document"
#: Names of the prompt of a text that is searched for, the first of them that a folder has.
DOCUMENT_PROMPTS = (DOCUMENT, "passage", "corpus")
#: Where a template would have the text.
_PLACE = re.compile(r"\{\w*\}")


class Dense(Settings):
    """A matrix, a bias and an activation; ``residual`` adds the input, by a matrix of its own if the widths differ."""

    in_features: int = Field(ge=1)
    out_features: int = Field(ge=1)
    bias: bool = True
    activation: Activation = "Tanh"
    residual: bool = False

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Shapes of its weights by name."""
        matrix = (self.out_features, self.in_features)
        return {
            "linear.weight": matrix,
            **({"linear.bias": (self.out_features,)} if self.bias else {}),
            **({"residual.weight": matrix} if self.residual and self.out_features != self.in_features else {}),
        }


class LayerNorm(Settings):
    """A normalization to mean 0 and variance 1, with learned scale and shift, epsilon 1e-5."""

    dimension: int = Field(ge=1)

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Shapes of its weights by name."""
        return {"norm.weight": (self.dimension,), "norm.bias": (self.dimension,)}


class Normalize(Settings):
    """Scaling to length 1."""

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """None."""
        return {}


Step = Dense | LayerNorm | Normalize


def checked_prompt(prompt: str) -> str:
    """A prompt as it was given; InputError for one with a place for the text, which stands behind a prompt."""
    if found := _PLACE.search(prompt):
        raise InputError(
            f"the prompt {prompt!r:.80} has {found[0]!r}, but a prompt stands before the text, and is read as it is: "
            "give only what comes before the text"
        )
    return prompt


class SentenceConfig(Settings):
    """From token vectors to the vector of a text; see the fields."""

    pooling: tuple[PoolingMode, ...] = Field(
        ("mean",), description="How token vectors become one; several side by side, in this order."
    )
    include_prompt: bool = Field(True, description="Whether the tokens of the prompt are pooled too.")
    steps: tuple[Step, ...] = Field((), description="What follows the pooling, in this order.")
    prompts: Mapping[str, str] = Field({}, description="What is put before a text, by name.")
    default_prompt_name: str | None = Field(None, description="The prompt where none is asked for.")
    similarity: Similarity = Field("cosine", description="How the vectors are meant to be compared.")
    max_length: int | None = Field(None, ge=1, description="Most tokens of a text; None: as the tokenizer says.")
    lower_case: bool = Field(False, description="Lower-case texts first, also for a tokenizer that keeps capitals.")
    dimensions: int | None = Field(None, ge=1, description="Keep only the first numbers of a vector; None: all.")

    def _check(self) -> None:
        if not self.pooling or len(set(self.pooling)) < len(self.pooling):
            raise ValueError(f"pooling = {list(self.pooling)}: expected one mode or several different ones")
        if self.default_prompt_name is not None and self.default_prompt_name not in self.known_prompts:
            raise ValueError(
                f"default_prompt_name = {self.default_prompt_name!r}: there are the prompts "
                f"{', '.join(self.known_prompts)}"
            )

    @property
    def known_prompts(self) -> dict[str, str]:
        """The prompts by name, with those that every model has."""
        return {QUERY: "", DOCUMENT: "", **self.prompts}

    def prompt(self, prompt: str | None = None, prompt_name: str | None = None) -> str:
        """The prompt that is asked for by text or by name, else the default one; empty for none."""
        if prompt is not None and prompt_name is not None:
            raise InputError(f"give a prompt or the name of one, not both: got {prompt!r:.60} and {prompt_name!r}")
        if prompt is not None:
            return prompt if prompt in self.prompts.values() else checked_prompt(prompt)
        name = self.default_prompt_name if prompt_name is None else prompt_name
        if name is None:
            return ""
        if name not in self.known_prompts:
            raise InputError(
                f"no prompt {name!r}{did_you_mean(name, self.known_prompts)}; the model has "
                f"{', '.join(self.known_prompts)}. Any other text can be given as prompt="
            )
        return self.known_prompts[name]

    @property
    def document_prompt(self) -> str:
        """Name of the prompt of a text that is searched for."""
        return next((name for name in DOCUMENT_PROMPTS if name in self.prompts), DOCUMENT)

    def widths(self, hidden_size: int) -> list[int]:
        """Numbers of a vector after pooling and after each step, for token vectors of ``hidden_size``."""
        widths = [hidden_size * len(self.pooling)]
        for number, step in enumerate(self.steps, start=1):
            match step:
                case Dense():
                    expected, then = step.in_features, step.out_features
                case LayerNorm():
                    expected = then = step.dimension
                case Normalize():
                    expected = then = widths[-1]
            if expected != widths[-1]:
                raise InputError(
                    f"step {number} after pooling, {type(step).__name__}, reads vectors of {expected:,} numbers, and "
                    f"gets {widths[-1]:,}"
                )
            widths.append(then)
        return widths
