"""The folder of a tokenizer: the files of its vocabulary, and the settings beside them.

Where ``tokenizer.json`` and the original files of a vocabulary are both there, they must agree. Of the settings,
``tokenizer_config.json`` wins over ``special_tokens_map.json`` and ``added_tokens.json``, as everywhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bertkit.errors import CheckpointError
from bertkit.system.untrusted_files import Json, is_there
from bertkit.tokenization.formats.tokenizer_files import COMMON_FILES, check_same, read_json_if_there, typed
from bertkit.tokenization.formats.tokenizer_json import TokenizerJson, added_token
from bertkit.tokenization.templates import Template
from bertkit.tokenization.vocabulary import PLAIN, AddedToken, Names

#: Values of ``tokenizer_class`` that any tokenizer may have.
ANY_CLASS = frozenset({"PreTrainedTokenizerFast", "PreTrainedTokenizer", "TokenizersBackend"})
#: Settings of every kind and the types they may have; absent or null means the default.
_SETTINGS: Mapping[str, tuple[type, ...]] = {
    "clean_up_tokenization_spaces": (bool,),
    "model_max_length": (int, float),
    "padding_side": (str,),
    "truncation_side": (str,),
}


class Kind(NamedTuple):
    """The files of one kind of tokenizer.

    name: the class that reads them.
    classes: classes, without "Fast", that tokenize alike.
    model: what a ``tokenizer.json`` calls its model.
    from_json, originals: read the arguments that only this kind has from a ``tokenizer.json``, or an original file.
    flags: its own settings, all true or false; also fields of its vocabulary.
    required: settings that change what is computed unless they have this value or null.
    json_alone: with a ``tokenizer.json``, the original files are not read.
    """

    name: str
    classes: frozenset[str]
    model: str
    from_json: Callable[[TokenizerJson], dict[str, Any]]
    originals: Mapping[str, Callable[[Path], dict[str, Any]]]
    template: Template
    flags: tuple[str, ...]
    required: Mapping[str, Json] = {}
    names: Names = PLAIN
    blank_before_mask: bool = False
    json_alone: bool = False

    @property
    def files(self) -> tuple[str, ...]:
        """What to fetch from the Hub."""
        return (*self.originals, *COMMON_FILES)


def read_tokenizer(path: Path, kind: Kind) -> dict[str, Any]:
    """The arguments of a tokenizer's class that a folder describes, or a file that holds a whole vocabulary."""
    in_folder = path.is_dir()
    folder, json_file = (path, path / "tokenizer.json") if in_folder else (path.parent, path)
    has_json = json_file.suffix == ".json" and is_there(json_file)
    originals = dict(zip(kind.originals if in_folder else [path.name], kind.originals.values(), strict=False))
    there = [] if has_json and (kind.json_alone or not in_folder) else [n for n in originals if is_there(folder / n)]
    found = {name: originals[name](folder / name) for name in there}
    arguments: dict[str, Any] = {}
    if has_json:
        vocab = next((each["vocab"] for each in found.values() if "vocab" in each), None)
        content = TokenizerJson(json_file, kind.model, kind.name, vocab)
        arguments = {"source": str(json_file), **kind.from_json(content), **content.tokens(kind.template)}
    elif not originals or len(there) < len(kind.originals):
        wanted = " and no ".join([" and ".join(kind.originals)] * bool(originals) + ["tokenizer.json"])
        raise CheckpointError(f"{path} has no {wanted}; it is not the folder of a {kind.name}")
    for name, own in found.items():
        for key in arguments.keys() & own.keys() & {"vocab", "merges"}:
            check_same(own[key], arguments[key], folder / name, json_file)
        arguments |= own
    if in_folder:
        _add_settings(arguments, folder, kind, has_json=has_json)
    return arguments


def _add_settings(arguments: dict[str, Any], folder: Path, kind: Kind, *, has_json: bool) -> None:
    """Add what the settings of a folder say. ``tokenizer.json`` is more reliable than ``tokenizer_class``."""
    vocab = arguments["vocab"]
    if not isinstance(vocab, dict):  # pieces with scores
        vocab = {piece: at for at, (piece, _) in enumerate(vocab)}
    path, map_path = folder / "tokenizer_config.json", folder / "special_tokens_map.json"
    config = read_json_if_there(path)
    name = config.get("tokenizer_class")
    if name is not None and str(name).removesuffix("Fast") not in kind.classes | ANY_CLASS and not has_json:
        raise CheckpointError(
            f"{path}: tokenizer_class is {str(name)[:80]!r}, which does not tokenize as {kind.name} does"
        )
    for key, needed in kind.required.items():
        if config.get(key) not in (None, needed):
            said = f"{key} is {config[key]!r:.80}"
            raise CheckpointError(f"{path}: {said}; this tokenizer computes only {key}={needed!r}")
    arguments |= typed(config, {**_SETTINGS, **dict.fromkeys(kind.flags, (bool,))}, path)
    length = arguments.get("model_max_length", 1)  # 1e30, which many files have, means that there is no limit
    if not 1 <= length < math.inf:
        raise CheckpointError(f"{path}: model_max_length must be a finite number from 1, got {length!r:.80}")
    for side in ("padding_side", "truncation_side"):
        if arguments.get(side, "right") not in ("left", "right"):
            raise CheckpointError(f"{path}: {side} must be left or right, got {arguments[side]!r:.80}")
    others = {key: value for key, value in read_json_if_there(map_path).items() if config.get(key) is None}
    described = _special_tokens(arguments, config, path, kind, vocab)
    described += _special_tokens(arguments, others, map_path, kind, vocab)
    named = _named(config, kind) | _named(others, kind)
    for token, number in read_json_if_there(folder / "added_tokens.json").items():
        flags = {"special": token in named, "normalized": token not in named}
        described.append(added_token({"content": token, **flags}, folder / "added_tokens.json", number))
    described += arguments.get("added_tokens", ())  # of a tokenizer.json, which says how each token is found
    listed = config.get("added_tokens_decoder") or {}
    if not isinstance(listed, dict) or not all(key.isdecimal() and len(key) < 10 for key in listed):
        raise CheckpointError(f"{path}: added_tokens_decoder must be an object of tokens by number")
    described += [added_token(values, path, int(number)) for number, values in listed.items()]
    arguments["added_tokens"] = _merged(described, {**config, **others}, vocab, path)


def _named(values: Mapping[str, Json], kind: Kind) -> set[str]:
    """The special tokens that settings name, by themselves or in a list."""
    found: list[Json] = [values.get(public) for public in kind.names]
    for key in ("additional_special_tokens", "extra_special_tokens"):
        extra = values.get(key)
        found += list(extra.values()) if isinstance(extra, dict) else extra if isinstance(extra, list) else []
    return {str(each.get("content") if isinstance(each, dict) else each) for each in found if each is not None}


def _merged(
    described: list[AddedToken], config: Mapping[str, Json], vocab: Mapping[str, int], path: Path
) -> tuple[AddedToken, ...]:
    """One description of each added token, the last, and the tokens that have none; by id."""
    added: dict[str, AddedToken] = {}
    for token in described:
        first = vocab.get(token.content, added.get(token.content, token).id)
        if first != token.id:
            raise CheckpointError(
                f"{path.parent}: the token {token.content[:80]!r} has the ids {first} and {token.id} in its files"
            )
        added[token.content] = token
    following = max([len(vocab), *(token.id + 1 for token in added.values())])
    for key in ("additional_special_tokens", "extra_special_tokens"):
        extra = config.get(key) or []
        if not isinstance(extra, list | dict):
            raise CheckpointError(f"{path}: {key} must be a list of tokens, got {extra!r:.80}")
        for each in extra.values() if isinstance(extra, dict) else extra:
            values: dict[str, Json] = each if isinstance(each, dict) else {"content": each}
            number = vocab.get(str(values.get("content")), following)
            token = added.setdefault(str(values.get("content")), added_token(values, path, number))
            following = max(following, token.id + 1)
    return tuple(sorted(added.values(), key=lambda token: token.id))


def _special_tokens(
    arguments: dict[str, Any], values: Mapping[str, Json], path: Path, kind: Kind, vocab: Mapping[str, int]
) -> list[AddedToken]:
    """Name the special tokens; returns those of which it is also said how they are found."""
    described = []
    for public in sorted(kind.names, key=lambda public: public != kind.names[public]):  # second names last
        name, value = kind.names[public], values.get(public)
        content = value.get("content") if isinstance(value, dict) else value
        if value is None:
            continue
        if not isinstance(content, str):
            raise CheckpointError(f"{path}: {public} must be a token, got {value!r:.80}")
        if public != name and content != arguments.get(name, content):
            raise CheckpointError(
                f"{path}: {public} is {content!r:.80}, but {name} is {arguments[name]!r:.80}; {kind.name} has one "
                "token for both"
            )
        arguments[name] = content
        if isinstance(value, dict) and content in vocab:
            described.append(added_token(value, path, vocab[content]))
    return described
