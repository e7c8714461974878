"""What a start checkpoint says of the vectors of texts, and what the folder of a run will say of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bertkit.checkpoints.sentence_folder import read_sentence_parts
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import checkpoint_folder, config_path
from bertkit.config.reading_settings import ReadingSettings
from bertkit.config.sentence_config import QUERY, SentenceConfig
from bertkit.errors import ConfigError
from bertkit.system.device import Device, find_device
from bertkit.system.model_sources import resolve
from bertkit.tasks.embeddings.objectives import TEMPERATURE, loss_of, margin_of, widths_of
from bertkit.tasks.embeddings.settings import EmbeddingTaskSettings
from bertkit.tasks.embeddings.task import EmbeddingTask
from bertkit.tasks.workflow import SettingsT

if TYPE_CHECKING:
    from bertkit.model.text_comparison import Objective, TextComparison


def said_by(folder: Path) -> SentenceConfig | None:
    """The settings of a sentence model; None for any other checkpoint."""
    shape = BertConfig.from_json_file(config_path(folder))
    parts = read_sentence_parts(folder, shape.hidden_size)
    return None if parts is None else parts.config


def with_choices_of(folder: Path, task: EmbeddingTask, settings: SettingsT) -> SettingsT:
    """The settings, with prompts and length as a sentence model says where they leave them open.

    Rows of scores have no query and no document: both texts get the prompt that the model puts before texts of no kind.
    """
    said = said_by(folder) or SentenceConfig()
    prompts = {"query_prompt": said.known_prompts[QUERY], "document_prompt": said.known_prompts[said.document_prompt]}
    if task.compares == "scores":
        prompts = dict.fromkeys(prompts, said.prompt())
    found = {"max_length": said.max_length, **prompts}
    return settings.model_copy(update={name: own for name, own in found.items() if getattr(settings, name) is None})


def check_start(folder: Path, settings: ReadingSettings) -> None:
    """Refuse (ConfigError) a sentence model that reads or pools texts in a way that training does not."""
    said = said_by(folder)
    if said is None:
        return
    if settings.pooling is not None and said.pooling != (settings.pooling,):
        raise ConfigError(
            f"pooling={settings.pooling!r}: the model pools by {' and '.join(said.pooling)}; leave it out"
        )
    if said.lower_case:
        raise ConfigError(
            f"{folder} lower-cases texts by itself (do_lower_case), which training does not; set that to false if its "
            "tokenizer lower-cases them, too"
        )
    own = settings.of(EmbeddingTaskSettings)
    if not said.include_prompt and (own.query_prompt or own.document_prompt):
        raise ConfigError(
            f"{folder} leaves its prompts out of the vectors (include_prompt), which training does not; train it "
            "without: query_prompt='' and document_prompt=''"
        )


def start_training(start: str | Path, task: EmbeddingTask, settings: ReadingSettings, device: Device) -> TextComparison:
    """The start checkpoint as it is, with its loss. Its folder will say how the texts of this run were read."""
    from bertkit.model.sentence_model import SentenceModel
    from bertkit.model.text_comparison import TextComparison

    path = resolve(start)
    said = said_by(checkpoint_folder(path))
    fresh = SentenceConfig(pooling=(settings.pooling or "mean",)) if said is None else None
    sentences = SentenceModel.from_pretrained(path, fresh, device=None if device is None else find_device(device))
    head = sentences.head
    head.config = _as_read(head.config, task, settings)
    return TextComparison(sentences, _objective(task, settings, head.width), settings.max_tokens)


def _as_read(said: SentenceConfig, task: EmbeddingTask, settings: ReadingSettings) -> SentenceConfig:
    prompts = dict(said.prompts)
    if task.compares != "scores":
        own = settings.of(EmbeddingTaskSettings)
        for name, prompt in ((QUERY, own.query_prompt), (said.document_prompt, own.document_prompt)):
            if prompt is not None and prompt != said.known_prompts[name]:
                prompts[name] = prompt
    return said.model_copy(update={"prompts": prompts, "max_length": settings.max_length})


def _objective(task: EmbeddingTask, settings: ReadingSettings, width: int) -> Objective:
    """The loss of a model with vectors of ``width`` numbers; matryoshka's widths and whole vectors are both trained."""
    from bertkit.model.text_comparison import Objective

    widths, own = widths_of(settings), settings.of(EmbeddingTaskSettings)
    if widths and widths[0] > width:
        raise ConfigError(f"matryoshka={own.matryoshka!r}: the model's vectors have {width} numbers; give fewer")
    return Objective(
        loss_of(task, settings),
        temperature=own.temperature or TEMPERATURE,
        symmetric=own.symmetric,
        margin=margin_of(task, settings),
        widths=tuple(dict.fromkeys((width, *widths))) if widths else (),
    )
