"""LoRA: linear layers whose weights stay as they are, and to which a product of two small matrices is added.

Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1: ``h = W x + (alpha / r) B A x``, with
A random and B zero, so that a model begins as it was. The scale ``alpha / sqrt(r)`` is that of Kalajdzievski 2023.

Axes, in the order of the suffix letters::

    O outputs   I inputs   K adapted parts of a matrix   P outputs of a part   r rank
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.checkpoints.adapter_folder import DOWN, FINGERPRINT_KEY, PREFIX, UP, Adapters, base_fingerprint
from bertkit.checkpoints.any_names import any_table
from bertkit.checkpoints.huggingface import find_weights, is_adapter
from bertkit.checkpoints.save_folder import write_folder
from bertkit.config.adapter_config import ADAPTER_WEIGHTS, POOLED_ADAPTER_WEIGHTS, AdapterConfig, task_type_of
from bertkit.config.any_config import read_any_config
from bertkit.config.config_file import config_path
from bertkit.errors import CheckpointError, ConfigError, InputError, did_you_mean
from bertkit.model.class_specs import class_name, spec_of
from bertkit.model.configured_model import ConfiguredModel, no_weights
from bertkit.model.int8_model import has_bytes, replace_module
from bertkit.model.kernels.dropout import Dropout
from bertkit.model.kernels.linear import Linear
from bertkit.system.model_sources import ADAPTER, resolve
from bertkit.system.paths import user_path

#: What stands for all linear layers of the encoder, and of the decoder.
ALL_LINEAR = "all-linear"
#: Heads that come with a checkpoint; those of a task are trained and saved with the adapters.
_PRETRAINED_HEADS = frozenset(
    {"lm head", "masked-lm head", "next-sentence head", "sentence-order head", "replaced-token head"}
)


class AdaptedLinear(Linear):
    """A linear layer with adapters; its own weight and bias are not trained.

    Where the weight is that of several published layers (query, key, value), each of them may have an adapter of its
    own. Deviation from ``peft``: these share one dropout mask.

    lora_A: ``(K r, I)``, uniform at the start, as in the authors' code (``kaiming_uniform_``, a = sqrt(5)).
    lora_B: ``(K, P, r)``, zeros at the start.
    """

    def __init__(
        self, plain: Linear, has_adapter: Sequence[bool], config: AdapterConfig, generator: torch.Generator
    ) -> None:
        with no_weights():
            super().__init__(plain.in_features, plain.out_features, bias=plain.bias is not None)
        self.weight, self.bias, self.init_scale = plain.weight, plain.bias, plain.init_scale
        self.has_adapter, self.scale, self.is_merged = tuple(has_adapter), config.scale_of(""), False
        count, rows = sum(self.has_adapter), plain.out_features // len(self.has_adapter)
        down = torch.empty(count * config.r, plain.in_features)
        nn.init.kaiming_uniform_(down, a=math.sqrt(5), generator=generator)
        self.lora_A = nn.Parameter(down.to(self.weight))
        self.lora_B = nn.Parameter(self.weight.new_zeros(count, rows, config.r))
        self.dropout = Dropout(config.lora_dropout)
        super().train(plain.training)

    def forward(self, x: Tensor, activation: Literal["none", "gelu"] = "none") -> Tensor:
        if self.is_merged:
            return super().forward(x, activation)
        out = super().forward(x) + self._added(x, self._up())
        return F.gelu(out) if activation == "gelu" else out

    def rows(self, x: Tensor, part: slice) -> Tensor:
        out = super().rows(x, part)
        return out if self.is_merged else out + self._added(x, self._up()[part])

    def _added(self, x: Tensor, up_OKr: Tensor) -> Tensor:
        return F.linear(F.linear(self.dropout(x), self.lora_A) * self.scale, up_OKr)

    def _up(self) -> Tensor:
        """B of all parts as one matrix, ``(O, K r)``, with zeros where a row and a column belong to different parts."""
        if len(self.has_adapter) == 1:
            return self.lora_B[0]
        given = iter(self.lora_B)
        none = self.lora_B.new_zeros(self.lora_B.shape[1], 0)
        whole: Tensor = torch.block_diag(*(next(given) if has else none for has in self.has_adapter))
        return whole

    @torch.no_grad()
    def merge(self) -> None:
        """Add the product to the weight, so that the layer costs what a plain one does; it cannot be trained then."""
        if not self.is_merged:
            self.weight += self.scale * (self._up() @ self.lora_A)
            self.is_merged = True

    @torch.no_grad()
    def unmerge(self) -> None:
        """Take it away again: the weight is as it was, but for rounding."""
        if self.is_merged:
            self.weight -= self.scale * (self._up() @ self.lora_A)
            self.is_merged = False

    def train(self, mode: bool = True) -> AdaptedLinear:
        """Refuses (InputError) to be trained while it is merged."""
        if mode and self.is_merged:
            raise InputError("the adapters are merged into the weights and cannot be trained: unmerge_adapters(model)")
        super().train(mode)
        return self


def add_adapters(model: ConfiguredModel, config: AdapterConfig | None = None, *, seed: int = 0) -> None:
    """Put adapters into a model, in place, and freeze everything else but the head of its task.

    Its outputs stay the same. ``save_pretrained`` then writes the adapters and the head only. Make an optimizer
    afterwards, of the parameters with ``requires_grad``.

    config: ``target_modules`` are published names of linear layers, or their ends after a dot, such as ``"query"``;
        None or ``"all-linear"``: all of the encoder, and of the decoder. ``base_model_name_or_path`` is the checkpoint
        that the model was loaded from, by which saved adapters find it again.
    seed: of the random matrices.
    """
    config = config or AdapterConfig()
    if model.adapters is not None:
        raise InputError("the model has adapters already")
    if has_bytes(model):
        raise InputError("a model in 8 bits cannot be trained: take the original one, then quantize the result")
    if config.rank_pattern or config.alpha_pattern:
        raise ConfigError("rank_pattern and alpha_pattern are read, but new adapters have one rank and one scale")
    targets = config.target_modules or ALL_LINEAR
    targets = (targets,) if isinstance(targets, str) else targets
    places, head = _chosen(dict(_linears(model)), targets), dict(_head_tensors(model))
    if ALL_LINEAR in targets:  # by name, because other software may mean other layers
        targets = tuple(part for parts in places.values() for part in parts if part is not None)
    prefix = any_table(model.config).prefix
    owners = [name.removeprefix(prefix).partition(".")[0] for name in head.values()]
    config = config.replace(
        task_type=task_type_of(class_name(type(model))),
        target_modules=targets,
        modules_to_save=tuple(dict.fromkeys(owners)) or None,  # the outermost layers, without the name of the encoder
    )
    base = config.base_model_name_or_path
    known = Adapters(config, places, _fingerprint(model, base, config.revision) if base else None)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in head)
    generator = torch.Generator().manual_seed(seed)
    for name, parts in places.items():
        plain = model.get_submodule(name)
        assert isinstance(plain, Linear), name
        replace_module(model, name, AdaptedLinear(plain, [part is not None for part in parts], config, generator))
    model.adapters = known


def merge_adapters(model: ConfiguredModel) -> None:
    """Add all adapters to the weights, in place; ``save_pretrained`` then writes an ordinary model."""
    for module in adapted_layers(model).values():
        module.merge()


def unmerge_adapters(model: ConfiguredModel) -> None:
    """Take them away again; the weights are as they were, but for rounding."""
    for module in adapted_layers(model).values():
        module.unmerge()


def adapted_layers(model: nn.Module) -> dict[str, AdaptedLinear]:
    """The linear layers with adapters by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, AdaptedLinear)}


def _linears(model: ConfiguredModel) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The linear layers that came with a checkpoint, those of its head left out: our name, and the published names."""
    table, modules = any_table(model.config), dict(model.named_modules())
    head = {name for name, _ in _head_tensors(model)}
    for part, ours, theirs in table.names(spec_of(model), model.config):
        name = ours.removesuffix(".weight")
        if part in table.prefixed and ours not in head and name != ours and isinstance(modules.get(name), Linear):
            yield name, tuple(each.removesuffix(".weight") for each in theirs)


def _head_tensors(model: ConfiguredModel) -> Iterator[tuple[str, str]]:
    """Our name and the published one of each tensor that is trained as a whole: of a task's head, or newly drawn."""
    table, drawn = any_table(model.config), () if model.load_report is None else model.load_report.new_parts
    parameters = dict(model.named_parameters())
    for part, ours, theirs in table.names(spec_of(model), model.config):
        is_own = part not in table.prefixed and part not in _PRETRAINED_HEADS
        if ours in parameters and (is_own or part in drawn):
            assert len(theirs) == 1, "no head is of several published tensors"
            yield ours, theirs[0]


def _chosen(linears: dict[str, tuple[str, ...]], targets: Sequence[str]) -> dict[str, tuple[str | None, ...]]:
    """The linear layers that some target names, with None for their parts that none does."""

    def is_meant(name: str, target: str) -> bool:
        return target == ALL_LINEAR or name == target or name.endswith(f".{target}")

    known = list(chain.from_iterable(linears.values()))
    ends = sorted({name.rpartition(".")[2] for name in known})
    for target in targets:
        if not any(is_meant(name, target) for name in known):
            raise ConfigError(
                f"lora_targets: no linear layer is called {target!r}{did_you_mean(target, ends)}; this model has "
                f"{', '.join(ends)}, longer names such as {known[0]!r}, and {ALL_LINEAR} for all"
            )
    if not targets:
        raise ConfigError(f"lora_targets is empty; this model has {', '.join(ends)}, and {ALL_LINEAR} for all")
    found = {
        name: tuple(part if any(is_meant(part, target) for target in targets) else None for part in parts)
        for name, parts in linears.items()
    }
    return {name: parts for name, parts in found.items() if any(parts)}


def _fingerprint(model: ConfiguredModel, base: str, revision: str | None) -> str:
    path = resolve(base, revision=revision)
    if is_adapter(path):
        raise CheckpointError(
            f"{path} is an adapter, and adapters for it could not be loaded: make a model of it first:\n"
            f"  bertkit convert {path} NEW_FOLDER"
        )
    if (rows := read_any_config(config_path(path)).vocab_size) != model.config.vocab_size:
        raise InputError(
            f"the model has {model.config.vocab_size:,} word embeddings, {path} has {rows:,}, and adapters hold none: "
            "save the model with its new rows, and give that folder as base_model_name_or_path"
        )
    return base_fingerprint(find_weights(path).tensors, any_table(model.config))


def has_own_adapters(model: ConfiguredModel) -> bool:
    """Whether a model has adapters that are not merged into its weights."""
    return model.adapters is not None and not all(layer.is_merged for layer in adapted_layers(model).values())


def plain_state(model: ConfiguredModel) -> dict[str, Tensor]:
    """The ``state_dict()`` of a model without the matrices of merged adapters."""
    own = {f"{name}.{kind}" for name in adapted_layers(model) for kind in ("lora_A", "lora_B")}
    return {name: tensor for name, tensor in model.state_dict().items() if name not in own}


def save_adapters(model: ConfiguredModel, folder: Path) -> None:
    """Write the adapters and the head of a model, with ``adapter_config.json`` and the ``config.json`` of the whole."""
    known = model.adapters
    assert known is not None
    if known.fingerprint is None:
        raise InputError(
            "the adapters cannot be saved apart, because nothing is known of the model they were added to: give its "
            "base_model_name_or_path to add_adapters, or save the whole model after merge_adapters(model)"
        )
    base = user_path(known.config.base_model_name_or_path)
    if base.exists() and folder.exists() and folder.samefile(base if base.is_dir() else base.parent):
        raise InputError(
            f"{folder} holds the model that the adapters change, which saving them there would remove: give another "
            "folder, or save the whole model after merge_adapters(model)"
        )
    state = model.state_dict()
    tensors = {PREFIX + theirs: state[ours] for ours, theirs in _head_tensors(model)}
    for name, layer in adapted_layers(model).items():
        parts = [part for part in known.places[name] if part is not None]
        for part, down, up in zip(parts, layer.lora_A.chunk(len(parts)), layer.lora_B, strict=True):
            tensors |= {f"{PREFIX}{part}{DOWN}": down, f"{PREFIX}{part}{UP}": up}
    shape = model.config.replace(architectures=[class_name(type(model))])
    write_folder(
        folder,
        shape,
        {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()},
        POOLED_ADAPTER_WEIGHTS if shape.differs_elsewhere else ADAPTER_WEIGHTS,
        metadata={FINGERPRINT_KEY: known.fingerprint},
        beside={ADAPTER: known.config.to_json_string()},
    )
