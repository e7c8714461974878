"""What is in the data of question answering: questions, contexts, answers and the windows they are read in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bertkit.errors import counted
from bertkit.tasks.hold_out import plain_text
from bertkit.tasks.report import DataReport, SplitFacts, find_leaks
from bertkit.tasks.spans.features import SpanWindows
from bertkit.tasks.spans.task import SpanExample, SpanTask


def question_report(
    task: SpanTask, splits: Mapping[str, Sequence[SpanExample]], windows: Mapping[str, SpanWindows]
) -> DataReport:
    """Count questions, answers, windows (encoded with labels), and what train shares with the other splits."""
    contexts = {plain_text(example.context) for example in splits.get("train", ())}

    def about_contexts(name: str) -> str:
        shared = sum(plain_text(example.context) in contexts for example in splits[name])
        return f"; the context of {shared:,} is in train" if shared else ""

    reports = {name: _split_facts(rows, windows[name]) for name, rows in splits.items()}
    overlap, leaks = find_leaks(splits, _key, "question", about_contexts)
    return DataReport(task.name, reports, overlap, leaks, task.notes)


def _split_facts(rows: Sequence[SpanExample], windows: SpanWindows) -> SplitFacts:
    contexts, articles = len({example.context for example in rows}), len({example.title for example in rows})
    places = f" about {counted(contexts, 'context')} of {counted(articles, 'article')}"
    facts = SplitFacts(rows, "question", places)
    facts.add("", contexts=contexts, articles=articles)
    unanswered = sum(example.answers == () for example in rows)
    share = f"without an answer: {unanswered:,} ({100 * unanswered / max(1, len(rows)):.1f} %)"
    facts.add(share if unanswered else "", without_answer=unanswered)
    answered = [len(example.answers) for example in rows if example.answers]
    mean = float(np.mean(answered)) if answered else 0.0
    line = f"right answers of a question: {mean:.1f} on average; the first is learned, all of them count"
    facts.add(line if mean > 1 else "", answers=mean)
    counts, longest = np.diff(windows.first_rows), int(windows.lengths.max())
    several = int((counts > 1).sum())
    facts.add(
        f"windows: {int(counts.sum()):,} of up to {longest} tokens; {counted(several, 'question')} with more than one",
        windows=int(counts.sum()),
        longest=longest,
        several_windows=several,
    )
    cut = int(windows.truncated[windows.first_rows[:-1]].sum())
    facts.count("cut_questions", cut, "question", "cut at the end (max_query_length)", mark="CUT")
    nowhere = "not whole in any window (max_length, doc_stride)"
    facts.count("lost_answers", len(windows.lost), "answer", nowhere, mark="LOST")
    unreachable = "with more tokens than max_answer_length, so never predicted"
    facts.count("long_answers", len(windows.too_long), "answer", unreachable, mark="TOO LONG")
    repeated = len(rows) - len({_key(example) for example in rows})
    facts.count("repeated", repeated, "question", "with the words and context of an earlier one", mark="duplicates")
    return facts


def _key(example: SpanExample) -> tuple[str, str]:
    return plain_text(example.question), plain_text(example.context)
