"""Masking: the rules in plain Python beside the vectorised ones, shares, and that rows do not see each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.data.counter_random import below, bits, stream, uniform
from bertkit.data.examples.masking import LONGEST_SPAN, SPAN_SUCCESS, Masking, MaskVocabulary, mask_rows
from bertkit.errors import ConfigError, DataError
from bertkit.tokenization import BertTokenizer
from pretrain_helpers import CLS, MASK, SEP, SPECIALS

UNITS = ("token", "whole-word", "span")
SIZE = 400
VOCABULARY = MaskVocabulary.of([*SPECIALS, "[unused0]", *(("##" if n % 3 == 2 else "") + str(n) for n in range(394))])
ORDINARY = np.arange(6, SIZE)


class Rows:
    """Random rows ``[CLS] ... [SEP] ... [SEP]`` with their keys."""

    def __init__(self, lengths: list[tuple[int, int]], seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.rows = [[CLS, *random.choice(ORDINARY, a), SEP, *random.choice(ORDINARY, b), SEP] for a, b in lengths]
        self.special = [[True] + [False] * a + [True] + [False] * b + [True] for a, b in lengths]
        self.keys = bits(stream(seed, "mask", 0), np.arange(len(lengths)))

    def mask(self, masking: Masking, chosen: list[int] | None = None) -> list[tuple[list[int], list[int]]]:
        """``(input ids, labels)`` of each of the chosen rows, masked as one batch."""
        chosen = list(range(len(self.rows))) if chosen is None else chosen
        boundaries = np.cumsum([0, *(len(self.rows[row]) for row in chosen)])
        ids, special = (np.concatenate([part[row] for row in chosen]) for part in (self.rows, self.special))
        inputs, labels = mask_rows(ids, boundaries, special, self.keys[chosen], masking, VOCABULARY)
        cuts = boundaries[1:-1]
        return [(a.tolist(), b.tolist()) for a, b in zip(np.split(inputs, cuts), np.split(labels, cuts), strict=True)]


def reference(ids: list[int], special: list[bool], key: int, masking: Masking) -> tuple[list[int], list[int]]:
    """One row, one word at a time, on lists."""

    def draw(position: int, which: int) -> float:
        return float(uniform(key, np.array([position * 4 + which]))[0])

    wanted = max(1, round(len(ids) * masking.rate))
    if masking.max_predictions_per_seq is not None:
        wanted = min(wanted, masking.max_predictions_per_seq)
    words: list[list[int]] = []
    for at, token in enumerate(ids):
        if special[at]:
            continue
        joins = masking.unit != "token" and not special[at - 1] and VOCABULARY.continues[token]
        if joins:
            words[-1].append(at)
        else:
            words.append([at])
    order = sorted(range(len(words)), key=lambda w: int(bits(key, np.array([words[w][0] * 4]))[0]))
    taken: dict[int, int] = {}  # word -> the word whose span it is in
    for w in order:
        longest = 1
        if masking.unit == "span":
            chances = [(1 - SPAN_SUCCESS) ** n for n in range(LONGEST_SPAN)]
            while longest < LONGEST_SPAN and draw(words[w][0], 3) >= sum(chances[:longest]) / sum(chances):
                longest += 1
        for x in range(w, min(w + longest, len(words))):
            apart = x > w and words[x][0] != words[x - 1][-1] + 1
            if apart or x in taken or len(words[x]) > wanted - sum(len(words[y]) for y in taken):
                break
            taken[x] = w
    inputs, labels = list(ids), [-100] * len(ids)
    for x, w in taken.items():
        for at in words[x]:
            labels[at] = ids[at]
            action = draw(words[w][0] if masking.unit == "span" else at, 1)
            if action < masking.mask_share:
                inputs[at] = MASK
            elif action < masking.mask_share + masking.random_share:
                choice = below(key, np.array([at * 4 + 2]), len(VOCABULARY.replacements))[0]
                inputs[at] = int(VOCABULARY.replacements[choice])
    return inputs, labels


sizes = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 60)), min_size=1, max_size=6)


@pytest.mark.slow
@given(
    sizes, st.sampled_from(UNITS), st.sampled_from([0.05, 0.15, 0.9]), st.sampled_from([None, 1, 7]), st.integers(0, 99)
)
def test_masks_are_what_the_plain_rules_give(
    lengths: list[tuple[int, int]], unit: Any, rate: float, most: int | None, seed: int
) -> None:
    rows = Rows(lengths, seed)
    masking = Masking(unit, rate, most)
    expected = [
        reference(ids, special, int(key), masking)
        for ids, special, key in zip(rows.rows, rows.special, rows.keys, strict=True)
    ]
    assert rows.mask(masking) == expected


@pytest.mark.parametrize("unit", UNITS)
def test_a_row_does_not_see_its_neighbours(unit: Any) -> None:
    rows = Rows([(n % 40 + 1, n % 17) for n in range(60)])
    together = rows.mask(Masking(unit))
    assert [rows.mask(Masking(unit), [row])[0] for row in range(60)] == together
    assert rows.mask(Masking(unit), list(range(59, -1, -1)))[::-1] == together


@pytest.mark.parametrize("unit", UNITS)
def test_shares_are_those_of_the_paper(unit: Any) -> None:
    rows = Rows([(60, 65)] * 2000)
    flat = [np.concatenate(part) for part in zip(*rows.mask(Masking(unit)), strict=True)]
    inputs, labels, ids = flat[0], flat[1], np.concatenate(rows.rows)
    targets = labels != -100
    assert (labels[targets] == ids[targets]).all()
    assert (inputs[~targets] == ids[~targets]).all()
    assert not targets[np.concatenate(rows.special)].any()
    per_row = targets.reshape(2000, -1).sum(1)
    assert per_row.max() == 19  # round(0.15 * 128)
    assert per_row.mean() > 18.9
    n = targets.sum()
    # The tokens of a span have one fate, so they count as fewer draws.
    tolerance = 4 * (0.25 / (n / (10 if unit == "span" else 1))) ** 0.5
    assert (inputs[targets] == MASK).mean() == pytest.approx(0.8, abs=tolerance)
    changed = (inputs != ids) & (inputs != MASK)
    assert changed.sum() / n == pytest.approx(0.1 * 393 / 394, abs=tolerance)
    drawn = np.bincount(inputs[changed], minlength=SIZE)
    assert drawn[:6].sum() == 0
    expected = changed.sum() / 394
    assert ((drawn[6:] - expected) ** 2 / expected).sum() < 505  # chi-squared, 393 degrees of freedom, p = 0.0001


@pytest.mark.slow
def test_every_position_is_equally_likely() -> None:
    rows = Rows([(62, 63)] * 4000)
    labels = np.array([labels for _, labels in rows.mask(Masking())])
    share = (labels != -100).mean(0)
    inside = ~np.array(rows.special[0])
    assert np.abs(share[inside] - 19 / 125).max() < 5 * (0.15 * 0.85 / 4000) ** 0.5


def test_whole_words_are_never_split_and_single_tokens_split_them() -> None:
    rows = Rows([(80, 40)] * 200)

    def split_words(unit: Any) -> int:
        found = 0
        for ids, special, (_, labels) in zip(rows.rows, rows.special, rows.mask(Masking(unit)), strict=True):
            for at in range(1, len(ids)):
                inside = VOCABULARY.continues[ids[at]] and not special[at] and not special[at - 1]
                found += inside and (labels[at] == -100) != (labels[at - 1] == -100)
        return found

    assert split_words("whole-word") == 0
    assert split_words("span") == 0
    assert split_words("token") > 500, "control: the count above can see a split word"


def test_spans_are_longer_than_words() -> None:
    def stretches(unit: Any) -> float:
        labels = np.concatenate([labels for _, labels in Rows([(250, 250)] * 100).mask(Masking(unit))]) != -100
        return float(labels.sum() / (labels[1:] & ~labels[:-1]).sum())

    # Words of 1.5 pieces; spans of 3.8 words, some of which meet a taken word or the end of a segment.
    assert stretches("token") < stretches("whole-word") < 2.2
    assert 4 < stretches("span") < 7.5


def test_limit_of_predictions() -> None:
    rows = Rows([(100, 100)] * 20)
    counts = [sum(label != -100 for label in labels) for _, labels in rows.mask(Masking(max_predictions_per_seq=5))]
    assert counts == [5] * 20


def test_wrong_settings_say_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"token, whole-word, span, got 'whole_word'.*did you mean 'whole-word'"):
        Masking("whole_word")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"rate must be over 0 and at most 1, got 15.*0\.15"):
        Masking(rate=15)
    with pytest.raises(ConfigError, match="max_predictions_per_seq must be at least 1, got 0"):
        Masking(max_predictions_per_seq=0)
    with pytest.raises(ConfigError, match="add up to at most 1"):
        Masking(mask_share=0.95, random_share=0.1)
    with pytest.raises(DataError, match=r"has no \[MASK\], which pre-training needs"):
        MaskVocabulary.of(["[CLS]", "[SEP]", "a"])
    with pytest.raises(DataError, match="special tokens only"):
        MaskVocabulary.of(SPECIALS)


def test_a_tokenizer_may_have_other_names_for_its_special_tokens() -> None:
    """As MPNet's WordPiece does; nothing is drawn in place of a word but ordinary tokens."""
    vocab = {name: number for number, name in enumerate(["<s>", "<pad>", "</s>", "<unk>", "<mask>", "film", "##s"])}
    names = {"cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>", "pad_token": "<pad>"}
    found = MaskVocabulary.of_tokenizer(BertTokenizer(vocab, unk_token="<unk>", **names))
    assert (found.cls_id, found.sep_id, found.mask_id) == (0, 2, 4)
    assert found.replacements.tolist() == [5, 6]
    with pytest.raises(DataError, match=r"no \[CLS\], \[SEP\], \[MASK\]"):
        MaskVocabulary.of(vocab)
