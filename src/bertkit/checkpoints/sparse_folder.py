"""Folders of sentence-transformers' SparseEncoder: how weights of words are made of a masked-LM head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertkit.checkpoints.cross_encoder import MODULES, SETTINGS, read_modules, settings_in
from bertkit.checkpoints.sentence_files import ReadingFile
from bertkit.errors import CheckpointError
from bertkit.system.json_files import parsed
from bertkit.system.untrusted_files import Json

READING = "sentence_bert_config.json"
_POOLING = "1_SpladePooling"
#: Activation in the file of the pooling -> how often the logarithm is applied.
_LOGS: Mapping[Json, int] = {"relu": 1, "log1p_relu": 2}


@dataclass(frozen=True, slots=True)
class SparseSettings:
    """From the logits of tokens to the weights of words, see :func:`bertkit.model.word_weights.word_weights`."""

    pooling: Literal["max", "sum"] = "max"
    logs: int = 1
    max_length: int | None = None


def is_sparse_folder(folder: Path) -> bool:
    """Whether a folder says that its masked-LM head makes sparse vectors."""
    return folder.is_dir() and any(module.kind == "SpladePooling" for module in read_modules(folder))


def read_sparse_settings(folder: Path) -> SparseSettings:
    """What the folder of a masked-LM checkpoint says of sparse vectors; the usual settings if it says nothing."""
    file, modules = folder / MODULES, read_modules(folder)
    if not modules:
        return SparseSettings()
    kinds = [module.kind for module in modules]
    if len(kinds) != 2 or kinds[0] not in ("MLMTransformer", "Transformer") or kinds[1] != "SpladePooling":
        raise CheckpointError(
            f"{file} lists the modules {', '.join(kinds) or 'none'}; bertkit makes sparse vectors of a masked-LM head "
            "(MLMTransformer, or Transformer) with SpladePooling"
        )
    home = modules[1].path
    if home != Path(home).name:
        raise CheckpointError(f"{file} names the folder {home[:80]!r}: only one in the same folder is safe")
    if (prompt := settings_in(folder / SETTINGS).get("default_prompt_name")) is not None:
        raise CheckpointError(
            f"{folder / SETTINGS} has the default prompt {prompt!r:.60}, which is put before every text; bertkit's "
            "sparse vectors have no prompts, so they would differ"
        )
    pooling = settings_in(folder / home / "config.json")
    how, activation = pooling.get("pooling_strategy", "max"), pooling.get("activation_function", "relu")
    if how not in ("max", "sum") or activation not in _LOGS:
        raise CheckpointError(
            f"{folder / home / 'config.json'}: pooling_strategy {how!r:.40}, activation_function {activation!r:.40}; "
            f"bertkit has max and sum, with {' and '.join(map(str, _LOGS))}"
        )
    said = {"max_seq_length": settings_in(folder / READING).get("max_seq_length")}
    length = parsed(said, ReadingFile, str(folder / READING)).max_seq_length
    return SparseSettings("max" if how == "max" else "sum", _LOGS[activation], length)


def sparse_files(settings: SparseSettings, vocab_size: int) -> dict[str, Json]:
    """What lies beside the masked LM of a sparse encoder, by name; :func:`read_sparse_settings` reads it."""
    of_encoder = "sentence_transformers.sparse_encoder.models"
    activation = next(name for name, logs in _LOGS.items() if logs == settings.logs)
    pooling = {"pooling_strategy": settings.pooling, "activation_function": activation}
    modules = (("", "MLMTransformer"), (_POOLING, "SpladePooling"))
    return {
        MODULES: [
            {"idx": number, "name": str(number), "path": path, "type": f"{of_encoder}.{kind}"}
            for number, (path, kind) in enumerate(modules)
        ],
        f"{_POOLING}/config.json": {**pooling, "word_embedding_dimension": vocab_size},
        READING: {"max_seq_length": settings.max_length, "do_lower_case": False},
        SETTINGS: {"model_type": "SparseEncoder", "similarity_fn_name": "dot", "default_prompt_name": None},
    }
