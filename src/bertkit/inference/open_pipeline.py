"""``pipeline(task, model=...)``: from a task's name to something that takes text; imports only what it needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bertkit.checkpoints.safetensors_format import reading_ahead
from bertkit.checkpoints.sentence_folder import is_sentence_folder
from bertkit.checkpoints.static_folder import StaticFolder, static_folder
from bertkit.checkpoints.weight_files import single_file
from bertkit.config.any_config import class_for, head_of, read_any_config
from bertkit.config.config_file import checkpoint_folder, config_path
from bertkit.config.families import ENCODER_DECODERS
from bertkit.engine.backend import Network, Precision
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.errors import InputError, did_you_mean, shorten
from bertkit.habit_table import remedy
from bertkit.inference.generation_tasks import RESULTS, generates_text, kind_of
from bertkit.inference.pipeline_base import Pipeline, keywords_of, placed, read_options
from bertkit.system.console import say
from bertkit.system.device import check_device
from bertkit.system.model_sources import INCLUDED, included_model, resolve
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

if TYPE_CHECKING:
    from bertkit.inference.text_to_text import TextToTextPipeline

#: The encoder alone, which every model has.
ENCODER = "BertModel"


class Entry(NamedTuple):
    """Where a pipeline is, and the name of the model class that a checkpoint is loaded as for it."""

    module: str
    name: str
    model_class: str

    def load(self) -> type[Pipeline]:
        """The pipeline's class; imports its module, so that a task does not wait for the modules of the others."""
        found: type[Pipeline] = getattr(import_module(f"bertkit.inference.{self.module}"), self.name)
        return found


TASKS = {
    "fill-mask": Entry("fill_mask", "FillMaskPipeline", "BertForMaskedLM"),
    "next-sentence": Entry("text_classification", "NextSentencePipeline", "BertForNextSentencePrediction"),
    "text-classification": Entry("text_classification", "TextClassificationPipeline", "BertForSequenceClassification"),
    "text-ranking": Entry("text_ranking", "TextRankingPipeline", "BertForSequenceClassification"),
    "token-classification": Entry("token_classification", "TokenClassificationPipeline", "BertForTokenClassification"),
    "question-answering": Entry("question_answering", "QuestionAnsweringPipeline", "BertForQuestionAnswering"),
    "multiple-choice": Entry("multiple_choice", "MultipleChoicePipeline", "BertForMultipleChoice"),
    "sparse-encoding": Entry("sparse_encoding", "SparseEncodingPipeline", "BertForMaskedLM"),
    "feature-extraction": Entry("feature_extraction", "FeatureExtractionPipeline", ENCODER),
    "sentence-similarity": Entry("feature_extraction", "SentenceSimilarityPipeline", ENCODER),
}
ZERO_SHOT = "zero-shot-classification"
#: How texts get labels that the model was not trained on -> the pipeline, and the task of the head that it needs.
METHODS = {
    "nli": (
        Entry("zero_shot.entailment", "EntailmentPipeline", "BertForSequenceClassification"),
        "text-classification",
    ),
    "embedding": (Entry("zero_shot.label_vectors", "LabelVectorsPipeline", ENCODER), "feature-extraction"),
    "pattern": (Entry("zero_shot.mask_pattern", "MaskPatternPipeline", "BertForMaskedLM"), "fill-mask"),
}
#: Tasks for which the included model is taken where none is given.
INCLUDED_DOES = ("fill-mask", "feature-extraction", "sentence-similarity")
ALIASES = {"sentiment-analysis": "text-classification", "ner": "token-classification"}


def open_pipeline(
    task: str | None,
    model: str | Path | Network | None,
    tokenizer: str | Path | PreTrainedTokenizer | None,
    device: Any,
    revision: str | None,
    dtype: Any,
    precision: Precision,
    threads: int | None,
    method: str | None,
    options: dict[str, Any],
) -> Any:
    """What :func:`bertkit.inference.pipelines.pipeline` returns."""
    name = None if task is None else _known(task)
    options, device, dtype = placed(options, device, dtype)
    if method is not None and name != ZERO_SHOT:
        raise InputError(f"method={method!r} is for task {ZERO_SHOT!r} only; leave it out")
    model = _default_model(name) if model is None else model
    # Looks a Hub name up once, and only after the other arguments are checked.
    place: Callable[[], Any] = cache(partial(_place_of, model, revision))
    name = name or infer_task(place())
    if kind_of(name):
        if precision not in ("auto", "fp32") or threads is not None:
            raise InputError(f"{name} runs in its weights' dtype; omit precision and threads")
        return _open_text_to_text(name, place, tokenizer, revision, device, dtype, options)
    wanted = _entry_of(name, place, method)
    pipeline_class, known = wanted.load(), keywords_of(wanted.load().__call__)
    options = read_options(pipeline_class.task, pipeline_class.other_names, options, known)
    computing = {"device": device, "dtype": dtype, "precision": precision, "threads": threads}
    if isinstance(model, str | Path):
        check_device(device)
        words = None if tokenizer is None else _load_tokenizer(tokenizer, revision)
        made = open_checkpoint(place(), pipeline_class, wanted.model_class, words, computing)
    else:
        _check_class(name, wanted.model_class, model)
        if tokenizer is None:
            raise InputError("a model object does not know its tokenizer: pass tokenizer= as well")
        made = pipeline_class(InferenceEngine.of(model, **computing), _load_tokenizer(tokenizer, revision))
    made.options = options
    return made


def _default_model(task: str | None) -> Path:
    if task not in INCLUDED_DOES:
        raise InputError(
            f"pipeline() needs model=: a folder, a Hub name or a model; only {', '.join(INCLUDED_DOES)} have a default"
        )
    say(f"no model given: using {INCLUDED}, the small included model, for {task}")
    return included_model()


def _place_of(model: str | Path | Network, revision: str | None) -> Path | Network:
    return resolve(model, revision=revision) if isinstance(model, str | Path) else model


def open_checkpoint(
    path: Path,
    pipeline_class: type[Pipeline],
    model_class: str,
    tokenizer: PreTrainedTokenizer | None,
    computing: Mapping[str, Any],
) -> Pipeline:
    """The pipeline of a checkpoint; ``computing`` is for :meth:`InferenceEngine.load`.

    The weights are checked in another thread while the vocabulary is read.
    """
    static = static_folder(path)
    folder = path if static else checkpoint_folder(path)
    with reading_ahead(single_file(path if path.is_file() else folder)):
        words = tokenizer or _tokenizer_in(folder, static)
        engine = InferenceEngine.load(path, model_class, **computing)
    made = pipeline_class(engine, words)
    made.read_folder(folder)
    made.has_other_tokenizer = tokenizer is not None
    return made


def _tokenizer_in(folder: Path, static: StaticFolder | None) -> PreTrainedTokenizer:
    if static is None:
        return AutoTokenizer.from_pretrained(folder)
    from bertkit.engine.static.static_backend import load_static_tokenizer

    return load_static_tokenizer(static)


def _check_class(task: str, wanted: str, model: Network) -> None:
    """Refuse (InputError; CheckpointError if its family has none) a model object that has not the task's head."""
    name, family = type(model).__name__, _family_of(getattr(model, "config", None))
    needed = class_for(wanted, family, name) if family in ENCODER_DECODERS else wanted
    if wanted != ENCODER and needed not in {known.__name__ for known in type(model).__mro__}:
        raise InputError(f"task {task!r} needs a {needed}, got {name}")


def _family_of(config: object) -> str:
    return str(getattr(config, "model_type", ""))


def _known(task: str) -> str:
    """The name of a task without its alias; InputError if there is no such task."""
    if not isinstance(task, str):
        raise InputError(f"the task is a {type(task).__name__}, expected its name: pipeline('fill-mask', model=MODEL)")
    name = ALIASES.get(task, task)
    if name not in TASKS and name != ZERO_SHOT and not kind_of(str(name)) and name not in _kinds():
        known = [*TASKS, ZERO_SHOT, *RESULTS, *ALIASES]
        near = remedy("task", str(task), known)
        raise InputError(f"no pipeline for task {task!r}{near}; available: {', '.join(known)}")
    return name


def _kinds() -> Collection[str]:
    from bertkit.tasks.registry import KINDS  # with it come the readers of all files

    return KINDS


def _entry_of(name: str, place: Callable[[], Any], method: str | None) -> Entry:
    if name == ZERO_SHOT:
        return METHODS[method_of(place(), method)][0]
    if name in TASKS:
        return TASKS[name]
    from bertkit.tasks.registry import load_class

    return Entry("task_pipeline", "TaskPipeline", load_class(name, "workflow").model_class)


def _open_text_to_text(
    task: str,
    place: Callable[[], Any],
    tokenizer: str | Path | PreTrainedTokenizer | None,
    revision: str | None,
    device: Any,
    dtype: Any,
    options: Mapping[str, Any],
) -> TextToTextPipeline:
    from bertkit.config.generation_settings import GenerationSettings
    from bertkit.inference.text_to_text import TextToTextPipeline

    known = [*keywords_of(TextToTextPipeline.__call__), *GenerationSettings.model_fields]
    options = read_options(TextToTextPipeline.task, TextToTextPipeline.other_names, options, list(dict.fromkeys(known)))
    check_device(device)
    words = None if tokenizer is None else _load_tokenizer(tokenizer, revision)
    made = TextToTextPipeline.open(task, place(), words, device=device, dtype=dtype)
    made.options = options
    return made


def infer_task(model: Path | Network) -> str:
    """The task that a model's head is for: of a checkpoint, what its config.json lists under ``architectures``."""
    if isinstance(model, Path):
        if static_folder(model) is not None:
            return "feature-extraction"
        if generates_text(model):
            return "text2text-generation"
        config: object = read_any_config(config_path(model))
        classes = list(getattr(config, "architectures", None) or ())
    else:
        config, classes = getattr(model, "config", None), [type(model).__name__]
        if hasattr(model, "generate"):
            return "text2text-generation"
    by_class = {entry.model_class: task for task, entry in reversed(TASKS.items())}
    for name in classes:
        its = head_of(name) if _family_of(config) in ENCODER_DECODERS else name
        if task := {**by_class, "BertForPreTraining": "fill-mask"}.get(its):
            return task
    found = f"is a {shorten(classes)}" if classes else "names no class in its config.json"
    raise InputError(f"cannot infer the task: the model {found}; pass one of: {', '.join(TASKS)}")


def method_of(model: Path | Network, given: str | None = None) -> str:
    """One of :data:`METHODS`: as given, else by the model's head; InputError if there is no such method."""
    if given is not None:
        if given not in METHODS:
            near = did_you_mean(str(given), METHODS)
            raise InputError(f"method must be one of {', '.join(METHODS)}, or None, got {given!r}{near}")
        return given
    if isinstance(model, Path) and (static_folder(model) or is_sentence_folder(checkpoint_folder(model))):
        return "embedding"
    task = infer_task(model)
    for method, (_, head) in METHODS.items():
        if head == task:
            return method
    raise InputError(
        f"the model's head is for {task}, which no method of {ZERO_SHOT} uses; method='embedding' uses its encoder"
    )


def _load_tokenizer(source: str | Path | PreTrainedTokenizer, revision: str | None) -> PreTrainedTokenizer:
    return AutoTokenizer.from_pretrained(source, revision=revision) if isinstance(source, str | Path) else source
