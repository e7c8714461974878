"""``AutoTokenizer``: chooses the tokenizer class that fits the files."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from bertkit.config.bert_config import OWN_MODEL_TYPE
from bertkit.errors import CheckpointError, InputError, did_you_mean
from bertkit.system.model_sources import ADAPTER, adapted_folder, resolve
from bertkit.system.untrusted_files import is_there
from bertkit.tokenization.formats.large_merges import read_large_json
from bertkit.tokenization.formats.tokenizer_files import COMMON_FILES, read_json_if_there
from bertkit.tokenization.formats.tokenizer_folder import ANY_CLASS, Kind
from bertkit.tokenization.formats.tokenizer_json import model_of
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

#: Module to the classes in it.
_MODULES = {
    "bert_tokenizer": "BertTokenizer DistilBertTokenizer ElectraTokenizer MPNetTokenizer",
    "gemma_tokenizer": "GemmaTokenizer",
    "roberta_tokenizer": "ModernBertTokenizer RobertaTokenizer",
    "unigram_tokenizers": "AlbertTokenizer CamembertTokenizer DebertaV2Tokenizer T5Tokenizer XLMRobertaTokenizer",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}
#: What ``model_type`` of config.json says, to the name of the class.
MODEL_TYPES: Mapping[str, str] = {
    "albert": "AlbertTokenizer",
    "bart": "RobertaTokenizer",
    "bert": "BertTokenizer",
    "camembert": "CamembertTokenizer",
    "deberta-v2": "DebertaV2Tokenizer",
    "distilbert": "DistilBertTokenizer",
    "electra": "ElectraTokenizer",
    "mobilebert": "BertTokenizer",
    "modernbert": "ModernBertTokenizer",
    "mpnet": "MPNetTokenizer",
    "roberta": "RobertaTokenizer",
    "t5": "T5Tokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
}
#: What ``tokenizer_class`` of tokenizer_config.json or config.json says, without "Fast".
CLASSES: Mapping[str, str] = {
    **{name: name for name in MODEL_TYPES.values()},
    "BartTokenizer": "RobertaTokenizer",
    "ConvBertTokenizer": "BertTokenizer",
    "GemmaTokenizer": "GemmaTokenizer",
    "MobileBertTokenizer": "BertTokenizer",
}
#: Files that only one kind of tokenizer has.
_FILES: Mapping[str, str] = {
    "vocab.txt": "BertTokenizer",
    "merges.txt": "RobertaTokenizer",
    "spm.model": "DebertaV2Tokenizer",
    "spiece.model": "AlbertTokenizer",
}
#: That of XLM-R and CamemBERT.
_FAIRSEQ_FILE = "sentencepiece.bpe.model"
#: What a folder with a tokenizer has some of, and what to fetch from the Hub: the files of all classes.
TOKENIZER_FILES = ("vocab.txt", *COMMON_FILES, "vocab.json", "merges.txt", "spiece.model", "spm.model", _FAIRSEQ_FILE)
AUTO_FILES = ("config.json", *TOKENIZER_FILES)


def tokenizer_class(name: str) -> type[PreTrainedTokenizer]:
    """A class by its name; imports its module."""
    found: type[PreTrainedTokenizer] = getattr(import_module(f"bertkit.tokenization.{_MODULE_OF[name]}"), name)
    return found


class AutoTokenizer:
    """Chooses the tokenizer of a checkpoint; has no instances."""

    def __new__(cls, *given: str | Path, **overrides: str | bool) -> Self:
        raise InputError("AutoTokenizer is not a tokenizer: call AutoTokenizer.from_pretrained(name_or_path)")

    @classmethod
    def from_pretrained(
        cls, name_or_path: str | Path, *, revision: str | None = None, **overrides: Any
    ) -> PreTrainedTokenizer:
        """Read the tokenizer of a folder, a file or a Hub name.

        The class is what ``tokenizer_class`` of ``tokenizer_config.json`` or ``config.json`` says; else what
        ``model_type`` of ``config.json`` asks for, unless ``tokenizer.json`` holds another kind of model (a BERT with
        XLM-R's vocabulary, say); else what the files can only be.

        Args:
            name_or_path: see :meth:`PreTrainedTokenizer.from_pretrained`; an adapter may have its model's tokenizer.
            revision: branch, tag or commit on the Hub.
            overrides: arguments of the class that replace what the files say.

        Raises:
            CheckpointError: nothing says which tokenizer it is, or a class that bertkit does not have; and as the
                class itself.
        """
        path = tokenizer_home(resolve(name_or_path, files=[*AUTO_FILES, ADAPTER], revision=revision))
        return class_of(path).from_pretrained(path, **overrides)


def tokenizer_home(path: Path) -> Path:
    """The folder itself, or where an adapter has no tokenizer, that of the model that it changes."""
    if any((path / name).exists() for name in TOKENIZER_FILES):
        return path
    return adapted_folder(path)


def class_of(path: Path) -> type[PreTrainedTokenizer]:
    """The class for a folder, or for a single file with a whole tokenizer."""
    if not path.is_dir():
        if path.suffix == ".json":
            return tokenizer_class(_class_of_json(path))
        other = "AlbertTokenizer" if path.suffix == ".model" else "BertTokenizer"
        return tokenizer_class(_FILES.get(path.name, other))
    model_type = None
    for name in ("tokenizer_config.json", "config.json"):
        file = path / name
        values = read_json_if_there(file)
        named = str(values.get("tokenizer_class") or "")
        if named and named.removesuffix("Fast") not in ANY_CLASS:
            if (known := CLASSES.get(named.removesuffix("Fast"))) is not None:
                return tokenizer_class(known)
            near = did_you_mean(named, sorted(CLASSES))
            raise CheckpointError(
                f"{file}: tokenizer_class is {named!r:.80}, which bertkit does not have{near}; there are "
                f"{', '.join(CLASSES)}"
            )
        model_type = str(values.get("model_type", model_type)).removeprefix(OWN_MODEL_TYPE)
    json_file = path / "tokenizer.json"
    if str(model_type) in MODEL_TYPES:
        usual = tokenizer_class(MODEL_TYPES[str(model_type)])
        found = tokenizer_class(_class_of_json(json_file)) if is_there(json_file) else usual
        return usual if _reads_like(usual.kind, found.kind) else found
    if is_there(json_file):
        return tokenizer_class(_class_of_json(json_file))
    for name, other in _FILES.items():
        if is_there(path / name):
            return tokenizer_class(other)
    if is_there(path / _FAIRSEQ_FILE):
        raise CheckpointError(
            f"{path} has a {_FAIRSEQ_FILE}, but nothing says which model it belongs to: load it with "
            "XLMRobertaTokenizer or CamembertTokenizer, or add a config.json"
        )
    wanted = ", ".join((*_FILES, _FAIRSEQ_FILE))
    raise CheckpointError(f"{path} is not a tokenizer's folder: it has no tokenizer.json and none of {wanted}")


def _reads_like(kind: Kind, other: Kind) -> bool:
    return (kind.model, kind.template, kind.names) == (other.model, other.template, other.names)


def _class_of_json(path: Path) -> str:
    """Its name, by the algorithm, and by a token or step that only one family has."""
    content, _ = read_large_json(path)
    kind, model = model_of(content)
    if kind == "BPE" and model.get("byte_fallback"):
        return "GemmaTokenizer"
    if kind == "BPE":
        return "RobertaTokenizer" if content.get("normalizer") is None else "ModernBertTokenizer"
    vocab = model.get("vocab")
    pieces = vocab[:10] if isinstance(vocab, list) else []
    if kind != "Unigram":
        return "MPNetTokenizer" if isinstance(vocab, dict) and {"<s>", "<mask>"} <= vocab.keys() else "BertTokenizer"
    first = {str(piece[0]) for piece in pieces if isinstance(piece, list) and piece}
    if "[CLS]" in first:
        return "DebertaV2Tokenizer" if "[PAD]" in first else "AlbertTokenizer"
    if "</s>" in first and "<s>" not in first:
        return "T5Tokenizer"
    return "CamembertTokenizer" if "<s>NOTUSED" in first else "XLMRobertaTokenizer"
