"""Tags of words and the entities they spell: BIO and its relatives.

A tag is ``O`` (outside), or a letter, a hyphen and a type: ``B-PER``. The letters depend on the scheme::

    words            Ann   B.    and   Bob   of    Rome
    BIO   (IOB2)     B     I     O     B     O     B       every entity begins with B
    IOB1             I     I     O     I     O     I       B only where an entity of the same type ends right before
    IO               I     I     O     I     O     I       never B: neighbours of one type become one entity
    BIOES            B     E     O     S     O     S       E at the end, S for one word; also written BILOU and BMEWO
    bare             PER   PER   O     PER   O     LOC     IO without letters

The letter may follow the type instead, ``PER-B``; see :func:`notation_of`.

One rule reads them all (:func:`read_entities`), and it is also the one repair rule for tags that fit no scheme, such as
an ``I-PER`` after ``O``: an entity begins at B and at S, and at any other tag that does not continue an entity of its
own type; it ends at E and at S, and where the next one begins or at ``O``. It is the rule of ``conlleval`` (Tjong
Kim Sang and De Meulder 2003) and the default of ``seqeval``, so scores are the same before and after the repair.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from bertkit.errors import InputError, did_you_mean

Scheme = Literal["BIO", "IOB1", "IO", "BIOES", "bare"]
#: Letters of the other ways to write BIOES, and what they are in it.
LETTERS = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S", "M": "I", "W": "S"}
OUTSIDE = "O"

_LETTERED = re.compile(r"(?P<letter>[BIESLUMW])-(?P<type>.+)", re.DOTALL)
_COMMON = re.compile(r"(?P<letter>[BI])-(?P<type>.+)", re.DOTALL)
_SUFFIXED = re.compile(r"(?P<type>.+)-(?P<letter>[BIESLUMW])", re.DOTALL)


class Entity(NamedTuple):
    """Words ``start ... end - 1`` of a sentence, and what they are."""

    type: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Notation:
    """How the tags of a data set or of a model are written.

    lettered: the letters of :data:`LETTERS` come with the type. Otherwise only ``B-`` and ``I-`` are taken as letters,
        and any other tag is a type as a whole: ``E-mail`` is no ending.
    suffix: the letter follows the type, as in ``PER-B``; what ``seqeval`` calls ``suffix=True``.
    """

    lettered: bool = True
    suffix: bool = False

    def split(self, tag: str) -> tuple[str, str]:
        """Letter (one of ``O B I E S``) and type of a tag; a bare tag has the letter I. ``O`` has no type."""
        return _split(tag, self.lettered, self.suffix)


def _pattern(lettered: bool, suffix: bool) -> re.Pattern[str]:
    return _SUFFIXED if suffix else _LETTERED if lettered else _COMMON


@lru_cache(maxsize=4096)
def _split(tag: str, lettered: bool, suffix: bool) -> tuple[str, str]:
    if tag == OUTSIDE:
        return OUTSIDE, ""
    found = _pattern(lettered, suffix).fullmatch(tag)
    return (LETTERS[found["letter"]], found["type"]) if found else ("I", tag)


LETTERED_TAGS = Notation()


def notation_of(tags: Iterable[str]) -> Notation:
    """How these tags are written; every different tag need be given only once.

    They are lettered when all of them are, or when a type has another letter as well as ``B`` or ``I``: ``E-PER``
    beside ``B-PER`` is an ending whatever single tag was mistyped elsewhere, ``E-mail`` is not. The letter follows the
    type when it does in all tags, in some it does not also precede it, and a type has the letter I and another:
    ``PER-B`` beside ``PER-I``, but not ``vitamin-B`` beside ``vitamin-E``.
    """
    entities = {tag for tag in tags if tag != OUTSIDE}
    found = [_LETTERED.fullmatch(tag) for tag in entities]
    behind = [_SUFFIXED.fullmatch(tag) for tag in entities]
    if not all(found) and all(behind):
        letters: dict[str, set[str]] = {}
        for match in behind:
            assert match is not None
            letters.setdefault(match["type"], set()).add(match["letter"])
        if any("I" in used and len(used) > 1 for used in letters.values()):
            return Notation(suffix=True)
    common = {match["type"] for match in found if match and match["letter"] in "BI"}
    others = {match["type"] for match in found if match and match["letter"] not in "BI"}
    return Notation(all(found) or bool(common & others))


def read_entities(tags: Sequence[str], notation: Notation = LETTERED_TAGS) -> list[Entity]:
    """The entities that the tags of one sentence spell, by the rule at the top of this module."""
    found: list[Entity] = []
    start, before, kind = 0, OUTSIDE, ""
    for place, tag in enumerate([*tags, OUTSIDE]):
        letter, own = notation.split(tag)
        goes_on = letter in "IE" and before in ("B", "I") and own == kind
        if before != OUTSIDE and not goes_on:
            found.append(Entity(kind, start, place))
        if not goes_on:
            start = place
        before, kind = letter, own
    return found


def read_strictly(
    tags: Sequence[str], scheme: Literal["BIO", "BIOES"] = "BIO", notation: Notation = LETTERED_TAGS
) -> list[Entity]:
    """Only the entities that are spelled as the scheme demands, as in ``seqeval``'s strict mode.

    Of BIO: what begins with B. Of BIOES: a single S, or what begins with B and ends with E.
    """
    if scheme not in ("BIO", "BIOES"):
        raise InputError(
            f"the strict scheme must be BIO or BIOES, got {scheme!r}{did_you_mean(str(scheme), ['BIO', 'BIOES'])}"
        )
    parts = [notation.split(tag) for tag in tags]
    wrong = next((tag for tag, (letter, _) in zip(tags, parts, strict=True) if letter not in "O" + scheme), None)
    if wrong is not None:
        raise InputError(f"tag {wrong!r} does not belong to the scheme {scheme}")
    found = []
    place = 0
    while place < len(parts):
        letter, kind = parts[place]
        end = place + 1
        if letter == "B":
            while end < len(parts) and parts[end] == ("I", kind):
                end += 1
            if scheme == "BIO":
                found.append(Entity(kind, place, end))
            elif end < len(parts) and parts[end] == ("E", kind):
                end += 1
                found.append(Entity(kind, place, end))
        elif letter == "S":
            found.append(Entity(kind, place, end))
        place = end
    return found


def write_tags(entities: Iterable[Entity], num_words: int, scheme: Scheme = "BIO") -> list[str]:
    """Tags of ``num_words`` words that spell the entities in a scheme; InputError if they overlap or do not fit."""
    tags = [OUTSIDE] * num_words
    before = Entity("", 0, 0)
    for entity in sorted(entities, key=lambda entity: entity.start):
        kind, start, end = entity
        if not before.end <= start < end <= num_words:
            raise InputError(f"{entity} overlaps {before} or leaves a sentence of {num_words} words")
        touches = before.end == start and before.type == kind
        if scheme == "bare":
            tags[start:end] = [kind] * (end - start)
        else:
            tags[start:end] = [f"I-{kind}"] * (end - start)
            if scheme in ("BIO", "BIOES") or (scheme == "IOB1" and touches):
                tags[start] = f"B-{kind}"
            if scheme == "BIOES":
                tags[end - 1] = f"E-{kind}" if end - start > 1 else f"S-{kind}"
        before = entity
    return tags


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a whole data set is tagged: the scheme that its tags break least, and how many tags had to be repaired."""

    scheme: Scheme
    notation: Notation
    types: tuple[str, ...]
    repaired: int
    entities: dict[str, int]


def spelling_of(sentences: Sequence[Sequence[str]]) -> Spelling:
    """Infer how sentences are tagged, of the tags of each."""
    used = {tag for tags in sentences for tag in tags}
    notation = notation_of(used)
    letters = {notation.split(tag)[0] for tag in used} - {OUTSIDE}
    read = [read_entities(tags, notation) for tags in sentences]
    candidates: tuple[Scheme, ...]
    pattern = _pattern(notation.lettered, notation.suffix)
    if not any(pattern.fullmatch(tag) for tag in used):
        candidates = ("bare",) if used - {OUTSIDE} else ("BIO",)
    elif letters & {"E", "S"}:
        candidates = ("BIOES",)
    else:
        candidates = ("BIO", "IOB1") if "B" in letters else ("IO",)
    faults, written = {}, Notation(notation.lettered)  # write_tags puts the letter first
    for scheme in candidates:  # tags that differ from those that spell the same entities in the scheme
        faults[scheme] = sum(
            notation.split(tag) != written.split(right)
            for tags, entities in zip(sentences, read, strict=True)
            for tag, right in zip(tags, write_tags(entities, len(tags), scheme), strict=True)
        )
    scheme = min(faults, key=faults.__getitem__)
    counts = Counter(entity.type for entities in read for entity in entities)
    types = tuple(sorted(counts))
    return Spelling(scheme, notation, types, faults[scheme], {kind: counts[kind] for kind in types})
