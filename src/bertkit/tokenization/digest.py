"""What determines the ids that a tokenizer gives, as one number."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields

from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

#: Fields of a vocabulary that change no id: which names are public, and offsets. ``added`` says how the mask is found.
_WITHOUT_IDS = ("names", "blank_before_mask", "trim_offsets")


def tokenizer_digest(tokenizer: PreTrainedTokenizer) -> str:
    """SHA-256 of everything that determines the ids of a text: equal for a tokenizer and its saved copy."""
    vocabulary = tokenizer._vocabulary
    parts = {
        **{each.name: getattr(vocabulary, each.name) for each in fields(vocabulary) if each.compare},
        "vocab": sorted(tokenizer.vocab.items(), key=lambda item: item[1]),
        "added": [token._asdict() for token in sorted(vocabulary.never_split, key=lambda token: token.id)],
    }
    for name in _WITHOUT_IDS:
        parts.pop(name, None)
    if (table := parts.get("charsmap")) is not None:  # SentencePiece's table of replacements: bytes
        parts["charsmap"] = hashlib.sha256(table).hexdigest()
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
