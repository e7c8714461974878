"""A person and a text at a time: shows, asks, saves, undoes; what is shown next depends on the labels so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from bertkit.errors import counted
from bertkit.inference.labelling.label_file import LabelFile
from bertkit.inference.labelling.label_order import Guess, Order, guess_labels, held_out_accuracy, next_texts
from bertkit.ragged import Floats

#: Answers that are no label.
UNDO, SKIP, QUIT = "u", "s", "q"
LAST_QUESTION = "\nno text is left  [u] undo  [q] quit"


@dataclass(frozen=True, slots=True)
class Labelled:
    """How labelling ended; curve: number of labels and share of them that a linear model of the others finds."""

    total: int
    new: int
    left: int
    curve: list[tuple[int, float]]

    def to_dict(self) -> dict[str, int | list[list[float]]]:
        """For JSON."""
        curve = [[float(number), share] for number, share in self.curve]
        return {"labels": self.total, "new": self.new, "left": self.left, "curve": curve}

    def render(self) -> str:
        """A line, and the curve."""
        lines = [f"{counted(self.total, 'label')} ({self.new:,} new), {counted(self.left, 'text')} left"]
        return "\n".join([*lines, *(f"  {curve_line(*point)}" for point in self.curve)])


def curve_line(number: int, share: float) -> str:
    """A point of the curve, with a bar."""
    return f"{number:>6,} labels: {share:.3f} of held-out labels found  {'#' * round(40 * share)}"


@dataclass
class LabelSession:
    """Asks for labels until there is no text left or no answer.

    texts: all different. show: called with what a person should read. every: labels between two points of the curve.
    """

    texts: Sequence[str]
    vectors: Floats
    file: LabelFile
    show: Callable[[str], None]
    order: Order = "both"
    every: int = 10
    _skipped: list[int] = field(default_factory=list)
    _curve: list[tuple[int, float]] = field(default_factory=list)

    def run(self, answers: Iterable[str]) -> Labelled:
        """``answers``: the number of a label from 1 on or its name, ``u``, ``s`` or ``q``."""
        number_of = {text: number for number, text in enumerate(self.texts)}
        before, given, again = len(self.file.given), iter(answers), None
        while True:
            labelled = self._labelled(number_of)
            guess = guess_labels(self.vectors, labelled)
            row = self._next(labelled, guess) if again is None else again
            self.show(LAST_QUESTION if row is None else self._question(row, guess))
            answer = self._answer(given)
            if answer is None:
                break
            if answer == UNDO:
                again = self._undo(number_of, row)
                continue
            again = None
            if row is None:
                self.show("there is no text left to label")
            elif answer == SKIP:
                self._skipped.append(row)
            else:
                self.file.add(self.texts[row], answer)
                self._point(number_of)
        total = len(self.file.given)
        left = len(self.texts) - len(self._labelled(number_of))
        return Labelled(total, max(0, total - before), left, self._curve)

    def _undo(self, number_of: dict[str, int], row: int | None) -> int | None:
        """Take the last label back, if it is of one of the texts; returns the row to ask for."""
        if not self.file.given:
            self.show("nothing to undo")
            return row
        text, label = next(reversed(self.file.given.items()))
        if text not in number_of:
            self.show(f"not taken back: the last label, {label}, belongs to a text that is not in this file:\n{text}")
            return row
        self.file.undo()
        self.show(f"taken back: {label}")
        return number_of[text]

    def _labelled(self, number_of: dict[str, int]) -> dict[int, int]:
        labels = self.file.labels
        return {number_of[t]: labels.index(label) for t, label in self.file.given.items() if t in number_of}

    def _next(self, labelled: dict[int, int], guess: Guess | None) -> int | None:
        skipped = frozenset(self._skipped)
        found = next_texts(self.vectors, labelled, order=self.order, left_out=skipped, guess=guess)
        return found[0] if found else None

    def _question(self, row: int, guess: Guess | None) -> str:
        names = [f"[{number}] {label}" for number, label in enumerate(self.file.labels, start=1)]
        likely = ""
        if guess is not None:
            best = int(guess.probabilities[row].argmax())
            name = self.file.labels[int(guess.labels[best])]
            likely = f"   (likely: {name}, {guess.probabilities[row, best]:.2f})"
        return f"\n{self.texts[row]}\n{'  '.join(names)}  [u] undo  [s] skip  [q] quit{likely}"

    def _answer(self, given: Iterator[str]) -> str | None:
        """A label, ``u`` or ``s``; None at the end or for ``q``. Asks again after anything else."""
        for answer in given:
            wanted = answer.strip()
            if wanted == QUIT:
                return None
            if wanted in self.file.labels or wanted in (UNDO, SKIP):
                return wanted
            if wanted.isdecimal() and len(wanted) < 10 and 1 <= int(wanted) <= len(self.file.labels):
                return self.file.labels[int(wanted) - 1]
            if wanted:
                self.show(f"{wanted!r:.60} is no answer: a number from 1 to {len(self.file.labels)}, u, s or q")
        return None

    def _point(self, number_of: dict[str, int]) -> None:
        total = len(self.file.given)
        if not self.every or total % self.every:
            return
        share = held_out_accuracy(self.vectors, self._labelled(number_of))
        if share is not None:
            self._curve.append((total, round(share, 4)))
            self.show(curve_line(*self._curve[-1]))
