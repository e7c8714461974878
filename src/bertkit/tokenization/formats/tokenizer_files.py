"""Reading and writing the files of tokenizers of every kind: bounded, strictly, and never half."""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.errors import CheckpointError, ResourceError
from bertkit.system.atomic_files import replace_files
from bertkit.system.paths import user_path
from bertkit.system.untrusted_files import (
    MAX_TOKENS,
    MAX_VOCABULARY_BYTES,
    MAX_VOCABULARY_VALUES,
    Json,
    read_regular,
    strict_json,
)
from bertkit.tokenization.vocabulary import TokenTable

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: Files that any tokenizer may have; what to fetch from the Hub beside the vocabulary's own.
COMMON_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
#: Token to id; and pairs of tokens that are joined, the most important first.
Vocab = dict[str, int]
Merges = tuple[tuple[str, str], ...]
#: Characters of a token, or of two to merge, with room to spare.
_MAX_LINE = 10_000


def read_bytes(path: Path) -> bytes:
    """The content of a file that is not absurdly large."""
    return read_regular(path, max_bytes=MAX_VOCABULARY_BYTES)


def count_lines(path: Path) -> int:
    """The number of lines that :func:`read_lines` finds; costs no more than reading the file."""
    data = read_bytes(path).rstrip(b"\r\n")
    return data.count(b"\n") + 1 if data else 0


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file that is not absurdly large, without blank ones at its end."""
    data = read_bytes(path).rstrip(b"\r\n")
    if (count := data.count(b"\n") + 1) > MAX_TOKENS:
        raise CheckpointError(f"{path} has {count:,} lines; a vocabulary has at most {MAX_TOKENS:,} tokens")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CheckpointError(f"{path}:{line} is not UTF-8 text ({error.reason} at byte {error.start:,})") from None
    del data  # the lines need as much memory again
    lines = text.split("\n")
    if (longest := max(map(len, lines))) > _MAX_LINE:
        where = next(number for number, line in enumerate(lines, 1) if len(line) == longest)
        raise CheckpointError(f"{path}:{where} has {longest:,} characters, more than the limit {_MAX_LINE:,}")
    return lines if text else []


def read_json(path: Path) -> dict[str, Json]:
    """The object in a JSON file. A key that appears twice is an error: one of its values would be lost."""
    return parse_json(read_bytes(path).removeprefix(codecs.BOM_UTF8), path)


def parse_json(text: bytes, path: Path) -> dict[str, Json]:
    """The object in the text of a JSON file; error messages name the file ``path``."""
    try:
        values = strict_json(text, max_values=MAX_VOCABULARY_VALUES)
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path}:{error.lineno} is not JSON: {error.msg} (column {error.colno})") from None
    except ValueError as error:
        raise CheckpointError(f"{path} is not a tokenizer's JSON: {error}") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} holds a {type(values).__name__}, expected an object")
    return values


def read_json_if_there(path: Path) -> dict[str, Json]:
    """The object in a JSON file; empty where there is no such file. A link to nothing is an error."""
    return read_json(path) if os.path.lexists(path) else {}


def typed(values: Mapping[str, Json], kinds: Mapping[str, tuple[type, ...]], path: Path) -> dict[str, Any]:
    """The settings of a file that are not null, of those in ``kinds``, which has their types; True is no number."""
    found = {key: values[key] for key in kinds if values.get(key) is not None}
    for key, value in found.items():
        if type(value) not in kinds[key]:
            expected = " or ".join(kind.__name__ for kind in kinds[key])
            raise CheckpointError(f"{path}: {key} must be {expected}, got {value!r:.80}")
    return found


def check_same(found: Vocab | Merges, other: Vocab | Merges, file: Path, json_file: Path) -> None:
    """Refuse an original file and a ``tokenizer.json`` with different vocabularies or merges; names the first."""
    if found is other or found == other:
        return
    if isinstance(found, dict) and isinstance(other, dict):
        for token, number in found.items():
            if other.get(token) != number:
                where = f"{file}:{number + 1}" if file.suffix == ".txt" else file
                raise CheckpointError(
                    f"{where} gives {token[:80]!r} the number {number}, but in {json_file} it has "
                    f"{other.get(token, 'none')}; delete the file that does not belong to this model"
                )
        raise CheckpointError(f"{json_file} has {len(other):,} tokens, {file} only {len(found):,} of them")
    same = next((at for at, pair in enumerate(zip(found, other, strict=False)) if pair[0] != pair[1]), None)
    at = min(len(found), len(other)) if same is None else same
    raise CheckpointError(
        f"{file} has {len(found):,} merges, {json_file} {len(other):,}, and merge {at:,} is not the same; delete "
        "the file that does not belong to this model"
    )


def write_tokenizer_files(
    folder: Path,
    vocabulary: TokenTable,
    engine: Tokenizer,
    settings: Mapping[str, Json],
    contents: Mapping[str, str | bytes],
) -> tuple[str, ...]:
    """Write ``contents`` by file name and the common files; each is old or new, never half. Returns the paths."""
    described = [token._asdict() for token in sorted(vocabulary.never_split, key=lambda token: token.id)]
    config: dict[str, Json] = {
        **settings,
        **vocabulary.special_tokens,
        "added_tokens_decoder": {str(token.pop("id")): token for token in described},
    }
    known = vocabulary.special_tokens.values()
    extra: list[Json] = [token.content for token in vocabulary.added if token.special and token.content not in known]
    if extra:
        config["extra_special_tokens"] = extra
    files = {
        **contents,
        "tokenizer.json": engine.to_str(pretty=True),
        "tokenizer_config.json": json.dumps(config, indent=2, ensure_ascii=False) + "\n",
        "special_tokens_map.json": json.dumps(vocabulary.special_tokens, indent=2, ensure_ascii=False) + "\n",
    }
    folder = user_path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_files(folder, {name: data.encode() if isinstance(data, str) else data for name, data in files.items()})
        (folder / "added_tokens.json").unlink(missing_ok=True)  # of another tokenizer; it would be read with this one
    except (FileExistsError, NotADirectoryError):
        raise CheckpointError(f"{folder} cannot be written: it is a file; a tokenizer needs a folder") from None
    except OSError as error:
        raise ResourceError(f"the tokenizer cannot be written to {folder}: {error.strerror or error}") from error
    return tuple(str(folder / name) for name in files)
