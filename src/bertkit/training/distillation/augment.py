"""More texts for a teacher to label: words are replaced by what a masked language model or word vectors put there.

Jiao et al. 2020, "TinyBERT", section 3 and algorithm 1. A text is kept, and varied some times: each word of letters
that is no stop word is replaced, with a probability, by one of its candidates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from bertkit.inference.fill_mask import FillMaskPipeline
from bertkit.inference.sentence_encoder import SentenceEncoder
from bertkit.metrics.nearest import directions, nearest
from bertkit.system.console import Progress, quiet

#: Words that are varied: letters, with nothing else at either end.
_WORD = re.compile(r"(?<![\w'’-])[A-Za-z]+(?![\w'’-])")
#: Most different words that are looked at for neighbours, the most frequent ones.
MOST_WORDS = 100_000
#: Texts whose masked words are guessed together.
AT_ONCE = 64


def augmented(
    texts: Sequence[tuple[str, ...]],
    copies: int,
    *,
    vectors: SentenceEncoder,
    masked: FillMaskPipeline | None = None,
    candidates: int = 15,
    share: float = 0.4,
    seed: int = 0,
) -> list[tuple[str, ...]]:
    """Variants of texts and pairs, each once, none of the originals; a pure function of its arguments.

    Each text is tried ``copies`` times; of a pair one text is varied at a time. ``masked`` guesses words that are one
    token, from the text with the word masked and then the whole text; None: nearest words for all.

    Deviates from the published code: words near to another are those of the texts and not GloVe's, and their vectors
    come from the encoder; scikit-learn's stop words; blanks, capitals elsewhere and marks stay as they are; the other
    text of a pair stays the original.
    """
    stop = _stop_words()
    near = _neighbours(list(chain.from_iterable(texts)), vectors, candidates, stop)
    generator = np.random.default_rng(seed)
    known, found = set(texts), dict[tuple[str, ...], None]()
    with Progress(len(texts), label="varying texts", unit="texts") as bar:
        for start in range(0, len(texts), AT_ONCE):
            part = texts[start : start + AT_ONCE]
            sides = [(row, side) for row in part for side in range(len(row))]
            choices = _choices([row[side] for row, side in sides], near, masked, candidates, stop)
            for (row, side), places in zip(sides, choices, strict=True):
                for _ in range(copies):
                    text = _varied(row[side], places, share, generator)
                    variant = (*row[:side], text, *row[side + 1 :])
                    if variant not in known:
                        found[variant] = None
            bar.advance(len(part))
    return list(found)


#: Where a word begins and ends in a text -> what may stand there.
Places = Mapping[tuple[int, int], Sequence[str]]


def _varied(text: str, places: Places, share: float, generator: np.random.Generator) -> str:
    parts, at = [], 0
    for (begin, end), words in places.items():
        draw, pick = generator.random(), generator.random()
        if draw < share and words:
            parts += [text[at:begin], words[int(pick * len(words))]]
            at = end
    return "".join([*parts, text[at:]])


def _stop_words() -> frozenset[str]:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return frozenset(ENGLISH_STOP_WORDS)


def _words(text: str, stop: frozenset[str]) -> list[re.Match[str]]:
    return [found for found in _WORD.finditer(text) if found[0].lower() not in stop]


def _choices(
    texts: Sequence[str],
    near: Mapping[str, Sequence[str]],
    masked: FillMaskPipeline | None,
    candidates: int,
    stop: frozenset[str],
) -> list[Places]:
    """For each text its words and what may take their place."""
    words = [(number, found) for number, text in enumerate(texts) for found in _words(text, stop)]
    guesses = {} if masked is None else _guesses(texts, words, masked, candidates)
    places: list[dict[tuple[int, int], Sequence[str]]] = [{} for _ in texts]
    for number, found in words:
        own = found[0].lower()
        options = guesses.get((number, found.start()), near.get(own, ()))
        places[number][found.span()] = [option for option in options if option.lower() != own]
    return list(places)


def _guesses(
    texts: Sequence[str], words: Sequence[tuple[int, re.Match[str]]], masked: FillMaskPipeline, candidates: int
) -> dict[tuple[int, int], Sequence[str]]:
    """By number of the text and place: what a masked language model puts there, for words of one token."""
    tokenizer, asked, given = masked.tokenizer, list[tuple[int, int]](), list[str]()
    for number, found in words:
        # A token has at least one character, so that such a mask is never cut off.
        if found.end() < tokenizer.model_max_length - 2 and len(tokenizer.tokenize(found[0])) == 1:
            text = texts[number]
            hidden = f"{text[: found.start()]}{tokenizer.mask_token}{text[found.end() :]}"
            asked.append((number, found.start()))
            given.append(f"{hidden} {tokenizer.sep_token} {text}")
    if not given:
        return {}
    with quiet():
        said: Any = masked(given, top_k=candidates, truncation=True)
    pieces = [[str(option["token_str"]).strip() for option in options] for options in said]
    return {
        place: [piece for piece in each if _WORD.fullmatch(piece)] for place, each in zip(asked, pieces, strict=True)
    }


def _neighbours(
    texts: Sequence[str], vectors: SentenceEncoder, count: int, stop: frozenset[str]
) -> dict[str, list[str]]:
    counts: dict[str, int] = {}
    for text in texts:
        for found in _words(text, stop):
            counts[found[0].lower()] = counts.get(found[0].lower(), 0) + 1
    words = sorted(counts, key=lambda word: (-counts[word], word))[:MOST_WORDS]
    if len(words) < 2:
        return {}
    with quiet():
        unit = directions(vectors.encode(words, truncation=True))
    depth = min(count + 1, len(words))
    found_WK, _ = nearest(unit, unit, depth)
    return {
        word: [words[other] for other in others if other != number][:count]
        for number, (word, others) in enumerate(zip(words, found_WK.tolist(), strict=True))
    }
