"""What the files of every kind of tokenizer share: reading JSON strictly, settings, added tokens, writing.

``tokenizer_config.json``, ``special_tokens_map.json`` and ``added_tokens.json`` hold settings. About a setting,
``tokenizer_config.json`` wins, as everywhere else.
"""

from __future__ import annotations

import codecs
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from bertkit.errors import CheckpointError, ResourceError
from bertkit.system.atomic_files import replace_files
from bertkit.system.untrusted_files import (
    MAX_TOKENS,
    MAX_VOCABULARY_BYTES,
    MAX_VOCABULARY_VALUES,
    read_regular,
    strict_json,
)
from bertkit.tokenization.ragged import Template
from bertkit.tokenization.vocabulary import AddedToken, TokenTable

#: Files that any tokenizer may have; what to fetch from the Hub beside the vocabulary's own.
COMMON_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
#: What files say that do not tell which tokenizer they are of.
ANY_CLASS = frozenset({"PreTrainedTokenizerFast", "PreTrainedTokenizer", "TokenizersBackend"})

Type = type | tuple[type, ...]
_FLAGS = ("special", "normalized", "lstrip", "rstrip", "single_word")
_SPECIAL_NAMES = ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
#: Settings of every kind and the types they may have; absent or null means the default.
_SETTINGS: Mapping[str, Type] = {
    "clean_up_tokenization_spaces": bool,
    "model_max_length": (int, float),
    "padding_side": str,
    "truncation_side": str,
}
#: Characters of a token, or of two to merge, with room to spare.
_MAX_LINE = 10_000


@dataclass(frozen=True)
class Kind:
    """What the settings of one kind of tokenizer may say.

    name: the class that reads them.
    classes: the names of classes, without "Fast", that tokenize alike.
    settings: its own settings and the types they may have.
    required: settings that ask for another tokenization than this one, unless they have this value or null.
    aliases: special tokens under a second name, which must be the same token.
    """

    name: str
    classes: frozenset[str]
    settings: Mapping[str, Type] = field(default_factory=dict)
    required: Mapping[str, Any] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)


def read_bytes(path: Path) -> bytes:
    """The content of a file that is not absurdly large."""
    return read_regular(path, max_bytes=MAX_VOCABULARY_BYTES)


def _without_blank_end(path: Path) -> bytes:
    """The content of a file of lines; blank lines at its end are no lines."""
    return read_bytes(path).rstrip(b"\r\n")


def count_lines(path: Path) -> int:
    """How many lines :func:`read_lines` finds in a file; costs nothing but reading it."""
    data = _without_blank_end(path)
    return data.count(b"\n") + 1 if data else 0


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file that is not absurdly large, without blank ones at its end."""
    data = _without_blank_end(path)
    if (count := data.count(b"\n") + 1) > MAX_TOKENS:
        raise CheckpointError(f"{path} has {count:,} lines; a vocabulary has at most {MAX_TOKENS:,} tokens")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CheckpointError(f"{path}:{line} is not UTF-8 text ({error.reason} at byte {error.start:,})") from None
    del data  # no part of it is needed beside the lines
    lines = text.split("\n")
    if (longest := max(map(len, lines))) > _MAX_LINE:
        where = next(number for number, line in enumerate(lines, 1) if len(line) == longest)
        raise CheckpointError(f"{path}:{where} has {longest:,} characters, more than the limit {_MAX_LINE:,}")
    return lines if text else []


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. A key that appears twice is an error: one of its values would be lost."""
    text = read_bytes(path).removeprefix(codecs.BOM_UTF8)
    try:
        values = strict_json(text, max_values=MAX_VOCABULARY_VALUES)
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path}:{error.lineno} is not JSON: {error.msg} (column {error.colno})") from None
    except ValueError as error:
        raise CheckpointError(f"{path} is not a tokenizer's JSON: {error}") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} holds a {type(values).__name__}, expected an object")
    return values


def read_json_if_there(path: Path) -> dict[str, Any]:
    """The object in a JSON file, empty where there is nothing of this name. A link to nothing is an error."""
    return read_json(path) if os.path.lexists(path) else {}


def added_token(values: Any, path: Path, number: int | None = None) -> AddedToken:
    """An added token as files describe it; ``number`` in the place of its own ``id``."""
    if not isinstance(values, dict) or not isinstance(values.get("content"), str) or not values["content"]:
        raise CheckpointError(f"{path}: an added token must have a content, got {str(values)[:200]}")
    number = values.get("id") if number is None else number
    if type(number) is not int:
        raise CheckpointError(f"{path}: the added token {values['content']!r} must have a whole number as id")
    return AddedToken(values["content"], number, **{flag: bool(values.get(flag, flag == "special")) for flag in _FLAGS})


def added_tokens(content: Mapping[str, Any], path: Path) -> tuple[AddedToken, ...]:
    """The ``added_tokens`` of a ``tokenizer.json``."""
    added = content.get("added_tokens") or []
    if not isinstance(added, list):
        raise CheckpointError(f"{path}: added_tokens must be a list, got a {type(added).__name__}")
    return tuple(added_token(token, path) for token in added)


def part(content: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    """One part of a ``tokenizer.json``."""
    found = content.get(key)
    if not isinstance(found, dict):
        raise CheckpointError(f"{path}: {key} must be an object, got {found!r:.80}; is this a tokenizer.json?")
    return found


def typed(values: Mapping[str, Any], key: str, kind: Type, path: Path) -> Any:
    """A value that must be of a type; True is no number."""
    value = values.get(key)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        expected = kind.__name__ if isinstance(kind, type) else " or ".join(each.__name__ for each in kind)
        raise CheckpointError(f"{path}: {key} must be {expected}, got {value!r:.80}")
    return value


def read_template(processor: Any, template: Template, path: Path) -> dict[str, str]:
    """See that the ``post_processor`` of a ``tokenizer.json`` puts special tokens where ``template`` has them.

    Returns:
        ``cls_token`` and ``sep_token``, where it names them. ``BertProcessing`` and ``RobertaProcessing`` always put
        them in their own places; token types count only where the template has segments.
    """
    known = "BertProcessing" if template.segments else "RobertaProcessing"
    if processor is None:
        return {}
    try:
        if processor["type"] == known:
            return {"cls_token": str(processor["cls"][0]), "sep_token": str(processor["sep"][0])}
        assert processor["type"] == "TemplateProcessing"
        names: list[str] = []
        rows = [[next(iter(each.items())) for each in processor[key]] for key in ("single", "pair")]
        found = [[_place(kind, values, template, names) for kind, values in row] for row in rows]
        cls, sep = names[0], names[1]
        right = names == [cls, sep, cls, *[sep] * (template.between + 1)] and found == _places(template)
    except (AssertionError, AttributeError, IndexError, KeyError, StopIteration, TypeError):
        right = False
    if not right:
        places = "[CLS] A" + " [SEP]" * template.between + " B [SEP]"
        raise CheckpointError(f"{path}: the post_processor must put {places}, got {str(processor)[:300]}")
    return {"cls_token": cls, "sep_token": sep}


def _places(template: Template) -> list[list[str]]:
    last = 1 if template.segments else 0
    single = ["special:0", "A:0", "special:0"]
    return [single, [*single, *["special:0"] * (template.between - 1), f"B:{last}", f"special:{last}"]]


def _place(kind: str, values: Mapping[str, Any], template: Template, names: list[str]) -> str:
    segment = values["type_id"] if template.segments else 0
    if kind == "Sequence":
        return f"{values['id']}:{segment}"
    names.append(str(values["id"]))
    return f"special:{segment}"


def check_same(vocab: Mapping[str, int], other: Mapping[str, int], vocab_file: Path, json_file: Path) -> None:
    """Two files that give the same tokens other numbers do not belong together."""
    for token, number in vocab.items():
        if other.get(token) != number:
            raise CheckpointError(
                f"{vocab_file}:{number + 1} gives {token[:80]!r} the number {number}, but in {json_file} it has "
                f"{other.get(token, 'none')}; delete the file that does not belong to this model"
            )
    if len(other) != len(vocab):
        raise CheckpointError(f"{json_file} has {len(other):,} tokens, {vocab_file} only {len(vocab):,} of them")


def add_settings(
    arguments: dict[str, Any], vocab: Mapping[str, int], folder: Path, kind: Kind, *, has_json: bool
) -> None:
    """What tokenizer_config.json says, then special_tokens_map.json and added_tokens.json where it says nothing."""
    path = folder / "tokenizer_config.json"
    config = read_json_if_there(path)
    name = config.get("tokenizer_class")
    if name is not None and str(name).removesuffix("Fast") not in kind.classes | ANY_CLASS and not has_json:
        raise CheckpointError(
            f"{path}: tokenizer_class is {str(name)[:80]!r}, which does not tokenize as {kind.name} does"
        )
    for key, needed in kind.required.items():
        if config.get(key) not in (None, needed):
            raise CheckpointError(f"{path}: {key} is {config[key]!r}; this tokenizer computes only {key}={needed!r}")
    for key, types in {**_SETTINGS, **kind.settings}.items():
        if config.get(key) is not None:
            arguments[key] = typed(config, key, types, path)
    length = arguments.get("model_max_length", 1)  # 1e30, which many files have, means that there is no limit
    if not 1 <= length < math.inf:
        raise CheckpointError(f"{path}: model_max_length must be a finite number from 1, got {length!r:.80}")
    described = _add_special_tokens(arguments, config, path, kind, vocab)
    path = folder / "special_tokens_map.json"
    others = read_json_if_there(path)
    others = {key: value for key, value in others.items() if config.get(key) is None}
    described += _add_special_tokens(arguments, others, path, kind, vocab)
    described += arguments.get("added_tokens", ())
    path = folder / "added_tokens.json"
    listed = read_json_if_there(path)
    described += [added_token({"content": token, "special": False}, path, number) for token, number in listed.items()]
    path = folder / "tokenizer_config.json"
    listed = config.get("added_tokens_decoder") or {}
    if not isinstance(listed, dict) or not all(map(_is_number, listed)):
        raise CheckpointError(f"{path}: added_tokens_decoder must be an object of tokens by number")
    described += [added_token(token, path, int(number)) for number, token in listed.items()]
    # The last description of a token is the one that counts.
    added = {token.content: token for token in described}
    for key in ("additional_special_tokens", "extra_special_tokens"):
        extra = config.get(key) or []
        if not isinstance(extra, list | dict):
            raise CheckpointError(f"{path}: {key} must be a list of tokens, got {extra!r:.80}")
        for token in extra.values() if isinstance(extra, dict) else extra:
            values = token if isinstance(token, dict) else {"content": token}
            content = str(values.get("content"))
            number = vocab.get(content, max([len(vocab), *(known.id + 1 for known in added.values())]))
            added.setdefault(content, added_token(values, path, number))
    arguments["added_tokens"] = tuple(sorted(added.values(), key=lambda token: token.id))


def _is_number(key: str) -> bool:
    return key.isdecimal() and len(key) < 10


def _add_special_tokens(
    arguments: dict[str, Any], values: Mapping[str, Any], path: Path, kind: Kind, vocab: Mapping[str, int]
) -> list[AddedToken]:
    """Name the special tokens; returns those of which it is also said how they are found."""
    described = []
    for name in (*_SPECIAL_NAMES, *kind.aliases):
        value = values.get(name)
        if value is None:
            continue
        content = value.get("content") if isinstance(value, dict) else value
        if not isinstance(content, str):
            raise CheckpointError(f"{path}: {name} must be a token, got {value!r:.80}")
        if isinstance(value, dict) and content in vocab:
            described.append(added_token(value, path, vocab[content]))
        arguments[name] = content
    for alias, name in kind.aliases.items():
        token = arguments.pop(alias, None)
        if token is not None and token != arguments.get(name, token):
            raise CheckpointError(
                f"{path}: {alias} is {token!r}, but {name} is {arguments[name]!r}; {kind.name} has one token for both"
            )
    return described


def write_tokenizer_files(
    folder: Path,
    vocabulary: TokenTable,
    engine: Tokenizer,
    settings: Mapping[str, Any],
    contents: Mapping[str, str | bytes],
) -> tuple[str, ...]:
    """Write ``contents`` by file name, and ``tokenizer.json``, ``tokenizer_config.json``, ``special_tokens_map.json``.

    A reader finds each file old or new, never half; a full disk leaves all of them old.

    Raises:
        CheckpointError: ``folder`` is a file.
        ResourceError: disk full, no permission.
    """
    config = {
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
    files = {
        **contents,
        "tokenizer.json": engine.to_str(pretty=True),
        "tokenizer_config.json": json.dumps(config, indent=2, ensure_ascii=False) + "\n",
        "special_tokens_map.json": json.dumps(vocabulary.special_tokens, indent=2, ensure_ascii=False) + "\n",
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_files(folder, {name: data.encode() if isinstance(data, str) else data for name, data in files.items()})
        (folder / "added_tokens.json").unlink(missing_ok=True)  # of another tokenizer; it would be read with this one
    except (FileExistsError, NotADirectoryError):
        raise CheckpointError(f"{folder} cannot be written: it is a file; a tokenizer needs a folder") from None
    except OSError as error:
        raise ResourceError(f"the tokenizer cannot be written to {folder}: {error.strerror or error}") from error
    return tuple(str(folder / name) for name in files)
