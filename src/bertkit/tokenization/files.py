"""The files that tokenizers come in.

``vocab.txt`` is the original format: one token a line. ``tokenizer.json`` is the format of the ``tokenizers`` package,
which can hold any tokenizer; only BERT's is accepted here. ``tokenizer_config.json``, ``special_tokens_map.json`` and
``added_tokens.json`` hold settings. Where two files contradict each other about a token's number, that is an error;
about a setting, ``tokenizer_config.json`` wins, as everywhere else. Truncation and padding stored in a
``tokenizer.json`` are ignored: they are what the last call before saving asked for, not part of the tokenizer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from bertkit.errors import CheckpointError, ResourceError, shorten
from bertkit.files import replace_files
from bertkit.tokenization.vocabulary import AddedToken, Vocabulary

#: The largest published vocabularies of word pieces take 3 MB as vocab.txt, 20 MB as tokenizer.json.
MAX_FILE_BYTES = 200_000_000
#: What to fetch from the Hub.
TOKENIZER_FILES = (
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
#: Classes whose ``vocab.txt`` is tokenized as BERT does.
TOKENIZER_CLASSES = frozenset(
    name + fast
    for name in ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer", "ConvBertTokenizer")
    for fast in ("", "Fast")
) | {"PreTrainedTokenizerFast", "PreTrainedTokenizer", "TokenizersBackend"}

_FLAGS = ("special", "normalized", "lstrip", "rstrip", "single_word")
_SPECIAL_NAMES = ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
#: Settings and the types they may have; absent or null means the default.
_SETTINGS: Mapping[str, type | tuple[type, ...]] = {
    "do_lower_case": bool,
    "strip_accents": bool,
    "tokenize_chinese_chars": bool,
    "clean_up_tokenization_spaces": bool,
    "model_max_length": (int, float),
    "padding_side": str,
    "truncation_side": str,
}
#: Settings that ask for another tokenization than this one, unless they have this value or null.
_REQUIRED: Mapping[str, Any] = {"do_basic_tokenize": True, "never_split": []}
_TEMPLATES = {"single": "[CLS]:0 A:0 [SEP]:0", "pair": "[CLS]:0 A:0 [SEP]:0 B:1 [SEP]:1"}


def read_text(path: Path) -> str:
    """The text of a UTF-8 file that is not absurdly large."""
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise CheckpointError(f"{path} has {size:,} bytes; a tokenizer file has at most {MAX_FILE_BYTES:,}")
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CheckpointError(f"{path}:{line} is not UTF-8 text ({error.reason} at byte {error.start:,})") from None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. A key that appears twice is an error: one of its values would be lost."""

    def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) != len(pairs):
            repeated = [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]
            raise CheckpointError(f"{path} repeats {shorten(repeated)}; each key can stand only once")
        return values

    text = read_text(path)
    try:
        values = json.loads(text, object_pairs_hook=without_repeats)
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path}:{error.lineno} is not JSON: {error.msg} (column {error.colno})") from None
    except RecursionError:
        raise CheckpointError(f"{path} is not a tokenizer's JSON: nested too deeply") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} holds a {type(values).__name__}, expected an object")
    return values


def read_vocab(path: Path) -> dict[str, int]:
    """Read a ``vocab.txt``: see :func:`bertkit.tokenization.load_vocab`."""
    lines = read_text(path).split("\n")
    while lines and not lines[-1].strip("\r"):
        lines.pop()
    if not lines:
        raise CheckpointError(f"{path} is empty; a vocabulary has one token a line")
    vocab: dict[str, int] = {}
    for number, line in enumerate(lines):
        token = line.removesuffix("\r")
        if not token:
            raise CheckpointError(f"{path}:{number + 1} is empty; a vocabulary has one token a line")
        if vocab.setdefault(token, number) != number:
            raise CheckpointError(f"{path}:{number + 1} repeats {token!r}, which line {vocab[token] + 1} has already")
    return vocab


def read_tokenizer(path: Path) -> dict[str, Any]:
    """The arguments of :class:`~bertkit.tokenization.BertTokenizer` that a folder, or one file, describes.

    Raises:
        CheckpointError: nothing to read, a damaged file, files that contradict each other, or another tokenizer.
    """
    folder = path if path.is_dir() else path.parent
    vocab_file = folder / "vocab.txt" if path.is_dir() else path
    json_file = folder / "tokenizer.json" if path.is_dir() else path
    arguments: dict[str, Any] = {}
    if json_file.is_file() and json_file.suffix == ".json":
        arguments = _read_tokenizer_json(json_file)
    if vocab_file.is_file() and vocab_file.suffix != ".json":
        vocab = read_vocab(vocab_file)
        _check_same(vocab, arguments.get("vocab", vocab), vocab_file, json_file)
        arguments["vocab"] = vocab
    if "vocab" not in arguments:
        raise CheckpointError(f"{path} has no vocab.txt and no tokenizer.json; it is not a tokenizer's folder")
    arguments["source"] = str(vocab_file if vocab_file.is_file() else json_file)
    if path.is_dir():
        _add_settings(arguments, folder, has_json=json_file.is_file())
    return arguments


def _check_same(vocab: Mapping[str, int], other: Mapping[str, int], vocab_file: Path, json_file: Path) -> None:
    for token, number in vocab.items():
        if other.get(token) != number:
            raise CheckpointError(
                f"{vocab_file}:{number + 1} gives {token!r} the number {number}, but in {json_file} it has "
                f"{other.get(token, 'none')}; delete the file that does not belong to this model"
            )
    if len(other) != len(vocab):
        raise CheckpointError(f"{json_file} has {len(other):,} tokens, {vocab_file} only {len(vocab):,} of them")


def _read_tokenizer_json(path: Path) -> dict[str, Any]:
    content = read_json(path)
    model = _part(content, "model", path)
    kind = model.get("type", "WordPiece" if "max_input_chars_per_word" in model else None)
    if kind != "WordPiece":
        raise CheckpointError(f"{path} holds a {kind} model; BertTokenizer reads WordPiece")
    vocab = model.get("vocab")
    if not isinstance(vocab, dict) or not vocab or not all(type(number) is int for number in vocab.values()):
        raise CheckpointError(f"{path}: model.vocab must be an object of tokens and their whole numbers")
    arguments: dict[str, Any] = {"vocab": vocab}
    for name, key in (("unk_token", "unk_token"), ("prefix", "continuing_subword_prefix")):
        if model.get(key) is not None:
            arguments[name] = _typed(model, key, str, path)
    if model.get("max_input_chars_per_word") is not None:
        arguments["max_input_chars_per_word"] = _typed(model, "max_input_chars_per_word", int, path)
    normalizer = _part(content, "normalizer", path)
    if normalizer.get("type") != "BertNormalizer" or normalizer.get("clean_text") is False:
        raise CheckpointError(
            f"{path} normalizes text with {json.dumps(normalizer)[:200]}; BertTokenizer reads only a BertNormalizer "
            "with clean_text"
        )
    for name, key in (("do_lower_case", "lowercase"), ("tokenize_chinese_chars", "handle_chinese_chars")):
        arguments[name] = _typed(normalizer, key, bool, path)
    if normalizer.get("strip_accents") is not None:
        arguments["strip_accents"] = _typed(normalizer, "strip_accents", bool, path)
    if _part(content, "pre_tokenizer", path).get("type") != "BertPreTokenizer":
        raise CheckpointError(f"{path}: the pre_tokenizer must be a BertPreTokenizer, got {content['pre_tokenizer']!r}")
    _check_template(content.get("post_processor"), path)
    added = content.get("added_tokens") or []
    if not isinstance(added, list):
        raise CheckpointError(f"{path}: added_tokens must be a list, got a {type(added).__name__}")
    arguments["added_tokens"] = tuple(_added_token(token, path) for token in added)
    return arguments


def _check_template(processor: Any, path: Path) -> None:
    """Special tokens must stand as BERT has them; BertProcessing always puts them there."""
    if processor is None or (isinstance(processor, dict) and processor.get("type") == "BertProcessing"):
        return
    try:
        assert processor["type"] == "TemplateProcessing"
        found = {}
        for name in _TEMPLATES:
            specials = iter(["[CLS]", "[SEP]", "[SEP]"])
            parts = [next(iter(part.items())) for part in processor[name]]
            found[name] = " ".join(
                f"{next(specials) if kind == 'SpecialToken' else part['id']}:{part['type_id']}" for kind, part in parts
            )
    except (AssertionError, AttributeError, KeyError, StopIteration, TypeError):
        found = {}
    if found != _TEMPLATES:
        raise CheckpointError(f"{path}: the post_processor must put [CLS] A [SEP] B [SEP], got {str(processor)[:300]}")


def _added_token(values: Any, path: Path, number: int | None = None) -> AddedToken:
    if not isinstance(values, dict) or not isinstance(values.get("content"), str) or not values["content"]:
        raise CheckpointError(f"{path}: an added token must have a content, got {str(values)[:200]}")
    number = values.get("id") if number is None else number
    if type(number) is not int:
        raise CheckpointError(f"{path}: the added token {values['content']!r} must have a whole number as id")
    return AddedToken(values["content"], number, **{flag: bool(values.get(flag, flag == "special")) for flag in _FLAGS})


def _part(content: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    part = content.get(key)
    if not isinstance(part, dict):
        raise CheckpointError(f"{path}: {key} must be an object, got {part!r:.80}; is this a tokenizer.json?")
    return part


def _typed(values: Mapping[str, Any], key: str, kind: type | tuple[type, ...], path: Path) -> Any:
    value = values.get(key)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        expected = kind.__name__ if isinstance(kind, type) else " or ".join(each.__name__ for each in kind)
        raise CheckpointError(f"{path}: {key} must be {expected}, got {value!r:.80}")
    return value


def _add_settings(arguments: dict[str, Any], folder: Path, *, has_json: bool) -> None:
    """What tokenizer_config.json says, then special_tokens_map.json and added_tokens.json where it says nothing."""
    path = folder / "tokenizer_config.json"
    config = read_json(path) if path.is_file() else {}
    kind = config.get("tokenizer_class")
    if kind is not None and kind not in TOKENIZER_CLASSES and not has_json:
        raise CheckpointError(f"{path}: tokenizer_class is {kind!r}, which does not tokenize as BertTokenizer does")
    for key, needed in _REQUIRED.items():
        if config.get(key) not in (None, needed):
            raise CheckpointError(f"{path}: {key} is {config[key]!r}; this tokenizer computes only {key}={needed!r}")
    for key, types in _SETTINGS.items():
        if config.get(key) is not None:
            arguments[key] = _typed(config, key, types, path)
    _add_special_tokens(arguments, config, path)
    path = folder / "special_tokens_map.json"
    _add_special_tokens(arguments, read_json(path) if path.is_file() else {}, path, keep=config)
    path = folder / "added_tokens.json"
    listed = read_json(path) if path.is_file() else {}
    extra = [_added_token({"content": token, "special": False}, path, number) for token, number in listed.items()]
    path = folder / "tokenizer_config.json"
    listed = config.get("added_tokens_decoder") or {}
    if not isinstance(listed, dict) or not all(number.isdecimal() for number in listed):
        raise CheckpointError(f"{path}: added_tokens_decoder must be an object of tokens by number")
    extra += [_added_token(token, path, int(number)) for number, token in listed.items()]
    # The last description of a token is the one that counts.
    added = {token.content: token for token in (*arguments.get("added_tokens", ()), *extra)}
    vocab = arguments["vocab"]
    for key in ("additional_special_tokens", "extra_special_tokens"):
        for token in config.get(key) or ():
            content = token.get("content") if isinstance(token, dict) else token
            number = vocab.get(content, max([len(vocab), *(known.id + 1 for known in added.values())]))
            added.setdefault(content, _added_token({"content": content}, path, number))
    arguments["added_tokens"] = tuple(sorted(added.values(), key=lambda token: token.id))


def _add_special_tokens(
    arguments: dict[str, Any], values: Mapping[str, Any], path: Path, keep: Mapping[str, Any] | None = None
) -> None:
    for name in _SPECIAL_NAMES:
        value = values.get(name)
        if value is None or (keep is not None and keep.get(name) is not None):
            continue
        content = value.get("content") if isinstance(value, dict) else value
        if not isinstance(content, str):
            raise CheckpointError(f"{path}: {name} must be a token, got {value!r:.80}")
        arguments[name] = content


def check_uncased(vocab: Mapping[str, int], path: Path) -> None:
    """A vocabulary with capitals is of a cased model: lower-casing would quietly spoil every result."""
    capital = [token for token in vocab if token != token.lower() and not token.startswith("[")]
    if len(capital) > len(vocab) // 50:
        raise CheckpointError(
            f"{path} does not say whether to lower-case, and its vocabulary has capitals ({capital[0]!r} and "
            f"{len(capital) - 1:,} more): pass do_lower_case=False (or True), or add a tokenizer_config.json"
        )


def write_tokenizer(
    folder: Path, vocabulary: Vocabulary, engine: Tokenizer, settings: Mapping[str, Any]
) -> tuple[str, ...]:
    """Write ``vocab.txt``, ``tokenizer.json``, ``tokenizer_config.json`` and ``special_tokens_map.json``.

    A reader finds each file old or new, never half; a full disk leaves all of them old.

    Raises:
        CheckpointError: ``folder`` is a file, or a token cannot stand on a line of ``vocab.txt``.
        ResourceError: disk full, no permission.
    """
    tokens = sorted(vocabulary.vocab, key=vocabulary.vocab.__getitem__)
    for number, token in enumerate(tokens):
        if not token or "\n" in token or token.endswith("\r"):
            raise CheckpointError(f"token {number}, {token!r}, cannot stand on a line of vocab.txt")
    config = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": vocabulary.do_lower_case,
        "strip_accents": vocabulary.strip_accents,
        "tokenize_chinese_chars": vocabulary.tokenize_chinese_chars,
        **settings,
        **vocabulary.special_tokens,
        "added_tokens_decoder": {
            str(token.id): {flag: getattr(token, flag) for flag in ("content", *_FLAGS)}
            for token in sorted(vocabulary.never_split, key=lambda token: token.id)
        },
    }
    extra = [token.content for token in vocabulary.added if token.special]
    if extra := [token for token in extra if token not in vocabulary.special_tokens.values()]:
        config["extra_special_tokens"] = extra
    contents = {
        "vocab.txt": "".join(f"{token}\n" for token in tokens),
        "tokenizer.json": engine.to_str(pretty=True),
        "tokenizer_config.json": json.dumps(config, indent=2, ensure_ascii=False) + "\n",
        "special_tokens_map.json": json.dumps(vocabulary.special_tokens, indent=2, ensure_ascii=False) + "\n",
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_files(folder, {name: content.encode("utf-8") for name, content in contents.items()})
        (folder / "added_tokens.json").unlink(missing_ok=True)  # of another tokenizer; it would be read with this one
    except (FileExistsError, NotADirectoryError):
        raise CheckpointError(f"{folder} cannot be written: it is a file; a tokenizer needs a folder") from None
    except OSError as error:
        raise ResourceError(f"the tokenizer cannot be written to {folder}: {error.strerror or error}") from error
    return tuple(str(folder / name) for name in contents)
