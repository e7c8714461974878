"""What every model class shares: initialisation, where it is, loading and saving."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import nn

from bertkit.config.bert_config import BertConfig
from bertkit.model.kernels.linear import Linear


def initialize(module: nn.Module, std: float, generator: torch.Generator | None = None) -> None:
    """Draw the weights of ``module`` as the original code does.

    Matrices and embedding tables: normal with sd ``std``, cut at two sd (google-research/bert ``modeling.py``,
    ``create_initializer``). Biases 0; LayerNorm 1 and 0. Does nothing on the meta device.
    Deviates: the row of [PAD] in the word embeddings is 0, as in the published PyTorch weights.
    """
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            if parameter.is_meta:
                continue
            with torch.no_grad():
                if isinstance(part, nn.LayerNorm) and name == "weight":
                    parameter.fill_(1.0)
                elif name == "bias":
                    parameter.zero_()
                else:
                    nn.init.trunc_normal_(parameter, std=std, a=-2 * std, b=2 * std, generator=generator)
                    if isinstance(part, nn.Embedding) and part.padding_idx is not None:
                        parameter[part.padding_idx].zero_()


class PretrainedModel(nn.Module):
    """A model with a config, that can be loaded and saved."""

    #: Where the encoder stands in the class: "bert", or "" when the class is the encoder.
    base_prefix: ClassVar[str] = "bert"
    #: Prefixes of the parameters that are the class's own head.
    head_prefixes: ClassVar[tuple[str, ...]] = ()
    #: Whether ``num_labels=`` or ``id2label=`` asks for a new head.
    label_head: ClassVar[bool] = False
    #: What :meth:`from_pretrained` found: tensors that are exact, new, or unused in the file; None for a new model.
    load_report: Any = None

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Type of the parameters."""
        return next(self.parameters()).dtype

    def num_parameters(self) -> int:
        """Trainable and frozen values; tied tables are counted once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def init_weights(self, generator: torch.Generator | None = None) -> None:
        """Draw all weights anew; see :func:`initialize`."""
        initialize(self, self.config.initializer_range, generator)

    def prepack(self) -> Self:
        """Lay the weights out for CPU inference (a copy of the matrices); see :meth:`Linear.prepack`."""
        self.eval()
        for module in self.modules():
            if isinstance(module, Linear):
                module.prepack()
        return self

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, **options: Any) -> Self:
        """Load a checkpoint: a folder, a ``.safetensors`` file, a sharded index, or a name on the Hugging Face Hub.

        Every tensor of the encoder and of this class's head must be there with its shape, or a new head must be asked
        for by name; anything else is an error that lists all differences. The model comes back in eval mode.

        Args:
            name_or_path: what to load.
            **options: ``num_labels``, ``id2label`` or ``label2id`` (a new task head of that size where the file has
                none), ``problem_type``, ``new_head=True`` (a new head whatever the file has), ``seed`` (for the new
                head, default 0), ``revision`` (Hub), ``device``, ``dtype`` or ``torch_dtype`` (default:
                float32).

        Raises:
            CheckpointError: the file is missing, damaged, unsafe, or does not fit.
            ConfigError: an option contradicts the checkpoint's config.
        """
        # The one call that goes up a layer, so by name: see docs/decisions/0002-loading-from-the-class.md.
        loaded = import_module("bertkit.model.loading").load_model(cls, name_or_path, **options)
        assert isinstance(loaded, cls)
        return loaded

    def save_pretrained(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``model.safetensors`` under the names that other software of the family reads.

        Raises:
            ResourceError: the disk is full or cannot be written.
        """
        import_module("bertkit.model.loading").save_model(self, folder)
