"""``WordVectors``: words, a vector for each, and what lies near what."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from bertkit.checkpoints.static_folder import static_folder
from bertkit.engine.static.static_backend import load_static_tokenizer
from bertkit.engine.static.vector_files import TEXT_ENDINGS, read_vectors, write_vectors
from bertkit.errors import ConfigError, DataError, InputError, shorten
from bertkit.metrics.nearest import directions, nearest
from bertkit.ragged import Floats
from bertkit.system.model_sources import resolve
from bertkit.system.paths import user_path
from bertkit.system.untrusted_files import Json
from bertkit.tokenization.characters import SURROGATE
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

#: Words among which misspelled ones are looked for.
_SPELLINGS = 50_000


class Neighbor(NamedTuple):
    """A word, and the cosine of its vector with what was asked for."""

    word: str
    score: float


@dataclass(frozen=True, slots=True)
class Coverage:
    """The words of texts that a word list has not, and what WordPiece makes of them.

    words, different: of the texts. unknown, different_unknown: not in the list. readable: of the different unknown
    ones, those that the tokenizer reads without its unknown token. pieces: tokens of a readable one, on average.
    examples: unknown words, the most frequent first, with their pieces.
    """

    words: int
    different: int
    unknown: int
    different_unknown: int
    readable: int
    pieces: float
    examples: tuple[tuple[str, int, str], ...]

    def to_dict(self) -> dict[str, Json]:
        """For JSON."""
        return {**asdict(self), "examples": [list(example) for example in self.examples]}

    def render(self) -> str:
        """For people."""
        share, types = self.unknown / self.words, self.different_unknown / self.different
        lines = [
            f"{self.words:,} words, {self.different:,} different ones",
            f"not in the word list: {self.unknown:,} ({share:.1%}), {self.different_unknown:,} different ({types:.1%})",
        ]
        if self.different_unknown:
            read = self.readable / self.different_unknown
            lines.append(f"read by the tokenizer: {read:.1%} of the different ones, in {self.pieces:.1f} pieces each")
        return "\n".join([*lines, *(f"  {count:>6,}  {word}  ->  {pieces}" for word, count, pieces in self.examples)])


class WordVectors:
    """Words and a vector for each.

    Args:
        words: V different words.
        vectors: ``(V, D)``, finite.
        tokenizer: of vectors of word pieces: with it a word that is not in the list has the mean of its pieces.

    Raises:
        InputError: no words, another number of vectors, a word twice, a value that is not finite.
    """

    def __init__(self, words: Sequence[str], vectors: Floats, *, tokenizer: PreTrainedTokenizer | None = None) -> None:
        self.words, self.vectors = tuple(words), np.asarray(vectors, np.float32)
        self._tokenizer = tokenizer
        if not self.words or self.vectors.ndim != 2 or len(self.vectors) != len(self.words):
            raise InputError(f"{len(self.words):,} words need as many vectors, got the shape {self.vectors.shape}")
        if not np.isfinite(self.vectors).all():
            row = int(np.argmin(np.isfinite(self.vectors).all(axis=1)))
            raise InputError(f"the vector of {self.words[row]!r} has a value that is not finite")
        self._rows = {word: row for row, word in enumerate(self.words)}
        if len(self._rows) < len(self.words):
            twice = next(word for word, count in Counter(self.words).items() if count > 1)
            raise InputError(f"the word {twice!r} has more than one vector")

    @classmethod
    def load(cls, path: str | Path, *, max_words: int | None = None) -> Self:
        """Read a text file (word2vec, GloVe, fastText; also ``.gz``), or a folder of word vectors, of model2vec too.

        max_words: read only so many; such files begin with the most frequent words.

        Raises:
            DataError, ResourceError: see :func:`bertkit.engine.static.vector_files.read_vectors`.
            CheckpointError: a folder that has no word vectors, or damaged ones.
        """
        if max_words is not None and max_words < 1:
            raise ConfigError(f"max_words must be a whole number from 1, got {max_words}")
        file = user_path(path)
        if file.name.endswith(TEXT_ENDINGS):
            return cls(*read_vectors(file, max_words))
        found = static_folder(resolve(path))
        if found is None:
            raise DataError(
                f"{path} has no word vectors: expected a file ending in {', '.join(TEXT_ENDINGS)}, or a folder that "
                "'bertkit word-vectors distill' or model2vec wrote"
            )
        tokenizer, table = load_static_tokenizer(found), found.read_table()
        special = set(tokenizer.all_special_ids)
        kept = [row for row in range(min(len(table), len(tokenizer))) if row not in special and table[row].any()]
        return cls(tokenizer.convert_ids_to_tokens(kept[:max_words]), table[kept[:max_words]], tokenizer=tokenizer)

    def save(self, path: str | Path) -> Path:
        """Write word2vec's text format: ``.vec`` or ``.txt``, with ``.gz`` behind it compressed."""
        file = user_path(path)
        if not file.name.endswith(TEXT_ENDINGS):
            raise ConfigError(f"{file}: unknown format; the name must end in {', '.join(TEXT_ENDINGS)}")
        write_vectors(file, self.words, self.vectors)
        return file

    def __len__(self) -> int:
        """How many words there are."""
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        """Whether a word is in the list."""
        return word in self._rows

    def __getitem__(self, word: str) -> Floats:
        """The vector of a word ``(D,)``; with a tokenizer, of one that is not in the list, the mean of its pieces.

        Of a list in lower case a word with capitals is found in lower case, and where the list has no accents either,
        without them.

        Raises:
            InputError: an unknown word; names those that are spelled alike.
        """
        known = self._known(word)
        if known is not None:
            found: Floats = self.vectors[self._rows[known]]
            return found
        if self._tokenizer is not None:
            pieces = self._tokenizer.tokenize(word)
            if pieces and all(piece in self._rows for piece in pieces):
                mean: Floats = self.vectors[[self._rows[piece] for piece in pieces]].mean(axis=0)
                return mean
        raise InputError(f"{word!r} is not among the {len(self):,} words{self._spelled_like(word)}")

    def _known(self, word: str) -> str | None:
        """A word as the list has it."""
        if word in self._rows:
            return word
        normal = _normalizer(self._lower, self._strips_accents).normalize_str(SURROGATE.sub("\ufffd", word))
        return normal if normal in self._rows else None

    @cached_property
    def _lower(self) -> bool:
        """Whether the list has no capitals."""
        return not any(word != word.lower() for word in self.words[:_SPELLINGS] if not word.startswith("["))

    @cached_property
    def _strips_accents(self) -> bool:
        """Whether the list has no accents either, nor letters that stripping them takes apart, as those of Korean."""
        return self._lower and all(_STRIPPED.normalize_str(word) == word for word in self.words[:_SPELLINGS])

    def _spelled_like(self, word: str) -> str:
        near = [each for each in (word.lower(), word.capitalize(), word.upper()) if each in self._rows]
        if not near:
            near = difflib.get_close_matches(word, self.words[:_SPELLINGS], n=3)
        return f"; near it: {', '.join(near)}" if near else ""

    @cached_property
    def _directions(self) -> Floats:
        return directions(self.vectors)

    def nearest(self, word: str | Floats, top_k: int = 10) -> list[Neighbor]:
        """The words whose vectors have the largest cosines with that of a word (not itself), or with a vector."""
        if isinstance(word, str):
            return self._nearest(self[word], {word, self._known(word)}, top_k)
        return self._nearest(np.asarray(word, np.float32), set(), top_k)

    def analogy(self, a: str, b: str, c: str, top_k: int = 5) -> list[Neighbor]:
        """What is to ``c`` as ``b`` is to ``a``: near ``b - a + c`` (Mikolov et al. 2013), without these three."""
        unit_a, unit_b, unit_c = directions(np.stack([self[a], self[b], self[c]]))
        return self._nearest(unit_b - unit_a + unit_c, {a, b, c, *map(self._known, (a, b, c))}, top_k)

    def _nearest(self, vector_D: Floats, without: set[str | None], top_k: int) -> list[Neighbor]:
        if top_k < 1:
            raise ConfigError(f"top_k must be a whole number from 1, got {top_k}")
        if vector_D.shape != self.vectors.shape[1:]:
            raise InputError(f"vectors have {self.vectors.shape[1]} numbers, got the shape {vector_D.shape}")
        numbers, scores = nearest(directions(vector_D)[None], self._directions, min(top_k + len(without), len(self)))
        found = (
            Neighbor(self.words[n], float(s)) for n, s in zip(numbers[0].tolist(), scores[0].tolist(), strict=True)
        )
        return [each for each in found if each.word not in without][:top_k]

    def coverage(self, texts: Iterable[str], tokenizer: PreTrainedTokenizer, *, examples: int = 10) -> Coverage:
        """The words of texts that are not in this list, and how many of them a tokenizer reads all the same.

        Words are those of BERT: between white space and punctuation; in lower case unless the list has capitals, and
        then without accents unless the list has some.
        """
        lower, strips = self._lower, self._strips_accents
        counts = Counter(word for text in texts for word in split_words(text, lower=lower, strip_accents=strips))
        if not counts:
            raise DataError("the texts have no words")
        unknown = {word: count for word, count in counts.most_common() if word not in self._rows}
        pieces = {word: tokenizer.tokenize(word) for word in unknown}
        read = {word: found for word, found in pieces.items() if found and tokenizer.unk_token not in found}
        shown = list(unknown)[:examples]
        return Coverage(
            words=counts.total(),
            different=len(counts),
            unknown=sum(unknown.values()),
            different_unknown=len(unknown),
            readable=len(read),
            pieces=sum(map(len, read.values())) / max(1, len(read)),
            examples=tuple((word, unknown[word], shorten(pieces[word], limit=8)) for word in shown),
        )


_PRE_TOKENIZER = BertPreTokenizer()
_STRIPPED = BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)


@cache
def _normalizer(lower: bool, strip_accents: bool) -> BertNormalizer:
    return BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=strip_accents, lowercase=lower)


def split_words(text: str, *, lower: bool = True, strip_accents: bool | None = None) -> list[str]:
    """The words of a text as BERT has them before it cuts them into pieces; punctuation marks are words too.

    strip_accents: None: in lower case, as BERT does.
    """
    normalizer = _normalizer(lower, lower if strip_accents is None else strip_accents)
    normal = normalizer.normalize_str(SURROGATE.sub("\ufffd", text))
    return [word for word, _ in _PRE_TOKENIZER.pre_tokenize_str(normal)]
