"""Windows of a question and a long context, against the tokenizers of ``transformers``, for every family."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertkit.tasks.spans.decoding import SpanSearch, find_answers
from bertkit.tasks.spans.features import SpanSettings, featurize_spans
from bertkit.tasks.spans.task import SQUAD
from bertkit.tasks.workflow import workflow_of
from tokenizer_families import ENCODERS, family_contestants

ODD = "  👩\u200d👩\u200d👧 東京タワー,\r\ncafe\u0301 “x” 3.5%\u00a0naïve ﬁn"


@pytest.mark.parametrize("family", ENCODERS)
def test_windows_are_those_of_transformers(shared: Path, family: str) -> None:
    tokenizers = family_contestants(shared, family)
    examples = list(workflow_of(SQUAD).read(shared / "data" / "squad" / "xquad.en-articles-1-28.json", "train")[::60])
    settings = SpanSettings(max_length=120, doc_stride=24)
    windows = featurize_spans(examples, tokenizers.ours, settings, labelled=True)
    assert windows.lost == ()
    row = 0
    for example in examples:
        asked = len(tokenizers.peer(example.question, add_special_tokens=False).input_ids)
        special = tokenizers.peer.num_special_tokens_to_add(pair=True)
        theirs = tokenizers.peer(
            example.question,
            example.context,
            truncation="only_second",
            max_length=120,
            stride=120 - special - asked - 24,
            return_overflowing_tokens=True,
            return_token_type_ids=True,
        )
        for ids, told in zip(theirs.input_ids, theirs.token_type_ids, strict=True):
            assert windows.rows[row].tolist() == ids
            # These models know one segment only; asked for the segments of windows, their peers count two.
            types = [0] * len(ids) if family in ("xlm-roberta", "camembert", "mmbert") else told
            assert windows.rows.types(row).tolist() == types
            row += 1
    assert row == len(windows) > 2 * len(examples)


@pytest.mark.parametrize("family", ENCODERS)
def test_answers_are_pieces_of_the_text(shared: Path, family: str) -> None:
    """Every span of a text with all that breaks offsets, as it is and extended to whole words."""
    from bertkit.tasks.spans.task import SpanExample

    tokenizer = family_contestants(shared, family).ours
    windows = featurize_spans([SpanExample("a", "where?", ODD)], tokenizer)
    zeros = [0.0] * int(windows.lengths.sum())
    found = []
    for align in (False, True):
        spans = find_answers(windows, zeros, zeros, SpanSearch(10_000, 10_000, align_to_words=align))[0].spans
        texts = {ODD[span.start : span.end] for span in spans}
        assert all(text == text.strip() != "" for text in texts)
        # To Gemma's tokenizer a blank that does not break is inside of a word.
        word = "3.5%\u00a0naïve" if family == "mmbert" and align else "naïve"
        assert {ODD.strip(), word} <= texts
        found.append(texts)
    assert found[1] < found[0]  # pieces of words are gone
