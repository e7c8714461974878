"""How text is generated: the arguments of ``generate``, and ``generation_config.json``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from bertkit.config.config_file import MAX_CONFIG_BYTES
from bertkit.errors import CheckpointError, ConfigError, did_you_mean
from bertkit.habit_table import remedy
from bertkit.system.untrusted_files import Json, read_object
from bertkit.system.validated_settings import Field, FileSettings, Settings

#: The file in a model's folder.
GENERATION = "generation_config.json"
#: New tokens where nothing says how many. transformers writes 20 at most, which cuts off most answers.
USUAL_NEW_TOKENS = 128


class GenerationOptions(Settings):
    """The settings of generation that a user is asked for, each on its own."""

    max_new_tokens: int | None = Field(
        None, ge=1, le=1_000_000, description="maximum number of new tokens; default 128, or the number of positions"
    )
    min_new_tokens: int = Field(0, ge=0, le=1_000_000, description="minimum number of new tokens")
    num_beams: int = Field(1, ge=1, le=1000, description="beams of a beam search; 1: greedy, or sampling")
    num_return_sequences: int = Field(1, ge=1, le=100_000, description="texts per input")
    length_penalty: float = Field(
        1.0, ge=-100.0, le=100.0, description="exponent of the length that a beam's score is divided by"
    )
    early_stopping: bool | Literal["never"] = Field(
        False,
        description="stop a beam search once all beams have ended: true; when no better one is likely: false; or never",
    )
    do_sample: bool = Field(False, description="draw the next token by its probability")
    temperature: float = Field(
        1.0, gt=0.0, le=1000.0, description="temperature: logits are divided by it before sampling"
    )
    top_k: int = Field(50, ge=0, le=10_000_000, description="sample from this many most likely tokens; 0: all")
    top_p: float = Field(
        1.0, gt=0.0, le=1.0, description="sample from the most likely tokens with this total probability"
    )
    no_repeat_ngram_size: int = Field(0, ge=0, le=1000, description="no n-gram of this size occurs twice; 0: no limit")
    repetition_penalty: float = Field(
        1.0, gt=0.0, le=1000.0, description="scores of written tokens are divided by it, negative ones multiplied"
    )
    forced_bos_token_id: int | None = Field(None, ge=0, description="id of the first token to write")
    forced_eos_token_id: int | None = Field(None, ge=0, description="id of the last token if the limit is reached")


class GenerationSettings(FileSettings, GenerationOptions):
    """Settings of generation, under the names of transformers and, but for the length, with its defaults.

    Raises:
        ConfigError: an unknown field (with the nearest known one), a value of the wrong type or out of bounds, settings
            that contradict each other.
    """

    max_length: int | None = Field(
        None, ge=2, le=1_000_000, description="max_new_tokens, counting the first token as well, which is given"
    )
    min_length: int = Field(0, ge=0, le=1_000_000, description="min_new_tokens, counted likewise")

    def _check(self) -> None:
        if self.num_return_sequences > self.num_beams and not self.do_sample:
            raise ValueError(
                f"num_return_sequences={self.num_return_sequences} texts need as many num_beams, got {self.num_beams}; "
                "or do_sample=True"
            )
        if self.num_beams > 1 and self.do_sample and self.num_return_sequences > self.num_beams:
            raise ValueError(
                f"num_return_sequences={self.num_return_sequences} is more than num_beams={self.num_beams}"
            )
        if self.shortest >= self.longest:
            few = "min_new_tokens" if self.min_new_tokens == self.shortest else "min_length"
            many = "max_length" if self.max_new_tokens is None else "max_new_tokens"
            limit = "the default" if getattr(self, many) is None else f"{many}={getattr(self, many)}"
            raise ValueError(
                f"at least {self.shortest} new tokens ({few}={getattr(self, few)}) and at most {self.longest - 1} "
                f"({limit}) cannot both be; give min_new_tokens of {self.longest - 1} or less, or max_new_tokens of "
                f"{self.shortest} or more"
            )

    @property
    def longest(self) -> int:
        """Most tokens of an output, with the first one, which is given."""
        if self.max_new_tokens is not None:
            return self.max_new_tokens + 1
        return self.max_length or USUAL_NEW_TOKENS + 1

    @property
    def shortest(self) -> int:
        """Fewest new tokens before the end."""
        return max(self.min_new_tokens, self.min_length - 1)

    def replace(self, **changes: Any) -> GenerationSettings:
        """A copy with some settings changed; None leaves one as it is.

        ``max_new_tokens`` overrules ``max_length``, and of ``min_new_tokens`` and ``min_length`` one that is given
        overrules the other.
        """
        given = {name: value for name, value in changes.items() if value is not None}
        for name in given:
            if name not in type(self).model_fields:
                known = tuple(type(self).model_fields)
                raise ConfigError(
                    f"generate has no {name!r}{remedy('generate', name, known)}; it takes {', '.join(known)}"
                )
        values = self.model_dump()
        if "max_length" in given and "max_new_tokens" not in given:
            values["max_new_tokens"] = None
        if "min_new_tokens" in given and "min_length" not in given:
            values["min_length"] = 0
        if "min_length" in given and "min_new_tokens" not in given:
            values["min_new_tokens"] = 0
        return GenerationSettings(**{**values, **given})

    @classmethod
    def from_dict(cls, values: Mapping[str, Json]) -> Self:
        """Read a ``generation_config.json``, or the settings of generation in a ``config.json``.

        Raises:
            ConfigError: as the constructor; also a setting that is not implemented.
        """
        for key, neutral in NOT_IMPLEMENTED.items():
            if values.get(key) not in (None, [], {}, neutral):
                raise ConfigError(f"{key} is {values[key]!r:.80}; bertkit generates only with {key}={neutral!r}")
        return cls(**{key: value for key, value in values.items() if key in cls.model_fields and value is not None})

    @classmethod
    def of_task(cls, config: Mapping[str, Json], task: str) -> tuple[str, dict[str, Any]]:
        """What a ``config.json`` says of a task under ``task_specific_params``: its prefix, and changes of settings.

        Both are empty where it says nothing.

        Raises:
            ConfigError: a damaged entry, or a setting that is not implemented.
        """
        tasks = config.get("task_specific_params") or {}
        values = tasks.get(task, {}) if isinstance(tasks, dict) else None
        prefix = values.get("prefix") if isinstance(values, dict) else None
        prefix = "" if prefix is None else prefix
        if not isinstance(values, dict) or not isinstance(prefix, str):
            raise ConfigError(f"task_specific_params must name settings by task, got {tasks!r:.80}")
        return prefix, cls.from_dict({**values, "prefix": None}).model_dump(exclude_unset=True)

    @classmethod
    def of_folder(cls, folder: Path, config: Mapping[str, Json]) -> Self:
        """The settings in a model's folder; where there is no file for them, those in its ``config.json``.

        Raises:
            CheckpointError: a damaged file or a wrong value; names the file.
        """
        path = folder / GENERATION
        is_there = os.path.lexists(path)  # a link to nothing is an error
        values = read_object(path, max_bytes=MAX_CONFIG_BYTES) if is_there else dict(config)
        if is_there and (unknown := next((key for key in values if key not in KNOWN), None)) is not None:
            raise CheckpointError(f"{path}: unknown field {unknown!r:.80}{did_you_mean(unknown, KNOWN)}")
        try:
            return cls.from_dict(values)
        except ConfigError as error:
            raise CheckpointError(f"{path if is_there else folder / 'config.json'}: {error}") from None

    def to_json_string(self, **ids: int | None) -> str:
        """The text of a ``generation_config.json``; ``ids`` are those of special tokens."""
        values = {**self.model_dump(exclude_defaults=True), **ids}
        return json.dumps({key: value for key, value in values.items() if value is not None}, indent=2) + "\n"


#: Settings of generation that are not implemented, and the value that changes nothing.
NOT_IMPLEMENTED: Mapping[str, Json] = {
    "assistant_early_exit": None,
    "bad_words_ids": None,
    "begin_suppress_tokens": None,
    "constraints": None,
    "diversity_penalty": 0.0,
    "dola_layers": None,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "exponential_decay_length_penalty": None,
    "force_words_ids": None,
    "guidance_scale": None,
    "max_time": None,
    "min_p": None,
    "num_beam_groups": 1,
    "penalty_alpha": None,
    "prompt_lookup_num_tokens": None,
    "remove_invalid_values": False,
    "renormalize_logits": False,
    "sequence_bias": None,
    "stop_strings": None,
    "suppress_tokens": None,
    "token_healing": False,
    "top_h": None,
    "typical_p": 1.0,
    "watermarking_config": None,
}
#: Keys of a ``generation_config.json`` that change nothing: ids that the model's config has, how a call is computed.
NO_EFFECT = frozenset(
    """
    _from_model_config assistant_confidence_threshold assistant_ensemble_weight assistant_lookbehind bos_token_id
    cache_config cache_implementation compile_config continuous_batching_config decoder_start_token_id disable_compile
    eos_token_id is_assistant low_memory max_cache_len max_matching_ngram_size num_assistant_tokens
    num_assistant_tokens_schedule output_attentions output_hidden_states output_logits output_scores pad_token_id
    prefill_chunk_size return_dict_in_generate speculation_type target_lookbehind transformers_version use_cache use_mtp
    """.split()
)
KNOWN = NO_EFFECT | NOT_IMPLEMENTED.keys() | GenerationSettings.model_fields.keys()
