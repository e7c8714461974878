"""A new vocabulary for a tokenizer of any kind, by the trainers of the ``tokenizers`` package."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from tokenizers import AddedToken, Tokenizer, pre_tokenizers, trainers

from bertkit.errors import InputError

if TYPE_CHECKING:
    from bertkit.tokenization.own_tokens import OwnTokens
    from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

TokenizerT = TypeVar("TokenizerT", bound="OwnTokens")
_TRAINERS = {
    "WordPiece": trainers.WordPieceTrainer,
    "BPE": trainers.BpeTrainer,
    "Unigram": trainers.UnigramTrainer,
}
#: Files that say nothing of the vocabulary.
_SETTINGS = ("tokenizer_config.json",)


def trained_again(
    tokenizer: TokenizerT, texts: Iterable[str | Sequence[str]], vocab_size: int, options: Mapping[str, Any]
) -> TokenizerT:
    """See :meth:`bertkit.tokenization.own_tokens.OwnTokens.train_new_from_iterator`."""
    old: PreTrainedTokenizer = tokenizer  # type: ignore[assignment]  # which all are
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
    try:
        trainer = _TRAINERS[kind](vocab_size=vocab_size, special_tokens=special, **chosen)
    except TypeError as error:
        raise InputError(f"the trainer of {kind} does not take this: {error}") from None
    engine.train_from_iterator(texts, trainer=trainer)
    found = {**json.loads(engine.to_str()), "post_processor": _renumbered(processor, engine)}
    with TemporaryDirectory() as name:
        folder = Path(name)
        for file in map(Path, old.save_pretrained(folder)):
            if file.name not in _SETTINGS:
                file.unlink()
        (folder / "tokenizer.json").write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")
        made = type(tokenizer).from_pretrained(folder)  # type: ignore[attr-defined]
    made.name_or_path = ""
    return made  # type: ignore[no-any-return]


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
