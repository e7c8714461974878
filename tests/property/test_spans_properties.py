"""Questions, contexts and answers: windows lose nothing, and an answer is always a piece of the user's own text."""

from __future__ import annotations

import itertools
import random
import string
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from bertkit import BertTokenizer
from bertkit.batch import collate
from bertkit.tasks.spans.decoding import Answers, SpanSearch, find_answers, max_context
from bertkit.tasks.spans.features import (
    SpanSettings,
    SpanWindows,
    featurize_spans,
    tokens_of,
)
from bertkit.tasks.spans.task import Answer, SpanExample
from bertkit.tasks.spans.workflow import span_loss_of
from bertkit.windows import cut_windows

# Every kind of text that has broken an offset somewhere: emoji of several characters, marks that combine, scripts
# without spaces, line ends of both kinds, control characters, words that fall into pieces.
PARTS = [
    "the", "Paris", "unbelievably", "1889,", "(Eiffel)", "it's", "naïve", "🗼", "👩‍👩‍👧", "東京タワー", "한국",
    "cafe\u0301", "ﬁn", "ẞ", "\u200b", "\x00", "\ufffd", "x\u0301\u0327y", "[MASK]", "[SEP]", "q" * 120,
    "“quoted”", "\u00ad-", "3.5%",
]  # fmt: skip
SPACES = [" ", " ", " ", "\n", "\r\n", "\t", "  ", "\u00a0", "", ". "]


def tokenizer(lower: bool = True) -> BertTokenizer:
    pieces = [*string.ascii_lowercase, *string.digits, *string.ascii_uppercase, *".,!?'-()%“”", "東", "京", "한", "é"]
    words = ["the", "paris", "un", "##believ", "##ably", "it", "fin", "naive", "cafe", "##19", "18"]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces, *(f"##{piece}" for piece in pieces), *words]
    return BertTokenizer({token: number for number, token in enumerate(dict.fromkeys(tokens))}, do_lower_case=lower)


TOKENIZERS = (tokenizer(True), tokenizer(False))


def random_text(generator: random.Random, least: int, most: int) -> str:
    count = generator.randrange(least, most)
    return "".join(generator.choice(PARTS) + generator.choice(SPACES) for _ in range(count)) + generator.choice(PARTS)


def random_example(generator: random.Random, number: int) -> SpanExample:
    context = random_text(generator, 1, 40)
    answers: tuple[Answer, ...] = ()
    if generator.random() < 0.8:
        start = generator.randrange(len(context))
        text = context[start : start + generator.randrange(1, 25)]
        answers = (Answer(text, start),) if text.strip() else ()
    return SpanExample(f"q{number}", random_text(generator, 1, 6), context, answers)


def random_case(generator: random.Random) -> tuple[list[SpanExample], BertTokenizer, SpanSettings]:
    examples = [random_example(generator, number) for number in range(generator.randrange(1, 5))]
    if generator.random() < 0.3:
        examples.append(examples[0])  # two questions share a context
    settings = SpanSettings(
        max_length=generator.randrange(20, 60),
        doc_stride=generator.randrange(1, 40),
        max_query_length=generator.randrange(1, 12),
        max_answer_length=generator.randrange(1, 30),
    )
    return examples, generator.choice(TOKENIZERS), settings


def check_windows(examples: list[SpanExample], tok: BertTokenizer, settings: SpanSettings, w: SpanWindows) -> None:
    """Rows are what the tokenizer gives for the pair; together they hold every token of the context."""
    assert w.lengths.max() <= settings.max_length
    assert w.first_rows[-1] == len(w)
    for number, example in enumerate(examples):
        whole = tok(example.context, add_special_tokens=False, truncation=False).input_ids
        asked = tok(example.question, add_special_tokens=False, truncation=False).input_ids
        kept = asked[: settings.max_query_length]
        rows = range(w.first_rows[number], w.first_rows[number + 1])
        seen: list[int] = []
        for row in rows:
            ids = w.rows[row].tolist()
            begin, size, at = (int(part[row]) for part in (w.context_from, w.context_size, w.context_at))
            part = whole[begin : begin + size]
            expected = [tok.cls_token_id, *kept, tok.sep_token_id, *part, tok.sep_token_id]
            assert ids == expected
            assert w.rows.types(row).tolist() == [0] * (len(kept) + 2) + [1] * (len(part) + 1)
            assert ids[at : at + size] == part
            assert w.rows.truncated[row] == (len(asked) > len(kept))
            assert begin <= len(seen)  # no gap
            seen += part[len(seen) - begin :]
        assert seen == whole
        if len(rows) > 1 and len(whole) > 0:
            once = np.zeros(len(whole), int)
            for row, mask in zip(rows, max_context(w.context_from[rows], w.context_size[rows]), strict=True):
                once[w.context_from[row] : w.context_from[row] + w.context_size[row]] += mask
            assert (once == 1).all()


def check_targets(examples: list[SpanExample], w: SpanWindows) -> None:
    """Targets point at exactly the tokens that share a character with the answer, or the answer is told to be lost."""
    for number, example in enumerate(examples):
        rows = np.arange(w.first_rows[number], w.first_rows[number + 1])
        found = rows[w.ends[rows] > 0]
        if not example.answers:
            assert not len(found)
            continue
        answer = example.answers[0]
        span = w.contexts.span(int(w.context[number]))
        starts, ends = w.contexts.starts[span], w.contexts.ends[span]
        touched = np.flatnonzero((starts < answer.end) & (ends > answer.start))
        assert (number in w.lost) == (not len(found))
        for row in found:
            tokens = np.arange(w.starts[row], w.ends[row] + 1) - w.context_at[row] + w.context_from[row]
            assert tokens.tolist() == touched.tolist()
        if len(touched):
            whole = (w.context_from[rows] <= touched[0]) & (touched[-1] < w.context_from[rows] + w.context_size[rows])
            assert len(found) == whole.sum()  # each window that can show the answer learns it


def check_answers(
    examples: list[SpanExample], w: SpanWindows, generator: np.random.Generator, search: SpanSearch
) -> int:
    """The best spans of a search through all pairs, their joint probabilities, and pieces of the text."""
    total = int(w.lengths.sum())
    scale = float(generator.choice([0.0, 1.0, 6.0, 400.0]))
    starts, ends = generator.normal(size=(2, total)) * scale
    found = find_answers(w, starts, ends, search)
    spans = 0
    for number, (example, answers) in enumerate(zip(examples, found, strict=True)):
        scores: dict[tuple[int, int], float] = {}
        rows = range(w.first_rows[number], w.first_rows[number + 1])
        firsts = w.rows.boundaries[:-1]
        masks = max_context(w.context_from[rows], w.context_size[rows])
        for row, mask in zip(rows, masks, strict=True):
            at, begin, size = (int(part[row]) for part in (w.context_at, w.context_from, w.context_size))
            for first in range(size):
                for last in range(first, min(size, first + search.max_answer_length)):
                    if mask[first]:
                        score = starts[firsts[row] + at + first] + ends[firsts[row] + at + last]
                        assert (begin + first, begin + last) not in scores
                        scores[begin + first, begin + last] = score
        null = min(starts[firsts[row]] + ends[firsts[row]] for row in rows)
        masses = [*scores.values(), *([null] if search.with_null else [])]
        top = max(masses, default=0.0)
        norm = top + np.log(np.exp(np.array(masses) - top).sum()) if masses else 0.0
        assert len({(span.start, span.end) for span in answers.spans}) == len(answers.spans) <= search.n_best
        assert [s.score for s in answers.spans] == sorted((s.score for s in answers.spans), reverse=True)
        for span in answers.spans:
            text = example.context[span.start : span.end]
            assert text == text.strip() != ""
            assert span.probability == pytest.approx(np.exp(span.score - norm), abs=1e-9)
            spans += 1
        check_n_best(example, w, number, scores, answers, search)
        if scores and not search.align_to_words:
            contexts = w.contexts
            base = contexts.span(int(w.context[number])).start
            best = max(scores.values())
            begun = [*contexts.starts[contexts.span(int(w.context[number]))].tolist(), len(example.context)]
            texts = {
                (begun[a], with_marks(example.context, int(contexts.ends[base + b]), begun[b + 1]))
                for (a, b), s in scores.items()
                if s == best
            }
            assert answers.spans[0].score == pytest.approx(best, abs=1e-9)
            assert any(a <= answers.spans[0].start and answers.spans[0].end <= b for a, b in texts)
        if search.with_null:
            assert answers.null_score == pytest.approx(null)
            assert answers.null_probability + sum(s.probability for s in answers.spans) <= 1 + 1e-9
    return spans


def with_marks(text: str, end: int, limit: int) -> int:
    """The end of an answer: combining marks between it and the next token belong to it."""
    kinds = "".join(unicodedata.category(character)[0] for character in text[end:limit])
    return end + len(kinds) - len(kinds.lstrip("M"))


def check_n_best(
    example: SpanExample,
    w: SpanWindows,
    number: int,
    scores: dict[tuple[int, int], float],
    answers: Answers,
    search: SpanSearch,
) -> None:
    """All pieces of the text that spans stand for, each with the score of its best span: the first of these."""
    tokens = w.contexts.span(int(w.context[number]))
    starts, ends, words = (of[tokens].tolist() for of in (w.contexts.starts, w.contexts.ends, w.contexts.words))
    if search.align_to_words:
        begun = [
            min(b for b in range(a + 1) if b == a or (words[a] >= 0 and set(words[b:a]) == {words[a]}))
            for a in range(len(words))
        ]
        ended = [max(b for b in range(a, len(words)) if begun[b] == begun[a]) for a in range(len(words))]
    else:
        begun = ended = list(range(len(words)))
    best: dict[tuple[int, int], float] = {}
    for (first, last), score in scores.items():
        text = example.context[starts[begun[first]] : ends[ended[last]]]
        if text.strip():
            start = starts[begun[first]] + len(text) - len(text.lstrip())
            after = [*starts, len(example.context)][ended[last] + 1]
            place = start, with_marks(example.context, start + len(text.strip()), after)
            best[place] = max(score, best.get(place, -np.inf))
    top = sorted(best.values(), reverse=True)[: search.n_best]
    assert [span.score for span in answers.spans] == pytest.approx(top, abs=1e-9)
    assert all(best[span.start, span.end] == pytest.approx(span.score, abs=1e-9) for span in answers.spans)


def check_case(seed: int, case: int) -> int:
    generator = random.Random(f"{seed}-{case}")
    examples, tok, settings = random_case(generator)
    windows = featurize_spans(examples, tok, settings, labelled=True)
    check_windows(examples, tok, settings, windows)
    check_targets(examples, windows)
    search = SpanSearch(
        n_best=generator.choice([1, 3, 20]),
        max_answer_length=settings.max_answer_length,
        with_null=generator.random() < 0.5,
        align_to_words=generator.random() < 0.5,
    )
    return check_answers(examples, windows, np.random.default_rng([seed, case]), search)


def test_windows_targets_and_answers():
    assert sum(check_case(1, case) for case in range(40)) > 200


@pytest.mark.campaign
def test_five_thousand_cases():
    assert sum(check_case(2, case) for case in range(5000)) > 20_000


def test_real_answers_come_back_from_their_tokens(shared: Path, minilm: Path):
    from bertkit.tasks.spans.task import SQUAD
    from bertkit.tasks.workflow import workflow_of

    examples = workflow_of(SQUAD).read(shared / "data" / "squad" / "xquad.en-articles-1-28.json", "train")[:200]
    windows = featurize_spans(examples, BertTokenizer.from_pretrained(minilm), labelled=True)
    assert windows.lost == ()
    logits = np.zeros((2, int(windows.lengths.sum())))
    firsts = windows.rows.boundaries[:-1]
    for row in np.flatnonzero(windows.ends > 0):
        logits[0, firsts[row] + windows.starts[row]] = logits[1, firsts[row] + windows.ends[row]] = 50.0
    found = find_answers(windows, *logits, SpanSearch(max_answer_length=60))
    exact = sum(
        example.context[best.spans[0].start : best.spans[0].end] == example.answers[0].text
        for example, best in zip(examples, found, strict=True)
    )
    assert exact >= 198  # an answer such as "19" of "19th" is less than a word of BERT
    assert span_loss_of(windows, logits.T.astype(np.float32)) < 1e-6


def test_the_paper_code_cuts_windows_like_this():
    # google-research/bert run_squad.py: (tokens, room, stride) -> beginnings
    found = cut_windows(np.array([10, 11, 20, 0, 25]), 10, np.array([4, 4, 4, 4, 99]))
    starts = [[0], [0, 4], [0, 4, 8, 12], [0], [0, 10, 20]]
    assert [found.starts[a:b].tolist() for a, b in itertools.pairwise(found.groups)] == starts
    assert found.sizes.tolist() == [10, 10, 7, 10, 10, 10, 8, 0, 10, 10, 5]


def test_max_context_is_that_of_the_paper():
    # "the man went to the store and bought a gallon of milk", windows of five words with a stride of three: the window
    # that shows most around "bought" is the third (google-research/bert run_squad.py, comment of the function).
    masks = max_context([0, 3, 6], [5, 5, 5])
    assert [mask.tolist() for mask in masks] == [
        [True, True, True, True, False],
        [False, True, True, True, False],
        [False, True, True, True, True],
    ]


def test_no_answer_wins_above_the_threshold_only():
    examples = [SpanExample("a", "who", "the paris fin", ())]
    windows = featurize_spans(examples, TOKENIZERS[0])
    starts, ends = np.zeros((2, int(windows.lengths.sum())))
    starts[0], ends[0] = 1.5, 1.0  # [CLS]
    starts[windows.context_at[0]] = 2.0
    answers = find_answers(windows, starts, ends, SpanSearch(with_null=True))[0]
    assert answers.margin == pytest.approx(0.5)
    assert answers.is_null(0.4)
    assert not answers.is_null(0.6)
    alone = find_answers(windows, starts, ends)[0]
    assert alone.null_probability == 0
    assert not alone.is_null(0.0)


def test_answers_inside_a_word_are_extended_to_it():
    examples = [SpanExample("a", "who", "the unbelievably fin", ())]
    windows = featurize_spans(examples, TOKENIZERS[0])
    starts, ends = np.zeros((2, int(windows.lengths.sum())))
    first, _ = tokens_of(windows.contexts, 0, 6, 7)  # "##believ"
    starts[windows.context_at[0] + first] = ends[windows.context_at[0] + first] = 9.0
    raw = find_answers(windows, starts, ends)[0].spans[0]
    assert examples[0].context[raw.start : raw.end] == "believ"
    word = find_answers(windows, starts, ends, SpanSearch(align_to_words=True))[0].spans[0]
    assert examples[0].context[word.start : word.end] == "unbelievably"


def test_as_many_answers_as_were_asked_for():
    """Four words of many pieces each: the best spans of pieces are one word, many times."""
    examples = [SpanExample("a", "who", " ".join(letter * 30 for letter in "abcd"), ())]
    windows = featurize_spans(examples, TOKENIZERS[0])
    starts, ends = np.zeros((2, int(windows.lengths.sum())))
    at = int(windows.context_at[0])
    starts[at : at + 30] = ends[at : at + 30] = 9.0
    found = find_answers(windows, starts, ends, SpanSearch(5, 30, align_to_words=True))[0].spans
    assert (found[0].start, found[0].end) == (0, 30)
    assert len(found) == 5
    every = find_answers(windows, starts, ends, SpanSearch(20, 30, align_to_words=True))[0].spans
    assert len(every) == 7  # four words and three pairs of neighbours; longer ones have more than 30 pieces
    assert every[:5] == found


def test_batches_carry_targets_only_when_asked():
    windows = featurize_spans(
        [SpanExample("a", "who", "the paris", (Answer("paris", 4),))], TOKENIZERS[0], labelled=True
    )
    targets = {"start_positions": windows.starts, "end_positions": windows.ends}
    batch = collate(windows.rows, [0, 0], targets)
    assert batch.targets["start_positions"].tolist() == [windows.starts[0]] * 2
    assert batch.targets["end_positions"].tolist() == [windows.ends[0]] * 2
    assert not collate(windows.rows, [0]).targets
