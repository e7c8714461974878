"""The sources of ``bertkit convert``: TensorFlow checkpoints, and safetensors under any known names."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bertkit.checkpoints.any_names import any_table, any_ties
from bertkit.checkpoints.explain import explain
from bertkit.checkpoints.huggingface import find_weights
from bertkit.checkpoints.match import match
from bertkit.checkpoints.names import TABLES
from bertkit.checkpoints.rules import NameTable, with_current_ending
from bertkit.checkpoints.safetensors_format import TensorInfo, Values, read_header, tensor_bytes
from bertkit.checkpoints.seq2seq_names import with_own_output
from bertkit.checkpoints.tensorflow.variable_names import Layout
from bertkit.checkpoints.tensorflow.variables import Archive, ArchiveReader
from bertkit.config.any_config import AnyConfig, read_any_config
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import CONFIG, MAX_CONFIG_BYTES, config_path, read_config
from bertkit.config.decision import DECISION
from bertkit.config.encoder_decoder_config import EncoderDecoderConfig
from bertkit.config.families import FAMILIES
from bertkit.config.generation_settings import GENERATION, GenerationSettings
from bertkit.config.reading_settings import RUN_SETTINGS
from bertkit.errors import CheckpointError, ConfigError, InputError, did_you_mean
from bertkit.system.model_sources import adapted_folder
from bertkit.system.untrusted_files import read_object, read_regular
from bertkit.tokenization.auto_tokenizer import TOKENIZER_FILES, tokenizer_home

#: Traces of the two forms of GELU in a saved graph: the constant 0.044715 as float32, and the operation Erf.
_TANH_FORM, _ERF_FORM = b"\x13\x27\x37\x3d", b"\x12\x03Erf"
_MAX_BYTES = 64 << 20
#: What a ``config.json`` may say of generation.
GENERATION_KEYS = (*GenerationSettings.model_fields, "task_specific_params", "prefix")
#: The class with exactly these heads.
_CLASS_OF = {
    frozenset(): "BertModel",
    frozenset({"words"}): "BertForMaskedLM",
    frozenset({"pairs"}): "BertForNextSentencePrediction",
    frozenset({"words", "pairs"}): "BertForPreTraining",
    frozenset({"labels"}): "BertForSequenceClassification",
    frozenset({"spans"}): "BertForQuestionAnswering",
}
#: Prefix of the names in a head, and its purpose.
_HEADS = {
    "cls.predictions.": "words",
    "predictions.": "words",
    "cls.seq_relationship.": "pairs",
    "sop_classifier.": "pairs",
    "classifier.": "labels",
    "qa_outputs.": "spans",
}


@dataclass(frozen=True, slots=True)
class Overrides:
    """Settings for a TensorFlow checkpoint; they override the files beside it.

    model_class: class the weights were trained as, where their names do not tell (taggers look like classifiers).
    lower_case: whether the tokenizer lower-cases; None decides by the vocabulary.
    """

    config: Path | None = None
    vocab: Path | None = None
    model_class: str | None = None
    lower_case: bool | None = None


class Source(ABC):
    """A checkpoint to convert.

    dropped: number of omitted tensors by reason.
    runs_at: a folder that bertkit can run as it is, to compare outputs.
    opened: held while values are read.
    makes_tokenizer: whether the settings of the tokenizer are written here, so that bertkit must be able to load it.
    home: the folder of the Hub's layout that it lies in.
    """

    kind: str
    where: str
    config: AnyConfig
    tensors: Mapping[str, TensorInfo]
    dropped: dict[str, int]
    notes: tuple[str, ...] = ()
    runs_at: Path | None = None
    opened: AbstractContextManager[object] = nullcontext()
    makes_tokenizer: bool = False
    home: Path | None = None

    @abstractmethod
    def read(self, name: str) -> Values:
        """The values of a tensor of the result, contiguous."""

    @abstractmethod
    def differs(self, name: str, written: npt.NDArray[np.uint8]) -> bool:
        """Whether written bytes, converted back into the layout of the source, differ from the source."""

    @abstractmethod
    def tokenizer_files(self) -> dict[str, bytes]:
        """Content of the files of the tokenizer, by name."""

    def config_json(self) -> str:
        """Content of the ``config.json`` of the result."""
        return self.config.to_json_string()

    def use_files(self) -> dict[str, bytes]:
        """Content of the files that say how the model is used, by name."""
        return {}


def compare(file: Path, source: Source) -> int:
    """Read the written file and the source again and compare every tensor; returns the number of values."""
    tensors = read_header(file)
    for name, info in tensors.items():
        if source.differs(name, tensor_bytes(info)):
            raise CheckpointError(
                f"{source.where}: {name!r} reads back with other values than were written; nothing was kept"
            )
    return sum(info.num_values for info in tensors.values())


class TensorFlowSource(Source):
    """A TensorFlow checkpoint with its config and vocabulary, checked against the tensors of its class."""

    config: BertConfig
    makes_tokenizer = True

    def __init__(self, archive: Archive, overrides: Overrides) -> None:
        self._archive = archive
        self.opened = self._values = ArchiveReader(archive)
        self.kind, self.where, self.tensors = archive.names.name, str(archive.bundle.index), archive.tensors
        parent = archive.bundle.index.parent
        self._home = parent.parent if parent.name == "variables" else parent
        self._overrides, self._stored_lower_case = overrides, archive.lower_case
        notes: list[str] = []
        heads = {what for head, what in _HEADS.items() if any(name.startswith(head) for name in archive.tensors)}
        self.config = self._with_head(_config(archive, self._home, overrides, notes), heads)
        beside = _first(self._home, "vocab.txt", "assets/vocab.txt")
        file = overrides.vocab or beside or _only(self._home, "*.model") or _only(self._home, "vocab*.txt")
        self._vocabulary = None if file is None else read_regular(file, max_bytes=_MAX_BYTES)
        # A list of word pieces: some ALBERTs have one too. Files of SentencePiece contain zero bytes.
        self._is_list = self._vocabulary is not None and b"\0" not in self._vocabulary
        self._lower_case = self._decide_case(notes)
        self.dropped = {f"{why} variables": count for why, count in Counter(archive.dropped.values()).items()}
        self.notes = tuple(notes)
        assert self.config.architectures
        table = TABLES[self.config.model_type]
        fit = match(self.tensors, self.config, table.classes[self.config.architectures[0]], table)
        if fit.problems:
            raise CheckpointError(explain(fit, self.where))

    def _with_head(self, config: BertConfig, heads: set[str]) -> BertConfig:
        """The config with the class of the weights and the number of labels."""
        family, classes = FAMILIES[config.model_type], TABLES[config.model_type].classes
        name = family.our_class(self._overrides.model_class or _CLASS_OF.get(frozenset(heads), "BertModel"))
        if name not in classes:
            known = ", ".join(map(family.their_class, classes))
            raise InputError(f"unknown class {name!r}{did_you_mean(name, classes)}; known classes: {known}")
        config = config.replace(architectures=[name])
        weight = self.tensors.get("classifier.weight")  # without it the match below lists what is missing
        if weight is not None and classes[name].label_head and classes[name].outputs is None:
            config = config.replace(num_labels=weight.shape[0])
        return config

    def read(self, name: str) -> Values:
        return self._values.tensor(name)

    def differs(self, name: str, written: npt.NDArray[np.uint8]) -> bool:
        origin, theirs = self._archive.origins[name], self._values.variable(name)
        ours = written.view(theirs.dtype).reshape(self.tensors[name].shape)
        as_bits = np.dtype(f"<u{theirs.dtype.itemsize}")  # distinguishes -0 from 0
        back = np.ascontiguousarray(origin.layout.undo(ours, origin.shape))
        return not np.array_equal(back.view(as_bits), theirs.view(as_bits))

    def tokenizer_files(self) -> dict[str, bytes]:
        if self._vocabulary is None:
            return {}
        settings = {
            "do_lower_case": self._lower_case,
            "model_max_length": self.config.max_position_embeddings,
            "tokenizer_class": "BertTokenizer" if self._is_list else "AlbertTokenizer",
        }
        return {
            "vocab.txt" if self._is_list else "spiece.model": self._vocabulary,
            "tokenizer_config.json": (json.dumps(settings, indent=2) + "\n").encode(),
        }

    def _decide_case(self, notes: list[str]) -> bool:
        """Whether the tokenizer lower-cases, by the overrides, the checkpoint, or capitals in the vocabulary."""
        if self._vocabulary is None:
            notes.append("no vocabulary beside the source, so the result has no tokenizer; add one with --vocab FILE")
            return True
        if not self._is_list:
            return self._overrides.lower_case is not False  # the default of ALBERT's own scripts
        pieces = self._vocabulary.decode("utf-8", "replace").splitlines()
        capital = next((piece for piece in pieces if not piece.startswith("[") and piece.lower() != piece), None)
        if self._overrides.lower_case is not None:
            return self._overrides.lower_case
        stored = self._stored_lower_case
        lower = capital is None if stored is None else stored
        seen = f"because its vocabulary has {'no capitals' if lower else repr(capital)}"
        why = seen if stored is None else "as the checkpoint says"
        notes.append(f"the tokenizer {'lower-cases' if lower else 'keeps capitals'}, {why}")
        return lower


class HubSource(Source):
    """Safetensors with a ``config.json``: old names are updated, buffers and tied copies omitted, adapters merged.

    The tokenizer, and what says how the model is used, are in the folder ``home``.
    """

    home: Path

    def __init__(self, path: Path, home: Path, *, kind: str = "safetensors") -> None:
        weights = find_weights(path)
        self.kind, self.where, self.runs_at = kind, str(home), path
        if sums := sum(info.sum is not None for info in weights.tensors.values()):
            self.kind = "an adapter and its model"
            self.notes = (f"merged: low-rank matrices were added to {sums} matrices of {adapted_folder(home)}",)
        self.config, self.home = read_any_config(config_path(path)), home
        if isinstance(self.config, EncoderDecoderConfig):
            self.config = with_own_output(self.config, weights.tensors)
        table, ties = any_table(self.config), any_ties(self.config)
        self._places: dict[str, TensorInfo] = {}
        kept = {table.canonical(name): info for name, info in weights.tensors.items()}
        alone = {}  # copies without their original, which they become, as when they are loaded
        for copy, original in ties.items():
            if copy in kept and original not in kept:
                kept[original], alone[copy] = kept[copy], _with_prefix(original, weights.tensors, table)
        dropped = Counter[str]()
        for name, info in weights.tensors.items():
            canonical = table.canonical(name)
            original_info = kept.get(ties.get(canonical, ""))
            if canonical in table.ignored:
                dropped["buffers"] += 1
            elif canonical in alone:
                self._places[alone[canonical]] = info
            elif original_info is not None and _are_equal(info, original_info):  # if not, loading the result fails
                dropped["copies of tied tensors"] += 1
            else:
                self._places[with_current_ending(name)] = info
        self.dropped = dict(dropped)
        self.tensors = {name: info._replace(name=name) for name, info in self._places.items()}
        if len(self.tensors) + sum(self.dropped.values()) != len(weights.tensors):
            raise CheckpointError(f"{self.where} has a tensor twice, under an old and a new name")

    def config_json(self) -> str:
        """Settings of generation stay in it: some checkpoints have them nowhere else."""
        if not isinstance(self.config, EncoderDecoderConfig):
            return super().config_json()
        assert self.runs_at is not None
        said = read_config(config_path(self.runs_at))
        kept = {key: said[key] for key in GENERATION_KEYS if key in said}
        return json.dumps({**kept, **self.config.to_dict()}, indent=2, sort_keys=True) + "\n"

    def use_files(self) -> dict[str, bytes]:
        names = [DECISION, RUN_SETTINGS] + [GENERATION] * isinstance(self.config, EncoderDecoderConfig)
        homes = (self.home, adapted_folder(self.home))
        files = {name: next((home / name for home in homes if (home / name).is_file()), None) for name in names}
        return {name: read_regular(file, max_bytes=MAX_CONFIG_BYTES) for name, file in files.items() if file}

    def read(self, name: str) -> npt.NDArray[np.uint8]:
        return tensor_bytes(self._places[name])

    def differs(self, name: str, written: npt.NDArray[np.uint8]) -> bool:
        return not np.array_equal(written, self.read(name))

    def tokenizer_files(self) -> dict[str, bytes]:
        home = tokenizer_home(self.home)
        files = (home / name for name in TOKENIZER_FILES)
        return {file.name: read_regular(file, max_bytes=_MAX_BYTES) for file in files if file.is_file()}


def _with_prefix(canonical: str, tensors: Iterable[str], table: NameTable) -> str:
    """A name of the table as the names of a file are written."""
    has_prefix = any(name.startswith(table.prefix) for name in tensors)
    return table.prefix + canonical if has_prefix and table.part_of(canonical) in table.prefixed else canonical


def _are_equal(one: TensorInfo, other: TensorInfo) -> bool:
    same = (one.dtype, one.shape) == (other.dtype, other.shape)
    return same and np.array_equal(tensor_bytes(one), tensor_bytes(other))


def _config(archive: Archive, home: Path, overrides: Overrides, notes: list[str]) -> BertConfig:
    """The config from the given file, the one beside the checkpoint, or the shapes of the variables."""
    file = overrides.config or _first(home, f"{archive.names.model_type}_config.json", CONFIG)
    if file is not None:
        return _read_config(file, archive.names.model_type)
    # The shapes of TensorFlow 2 show the number of heads.
    with_heads = (o.shape for o in archive.origins.values() if o.layout is Layout.TO_HEADS and len(o.shape) == 3)
    heads, activation = next((shape[1] for shape in with_heads), None), _activation(home / "saved_model.pb")
    if heads is None or activation is None:
        what = "the number of attention heads" if heads is None else "the activation function"
        raise CheckpointError(
            f"{archive.bundle.index}: there is no {archive.names.model_type}_config.json in {home}, and the weights do "
            f"not determine {what}: give --config FILE"
        )
    shapes = {name: info.shape for name, info in archive.tensors.items()}
    layers = {name.split(".")[3] for name in shapes if name.startswith("bert.encoder.layer.")}
    try:
        words, width = shapes["bert.embeddings.word_embeddings.weight"]
        config = BertConfig(
            vocab_size=words,
            hidden_size=width,
            num_hidden_layers=len(layers),
            num_attention_heads=heads,
            intermediate_size=shapes["bert.encoder.layer.0.intermediate.dense.weight"][0],
            max_position_embeddings=shapes["bert.embeddings.position_embeddings.weight"][0],
            type_vocab_size=shapes["bert.embeddings.token_type_embeddings.weight"][0],
            hidden_act=activation,
        )
    except (KeyError, ValueError, IndexError) as error:
        raise CheckpointError(f"{archive.bundle.index}: the variables do not determine the shape: {error}") from None
    notes.append(f"no config beside the source: the shape was taken from the variables, {activation} from the graph")
    return config


def _read_config(file: Path, model_type: str) -> BertConfig:
    """A config of the original code, which does not name its family."""
    content = read_object(file, max_bytes=_MAX_BYTES)
    try:
        config = BertConfig.from_dict({"model_type": model_type, **content})
    except ConfigError as error:
        raise CheckpointError(f"{file}: {error}") from None
    if config.model_type != model_type:
        raise CheckpointError(f"{file} is for the {config.model_type} family, the variables are of {model_type}")
    return config


def _activation(graph: Path) -> str | None:
    """Which form of GELU a saved graph computes; None if that is unclear."""
    if not graph.is_file():
        return None
    content = read_regular(graph, max_bytes=_MAX_BYTES)
    forms = {"gelu_new": _TANH_FORM in content, "gelu": _ERF_FORM in content}
    return next((name for name, there in forms.items() if there), None) if sum(forms.values()) == 1 else None


def _only(folder: Path, pattern: str) -> Path | None:
    found = sorted(folder.glob(pattern))
    return found[0] if len(found) == 1 else None


def _first(folder: Path, *names: str) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)
