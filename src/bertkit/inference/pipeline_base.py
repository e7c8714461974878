"""What all pipelines share: a model in eval mode, a tokenizer, and the way from a call to its results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertkit.batch import Batch
from bertkit.engine import windows_of_texts as engine
from bertkit.errors import CheckpointError, InputError
from bertkit.inference.pipeline_inputs import Request
from bertkit.model.padded import PackedModel
from bertkit.system.console import Progress
from bertkit.tasks.text.features import Truncation
from bertkit.tokenization import PreTrainedTokenizer

R = TypeVar("R")


class Pipeline:
    """A model and its tokenizer, ready to use on text. Made by :func:`bertkit.pipeline`.

    Every pipeline is called with a text, a collection of texts (a list comes back) or any other iterable (a lazy
    iterator comes back; see :mod:`bertkit.engine.windows_of_texts`). Results keep the order of the texts, and a text's
    result
    does not depend on the others. The model runs in eval mode and without gradients whatever mode it is in; its mode
    is put back afterwards.

    Keywords that every call takes:

    * ``truncation``: False (default) refuses an input of more tokens than the model reads, True cuts it.
    * ``max_length``: most tokens of one input, special tokens included; at most (and by default) what the model reads.
      A fine-tuned model of a run folder reads as many by default as it was trained on.
    * ``progress``: None shows a bar on a terminal once the work takes longer than two seconds, True also writes lines
      where there is no terminal, False shows nothing.
    """

    task: ClassVar[str]
    #: How this model was trained to read, and what was chosen on dev (thresholds and the like), see
    #: :mod:`bertkit.tasks.decision_file`.
    decision: Mapping[str, Any] = MappingProxyType({})
    #: Keywords of every call that does not set them itself: what :func:`bertkit.pipeline` was given.
    options: Mapping[str, Any] = MappingProxyType({})

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "__call__" in vars(cls):
            setattr(cls, "__call__", _with_options(vars(cls)["__call__"]))  # noqa: B010  (mypy refuses an assignment)

    def __init__(self, model: PackedModel, tokenizer: PreTrainedTokenizer) -> None:
        if len(tokenizer) > model.config.vocab_size:
            raise CheckpointError(
                f"the tokenizer has {len(tokenizer):,} tokens but the model's table {model.config.vocab_size:,}: "
                "they do not belong together"
            )
        self.model = model
        self.tokenizer = tokenizer

    @property
    def device(self) -> torch.device:
        """Where the model's weights are."""
        return self.model.device

    @property
    def max_length(self) -> int:
        """Most tokens of one input, special tokens included."""
        return min(self.model.config.max_input_length, self.tokenizer.model_max_length)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model={type(self.model).__name__}, device={str(self.device)!r})"

    def _run(
        self,
        request: Request,
        compute: Callable[[Batch], Sequence[R]],
        present: Callable[[engine.Done[R]], Any],
        *,
        truncation: bool | str,
        max_length: int | None,
        progress: bool | None,
        cut: Truncation = "longest_first",
    ) -> Any:
        """Results in the request's shape: ``present(done)`` of each text."""
        truncate, limit = self._read_limits(truncation, max_length)
        stream = self._stream(request, compute, present, truncate, limit, progress, cut)
        if request.shape == "lazy":
            return stream
        results = list(stream)
        return results[0] if request.shape == "one" else results

    def _read_limits(self, truncation: bool | str, max_length: int | None) -> tuple[bool, int]:
        if truncation not in (True, False, "longest_first", "do_not_truncate"):
            raise InputError(f"truncation must be True or False, got {truncation!r}")
        if max_length is None:
            return truncation in (True, "longest_first"), self.max_length
        if isinstance(max_length, bool) or not isinstance(max_length, int) or not 3 <= max_length <= self.max_length:
            raise InputError(f"max_length must be from 3 to {self.max_length} for this model, got {max_length!r}")
        return truncation in (True, "longest_first"), max_length

    def _trained_length(self, given: int | None) -> int | None:
        """``max_length`` as it was given, else as the model was trained, else None."""
        trained = self.decision.get("max_length")
        if given is not None or trained is None:
            return given
        if isinstance(trained, bool) or not isinstance(trained, int) or trained < 3:
            raise CheckpointError(
                f"decision.json of the model has max_length={trained!r}; expected a whole number from 3"
            )
        return min(trained, self.max_length)

    def _stream(
        self,
        request: Request,
        compute: Callable[[Batch], Sequence[R]],
        present: Callable[[engine.Done[R]], Any],
        truncate: bool,
        limit: int,
        progress: bool | None,
        cut: Truncation = "longest_first",
    ) -> Iterator[Any]:
        def compute_in_eval(batch: Batch) -> Sequence[R]:
            with eval_mode(self.model):
                return compute(batch)

        with shown(request.total, self.task, progress) as advance:
            for done in engine.run(
                request.texts,
                self.tokenizer,
                compute_in_eval,
                limit=limit,
                truncate=truncate,
                device=self.device,
                lazy=request.shape == "lazy",
                cut=cut,
                advance=advance,
            ):
                yield present(done)


def _with_options(call: Callable[..., R]) -> Callable[..., R]:
    """``__call__`` that takes the pipeline's options where its caller sets none, and has no use for a batch size."""

    @wraps(call)
    def call_with_options(pipe: Pipeline, *inputs: Any, **given: Any) -> R:
        given.pop("batch_size", None)
        return call(pipe, *inputs, **{**pipe.options, **given})

    return call_with_options


@contextmanager
def shown(
    total: int | None, label: str, progress: bool | None, *, unit: str = "texts"
) -> Iterator[Callable[[int], None] | None]:
    """A progress bar's ``advance``, or None where nothing is to be shown."""
    on_terminal = sys.stderr is not None and sys.stderr.isatty()
    if total == 1 or not (on_terminal if progress is None else progress):
        yield None
        return
    with Progress(total, label=label, unit=unit) as bar:
        yield bar.advance


@contextmanager
def eval_mode(model: torch.nn.Module) -> Iterator[None]:
    """Dropout off inside the block; a model that was training goes on training afterwards."""
    if not model.training:
        yield
        return
    model.eval()
    try:
        yield
    finally:
        model.train()


def to_numpy(x: Tensor | None, what: str) -> NDArray[np.float32]:
    """``x`` as float32 on the CPU.

    Raises:
        CheckpointError: a value is NaN or infinite. Results from such a model would look like any others.
    """
    assert x is not None, f"the model gave no {what}"
    array: NDArray[np.float32] = x.float().cpu().numpy()
    if not np.isfinite(array).all():
        raise CheckpointError(
            f"the model's {what} are not finite (NaN or infinity): its weights are damaged, or {x.dtype} is too narrow "
            "for it. Try dtype float32; 'bertkit inspect' shows whether the file holds such values"
        )
    return array
