"""``PreTrainedModel`` of ``transformers``: the base of a model that people write around an encoder."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Iterator, Mapping
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import torch
from safetensors import safe_open
from torch import Tensor, nn

from bertkit.checkpoints.any_names import any_table
from bertkit.checkpoints.apply import to_ours, to_theirs
from bertkit.checkpoints.explain import explain
from bertkit.checkpoints.fit import requested
from bertkit.checkpoints.huggingface import find_weights, is_int8
from bertkit.checkpoints.match import Match, Status, match
from bertkit.checkpoints.safetensors_format import TensorInfo
from bertkit.checkpoints.save_folder import write_folder
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import config_path
from bertkit.errors import CheckpointError, InputError
from bertkit.habit_table import saving_folder
from bertkit.model.class_specs import spec_of
from bertkit.model.configured_model import ConfiguredModel, initialize
from bertkit.model.loading import LoadOptions, float_type, refuse_unknown
from bertkit.model.padded import PackedModel
from bertkit.model.pretrained_model import PretrainedModel
from bertkit.model.seq2seq.seq2seq_models import Seq2SeqModel
from bertkit.system.console import say
from bertkit.system.device import device_of_map, find_device
from bertkit.system.model_sources import resolve
from bertkit.system.paths import user_path

#: What is drawn anew by default; other modules have torch's own start.
_DRAWN = (nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm)


class PreTrainedModel(PretrainedModel, metaclass=ABCMeta):
    """A model of one's own: encoders of bertkit and further modules, with ``forward`` of one's own.

    A subclass makes its modules in ``__init__(self, config)`` and ends it with ``self.post_init()``, as in
    ``transformers``; ``bertkit.Trainer`` trains it if its output has a ``loss``. bertkit's models count as instances.

    base_model_prefix: the attribute with the encoder. new_weights: what the checkpoint did not have, after loading.
    """

    base_model_prefix: ClassVar[str] = "bert"
    config_class: ClassVar[Any] = BertConfig
    new_weights: tuple[str, ...] = ()

    def __init__(self, config: BertConfig, *inputs: object, **kwargs: object) -> None:
        super().__init__(config)

    @property
    def base_model(self) -> nn.Module:
        """The encoder under :attr:`base_model_prefix`; the model itself without one."""
        found: nn.Module = self._modules.get(self.base_model_prefix) or self
        return found

    def post_init(self) -> None:
        """Initialize what is not an encoder's; the last line of ``__init__``."""
        self.init_weights()

    def init_weights(self, generator: torch.Generator | None = None) -> None:
        """Call :meth:`_init_weights` with each module that is not an encoder's."""
        for module in _own_modules(self):
            if generator is not None and isinstance(module, _DRAWN):
                initialize(module, self.init_range, generator)
            else:
                self._init_weights(module)

    def _init_weights(self, module: nn.Module) -> None:
        """Initialize one module: linear layers, tables and norms as bertkit's; others keep torch's start."""
        if isinstance(module, _DRAWN):
            initialize(module, self.init_range)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *others: Any) -> None:
        nn.Module._load_from_state_dict(self, state_dict, prefix, *others)

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, *inputs: Any, **options: Any) -> Self:
        """Load a checkpoint, of this class or of an encoder with or without a head; in eval mode.

        The encoders must be in the file, every tensor; weights of one's own that are not there are new, and named on
        standard error and in ``new_weights``. ``options`` as for bertkit's models; those that ``__init__`` names go
        to it, as ``inputs`` do.

        Raises:
            CheckpointError: as there, and an own weight of another shape without ``ignore_mismatched_sizes=True``.
            InputError: an unknown keyword.
        """
        known = {p.name for p in signature(cls.__init__).parameters.values() if p.kind is not Parameter.VAR_KEYWORD}
        known -= LoadOptions.__annotations__.keys()
        to_init = {name: options.pop(name) for name in list(options) if name in known}
        refuse_unknown(options, BertConfig)
        path = resolve(name_or_path, revision=options.get("revision"))
        if is_int8(path):
            raise InputError(f"{path} is a model in 8 bits; {cls.__name__} reads the model that it was made of")
        weights = find_weights(path)
        config = requested(BertConfig.from_json_file(config_path(path)), options)
        config = config if config.family.head_layer else config.replace(pooling="cls")
        if (seed := options.get("seed")) is not None:
            torch.manual_seed(seed)
        model = cls(config, *inputs, **to_init)
        model._read(weights.tensors, weights.where, options)
        model.name_or_path = str(name_or_path)
        device = options.get("device")
        if options.get("device_map") is not None:
            device = device_of_map(options["device_map"]) or "auto"
        return model.eval().to(
            device=find_device(device, "cpu"), dtype=float_type(cast(LoadOptions, options), weights.tensors)
        )

    def save_pretrained(self, folder: str | Path | None = None, **ignored: object) -> None:
        """Write config and weights, the encoders' by their published names: the same class reads them elsewhere."""
        tensors: dict[str, Tensor] = {}
        for place, part in _encoders(self):
            named = to_theirs(part.state_dict(), part.config, spec_of(part), any_table(part.config))
            tensors |= {f"{place}.{name}": tensor for name, tensor in named}
        own = {name: value.detach().cpu().contiguous() for name, value in self._own_weights().items()}
        config = self.config.replace(architectures=[type(self).__name__])
        write_folder(user_path(saving_folder(folder, ignored)), config, tensors | own)

    def _read(self, tensors: Mapping[str, TensorInfo], where: str, options: Mapping[str, Any]) -> None:
        """Put the values of a file into the model."""
        state: dict[str, Tensor] = {}
        new: list[str] = []
        for place, part in _encoders(self):
            found = _match(place, part, tensors)
            if found.problems:
                raise CheckpointError(explain(found, where, file_labels=self.config.num_labels, own=None))
            self.load_report = self.load_report or found
            zeros = {row.ours: torch.zeros(row.shape) for row in found.of(Status.ZERO)}
            state |= {
                f"{place}.{name}": value for name, value in (to_ours(found, tensors, torch.float32) | zeros).items()
            }
            new += [f"{place}.{name}" for name in found.new]
        for name, value in self._own_weights().items():
            info = None if options.get("new_head") else tensors.get(name)
            if info is not None and info.shape != tuple(value.shape):
                if not options.get("ignore_mismatched_sizes"):
                    raise CheckpointError(
                        f"{where}: {name} has the shape {list(info.shape)}, and {type(self).__name__} has "
                        f"{list(value.shape)}; for a new one pass ignore_mismatched_sizes=True"
                    )
                info = None
            if info is None:
                new.append(name)
            else:
                with safe_open(info.file, "pt") as file:
                    state[name] = file.get_tensor(info.name)
        self.load_state_dict(state, strict=False)
        self.new_weights = tuple(new)
        if new:
            say(f"{type(self).__name__}: new weights, which are not in {where}: {', '.join(new)}")

    def _own_weights(self) -> dict[str, Tensor]:
        """What is no encoder's, without what is tied to something before it."""
        places = tuple(f"{place}." for place, _ in _encoders(self))
        state = self.state_dict(keep_vars=True)
        seen = {id(value) for name, value in state.items() if name.startswith(places)}
        own: dict[str, Tensor] = {}
        for name, value in state.items():
            if id(value) not in seen:
                seen.add(id(value))
                own[name] = value
        return own


PreTrainedModel.register(PackedModel)
PreTrainedModel.register(Seq2SeqModel)
BertPreTrainedModel = PreTrainedModel


def _encoders(model: nn.Module, place: str = "") -> Iterator[tuple[str, PackedModel]]:
    """Models of bertkit in a model of one's own, the outermost, by their names."""
    for name, child in model.named_children():
        if isinstance(child, PackedModel):
            yield place + name, child
        else:
            yield from _encoders(child, f"{place}{name}.")


def _own_modules(model: nn.Module) -> Iterator[nn.Module]:
    """The modules that are not in an encoder, children first."""
    for child in model.children():
        if not isinstance(child, ConfiguredModel):
            yield from _own_modules(child)
    yield model


def _match(place: str, part: PackedModel, tensors: Mapping[str, TensorInfo]) -> Match:
    """How an encoder fits a file, of this class with the encoder at ``place``, or of the encoder."""
    spec, table = spec_of(part), any_table(part.config)
    inside = {name.removeprefix(f"{place}."): info for name, info in tensors.items() if name.startswith(f"{place}.")}
    if not spec.heads and part.pooler is None:
        spec = spec._replace(pooler=False)
    tried = [match(each, part.config, spec, table, new_head=not spec.heads) for each in (tensors, inside)]
    return min(tried, key=lambda found: len(found.problems))
