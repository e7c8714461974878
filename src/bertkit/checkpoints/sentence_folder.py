"""Folders of sentence-transformers: ``modules.json`` and what it names, read strictly and written.

This is what follows an encoder, as releases 2 to 6 of sentence-transformers write it. What is not understood is refused
by name, never skipped: without it the vectors would look like any others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar, get_args

from bertkit import __version__
from bertkit.checkpoints.safetensors_format import read_floats, read_header, write_arrays
from bertkit.checkpoints.sentence_files import (
    DenseFile,
    LayerNormFile,
    ModuleEntry,
    NormalizeFile,
    PoolingFile,
    ReadingFile,
    SettingsFile,
    flag_of,
)
from bertkit.config.adapter_config import TASKS_OF_ENCODERS, read_adapter_config
from bertkit.config.config_file import CONFIG
from bertkit.config.sentence_config import (
    POOLING_MODES,
    Activation,
    Dense,
    LayerNorm,
    Normalize,
    PoolingMode,
    SentenceConfig,
    Step,
)
from bertkit.errors import CheckpointError, ConfigError, InputError, shorten
from bertkit.ragged import Floats
from bertkit.system.json_files import write_json
from bertkit.system.model_sources import ADAPTER, adapted_folder
from bertkit.system.untrusted_files import Json, is_there, read_object, read_regular, strict_json
from bertkit.system.validated_settings import Settings

MODULES = "modules.json"
#: Prompts, and how vectors are compared.
SETTINGS = "config_sentence_transformers.json"
#: How texts are read; before release 2 it was named after the family.
READING = tuple(
    f"sentence_{name}_config.json" for name in "bert roberta distilbert camembert albert xlm-roberta".split()
)
#: Where the pooling is in nearly all folders.
POOLING = Path("1_Pooling", "config.json")
#: Weights of a step, and how older folders have them.
WEIGHTS, PICKLE = "model.safetensors", "pytorch_model.bin"
#: Weights of one step by name, float32.
StepWeights = Mapping[str, Floats]

_MAX_BYTES = 1 << 20
_TYPES = "sentence_transformers."
_KINDS = ("Transformer", "Pooling", "Dense", "LayerNorm", "Normalize")
#: The module of word vectors, in place of an encoder and its pooling.
STATIC = "StaticEmbedding"
#: An activation, and the name of its class as files write it.
_CLASSES: dict[Activation, str] = {
    name: f"torch.nn.modules.{'linear' if name == 'Identity' else 'activation'}.{name}" for name in get_args(Activation)
}
FileT = TypeVar("FileT", bound=Settings)


class SentenceParts(NamedTuple):
    """What follows the encoder of a sentence model: its settings, and the weights of each of ``config.steps``."""

    config: SentenceConfig
    weights: tuple[StepWeights, ...] = ()


def is_sentence_folder(folder: Path) -> bool:
    """Whether a folder says how its token vectors become vectors of texts."""
    folder = _home(folder)
    return is_there(folder / MODULES) or is_there(folder / POOLING)


def _home(folder: Path) -> Path:
    """The folder itself, or of an adapter for an encoder that says nothing, as those of peft, that of the encoder."""
    says = any(is_there(folder / name) for name in (MODULES, POOLING, CONFIG))
    if says or not is_there(folder / ADAPTER) or read_adapter_config(folder).task_type not in TASKS_OF_ENCODERS:
        return folder
    return adapted_folder(folder)


def step_files(folder: Path) -> list[Path]:
    """The weights of the steps of a folder, in its modules' order as far as their names have it."""
    folder = _home(folder)
    return sorted(folder.glob(f"[0-9]*_*/{WEIGHTS}")) if is_there(folder / MODULES) else []


def saved_pooling(folder: Path) -> tuple[PoolingMode, ...]:
    """How a folder pools, whatever follows; empty if it does not say."""
    folder = _home(folder)
    return _pooling(folder / POOLING, None).modes if is_there(folder / POOLING) else ()


def read_sentence_parts(
    folder: Path, hidden_size: int, opened: Callable[[Path], Path] | None = None
) -> SentenceParts | None:
    """What a folder says of vectors of texts, for an encoder of this width; None if it says nothing.

    A folder with ``1_Pooling`` and no ``modules.json``, which earlier versions of bertkit exported, pools, and no more.
    ``opened`` turns a trusted pickle into a file of safetensors; without it, pickles are refused.
    """
    if not is_sentence_folder(folder):
        return None
    folder = _home(folder)
    pooling_at, *steps_at = _modules(folder)
    pooling = _pooling(pooling_at.folder / "config.json", hidden_size)
    return parts_of(folder, pooling, steps_at, hidden_size, opened)


def parts_of(
    folder: Path,
    pooling: PoolingFile,
    steps_at: Sequence[Place],
    hidden_size: int,
    opened: Callable[[Path], Path] | None = None,
) -> SentenceParts:
    """What a folder says besides ``pooling``: the steps after it, prompts, and how texts are read and compared."""
    steps = [_step(at) for at in steps_at]
    said, names = _read(folder / SETTINGS, SettingsFile), (name for name in READING if (folder / name).exists())
    reading = _read(folder / next(names, READING[0]), ReadingFile)
    try:
        config = SentenceConfig(
            pooling=pooling.modes,
            include_prompt=pooling.include_prompt,
            steps=tuple(steps),
            prompts={name: text or "" for name, text in said.prompts.items()},
            default_prompt_name=said.default_prompt_name,
            similarity=said.similarity_fn_name or "cosine",
            max_length=reading.max_seq_length,
            lower_case=reading.do_lower_case,
            dimensions=said.truncate_dim,
        )
        config.widths(hidden_size)
    except (ConfigError, InputError) as error:
        raise CheckpointError(f"{folder} is no sentence model that bertkit can use: {error}") from None
    return SentenceParts(config, tuple(_weights(at, step, opened) for at, step in zip(steps_at, steps, strict=True)))


def write_sentence_parts(folder: Path, parts: SentenceParts, hidden_size: int) -> None:
    """Write into the folder of an encoder what makes it a model of sentence-transformers."""
    config = parts.config
    assert len(parts.weights) == len(config.steps), "every step has weights, if only an empty mapping"
    config.widths(hidden_size)
    names = ["", "1_Pooling", *(f"{number}_{type(step).__name__}" for number, step in enumerate(config.steps, 2))]
    write_json(folder / names[1] / "config.json", _pooling_json(config, hidden_size))
    for name, step, weights in zip(names[2:], config.steps, parts.weights, strict=True):
        _write_step(folder / name, step, weights)
    reading = {"max_seq_length": config.max_length, "do_lower_case": config.lower_case}
    write_json(folder / READING[0], {key: value for key, value in reading.items() if value is not None})
    settings: dict[str, Json] = {
        "__version__": {"bertkit": __version__},
        "model_type": "SentenceTransformer",
        "prompts": dict(config.prompts),
        "default_prompt_name": config.default_prompt_name,
        "similarity_fn_name": config.similarity,
    }
    write_json(folder / SETTINGS, settings | ({} if config.dimensions is None else {"truncate_dim": config.dimensions}))
    kinds = ["Transformer", "Pooling", *(type(step).__name__ for step in config.steps)]
    entries = [
        {"idx": number, "name": str(number), "path": name, "type": f"{_TYPES}models.{kind}"}
        for number, (name, kind) in enumerate(zip(names, kinds, strict=True))
    ]
    write_json(folder / MODULES, entries)


class Place(NamedTuple):
    """A module."""

    folder: Path
    kind: str


def _modules(folder: Path) -> list[Place]:
    """The modules after the encoder: the pooling, and what follows it."""
    file = folder / MODULES
    if not file.exists():
        return [Place(folder / POOLING.parent, "Pooling")]
    places = listed_modules(file)
    kinds = [place.kind for place in places]
    if kinds[:2] != ["Transformer", "Pooling"] or {"Transformer", "Pooling"} & set(kinds[2:]):
        raise CheckpointError(
            f"{file} lists the modules {', '.join(kinds) or 'none'}; bertkit has a Transformer, then a Pooling, then "
            "any of Dense, LayerNorm and Normalize"
        )
    if places[0].folder != folder:
        raise CheckpointError(
            f"{file} has the encoder in {places[0].folder.name!r}, as before release 2: load it with "
            "sentence-transformers and save it again, which puts it into the folder itself"
        )
    return places[1:]


def listed_modules(file: Path) -> list[Place]:
    """What a ``modules.json`` lists, in its order; CheckpointError for a module that bertkit does not have."""
    try:
        listed = strict_json(read_regular(file, max_bytes=_MAX_BYTES))
    except ValueError as error:
        raise CheckpointError(f"{file} is not a readable JSON file: {error}") from None
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise CheckpointError(f"{file} holds no list of modules")
    entries = [_checked(file, ModuleEntry, entry) for entry in listed]
    return [Place(file.parent / _safe(file, entry.path), _kind(file, entry.type)) for entry in entries]


def _kind(file: Path, name: str) -> str:
    """The kind of a module by the name of its class; the class itself is never imported."""
    kind = name.rpartition(".")[2]
    if ".sparse_encoder." in name:
        raise CheckpointError(f"{file.parent} is a sparse model (SPLADE): use it with 'bertkit embed --sparse'")
    if not name.startswith(_TYPES) or kind not in (*_KINDS, STATIC):
        raise CheckpointError(
            f"{file} names the module {name[:120]!r}, which bertkit does not have; it has {', '.join(_KINDS)} of "
            "sentence-transformers. Vectors without it would differ"
        )
    return kind


def _safe(file: Path, path: str) -> str:
    if path in ("", ".") or (path == Path(path).name and path != ".." and "\\" not in path and "\0" not in path):
        return path
    raise CheckpointError(f"{file} names the folder {path[:80]!r}: only one in the same folder is safe")


def _read(file: Path, kind: type[FileT]) -> FileT:
    """A settings file; the defaults where there is none."""
    return kind() if not file.exists() else _checked(file, kind, read_object(file, max_bytes=_MAX_BYTES))


def _checked(file: Path, kind: type[FileT], values: Mapping[str, Json]) -> FileT:
    try:
        return kind(**values)
    except ConfigError as error:
        raise CheckpointError(f"{file} says what bertkit does not have: {error}") from None


def _pooling(file: Path, hidden_size: int | None) -> PoolingFile:
    found = _checked(file, PoolingFile, read_object(file, max_bytes=_MAX_BYTES))
    if not found.modes:
        raise CheckpointError(f"{file} names no way of pooling; there are {', '.join(POOLING_MODES)}")
    width = found.embedding_dimension or found.word_embedding_dimension
    if width is not None and hidden_size not in (None, width):
        raise CheckpointError(
            f"{file} is for token vectors of {width:,} numbers, but those of the encoder have {hidden_size:,}"
        )
    return found


def _pooling_json(config: SentenceConfig, hidden_size: int) -> dict[str, Json]:
    """In the old form, which all releases read, unless the vectors have another order than it gives them."""
    modes = config.pooling
    if modes != tuple(mode for mode in POOLING_MODES if mode in modes):
        said: dict[str, Json] = {"embedding_dimension": hidden_size, "pooling_mode": list(modes)}
    else:
        flags = {flag_of(mode): mode in modes for mode in POOLING_MODES}
        said = {"word_embedding_dimension": hidden_size, **flags}
    return {**said, "include_prompt": config.include_prompt}


def _step(place: Place) -> Step:
    file = place.folder / "config.json"
    if place.kind == "Normalize":
        _read(file, NormalizeFile)
        return Normalize()
    values = read_object(file, max_bytes=_MAX_BYTES)
    if place.kind == "LayerNorm":
        return LayerNorm(dimension=_checked(file, LayerNormFile, values).dimension)
    found = _checked(file, DenseFile, values)
    known = {theirs: ours for ours, theirs in _CLASSES.items()}
    if found.activation_function not in known:
        raise CheckpointError(
            f"{file} has the activation {found.activation_function[:120]!r}, which bertkit does not have; it has "
            f"{', '.join(known)}"
        )
    return Dense(
        in_features=found.in_features,
        out_features=found.out_features,
        bias=found.bias,
        activation=known[found.activation_function],
        residual=found.use_residual,
    )


def _weights(place: Place, step: Step, opened: Callable[[Path], Path] | None) -> StepWeights:
    if not step.tensors:
        return {}
    file = place.folder / WEIGHTS
    if not file.exists() and (place.folder / PICKLE).exists():
        if opened is None:
            raise CheckpointError(
                f"{place.folder} has its weights as a pickle, and opening a pickle can run any code hidden in it. If "
                f"you trust its origin, convert the model once:\n  bertkit convert --trust-pickle "
                f"{place.folder.parent} NEW_FOLDER"
            )
        file = opened(place.folder / PICKLE)
    found = read_header(file)
    shapes = {name: info.shape for name, info in found.items()}
    if shapes != step.tensors:
        raise CheckpointError(
            f"{file} does not fit {place.folder / 'config.json'}: it has {shorten(sorted(shapes.items()))}, expected "
            f"{shorten(sorted(step.tensors.items()))}"
        )
    return {name: read_floats(info) for name, info in found.items()}


def _write_step(folder: Path, step: Step, weights: StepWeights) -> None:
    match step:
        case Normalize():
            return
        case LayerNorm():
            said: dict[str, Json] = {"dimension": step.dimension}
        case Dense():
            said = {
                "in_features": step.in_features,
                "out_features": step.out_features,
                "bias": step.bias,
                "activation_function": _CLASSES[step.activation],
                **({"use_residual": True} if step.residual else {}),
            }
    write_json(folder / "config.json", said)
    write_arrays(folder / WEIGHTS, weights)
