"""A word to unigram pieces, readably: of all ways to cut it, the one whose pieces have the largest sum of scores.

(Kudo 2018, "Subword regularization", section 3.2: the Viterbi segmentation.) What the word is made of, such as ``▁``
in front and replaced characters, is not the matter here: the ``tokenizers`` package does that to text. This is the
reference for its model.
"""

from __future__ import annotations

from collections.abc import Iterable

from bertkit.tokenization.reference import Piece

#: A character that no piece covers is worse than the worst piece by this much.
UNKNOWN_PENALTY = 10.0


class UnigramModel:
    """The best pieces of a word.

    Args:
        pieces: the known pieces and their scores.
        unk_token: stands for characters that no piece covers; several in a row are one token.
    """

    def __init__(self, pieces: Iterable[tuple[str, float]], unk_token: str) -> None:
        self.scores = dict(pieces)
        self.unk_token = unk_token
        self.unk_score = min(self.scores.values()) - UNKNOWN_PENALTY
        self._longest = max(map(len, self.scores))

    def pieces(self, word: str) -> list[Piece]:
        """Pieces of one word, with their places in the word."""
        # For each place: the score of the best way to get there, where its last piece begins, whether that is known.
        best: list[tuple[float, int, bool] | None] = [(0.0, 0, True), *[None] * len(word)]
        for start in range(len(word)):
            here = best[start]
            assert here is not None
            steps = [
                (here[0] + self.scores[word[start:end]], end, True)
                for end in range(start + 1, min(start + self._longest, len(word)) + 1)
                if word[start:end] in self.scores
            ]
            if not any(end == start + 1 for _, end, _ in steps):
                steps.append((here[0] + self.unk_score, start + 1, False))
            for score, end, known in steps:
                there = best[end]
                if there is None or score > there[0]:
                    best[end] = (score, start, known)
        return self._read_back(word, best)

    def _read_back(self, word: str, best: list[tuple[float, int, bool] | None]) -> list[Piece]:
        pieces: list[Piece] = []
        end = len(word)
        while end:
            node = best[end]
            assert node is not None
            _, start, known = node
            if not known and pieces and pieces[-1].token == self.unk_token and pieces[-1].start == end:
                pieces[-1] = Piece(self.unk_token, start, pieces[-1].end)
            else:
                pieces.append(Piece(word[start:end] if known else self.unk_token, start, end))
            end = start
        return pieces[::-1]
