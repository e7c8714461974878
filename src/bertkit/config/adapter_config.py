"""``adapter_config.json``: how low-rank matrices change those of another model (LoRA: Hu et al. 2021).

The format is that of ``peft``. Of its fields those are read that say what is computed; one that would make another
computation of it is refused, whatever its name, unless it has no value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from bertkit.errors import CheckpointError, ConfigError
from bertkit.system.model_sources import ADAPTER, MAX_ADAPTER_BYTES
from bertkit.system.untrusted_files import Json, open_regular, read_object, strict_json
from bertkit.system.validated_settings import Field, FileSettings

ADAPTER_WEIGHTS = "adapter_model.safetensors"
#: Where the adapter of a model with another pooling than that of [CLS] is, which other software must not find.
POOLED_ADAPTER_WEIGHTS = "adapter_model-pooled.safetensors"
#: Ending of a class's name -> what the format calls its task.
TASK_TYPES: Mapping[str, str] = {
    "Model": "FEATURE_EXTRACTION",
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
    "ForConditionalGeneration": "SEQ_2_SEQ_LM",
}
#: Tasks of adapters for an encoder without a head.
TASKS_OF_ENCODERS = (None, TASK_TYPES["Model"])
#: Fields of a file that say how its matrices came about, or what they are found by in training, or nothing.
_WITHOUT_EFFECT = frozenset(
    """auto_mapping ensure_weight_tying exclude_modules inference_mode layers_pattern layers_to_transform megatron_core
    peft_version qalora_group_size""".split()
)
#: Ways to begin that leave the other model's matrices as they are.
_BEGINNINGS = (True, False, "gaussian", "orthogonal", "eva", None)
_EMPTY: tuple[Json, ...] = (None, False, {}, [])
_LABELS = re.compile(r"(?:^|\.)(?:classifier|score|classification_head)(?:\.out_proj)?\.weight$")
_CLASS_ENDING = re.compile(r"(?:For[A-Z]\w*|Model)$")
_MAX_HEADER_BYTES = 8 << 20


class AdapterConfig(FileSettings):
    """What is added to the matrices of another model: ``scale * B A``, with B ``(out, r)`` and A ``(r, in)``.

    base_model_name_or_path: the other model, with its ``revision`` on the Hub; empty: nothing is known of it.
    r: the rank. lora_alpha: the scale is ``lora_alpha / r``, with ``use_rslora`` ``lora_alpha / sqrt(r)``
        (Kalajdzievski 2023). ``rank_pattern`` and ``alpha_pattern`` give some layers others, by the end of their name.
    lora_dropout: of the input of A, in training.
    target_modules: names of the linear layers that are changed, or their ends.
    modules_to_save: names of the layers that are trained as a whole and saved here, such as the classifier.
    """

    peft_type: Literal["LORA"] = "LORA"
    base_model_name_or_path: str = ""
    revision: str | None = None
    task_type: str | None = None
    r: int = Field(8, ge=1)
    lora_alpha: float = Field(8.0, gt=0)
    lora_dropout: float = Field(0.0, ge=0, lt=1)
    use_rslora: bool = False
    target_modules: str | tuple[str, ...] | None = None
    modules_to_save: tuple[str, ...] | None = None
    rank_pattern: dict[str, Annotated[int, Field(ge=1)]] = Field({})
    alpha_pattern: dict[str, float] = Field({})
    bias: Literal["none"] = "none"

    def replace(self, **changes: Any) -> AdapterConfig:
        """A copy with some fields changed."""
        return AdapterConfig(**{**self.model_dump(), **changes})

    def rank_of(self, module: str) -> int:
        """The rank of the matrices for a linear layer, by its published name."""
        return int(_pattern_value(self.rank_pattern, module, self.r))

    def scale_of(self, module: str) -> float:
        """What their product is multiplied with."""
        alpha, rank = _pattern_value(self.alpha_pattern, module, self.lora_alpha), self.rank_of(module)
        return alpha / (math.sqrt(rank) if self.use_rslora else rank)

    def to_json_string(self) -> str:
        """The content of a file that peft reads."""
        alpha = int(self.lora_alpha) if self.lora_alpha.is_integer() else self.lora_alpha
        beginning = {"inference_mode": True, "init_lora_weights": True, "fan_in_fan_out": False}
        return json.dumps({**self.model_dump(), "lora_alpha": alpha, **beginning}, indent=2, sort_keys=True) + "\n"


def _pattern_value(values: Mapping[str, float], module: str, usual: float) -> float:
    for name, value in values.items():
        whole = name.startswith("^")
        if module == name.removeprefix("^") or (not whole and module.endswith(f".{name}")):
            return value
    return usual


def task_type_of(class_name: str) -> str | None:
    """What the format calls the task of a class; None where it has no name for it."""
    found = _CLASS_ENDING.search(class_name)
    return TASK_TYPES.get(found[0]) if found else None


def read_adapter_config(folder: Path) -> AdapterConfig:
    """The ``adapter_config.json`` of a folder; a CheckpointError for anything but plain LoRA names field and value."""
    file = folder / ADAPTER
    said = read_object(file, max_bytes=MAX_ADAPTER_BYTES)
    if said.get("peft_type") != "LORA":
        raise _refused(file, "peft_type", said.get("peft_type"), "LORA")
    if said.get("init_lora_weights") not in _BEGINNINGS:
        raise _refused(file, "init_lora_weights", said["init_lora_weights"], "beginnings that keep the model's weights")
    if said.get("bias", "none") != "none":
        raise _refused(file, "bias", said["bias"], "none")
    for name in ("rank_pattern", "alpha_pattern"):
        patterns = said.get(name) or {}
        if not isinstance(patterns, dict) or not all(re.fullmatch(r"\^?[\w.]+", key) for key in patterns):
            raise _refused(file, name, patterns, "names of layers or their ends, no other regular expressions")
    known = {name: said[name] for name in AdapterConfig.model_fields if said.get(name) is not None}
    checked = {*AdapterConfig.model_fields, *_WITHOUT_EFFECT, "init_lora_weights"}
    for name, value in said.items():
        if name not in checked and value not in _EMPTY:
            raise _refused(file, name, value, "plain LoRA, without it")
    try:
        return AdapterConfig(**known)
    except ConfigError as error:
        raise CheckpointError(f"{file}: {error}") from None


def _refused(file: Path, name: str, value: Json, supported: str) -> CheckpointError:
    return CheckpointError(
        f"{file}: {name} is {value!r:.80}; bertkit supports {supported}. Merge the adapter into its model with peft "
        "(merge_and_unload, save_pretrained), and take that"
    )


def with_adapter(base: dict[str, Json], folder: Path) -> dict[str, Json]:
    """The config of a model with an adapter of a folder without ``config.json``: its class, the number of labels."""
    config, task = read_adapter_config(folder), {value: name for name, value in TASK_TYPES.items()}
    kind, names = task.get(str(config.task_type)), base.get("architectures")
    changed = dict(base)
    if kind is not None and isinstance(names, list) and names and isinstance(names[0], str):
        changed["architectures"] = [_CLASS_ENDING.sub("", names[0]) + kind]
    if config.task_type not in ("SEQ_CLS", "TOKEN_CLS"):
        return changed
    shapes = [shape for name, shape in _shapes(folder / ADAPTER_WEIGHTS).items() if _LABELS.search(name)]
    known = base["id2label"] if isinstance(base.get("id2label"), dict) else None
    number = shapes[0][0] if shapes else None
    if number is not None and number != (len(known) if isinstance(known, dict) else base.get("num_labels", 2)):
        changed = {name: value for name, value in changed.items() if name not in ("id2label", "label2id")}
        changed["num_labels"] = number
    return changed


def _shapes(file: Path) -> dict[str, list[int]]:
    """Shapes of the tensors in a safetensors file that look like shapes; the file is checked when it is loaded."""
    with open_regular(file) as stream:
        length = int.from_bytes(stream.read(8), "little")
        text = stream.read(length) if length <= _MAX_HEADER_BYTES else b""
    try:
        content = strict_json(text)
    except ValueError:
        return {}
    entries = content.items() if isinstance(content, dict) else ()
    shapes = {name: entry.get("shape") for name, entry in entries if isinstance(entry, dict)}
    return {name: shape for name, shape in shapes.items() if isinstance(shape, list) and shape}
