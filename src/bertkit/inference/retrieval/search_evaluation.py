"""How well an index finds what belongs to questions: by vectors, by words and by both, on the same questions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from bertkit.errors import DataError, InputError, counted
from bertkit.inference.retrieval.index_files import Row, read_manifest, write_manifest
from bertkit.inference.retrieval.search_index import SearchIndex
from bertkit.metrics.fusion import SHARE
from bertkit.metrics.intervals import Sets, bootstrap_draws, drawn_means, interval_text
from bertkit.metrics.ranking import Judged, Values, judge_documents, ndcg, reciprocal_rank
from bertkit.ragged import Ints
from bertkit.system.atomic_files import claimed_folder
from bertkit.system.untrusted_files import Json

#: How much vectors count in the searches that are compared; words count the rest.
SHARES = (1.0, 0.0, *sorted({SHARE, 0.25, 0.5, 0.9}))
#: Passages that are looked at for each document that is ranked.
_PASSAGES = 10
Unit = Literal["id", "document", "text"]


class Question(NamedTuple):
    """A question, what belongs to it (ids, documents or texts of passages), and where it stands, for messages."""

    text: str
    relevant: tuple[str, ...]
    where: str


@dataclass(frozen=True, slots=True)
class Found:
    """One kind of search: the value of each metric for each question ``(Q,)``."""

    share: float
    values: dict[str, Values]

    @property
    def name(self) -> str:
        """Which search it is."""
        return name_of(self.share)


@dataclass(frozen=True, slots=True)
class SearchReport:
    """The scores of an index.

    unit: what was to be found. main: the metric that decides. current: what vectors count in the index now. lacking:
    how many questions name what the index lacks, such as a document that was deleted; "" for none.
    """

    searches: tuple[Found, ...]
    unit: Unit
    main: str
    num_texts: int
    current: float
    lacking: str = ""

    @property
    def best(self) -> Found:
        """The highest mean of the main metric; of equal ones what the index has now, else the first."""
        return max(self.searches, key=lambda each: (float(each.values[self.main].mean()), each.share == self.current))

    def interval(self, values: Values, bounds: tuple[float, float] = (0.0, 1.0)) -> list[float] | None:
        """95 % of a mean over questions drawn with replacement."""
        draws = bootstrap_draws(len(values))
        return Sets(draws, len(values)).interval(drawn_means(values, draws), bounds)

    def difference(self) -> tuple[float, list[float] | None]:
        """Of the usual mixture and the better one of its halves."""
        halves = (each for each in self.searches if each.share in (0.0, 1.0))
        better = max(halves, key=lambda each: float(each.values[self.main].mean()))
        return self._minus(SHARE, better.share)

    def gain(self) -> tuple[float, list[float] | None]:
        """Of the best search and what the index has now."""
        return self._minus(self.best.share, self.current)

    @property
    def gains(self) -> bool:
        """Whether the best search is better than what the index has now by more than chance explains."""
        interval = self.gain()[1]
        return interval is not None and interval[0] > 0

    def _minus(self, one: float, other: float) -> tuple[float, list[float] | None]:
        """In the main metric, paired by question: mean and its interval."""
        by_share = {each.share: each.values[self.main] for each in self.searches}
        values = by_share[one] - by_share[other]
        return float(values.mean()), self.interval(values, (-1.0, 1.0))

    def to_dict(self) -> dict[str, Json]:
        """For programs."""
        (mean, interval), (gain, of_gain) = self.difference(), self.gain()
        return {
            "questions": len(self.searches[0].values[self.main]),
            "texts": self.num_texts,
            "unit": self.unit,
            **({"lacking": self.lacking} if self.lacking else {}),
            "searches": {
                each.name: {
                    "vectors_share": each.share,
                    **{
                        name: {"mean": float(v.mean()), "interval": self.interval(v)} for name, v in each.values.items()
                    },
                }
                for each in self.searches
            },
            "both_minus_better_half": {"mean": mean, "interval": interval},
            "best": self.best.name,
            "best_minus_present": {"mean": gain, "interval": of_gain},
        }

    def render(self) -> str:
        """For people."""
        count = len(self.searches[0].values[self.main])
        lines = [f"{counted(count, 'question')}, {counted(self.num_texts, 'text')}; to be found: the {self.unit}"]
        lines += [*([self.lacking] if self.lacking else []), ""]
        lines.append(f"{'search':<20}" + "".join(f"{name:<23}" for name in self.searches[0].values).rstrip())
        for each in self.searches:
            cells = (f"{values.mean():.3f} {_short(self.interval(values))}" for values in each.values.values())
            lines.append(f"{each.name:<20}" + "".join(f"{cell:<23}" for cell in cells).rstrip())
        mean, interval = self.difference()
        lines += [
            "",
            f"{name_of(SHARE)}, minus its better half, {self.main}: {mean:+.4f} ({interval_text(interval, '+')})",
        ]
        if interval and interval[1] < 0:
            lines.append("so the usual mixture is worse here than one half alone; do not use it with this index")
        lines.append(f"best by {self.main}: {self.best.name}")
        if self.best.share != self.current:
            mean, interval = self.gain()
            lines[-1] += (
                f", {mean:+.4f} ({interval_text(interval, '+')}) over what queries go by: {name_of(self.current)}"
            )
        return "\n".join(lines)


def _short(interval: list[float] | None) -> str:
    return f"({interval[0]:.3f} to {interval[1]:.3f})" if interval else ""


def name_of(share: float) -> str:
    """What to call a search in which vectors have a share."""
    return "vectors" if share == 1 else "words" if share == 0 else f"both, {share:g} vectors"


def evaluate_search(
    index: SearchIndex, questions: Iterable[Question], k: int = 10, *, truncate: bool = False
) -> SearchReport:
    """Hit rates, nDCG and MRR of the first ``k`` that an index finds, by vectors, words and both.

    What belongs to a question is given by the ids of texts, by documents (their whole names, or endings of them that
    are unique), or by the texts of passages: the first of the three that fits all questions. A question that occurs
    several times counts once, with all that belongs to it.

    Raises:
        DataError: no questions, or one to which nothing in the index belongs.
        InputError: ``k`` below 1.
    """
    if k < 1:
        raise InputError(f"k must be a whole number from 1, got {k}")
    merged: dict[str, Question] = {}
    for question in questions:
        before = merged.get(question.text)
        also = before.relevant if before else ()
        merged[question.text] = Question(question.text, (*also, *question.relevant), (before or question).where)
    asked = list(merged.values())
    if not asked:
        raise DataError("there are no questions")
    numbers, rows = _texts_of(index)
    unit, relevant, lacking = _resolved(asked, rows)
    asked = [question for question, own in zip(asked, relevant, strict=True) if own]
    relevant = list(filter(None, relevant))
    names = [row.source for row in rows] if unit == "document" else [row.id for row in rows]
    name_at = dict(zip(numbers.tolist(), names, strict=True))
    depth = min(len(rows), k * _PASSAGES if unit == "document" else k)
    texts = [question.text for question in asked]
    metrics = {
        "hit@1": partial(_hits, k=1), f"hit@{k}": partial(_hits, k=k), f"ndcg@{k}": partial(ndcg, k=k),
        f"mrr@{k}": partial(reciprocal_rank, k=k),
    }  # fmt: skip
    searches, current = [], index.share_of(None)
    for share in dict.fromkeys((*SHARES, current)):
        found = index.ranked(texts, depth, share, truncate=truncate)
        orders = [list(dict.fromkeys(name_at[number] for number in ranked.tolist())) for ranked, _ in found]
        judged = judge_documents(orders, [dict.fromkeys(own, 1.0) for own in relevant], k)
        searches.append(Found(share, {name: metric(judged) for name, metric in metrics.items()}))
    return SearchReport(tuple(searches), unit, f"ndcg@{k}", len(rows), current, lacking)


def set_share(index: SearchIndex, share: float) -> None:
    """Let searches of an index that ask for nothing else go by this mixture."""
    with claimed_folder(index.path, f"another process is changing {index.path}; wait for it"):
        index.manifest = read_manifest(index.path).model_copy(update={"vectors_share": share})
        write_manifest(index.path, index.manifest)


def _hits(judged: Judged, k: int) -> Values:
    found: Values = np.where((judged.gains[:, :k] > 0).any(axis=1), 1.0, 0.0)
    return found


def _texts_of(index: SearchIndex) -> tuple[Ints, list[Row]]:
    numbers = [first + block.live for first, block, _ in index.blocks()]
    whole: Ints = np.concatenate([*numbers, np.zeros(0, np.int64)])
    found = index.rows(whole)
    return whole, [found[number] for number in whole.tolist()]


def _resolved(questions: Sequence[Question], rows: Sequence[Row]) -> tuple[Unit, list[list[str]], str]:
    """What belongs to each question, by its names in the index, perhaps none; and what is said of names it lacks."""
    named: tuple[tuple[Unit, Mapping[str, list[str]] | _Passages], ...]
    named = ("id", {row.id: [row.id] for row in rows}), ("document", _documents(rows)), ("text", _Passages(rows))
    best: tuple[Unit, list[list[str]], list[tuple[Question, str]]] | None = None
    for unit, names in named:
        found, missing = [], []
        for question in questions:
            own = {value: names.get(value, ()) for value in question.relevant}
            missing += [(question, value) for value, ids in own.items() if not ids][:1]
            found.append(list(dict.fromkeys(name for ids in own.values() for name in ids)))
        if any(found) and (best is None or sum(map(bool, found)) > sum(map(bool, best[1]))):
            best = unit, found, missing
    if best is None:
        first = questions[0]
        raise DataError(
            f"{first.where}: {first.relevant[:1]!r:.80} is no id, no document and no passage of the index; name the "
            "column with what belongs to each question (--relevant)"
        )
    unit, found, missing = best
    if not missing:
        return unit, found, ""
    (first, name), gone = missing[0], sum(not own for own in found)
    place = f"{first.where}: no {unit} of the index is {name!r:.80}"
    if 2 * gone > len(questions):
        raise DataError(
            f"{place}; of {counted(len(questions), 'question')}, {gone:,} name none that it has. Is it the right "
            "index, and the right column (--relevant)?"
        )
    count = f"{len(missing):,} of {counted(len(questions), 'question')} with names that the index lacks"
    return unit, found, f"{count}, {gone:,} of them with no others and left out; the first: {place}"


def _documents(rows: Sequence[Row]) -> dict[str, list[str]]:
    """The documents by their names, and by all endings of their paths that only one has."""
    endings: dict[str, set[str]] = defaultdict(set)
    for source in {row.source for row in rows}:
        parts = source.split("/")
        for start in range(len(parts)):
            endings["/".join(parts[start:])].add(source)
    whole = {row.source: [row.source] for row in rows}
    return {**{name: [*own] for name, own in endings.items() if len(own) == 1}, **whole}


class _Passages:
    """Ids of the texts that have a passage in them, or are a part of it; blanks and case do not count."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._ids: dict[str, list[str]] = defaultdict(list)
        for row in rows:
            self._ids[_plain(row.text)].append(row.id)

    def get(self, value: str, other: Sequence[str] = ()) -> Sequence[str]:
        wanted = _plain(value)
        if not wanted or wanted in self._ids:
            return self._ids.get(wanted, other)
        return [name for text, ids in self._ids.items() if wanted in text or text in wanted for name in ids]


def _plain(text: str) -> str:
    return " ".join(text.lower().split())
