"""What all pipelines share: an engine, a tokenizer, and the way from a call to its results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, signature
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from bertkit.config.any_config import AnyConfig
from bertkit.config.decision import read_decision
from bertkit.config.families import ENCODER_DECODERS
from bertkit.engine.backend import Network, Wanted
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.engine.rows import TEXTS, WindowSize, stream
from bertkit.errors import CheckpointError, InputError, LongTextError
from bertkit.habit_table import has_no_effect, no_attribute, remedy
from bertkit.inference.pipeline_inputs import Request, Shaped, is_whole, num_characters
from bertkit.ragged import GroupSet, Ragged
from bertkit.system.console import Progress
from bertkit.system.device import device_of_map
from bertkit.system.paths import user_path
from bertkit.tokenization.features import Text, featurize_mixed
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
AnswerT = TypeVar("AnswerT")
#: A keyword of other software -> ours, and the values that it may have, as ours.
OtherNames = Mapping[str, tuple[str, Mapping[Any, Any]]]
#: Values of ``truncation`` that cut a text; of a pair its longer text is cut.
CUTS = ("longest_first", "only_first")
#: Keywords that hold those of the tokenizer.
_FOR_THE_TOKENIZER = ("tokenize_kwargs", "tokenizer_kwargs")
#: Rows, and what turns one result per row into answers; made of a window of items and the number of its first one.
Encoding = tuple[Ragged, Callable[[list[ResultT]], Iterable[AnswerT]]]
Encode = Callable[[list[ItemT], int], Encoding[ResultT, AnswerT]]


#: How a model computes, for :meth:`InferenceEngine.of`.
_PARTS = ("precision", "threads")


class TextRow(NamedTuple):
    """What the engine knows of a text: its number in the stream, from 0, the tokens read, and whether it had more."""

    number: int
    num_tokens: int
    truncated: bool


class Pipeline:
    """A model and its tokenizer, ready to use on text. Made by :func:`bertkit.pipeline`.

    Its class can also be called, with a model object, its tokenizer, and what ``pipeline`` takes besides: a device, a
    type, defaults for the keywords of its calls.

    Every pipeline is called with a text, a collection of texts (a list comes back) or any other iterable (a lazy
    iterator comes back). Results keep the order of the texts, and a text's result does not depend on the others. The
    model computes as in eval mode and without gradients whatever mode it is in, and its mode does not change; several
    threads may use a pipeline at the same time.

    Keywords that every call takes:

    * ``truncation``: False (default) refuses an input of more tokens than the model reads, True cuts it.
    * ``max_length``: most tokens of one input, special tokens included; at most (and by default) what the model reads.
      Classification, tagging and multiple choice read by default as many as the model was fine-tuned on.
    * ``progress``: None shows a bar on a terminal once the work takes longer than two seconds, True also writes lines
      where there is no terminal, False shows nothing.
    """

    task: ClassVar[str]
    #: What a progress bar counts.
    unit: ClassVar[str] = "texts"
    #: What ``truncation`` may be, for messages.
    truncations: ClassVar[str] = "True or False"
    #: How this model was trained to read, and what was chosen on dev (thresholds and the like), see
    #: :mod:`bertkit.config.reading_settings`.
    decision: Mapping[str, Any] = MappingProxyType({})
    #: Where the model was loaded from; None for a model object.
    folder: Path | None = None
    #: Whether the tokenizer is not the one in ``folder``.
    has_other_tokenizer: bool = False
    #: Keywords of every call that does not set them itself: what :func:`bertkit.pipeline` was given.
    options: Mapping[str, Any] = MappingProxyType({})
    #: Keywords of other versions: name -> our keyword, and its value by the value that is given.
    other_names: ClassVar[OtherNames] = MappingProxyType({})
    #: The package of the models, as ``transformers`` says it.
    framework: ClassVar[str] = "pt"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__call__" in vars(cls):
            setattr(cls, "__call__", with_options(vars(cls)["__call__"]))  # noqa: B010  (mypy refuses an assignment)

    def __init__(
        self, model: Network | InferenceEngine, tokenizer: PreTrainedTokenizer | None = None, **options: Any
    ) -> None:
        given = {name: value for name, value in options.items() if name not in ("task", *_PARTS)}
        given, device, dtype = placed(given, None, None)
        self.options = read_options(self.task, self.other_names, given, keywords_of(type(self).__call__))
        if isinstance(model, str | Path):
            raise InputError(
                f"{type(self).__name__} takes a model object; write pipeline({self.task!r}, model={str(model)!r})"
            )
        if tokenizer is None:
            raise InputError("a model object does not know its tokenizer: pass tokenizer= as well")
        computing = {name: options[name] for name in _PARTS if name in options}
        if not isinstance(model, InferenceEngine):
            model = InferenceEngine.of(model, device=device, dtype=dtype, **computing)
        self.engine, self.tokenizer = model, tokenizer
        # The authors' BARTs for summaries have no vector for the mask.
        without_mask = self.config.model_type in ENCODER_DECODERS
        check_vocabulary(tokenizer, self.config.vocab_size, without_mask=without_mask)
        self._prepare()

    def _shaped(self, results: AnswerT, inputs: tuple[Any, ...], given: Mapping[str, Any]) -> AnswerT:
        """The results of a call with these inputs and keywords of its own."""
        return results

    def _prepare(self) -> None:
        """What a task checks or derives once; the engine and the tokenizer are there."""

    def read_folder(self, folder: Path) -> None:
        """Take over what lies beside the weights, in the folder that the model was loaded from."""
        self.decision, self.folder = read_decision(folder), folder

    @property
    def model(self) -> Any:
        """The model object; InputError for an exported model, which has none."""
        return self.engine.model

    @property
    def config(self) -> AnyConfig:
        """Shape and labels of the model."""
        return self.engine.config

    @property
    def device(self) -> Any:
        """Where the model's weights are: a ``torch.device``; of an exported model ``"cpu"``."""
        return self.engine.backend.place

    @property
    def max_length(self) -> int:
        """Most tokens of one input, special tokens included."""
        return min(self.config.max_input_length, self.tokenizer.model_max_length)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model and its tokenizer into a folder, which :func:`bertkit.pipeline` opens again with the same
        results; of a pipeline that was opened from a folder, what lies beside its weights as well.
        """
        if self.folder is not None:
            from bertkit.inference.pipeline_folder import copy_model_folder

            copy_model_folder(self.folder, user_path(folder))
        else:
            self.model.save_pretrained(folder)
        if self.folder is None or self.has_other_tokenizer:
            self.tokenizer.save_pretrained(folder)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model={self.engine.model_class}, device={self.engine.device!r})"

    def __getattr__(self, name: str) -> Any:
        raise no_attribute(self, "pipeline.", name, ("engine", "tokenizer"))

    def _answer(
        self,
        request: Request[ItemT],
        encode: Encode[ItemT, ResultT, AnswerT],
        wanted: Wanted,
        read: Callable[..., Any],
        weight: Callable[[ItemT], int],
        *,
        progress: bool | None,
        size: WindowSize | None = None,
        run: Callable[..., Any] | None = None,
    ) -> Shaped[AnswerT]:
        """Answers in the request's shape, through the engine; see :func:`bertkit.engine.rows.stream`.

        ``read`` makes one result per row of the ``wanted`` outputs, ``weight`` is the characters of an item. ``run``:
        another method of the engine than ``run``, with the same arguments.
        """
        compute = run or self.engine.run
        if request.shape == "one":  # the short way, for whoever waits for one answer
            rows, present = encode(list(request.items), 0)
            return next(iter(present(compute(rows, wanted, read))))

        def answers() -> Iterator[AnswerT]:
            with shown(request.total, self.task, progress, unit=self.unit) as advance:
                yield from stream(
                    request.items,
                    encode,
                    lambda rows, advance_rows: compute(rows, wanted, read, advance_rows),
                    size=size or TEXTS,
                    weight=weight,
                    lazy=request.shape == "lazy",
                    ahead=request.shape != "lazy" and self.engine.backend.packs_ahead > 0,
                    advance=advance,
                )

        return answers() if request.shape == "lazy" else list(answers())

    def _answer_texts(
        self,
        request: Request[Text],
        wanted: Wanted,
        read: Callable[..., Any],
        present: Callable[[Any, Iterable[TextRow]], Iterable[AnswerT]],
        truncation: bool | str,
        max_length: int | None,
        progress: bool | None,
        run: Callable[..., Any] | None = None,
    ) -> Shaped[AnswerT]:
        """Answers for texts, or pairs, that are one row each: ``present`` of the results of some."""
        truncate, limit = self.read_limits(truncation, max_length)

        def encode(texts: list[Text], first: int) -> Encoding[Any, AnswerT]:
            rows = featurize_mixed(texts, self.tokenizer, limit)
            if not truncate:
                check_lengths(rows, limit, first)
            facts = map(TextRow, count(first), rows.lengths.tolist(), rows.truncated.tolist())
            return rows, lambda results: present(results, facts)

        return self._answer(request, encode, wanted, read, num_characters, progress=progress, run=run)

    def read_limits(self, truncation: bool | str, max_length: int | None) -> tuple[bool, int]:
        """Whether longer texts are cut, and most tokens of one; InputError for values that make no sense."""
        if truncation not in (True, False, *CUTS, "do_not_truncate"):
            raise InputError(f"truncation must be {self.truncations}, got {truncation!r}")
        if max_length is None:
            return truncation in (True, *CUTS), self.max_length
        if not is_whole(max_length, 3, self.max_length):
            raise InputError(f"max_length must be from 3 to {self.max_length} for this model, got {max_length!r}")
        return truncation in (True, *CUTS), max_length

    def _trained_length(self, given: int | None) -> int | None:
        """``max_length`` as it was given, else as the model was trained, else None."""
        trained: int | None = self.decision.get("max_length")
        if given is not None or trained is None:
            return given
        return min(trained, self.max_length)


def placed(options: Mapping[str, Any], device: Any, dtype: Any) -> tuple[dict[str, Any], Any, Any]:
    """The other options, the device and the type of the weights, also by the other names that they have."""
    known = ("device", "dtype", "torch_dtype", "device_map")
    inner = dict(options.get("model_kwargs") or {})
    given = {**inner, **{name: value for name, value in options.items() if name != "model_kwargs"}}
    for name, value in inner.items():
        if name not in known and not has_no_effect("from_pretrained", name, value):
            by_hand = f"; write model=AutoModel...from_pretrained(name, {name}=...) and tokenizer=name"
            near = remedy("from_pretrained", name, ()) or by_hand
            raise InputError(f"model_kwargs has {name!r}, which a pipeline does not hand on{near}")
    spread = given.pop("device_map", None)
    if spread is not None and device is not None:
        raise InputError(f"device_map is another name for device; give one, got {spread!r:.80} and {device!r}")
    device = given.pop("device", device) if spread is None else device_of_map(spread)
    other = given.pop("torch_dtype", None)
    dtype = given.pop("dtype", dtype)
    if dtype is not None and other is not None:
        raise InputError(f"torch_dtype is another name for dtype; give one, got {dtype!r} and {other!r}")
    dtype = other if dtype is None else dtype
    left = {name: value for name, value in given.items() if name in options}
    return left, device, None if dtype == "auto" else dtype


def keywords_of(call: Callable[..., Any]) -> list[str]:
    """What may be given as a default for the calls of a pipeline."""
    parameters = signature(call).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is Parameter.KEYWORD_ONLY]


def check_vocabulary(tokenizer: PreTrainedTokenizer, vocab_size: int, *, without_mask: bool = False) -> None:
    """Refuse (CheckpointError) a tokenizer with more tokens than the model has vectors for, but perhaps the mask."""
    spare = without_mask and tokenizer.mask_token_id == vocab_size
    if len(tokenizer) > vocab_size + spare:
        raise CheckpointError(
            f"the tokenizer has {len(tokenizer):,} tokens but the model's table {vocab_size:,}: they do not belong "
            "together"
        )


def with_options(call: Callable[..., AnswerT]) -> Callable[..., AnswerT]:
    """``__call__`` that takes the pipeline's options where its caller sets none, and what has no effect here."""
    parameters = list(signature(call).parameters.values())[1:]
    known = [parameter.name for parameter in parameters if parameter.kind is not Parameter.VAR_KEYWORD]
    takes_all = len(known) < len(parameters)

    @wraps(call)
    def call_with_options(pipe: Any, *inputs: Any, **given: Any) -> AnswerT:
        own = read_options(pipe.task, pipe.other_names, given, None if takes_all else known)
        results = call(pipe, *inputs, **{**pipe.options, **own})
        return pipe._shaped(results, inputs, own) if isinstance(pipe, Pipeline) else results

    return call_with_options


def read_options(
    task: str, other_names: OtherNames, given: Mapping[str, Any], known: Collection[str] | None
) -> dict[str, Any]:
    """Keywords of a pipeline or of its calls by our names, without those that have no effect here.

    ``known``: what it takes; None: anything. InputError for a keyword that it does not have.
    """
    if not given:
        return {}
    if "grouped_entities" in given and "ignore_subwords" in other_names:  # of the two, one says the strategy
        both = given["grouped_entities"] is True and given.get("ignore_subwords") is True
        other = "grouped_entities" if both else "ignore_subwords"
        given = {name: value for name, value in given.items() if name != other}
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name in _FOR_THE_TOKENIZER and isinstance(value, Mapping):
            found = {**read_options(task, other_names, value, known), **found}
        elif name in other_names:
            ours, meanings = other_names[name]
            if value not in meanings:
                raise InputError(f"{name} must be one of {', '.join(map(repr, meanings))}, got {value!r:.80}")
            found.setdefault(ours, meanings[value])
        elif name in (known or ()) or not has_no_effect("pipeline", name, value):
            if known is not None and name not in known:
                near = remedy("pipeline", name, known)
                raise InputError(f"a {task} pipeline has no option {name!r}{near}; it takes: {', '.join(known)}")
            found[name] = value
    return found


@contextmanager
def shown(
    total: int | None, label: str, progress: bool | None, *, unit: str = "texts"
) -> Iterator[Callable[[int], None]]:
    """A progress bar's ``advance``, which does nothing where nothing is to be shown."""
    on_terminal = sys.stderr is not None and sys.stderr.isatty()
    if total == 1 or not (on_terminal if progress is None else progress):
        yield lambda count: None
        return
    with Progress(total, label=label, unit=unit) as bar:
        yield bar.advance


def check_lengths(rows: Ragged | GroupSet, limit: int, first_index: int) -> None:
    """Refuse (LongTextError) texts that were cut to ``limit`` tokens; ``first_index`` is the number of the first."""
    _refuse_long(rows, limit, lambda row: f"text {first_index + row} (counted from 0)")


def check_groups(rows: GroupSet, limit: int, first_index: int, what: str, part: str) -> None:
    """The same for rows of several sequences: queries (``what``), each with its documents (``part``)."""

    def name(place: int) -> str:
        row = int(np.searchsorted(rows.groups, place, side="right")) - 1
        return f"{what} {first_index + row} with its {part} {place - int(rows.groups[row])} (both counted from 0)"

    _refuse_long(rows.sequences, limit, name)


def _refuse_long(rows: Ragged | GroupSet, limit: int, name: Callable[[int], str]) -> None:
    truncated = rows.truncated.tolist()
    if True in truncated:
        row, others = truncated.index(True), truncated.count(True) - 1
        more = f" (and {others:,} more near it {'is' if others == 1 else 'are'} too long)" if others else ""
        count = int(rows.num_tokens_before[row])
        raise LongTextError(
            f"{name(row)} has {count:,} tokens, special tokens included; the limit is {limit:,}{more}. Shorten it, or "
            "pass truncation=True (on the command line: --truncate) to cut it",
            count,
            limit,
        )
