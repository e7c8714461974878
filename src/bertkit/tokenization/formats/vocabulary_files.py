"""The files of WordPiece (``vocab.txt``) and of BPE (``vocab.json``, ``merges.txt``); ``tokenizer.json``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError
from bertkit.tokenization.formats.tokenizer_files import Merges, read_json, read_lines, typed
from bertkit.tokenization.formats.tokenizer_folder import Kind
from bertkit.tokenization.formats.tokenizer_json import TokenizerJson, ids_of
from bertkit.tokenization.post_processors import Description
from bertkit.tokenization.templates import BERT, MMBERT, ROBERTA
from bertkit.tokenization.vocabulary import BEGIN_AND_END, PLAIN


def read_vocab(path: Path) -> dict[str, int]:
    """Read a ``vocab.txt``: see :func:`bertkit.tokenization.load_vocab`."""
    lines = read_lines(path)
    if not lines:
        raise CheckpointError(f"{path} is empty; a vocabulary has one token per line")
    tokens = [line.removesuffix("\r") for line in lines] if "\r" in "".join(lines) else lines
    vocab = dict(zip(tokens, range(len(tokens)), strict=True))
    if "" not in vocab and len(vocab) == len(tokens):
        return vocab
    first: dict[str, int] = {}
    for number, token in enumerate(tokens):
        if not token:
            raise CheckpointError(f"{path}:{number + 1} is empty; a vocabulary has one token per line")
        if first.setdefault(token, number) != number:
            raise CheckpointError(f"{path}:{number + 1} repeats {token!r}, which line {first[token] + 1} has already")
    raise AssertionError("a line is empty or repeated")


def write_vocab(vocab: Mapping[str, int]) -> bytes:
    """The content of a ``vocab.txt``; refuses a token that cannot stand on a line."""
    tokens = sorted(vocab, key=vocab.__getitem__)
    for number, token in enumerate(tokens):
        if not token or "\n" in token or token.endswith("\r"):
            raise CheckpointError(f"token {number}, {token!r}, cannot stand on a line of vocab.txt")
    return "".join(f"{token}\n" for token in tokens).encode()


def _wordpiece_arguments(file: TokenizerJson) -> dict[str, Any]:
    vocab, flags = file.vocab(), (True, False)
    computed: list[tuple[Description, dict[str, Any]]] = [
        (
            {
                "type": "BertNormalizer",
                "clean_text": True,
                "handle_chinese_chars": chinese,
                "strip_accents": accents,
                "lowercase": lower,
            },
            {"tokenize_chinese_chars": chinese, "strip_accents": accents, "do_lower_case": lower},
        )
        for chinese, accents, lower in product(flags, (*flags, None), flags)
    ]
    arguments = file.part("normalizer", "be a BertNormalizer with clean_text", computed)
    file.part("pre_tokenizer", "be a BertPreTokenizer", [({"type": "BertPreTokenizer"}, None)])
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
            f"{path} does not say whether to lower-case, and its vocabulary has capitals ({capital[0][:80]!r} and "
            f"{len(capital) - 1:,} more): pass do_lower_case=False (or True), or add a tokenizer_config.json"
        )


#: BERT's.
WORDPIECE = Kind(
    "BertTokenizer",
    frozenset({"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer", "ConvBertTokenizer"}),
    model="WordPiece",
    from_json=_wordpiece_arguments,
    originals={"vocab.txt": lambda file: {"vocab": read_vocab(file), "source": str(file)}},
    template=BERT,
    flags=("do_lower_case", "strip_accents", "tokenize_chinese_chars"),
    required={"do_basic_tokenize": True, "never_split": []},
)
#: The same pieces in rows as RoBERTa's.
MPNET = WORDPIECE._replace(
    name="MPNetTokenizer",
    classes=frozenset({"MPNetTokenizer"}),
    template=ROBERTA,
    names=BEGIN_AND_END,
    blank_before_mask=True,
)


#: Settings of a model that make it another BPE.
_ALTERING = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")


def read_bpe_vocab(path: Path) -> dict[str, int]:
    """Read a ``vocab.json``: token to id."""
    return ids_of(read_json(path), str(path))


def read_merges(path: Path) -> Merges:
    """Read a ``merges.txt``: two tokens per line, the most important pair first. A first line may name the version."""
    merges: list[tuple[str, str]] = []
    for number, line in enumerate(read_lines(path)):
        if number == 0 and line.startswith("#version"):
            continue
        pair = line.removesuffix("\r").split(" ")
        if len(pair) != 2 or not all(pair):
            raise CheckpointError(f"{path}:{number + 1} must be two tokens with a blank between them, got {line!r:.80}")
        merges.append((pair[0], pair[1]))
    return tuple(merges)


def _bpe_arguments(file: TokenizerJson, *, nfc: bool) -> dict[str, Any]:
    from tokenizers import normalizers, pre_tokenizers

    file.require_unset(*_ALTERING, "fuse_unk", "byte_fallback", "ignore_merges")
    wanted = "be NFC, by which characters and marks are composed" if nfc else "be null: text is taken as it is"
    file.part("normalizer", wanted, [(normalizers.NFC() if nfc else None, None)])
    flags, processor = (True, False), file.content.get("post_processor")
    splitters = [(pre_tokenizers.ByteLevel(adds, trims, use_regex=True), adds) for adds in flags for trims in flags]
    arguments = {
        "vocab": file.vocab(),
        "merges": file.merges(),
        "add_prefix_space": file.part("pre_tokenizer", "be ByteLevel with use_regex", splitters),
    }
    if isinstance(processor, dict):  # a template trims nothing
        arguments["trim_offsets"] = processor.get("trim_offsets", False)
    return arguments


#: RoBERTa's.
BYTE_LEVEL_BPE = Kind(
    "RobertaTokenizer",
    frozenset({"RobertaTokenizer", "BartTokenizer"}),
    model="BPE",
    from_json=partial(_bpe_arguments, nfc=False),
    originals={
        "vocab.json": lambda file: {"vocab": read_bpe_vocab(file), "source": str(file)},
        "merges.txt": lambda file: {"merges": read_merges(file), "merges_source": str(file)},
    },
    template=ROBERTA,
    flags=("add_prefix_space", "trim_offsets"),
    required={"errors": "replace"},
    names=BEGIN_AND_END,
    blank_before_mask=True,
)


def _fallback_arguments(file: TokenizerJson) -> dict[str, Any]:
    from bertkit.tokenization.backend import fallback_steps

    file.require_unset(*_ALTERING, "ignore_merges")
    file.require(fuse_unk=True, byte_fallback=True)
    normalizer, cut, decoder = fallback_steps(add_prefix_space=True)
    _, whole, _ = fallback_steps(add_prefix_space=False)
    file.part("normalizer", "replace each blank by '▁'", [(normalizer, None)])
    file.part("decoder", "replace '▁' by blanks and join bytes and tokens", [(decoder, None)])
    wanted = "be Metaspace that cuts before each '▁' and prepends one, or cut nowhere"
    adds = file.part("pre_tokenizer", wanted, [(cut, True), (whole, False), (None, False)])
    vocab, unknown = file.vocab(), file.model.get("unk_token")
    if unknown is None or file.content.get("post_processor") is None:
        raise CheckpointError(f"{file.path} has no {'model.unk_token' if unknown is None else 'post_processor'}")
    return {"vocab": vocab, "merges": file.merges(), "unk_token": unknown, "add_prefix_space": adds}


#: Gemma's, in the rows of mmBERT. Its only file is ``tokenizer.json``.
FALLBACK_BPE = Kind(
    "GemmaTokenizer",
    frozenset({"GemmaTokenizer"}),
    model="BPE",
    from_json=_fallback_arguments,
    originals={},
    template=MMBERT,
    flags=(),
    required={"add_bos_token": None, "add_eos_token": None},  # of a decoder: transformers sets up other rows for them
    names=BEGIN_AND_END,
    blank_before_mask=True,
    json_alone=True,
)
#: RoBERTa's for composed characters, in rows as BERT's.
MODERNBERT = BYTE_LEVEL_BPE._replace(
    name="ModernBertTokenizer",
    classes=frozenset({"ModernBertTokenizer"}),
    from_json=partial(_bpe_arguments, nfc=True),
    template=BERT,
    flags=("add_prefix_space",),
    names=PLAIN,
)
