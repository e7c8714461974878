"""The files that BERT's tokenizer comes in: ``vocab.txt``, one token a line, and ``tokenizer.json``."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from tokenizers import normalizers, pre_tokenizers

from bertkit.errors import CheckpointError
from bertkit.tokenization.formats.tokenizer_files import read_lines, typed
from bertkit.tokenization.formats.tokenizer_folder import Kind
from bertkit.tokenization.formats.tokenizer_json import TokenizerJson
from bertkit.tokenization.templates import BERT


def read_vocab(path: Path) -> dict[str, int]:
    """Read a ``vocab.txt``: see :func:`bertkit.tokenization.load_vocab`."""
    lines = read_lines(path)
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


def write_vocab(vocab: Mapping[str, int]) -> bytes:
    """The content of a ``vocab.txt``; refuses a token that cannot stand on a line."""
    tokens = sorted(vocab, key=vocab.__getitem__)
    for number, token in enumerate(tokens):
        if not token or "\n" in token or token.endswith("\r"):
            raise CheckpointError(f"token {number}, {token!r}, cannot stand on a line of vocab.txt")
    return "".join(f"{token}\n" for token in tokens).encode()


def _from_json(file: TokenizerJson) -> dict[str, Any]:
    vocab, flags = file.vocab(), (True, False)
    computed = [
        (
            normalizers.BertNormalizer(True, chinese, accents, lower),
            {"tokenize_chinese_chars": chinese, "strip_accents": accents, "do_lower_case": lower},
        )
        for chinese, accents, lower in product(flags, (*flags, None), flags)
    ]
    arguments = file.part("normalizer", "be a BertNormalizer with clean_text", computed)
    file.part("pre_tokenizer", "be a BertPreTokenizer", [(pre_tokenizers.BertPreTokenizer(), None)])
    kinds = {"unk_token": (str,), "continuing_subword_prefix": (str,), "max_input_chars_per_word": (int,)}
    settings = typed(file.model, kinds, file.path)
    longest = settings.get("max_input_chars_per_word", 1)
    if not 1 <= longest <= 100_000:
        raise CheckpointError(
            f"{file.path}: max_input_chars_per_word must be from 1 to 100,000, got {str(longest)[:20]}"
        )
    if "continuing_subword_prefix" in settings:
        settings["prefix"] = settings.pop("continuing_subword_prefix")
    return {"vocab": vocab, **arguments, **settings}


def check_uncased(vocab: Mapping[str, int], path: Path) -> None:
    """Refuse to guess where more than one token in fifty has capitals: lower-casing would spoil every result."""
    capital = [token for token in vocab if token != token.lower() and not token.startswith("[")]
    if len(capital) > len(vocab) // 50:
        raise CheckpointError(
            f"{path} does not say whether to lower-case, and its vocabulary has capitals ({capital[0]!r} and "
            f"{len(capital) - 1:,} more): pass do_lower_case=False (or True), or add a tokenizer_config.json"
        )


WORDPIECE = Kind(
    "BertTokenizer",
    frozenset({"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer", "ConvBertTokenizer"}),
    model="WordPiece",
    from_json=_from_json,
    originals={"vocab.txt": lambda file: {"vocab": read_vocab(file), "source": str(file)}},
    template=BERT,
    flags=("do_lower_case", "strip_accents", "tokenize_chinese_chars"),
    required={"do_basic_tokenize": True, "never_split": []},
)
