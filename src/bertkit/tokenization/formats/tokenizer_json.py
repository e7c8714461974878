"""``tokenizer.json``, the format of the ``tokenizers`` package, which can describe any tokenizer.

A file is accepted if the package makes of each part the same as of the tokenizer here. Truncation and padding are
ignored: they are left over from the last call before saving. The package does not get the whole file, because it is too
lenient (it takes the last of two equal keys, any ``unk_token``, and gives added tokens the next free ids whatever the
file says), and a damaged table of characters makes it abort.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from bertkit.errors import CheckpointError
from bertkit.system.untrusted_files import Json
from bertkit.tokenization.formats.large_merges import parse_merges, read_large_json
from bertkit.tokenization.formats.tokenizer_files import Merges
from bertkit.tokenization.post_processors import Description, post_processors
from bertkit.tokenization.templates import Template
from bertkit.tokenization.vocabulary import AddedToken

if TYPE_CHECKING:
    from tokenizers import decoders, normalizers, pre_tokenizers

Value = TypeVar("Value")
Part: TypeAlias = "normalizers.Normalizer | pre_tokenizers.PreTokenizer | decoders.Decoder"

_FLAGS = ("special", "normalized", "lstrip", "rstrip", "single_word")
#: Scores are logarithms of probabilities, or near them.
MAX_SCORE = 1e9
#: Largest id that fits the arrays of ids.
_MAX_ID = 2**31 - 1
#: Settings of a model by which its kind is known where it has no ``type``.
_HINTS = {"merges": "BPE", "unk_id": "Unigram", "max_input_chars_per_word": "WordPiece"}


def model_of(content: Mapping[str, Json]) -> tuple[str | None, dict[str, Json]]:
    """The kind of a file's model, ``"WordPiece"``, ``"BPE"`` or ``"Unigram"``, and its settings."""
    model = content.get("model")
    if not isinstance(model, dict):
        return None, {}
    kind = model.get("type", next((kind for key, kind in _HINTS.items() if key in model), None))
    return (None if kind is None else str(kind)), model


class TokenizerJson:
    """A file with a model of one kind, or a CheckpointError.

    reader: the class that reads it, for messages. vocab: the vocabulary of another file, see :func:`read_large_json`.
    """

    def __init__(self, path: Path, kind: str, reader: str, vocab: Mapping[str, int] | None = None) -> None:
        self.path, self.reader = path, reader
        self.content, self._merges = read_large_json(path, vocab)
        found, self.model = model_of(self.content)
        if not self.model:
            said = f"{self.content.get('model')!r:.80}; is it a tokenizer?"
            raise CheckpointError(f"{path}: model must be an object, got {said}")
        if found != kind:
            raise CheckpointError(f"{path} holds a {found} model; {reader} reads {kind}")
        self._ids: dict[str, int] = {}

    def vocab(self) -> dict[str, int]:
        """The vocabulary of a WordPiece or BPE model, in which its ``unk_token`` must be."""
        self._ids, unknown = ids_of(self.model.get("vocab"), f"{self.path}: model.vocab"), self.model.get("unk_token")
        if unknown is not None and not (isinstance(unknown, str) and unknown in self._ids):
            raise CheckpointError(f"{self.path}: model.unk_token is {unknown!r:.80}, which is not in model.vocab")
        return self._ids

    def merges(self) -> Merges:
        """The merges of a BPE model. Call it after :meth:`vocab`."""
        if self._merges:
            return parse_merges(self._merges, self._ids, self.path)
        values, merges = self.model.get("merges"), []
        if not isinstance(values, list):
            raise CheckpointError(f"{self.path}: model.merges must be a list of pairs, got {values!r:.80}")
        for number, value in enumerate(values):
            match value.split(" ") if isinstance(value, str) else value:  # "a b" is the older form
                case [str(left), str(right)]:
                    merges.append((left, right))
                case _:
                    raise CheckpointError(f"{self.path}: merge {number:,} must be two tokens, got {value!r:.80}")
        return tuple(merges)

    def pieces(self) -> tuple[tuple[tuple[str, float], ...], str]:
        """The pieces of a unigram model with their scores, and the one for unknown text."""
        vocab, unknown = self.model.get("vocab"), self.model.get("unk_id")
        if not isinstance(vocab, list) or not vocab:
            raise CheckpointError(f"{self.path}: model.vocab must be a list of pieces and their scores")
        pieces: list[tuple[str, float]] = []
        for number, value in enumerate(vocab):
            piece, score = value if isinstance(value, list) and len(value) == 2 else (None, None)
            is_piece = isinstance(piece, str) and not isinstance(score, bool)
            if not is_piece or not isinstance(score, int | float) or not abs(score) < MAX_SCORE:
                raise CheckpointError(
                    f"{self.path}: piece {number:,} must be a text and a score, got {str(value)[:80]}"
                )
            pieces.append((str(piece), float(score)))
        if not isinstance(unknown, int) or isinstance(unknown, bool) or not 0 <= unknown < len(pieces):
            raise CheckpointError(f"{self.path}: model.unk_id must be the place of a piece, got {unknown!r:.80}")
        self._ids = {piece: at for at, (piece, _) in enumerate(pieces)}
        return tuple(pieces), pieces[unknown][0]

    def require_unset(self, *settings: str) -> None:
        """Refuse settings of the model that are neither absent nor null, false, 0 or empty."""
        for key in settings:
            if self.model.get(key):
                raise CheckpointError(
                    f"{self.path}: model.{key} is {self.model[key]!r}, which bertkit does not implement"
                )

    def require(self, **settings: Json) -> None:
        """Refuse other values of settings of the model, also none."""
        for key, needed in settings.items():
            if (found := self.model.get(key)) != needed or type(found) is not type(needed):
                raise CheckpointError(
                    f"{self.path}: model.{key} is {found!r:.80}; {self.reader} computes only {key}={needed!r}"
                )

    def part(self, key: str, wanted: str, computed: Sequence[tuple[Part | Description | None, Value]]) -> Value:
        """What the part ``key`` of the file means, by the parts of the package in ``computed``; others are refused.

        ``computed``: the parts, or how the package describes them.
        """
        part = self.content.get(key)
        known = [(_described(each), value) for each, value in computed]
        spelled = json.dumps(part, sort_keys=True)  # in which true is not 1
        for each, value in known:
            if json.dumps(each, sort_keys=True) == spelled:
                return value
        from tokenizers import Tokenizer

        text = json.dumps({"added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}, key: part})
        with contextlib.suppress(Exception):  # the package raises nothing more precise
            if "Precompiled" not in text and "Regex" not in text:  # hostile ones can abort the package, or occupy it
                found = json.loads(Tokenizer.from_str(text).to_str())[key]  # with defaults, and in today's spelling
                return next(value for each, value in known if each == found)
        raise CheckpointError(f"{self.path}: the {key} must {wanted}, got {str(part)[:300]}")

    def tokens(self, template: Template) -> dict[str, str | Template | tuple[AddedToken, ...]]:
        """``added_tokens``, and ``template``, ``cls_token`` and ``sep_token`` where a ``post_processor`` names them.

        Call it after :meth:`vocab` or :meth:`pieces`; other ids or other places of special tokens are refused.
        """
        listed = self.content.get("added_tokens") or []
        if not isinstance(listed, list):
            raise CheckpointError(f"{self.path}: added_tokens must be a list, got a {type(listed).__name__}")
        added = tuple(added_token(token, self.path) for token in listed)
        for token in added:
            if self._ids.get(token.content, token.id) != token.id:
                raise CheckpointError(
                    f"{self.path}: the added token {token.content[:80]!r} has the id {token.id}, but "
                    f"{self._ids[token.content]} in model.vocab"
                )
        processor = self.content.get("post_processor")
        if processor is None:
            return {"added_tokens": added}
        names = _names(processor)
        ids = {token.content: token.id for token in added}
        numbers = [self._ids.get(name, ids.get(name, 0)) for name in names]
        computed = post_processors(template, *zip(names, numbers, strict=True))
        places = (
            "[CLS] " * template.begins + "A" + " [SEP]" * template.between + " B [SEP], by their ids in model.vocab"
        )
        found = self.part("post_processor", f"put {places}", computed)
        first = {"cls_token": names[0]} if template.begins else {}
        return {"added_tokens": added, "template": found, "sep_token": names[1], **first}


def _described(part: Part | Description | None) -> Description | None:
    return part if part is None or isinstance(part, dict) else json.loads(part.__getstate__())


def ids_of(vocab: Json, where: str) -> dict[str, int]:
    """A vocabulary with ids, not empty."""
    pairs = vocab if isinstance(vocab, dict) else {}
    numbers = pairs.values()
    if set(map(type, numbers)) != {int} or min(numbers) < 0 or max(numbers) > _MAX_ID:
        wrong = {each: id for each, id in pairs.items() if type(id) is not int or not 0 <= id <= _MAX_ID}
        said = f"must be an object of tokens and their whole numbers, 0 to {_MAX_ID:,}"
        raise CheckpointError(f"{where} {said}, got {str(wrong or vocab)[:80]}")
    return pairs


def added_token(values: Json, where: Path, number: Json = None) -> AddedToken:
    """An added token as files describe it; ``number`` in place of its own ``id``."""
    described = values if isinstance(values, dict) else {}
    content, number = described.get("content"), described.get("id") if number is None else number
    if not isinstance(content, str) or not content:
        raise CheckpointError(f"{where}: an added token must have a content, got {str(values)[:200]}")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _MAX_ID:
        raise CheckpointError(
            f"{where}: the added token {content[:80]!r} must have an id from 0 to {_MAX_ID:,}, got {number!r:.80}"
        )
    return AddedToken(content, number, **{flag: bool(described.get(flag, flag == "special")) for flag in _FLAGS})


def _names(processor: Json) -> tuple[str, str]:
    """The tokens before and behind a text by a post-processor; empty where it names none."""
    match processor:
        case {"single": [{"SpecialToken": {"id": first}}, _, {"SpecialToken": {"id": last}}]}:
            return str(first), str(last)
        case {"single": [_, {"SpecialToken": {"id": last}}]}:
            return "", str(last)
        case {"cls": [first, *_], "sep": [last, *_]}:
            return str(first), str(last)
        case _:
            return "", ""
