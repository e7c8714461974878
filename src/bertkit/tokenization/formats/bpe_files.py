"""The files of byte-level BPE tokenizers: ``vocab.json`` and ``merges.txt``, or ``tokenizer.json`` with both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import pre_tokenizers

from bertkit.errors import CheckpointError
from bertkit.tokenization.formats.tokenizer_files import Merges, read_json, read_lines
from bertkit.tokenization.formats.tokenizer_folder import BEGIN_AND_END, Kind
from bertkit.tokenization.formats.tokenizer_json import TokenizerJson, ids_of
from bertkit.tokenization.templates import ROBERTA

#: Settings of a model that make it another BPE.
_UNSET = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges")


def read_bpe_vocab(path: Path) -> dict[str, int]:
    """Read a ``vocab.json``: token to id."""
    return ids_of(read_json(path), str(path))


def read_merges(path: Path) -> Merges:
    """Read a ``merges.txt``: two tokens a line, the most important pair first. A first line may name the version."""
    merges: list[tuple[str, str]] = []
    for number, line in enumerate(read_lines(path)):
        if number == 0 and line.startswith("#version"):
            continue
        pair = line.removesuffix("\r").split(" ")
        if len(pair) != 2 or not all(pair):
            raise CheckpointError(f"{path}:{number + 1} must be two tokens with a blank between them, got {line!r:.80}")
        merges.append((pair[0], pair[1]))
    return tuple(merges)


def _from_json(file: TokenizerJson) -> dict[str, Any]:
    file.require_unset(*_UNSET)
    file.part("normalizer", "be null, for byte-level BPE takes text as it is", [(None, None)])
    flags, processor = (True, False), file.content.get("post_processor")
    splitters = [(pre_tokenizers.ByteLevel(adds, trims, use_regex=True), adds) for adds in flags for trims in flags]
    values, merges = file.model.get("merges"), []
    if not isinstance(values, list):
        raise CheckpointError(f"{file.path}: model.merges must be a list of pairs, got {values!r:.80}")
    for number, value in enumerate(values):
        match value.split(" ") if isinstance(value, str) else value:  # "a b" is the older form
            case [str(left), str(right)]:
                merges.append((left, right))
            case _:
                raise CheckpointError(f"{file.path}: merge {number:,} must be two tokens, got {value!r:.80}")
    arguments = {
        "vocab": file.vocab(),
        "merges": tuple(merges),
        "add_prefix_space": file.part("pre_tokenizer", "be ByteLevel with use_regex", splitters),
    }
    if isinstance(processor, dict):  # a template trims nothing
        arguments["trim_offsets"] = processor.get("trim_offsets", False)
    return arguments


BYTE_LEVEL_BPE = Kind(
    "RobertaTokenizer",
    frozenset({"RobertaTokenizer"}),
    model="BPE",
    from_json=_from_json,
    originals={
        "vocab.json": lambda file: {"vocab": read_bpe_vocab(file), "source": str(file)},
        "merges.txt": lambda file: {"merges": read_merges(file), "merges_source": str(file)},
    },
    template=ROBERTA,
    flags=("add_prefix_space", "trim_offsets"),
    required={"errors": "replace"},
    aliases=BEGIN_AND_END,
)
