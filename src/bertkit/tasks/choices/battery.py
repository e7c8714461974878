"""The checks of multiple choice for :func:`bertkit.tasks.check_task`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from bertkit.metrics.scores import METRICS
from bertkit.tasks.battery import CUT_LENGTH, Battery, character_tokenizer
from bertkit.tasks.choices.features import featurize_choices
from bertkit.tasks.choices.task import ChoiceExample, ChoiceTask
from bertkit.tasks.examples import Split


class ChoiceBattery(Battery[ChoiceTask, ChoiceExample]):
    """Questions with choices."""

    cut_passed = f"cut to {CUT_LENGTH} tokens, no answer is lost silently"

    def check_rows(self, rows: Sequence[ChoiceExample], split: Split) -> None:
        for row in rows:
            assert row.context.strip(), f"{row.where}: empty context"
            assert all(choice.strip() for choice in row.choices), f"{row.where}: empty choice"
            assert row.label is None or 0 <= row.label < len(row.choices), f"{row.where}: label {row.label}"

    def perfect(self, rows: Sequence[ChoiceExample]) -> dict[str, float]:
        right = [row.label for row in rows]
        return {name: METRICS[name](right, right) for name in self.task.metrics}  # type: ignore[arg-type]

    def check_cut(self, rows: Sequence[ChoiceExample]) -> None:
        tokenizer = character_tokenizer(text for row in rows for pair in row.pairs for text in pair)
        found, whole = (featurize_choices(rows, tokenizer, length) for length in (CUT_LENGTH, 1 << 20))
        for number, row in enumerate(rows):
            own, uncut = (
                [features.sequences[place].tolist() for place in features.sequences_of([number])]
                for features in (found, whole)
            )
            assert (own != uncut) == bool(found.truncated[number]), f"{row.where}: cut and not reported"

    def spoil(self, lines: list[str], path: Path, first: ChoiceExample) -> Iterator[tuple[list[str], str]]:
        number = min(2, len(lines))
        bad = "{\n" if lines[0].startswith("{") else "x\n"
        for line in (bad, "caf\udce9\n"):
            yield [*lines[: number - 1], line, *lines[number:]], f"{number}: "
