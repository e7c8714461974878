"""The checks of tagged words for :func:`bertkit.tasks.check_task`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from bertkit.tasks.battery import CUT_LENGTH, CUT_OVERLAP, Battery, character_tokenizer
from bertkit.tasks.examples import Split
from bertkit.tasks.tokens.features import windows_of_words
from bertkit.tasks.tokens.task import TaggedExample, TokenTask, score_tags


class TokenBattery(Battery[TokenTask, TaggedExample]):
    """Tagged words."""

    cut_passed = f"cut to {CUT_LENGTH} tokens, no word loses its label"

    def check_rows(self, rows: Sequence[TaggedExample], split: Split) -> None:
        names = self.task.labels
        for row in rows:
            assert row.words, f"{row.where}: no words"
            assert [row.text[start:end] for start, end in row.spans] == list(row.words), f"{row.where}: words move"
            if row.entities is not None:
                found = [names[number] for number in self.task.numbers_of(row.tags)]
                assert found == row.tags, f"{row.where}: {row.tags}"

    def perfect(self, rows: Sequence[TaggedExample]) -> dict[str, float]:
        right = [row.tags for row in rows]
        return score_tags(self.task, right, right)

    def check_cut(self, rows: Sequence[TaggedExample]) -> None:
        found = windows_of_words(
            [row.text for row in rows],
            [row.spans for row in rows],
            character_tokenizer(row.text for row in rows),
            max_length=CUT_LENGTH,
            overlap=CUT_OVERLAP,
            labels=[self.task.numbers_of(row.tags) for row in rows],
        )
        assert found.labels is not None
        assert found.first_pieces is not None
        read = int((found.first_pieces >= 0).sum())
        labelled = int((found.labels >= 0).sum())
        words = sum(len(row.words) for row in rows)
        assert labelled <= read <= words, f"{labelled} labels for {read} of {words} words"
        assert labelled >= 0.99 * read, f"only {labelled} of {read} words that the model reads have their label"

    def spoil(self, lines: list[str], path: Path, first: TaggedExample) -> Iterator[tuple[list[str], str]]:
        number = next(n for n, line in enumerate(lines, start=1) if n > 2 and len(line.split()) > 1)
        for line in (lines[number - 1].split()[0] + "\n", "caf\udce9 O\n"):
            yield [*lines[: number - 1], line, *lines[number:]], f"{number}: "
