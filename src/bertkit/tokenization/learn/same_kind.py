"""A new vocabulary for a tokenizer of any kind, by the trainers of the ``tokenizers`` package."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from tokenizers import AddedToken, Tokenizer, pre_tokenizers, trainers

from bertkit.errors import InputError, did_you_mean

TokenizerT = TypeVar("TokenizerT")
_TRAINERS = {
    "WordPiece": trainers.WordPieceTrainer,
    "BPE": trainers.BpeTrainer,
    "Unigram": trainers.UnigramTrainer,
}
_COMMON = ("new_special_tokens", "length", "show_progress", "initial_alphabet")
#: What the trainers take besides: those of word pieces and byte pairs, which merge, and the others by kind.
_MERGING = (*_COMMON, "min_frequency", "limit_alphabet", "continuing_subword_prefix", "end_of_word_suffix")
_OPTIONS = {
    "BPE": (*_MERGING, "max_token_length"),
    "Unigram": (*_COMMON, "shrinking_factor", "max_piece_length", "n_sub_iterations", "unk_token"),
}
#: Files that say nothing of the vocabulary.
_SETTINGS = ("tokenizer_config.json",)


def trained_again(
    tokenizer: TokenizerT, texts: Iterable[str | Sequence[str]], vocab_size: int, options: Mapping[str, Any]
) -> TokenizerT:
    """See :meth:`bertkit.tokenization.own_tokens.OwnTokens.train_new_from_iterator`."""
    old: Any = tokenizer
    content: dict[str, Any] = json.loads(old.backend_tokenizer.to_str())
    kind = content["model"]["type"]
    chosen = {"show_progress": False, **options}
    chosen.pop("length", None)
    special = [_token(each) for each in content.pop("added_tokens") if kind == "Unigram" or each["special"]]
    special += list(chosen.pop("new_special_tokens", None) or ())
    processor = content.pop("post_processor")
    _forget(content["model"], chosen)
    if "ByteLevel" in json.dumps(content["pre_tokenizer"]):
        chosen.setdefault("initial_alphabet", pre_tokenizers.ByteLevel.alphabet())
    engine = Tokenizer.from_str(json.dumps(content))
    known = _OPTIONS.get(kind, _MERGING)
    if unknown := next((name for name in chosen if name not in known), None):
        near = did_you_mean(unknown, known)
        raise InputError(f"training a {kind} vocabulary takes no {unknown!r}{near}; it takes {', '.join(known)}")
    trainer = _TRAINERS[kind](vocab_size=vocab_size, special_tokens=special, **chosen)
    engine.train_from_iterator(texts, trainer=trainer)
    found = {**json.loads(engine.to_str()), "post_processor": _renumbered(processor, engine)}
    with TemporaryDirectory() as name:
        folder = Path(name)
        for file in map(Path, old.save_pretrained(folder)):
            if file.name not in _SETTINGS:
                file.unlink()
                continue
            settings = json.loads(file.read_text(encoding="utf-8"))
            settings.pop("added_tokens_decoder", None)  # by their old ids
            file.write_text(json.dumps(settings), encoding="utf-8")
        (folder / "tokenizer.json").write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")
        made: Any = type(old).from_pretrained(folder)
    made.name_or_path = ""
    found_again: TokenizerT = made
    return found_again


def _token(values: Mapping[str, Any]) -> AddedToken:
    return AddedToken(**{name: value for name, value in values.items() if name not in ("id", "special")}, special=True)


def _forget(model: dict[str, Any], options: dict[str, Any]) -> None:
    """Empty a model of its vocabulary; what its trainer has to know of it goes into the options."""
    if model["type"] == "Unigram":
        unknown = model["vocab"][model["unk_id"]][0]
        model["vocab"], model["unk_id"] = [[unknown, 0.0]], 0
        options.setdefault("unk_token", unknown)
        return
    model["vocab"] = {}
    if model["type"] == "BPE":
        model["merges"] = []
        for name in ("continuing_subword_prefix", "end_of_word_suffix"):
            if model.get(name) is not None:
                options.setdefault(name, model[name])


def _renumbered(processor: dict[str, Any], engine: Tokenizer) -> dict[str, Any]:
    """The post-processor with the new ids of its special tokens."""
    for each in processor.get("special_tokens", {}).values():
        each["ids"] = [engine.token_to_id(token) for token in each["tokens"]]
    for name in ("cls", "sep"):
        if name in processor:
            token = processor[name][0]
            processor[name] = [token, engine.token_to_id(token)]
    return processor
