"""The root of the model classes: a module with a config, initialized as in the original code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bertkit.batch import Batch
from bertkit.checkpoints.adapter_folder import Adapters
from bertkit.checkpoints.int8_folder import Quantization
from bertkit.checkpoints.match import Match
from bertkit.config.bert_config import BertConfig
from bertkit.errors import InputError
from bertkit.habit_table import no_attribute, refuse_others
from bertkit.model.kernels.linear import Linear
from bertkit.model.output import ModelOutput

#: How other software calls the encoder in a model with a head, where that is not ``bert``; ours is ``base_model``.
ENCODERS = {
    "roberta": "roberta",
    "camembert": "roberta",
    "xlm-roberta": "roberta",
    "distilbert": "distilbert",
    "albert": "albert",
    "electra": "electra",
    "deberta-v2": "deberta",
    "mpnet": "mpnet",
    "modernbert": "model",
}


def initialize(module: nn.Module, std: float, generator: torch.Generator | None = None, *, cutoff: float = 2.0) -> None:
    """Initialize the weights of ``module`` as the original code does.

    Matrices and embedding tables: normal with standard deviation ``std`` times their ``init_scale``, truncated at two
    (``create_initializer`` in ``modeling.py`` of google-research/bert) or at ``cutoff``. Biases 0; norms 1 and 0.
    Deviates: the row of [PAD] in the word embeddings is 0, as in the published PyTorch weights.
    """
    for part in module.modules():
        scaled = std * getattr(part, "init_scale", 1.0)
        for name, parameter in part.named_parameters(recurse=False):
            if parameter.is_meta:
                continue
            with torch.no_grad():
                if isinstance(part, nn.LayerNorm | nn.RMSNorm) and name == "weight":
                    parameter.fill_(1.0)
                elif name == "bias":
                    parameter.zero_()
                else:
                    edge = cutoff * scaled
                    nn.init.trunc_normal_(parameter, std=scaled, a=-edge, b=edge, generator=generator)
                    if isinstance(part, nn.Embedding) and part.padding_idx is not None:
                        parameter[part.padding_idx].zero_()


class _NoRandom(TorchFunctionMode):
    """Skips random initialization, which on the meta device only imports a compiler (1 s)."""

    def __torch_function__(
        self, func: Callable[..., Tensor], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Tensor:
        given = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            initialized: Tensor = args[0] if args else given["tensor"]
            return initialized
        return func(*args, **given)


@contextmanager
def no_weights() -> Iterator[None]:
    """Modules that are made meanwhile have shapes only, on the meta device; their tensors are assigned later."""
    with torch.device("meta"), _NoRandom():
        yield


class ConfiguredModel(nn.Module):
    """A network with a config."""

    #: Attribute that holds the encoder: "bert", or "" if the class is the encoder.
    base_prefix: ClassVar[str] = "bert"
    #: Prefixes of the parameters that are the class's own head.
    head_prefixes: ClassVar[tuple[str, ...]] = ()
    #: Whether ``num_labels=`` or ``id2label=`` asks for a new head.
    label_head: ClassVar[bool] = False
    #: Whether inputs have an axis of choices after the batch axis.
    has_choices: ClassVar[bool] = False
    #: Which tensors were loaded exactly, newly initialized, or left unused; None for a model that was not loaded.
    load_report: Match | None = None
    #: Of a model in 8 bits what its folder says of it; None for any other.
    quantization: Quantization | None = None
    #: Of a model with adapters what is known of them; None for any other.
    adapters: Adapters | None = None

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        config.check_heads()
        self.config = config

    def forward_packed(self, batch: Batch) -> ModelOutput:
        """Run a packed batch: outputs of sequences ``(B, ...)``, of tokens ``(T, ...)``."""
        raise AssertionError("every subclass overrides this")

    #: What ``from_pretrained`` was given; empty for a new model.
    name_or_path: str = ""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("_"):
                raise
        if name == ENCODERS.get(self.config.model_type):
            return self.base_model
        raise no_attribute(self, "model.", name, [*self._modules, *self._parameters, "config"])

    def compile(self, *args: Any, **options: Any) -> None:
        """As :meth:`torch.nn.Module.compile`. InputError for arguments of Keras."""
        refuse_others("compile", options, ("model", "fullgraph", "dynamic", "backend", "mode", "options", "disable"))
        super().compile(*args, **options)

    @property
    def base_model(self) -> nn.Module:
        """The encoder of a model with a head, of an encoder-decoder both halves; any other model itself."""
        return self.get_submodule(self.base_prefix)

    @property
    def base_model_prefix(self) -> str:
        """The attribute with :attr:`base_model`."""
        return self.base_prefix or "bert"

    @property
    def num_labels(self) -> int:
        """Labels of the config."""
        return self.config.num_labels

    @num_labels.setter
    def num_labels(self, value: int) -> None:
        if value != self.config.num_labels:
            raise InputError(
                f"num_labels cannot be set: the head has {self.config.num_labels} outputs; write "
                f"{type(self).__name__}.from_pretrained(NAME, num_labels={value!r}, ignore_mismatched_sizes=True)"
            )

    def get_memory_footprint(self, return_buffers: bool = True) -> int:
        """Bytes of the parameters, and of the buffers unless these are left out; tied tables are counted once."""
        tensors: list[Tensor] = [*self.parameters(), *(self.buffers() if return_buffers else ())]
        return sum(each.nelement() * each.element_size() for each in tensors)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Type of the parameters."""
        return next(self.parameters()).dtype

    def num_parameters(self, only_trainable: bool = False, exclude_embeddings: bool = False) -> int:
        """Number of values, tied tables counted once.

        Args:
            only_trainable: leave out frozen parameters.
            exclude_embeddings: leave out the embedding tables.
        """
        tables = {module.weight for module in self.modules() if isinstance(module, nn.Embedding)}
        counted = (p for p in self.parameters() if p.requires_grad or not only_trainable)
        return sum(p.numel() for p in counted if not (exclude_embeddings and p in tables))

    def init_weights(self, generator: torch.Generator | None = None) -> None:
        """Initialize all weights anew; see :func:`initialize`."""
        cutoff = self.config.initializer_cutoff_factor
        initialize(self, self.init_range, generator, cutoff=2.0 if cutoff is None else cutoff)

    def _init_weights(self, module: nn.Module) -> None:
        """Initialize one module anew, by its name in ``transformers``: ``layer.apply(model._init_weights)``."""
        initialize(module, self.init_range)

    @property
    def init_range(self) -> float:
        """Standard deviation of new weights."""
        return self.config.initializer_range

    def prepack(self) -> Self:
        """Prepack the matrices for CPU inference (a copy of each); see :meth:`Linear.prepack`."""
        self.eval()
        for module in self.modules():
            if isinstance(module, Linear):
                module.prepack()
        return self
