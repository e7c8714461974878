"""Questions and long texts as groups of sequences: nothing lost, choices whole, windows that cover everything."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertkit.batch import collate_groups
from bertkit.errors import ConfigError, InputError
from bertkit.ragged import GroupSet, Ragged
from bertkit.tasks.choices.features import featurize_choices
from bertkit.tasks.choices.task import CODAH, ChoiceExample
from bertkit.tasks.workflow import workflow_of
from bertkit.tokenization import BertTokenizer
from bertkit.tokenization.features import featurize_texts, featurize_windows
from pipeline_helpers import VOCABULARY


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> BertTokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "vocab.txt"
    path.write_text("\n".join(VOCABULARY) + "\n")
    return BertTokenizer(vocab_file=path, model_max_length=64)


def question(context: str, *choices: str, start: str = "", label: int | None = 0) -> ChoiceExample:
    return ChoiceExample(context, start, choices, label)


def test_real_questions_are_the_pairs_of_the_tokenizer(shared: Path, minilm: Path) -> None:
    tokenizer = BertTokenizer.from_pretrained(minilm)
    rows = workflow_of(CODAH).read(shared / "data" / "codah", "dev")[:40]
    found = featurize_choices(rows, tokenizer, 128)
    pairs = [pair for row in rows for pair in row.pairs]
    expected = tokenizer([first for first, _ in pairs], [second for _, second in pairs])
    assert not found.truncated.any()
    for number in range(len(pairs)):
        assert found.sequences[number].tolist() == expected["input_ids"][number]
        assert found.sequences.types(number).tolist() == expected["token_type_ids"][number]
    assert found.labels is not None
    assert found.labels.tolist() == [row.label for row in rows]
    assert found.lengths.sum() == sum(map(len, expected["input_ids"]))


def test_the_context_is_cut_and_the_choices_stay_whole(tokenizer: BertTokenizer) -> None:
    rows = [question("good " * 30, "a film", "the end of it was not bad"), question("good", "bad", "film")]
    found = featurize_choices(rows, tokenizer, 16)
    assert found.truncated.tolist() == [True, False]
    assert found.sequences.lengths.tolist() == [16, 16, 5, 5]
    assert found.num_tokens_before.tolist() == [30 + 3 + 2 + 30 + 3 + 7, 10]
    for number, choice in enumerate(("a film", "the end of it was not bad", "bad", "film")):
        ids, types = found.sequences[number], found.sequences.types(number)
        assert ids[types == 1].tolist()[:-1] == tokenizer(choice, add_special_tokens=False)["input_ids"]


def test_a_choice_that_does_not_fit_is_cut_like_any_pair(tokenizer: BertTokenizer) -> None:
    rows = [question("good film", "bad " * 40, "a film")]
    found = featurize_choices(rows, tokenizer, 12)
    ragged = tokenizer.encode_ragged(["good film"], ["bad " * 40], max_length=12, truncation="longest_first")
    assert found.sequences[0].tolist() == ragged.ids.tolist()
    assert found.truncated.tolist() == [True]


def test_what_cannot_be_a_question(tokenizer: BertTokenizer) -> None:
    with pytest.raises(InputError, match="no examples"):
        featurize_choices([], tokenizer)
    with pytest.raises(InputError, match="1 of 2 examples have a label"):
        featurize_choices([question("a", "b", "c"), question("a", "b", "c", label=None)], tokenizer)
    with pytest.raises(InputError, match="question 0 has no choices"):
        featurize_choices([question("a")], tokenizer)
    with pytest.raises(ConfigError, match="leaves no room"):
        featurize_choices([question("a film", "b", "c")], tokenizer, 3)


def test_a_batch_has_all_sequences_of_its_rows(tokenizer: BertTokenizer) -> None:
    rows = [question(f"{'a ' * n}film", "good", "bad", label=n % 2) for n in range(5)]
    found = featurize_choices(rows, tokenizer)
    batch = collate_groups(found, [3, 1], labelled=True)
    assert batch.layout.lengths == (8, 8, 6, 6)
    assert batch.targets["labels"].tolist() == [1, 1]
    alone = collate_groups(found.select([3, 1]), [0, 1], labelled=True)
    assert torch.equal(alone.input_ids, batch.input_ids)
    assert collate_groups(found, [0], labelled=False).targets == {}
    with pytest.raises(InputError, match="no labels"):
        collate_groups(featurize_choices(rows, tokenizer, labelled=False), [0], labelled=True)


def test_mean_over_the_sequences_of_a_row() -> None:
    features = featurize_values([2, 1, 3])
    values = np.arange(12, dtype=np.float32).reshape(6, 2)
    assert features.mean(values).tolist() == [[1, 2], [4, 5], [8, 9]]
    assert features.mean(values).dtype == np.float32


def featurize_values(sizes: list[int]) -> GroupSet:
    count = sum(sizes)
    sequences = Ragged(
        np.zeros(count, np.int32), np.arange(count + 1), np.zeros(count, np.int8), np.ones(count, np.int64)
    )
    groups = np.concatenate([[0], np.cumsum(sizes)])
    return GroupSet(sequences, groups, np.array(sizes), np.zeros(len(sizes), np.bool_))


LENGTHS = st.lists(st.integers(0, 90), min_size=1, max_size=6)


@given(LENGTHS, st.integers(3, 24), st.integers(0, 20))
def test_windows_cover_the_whole_text_and_overlap_as_asked(
    tokenizer: BertTokenizer, lengths: list[int], max_length: int, overlap: int
) -> None:
    generator = np.random.default_rng(len(lengths))
    texts = [" ".join(generator.choice(["good", "bad", "film", "the"], size)) for size in lengths]
    room = max_length - 2
    if overlap >= room:
        with pytest.raises(ConfigError, match="overlap"):
            featurize_windows(texts, tokenizer, max_length, overlap=overlap)
        return
    found = featurize_windows(texts, tokenizer, max_length, overlap=overlap)
    assert found.sequences.lengths.max() <= max_length
    assert not found.truncated.any()
    for number, text in enumerate(texts):
        whole = tokenizer(text)["input_ids"]
        pieces: list[int] = []
        for place, sequence in enumerate(range(found.groups[number], found.groups[number + 1])):
            ids = found.sequences[sequence].tolist()
            assert [ids[0], ids[-1]] == [whole[0], whole[-1]]
            if place:
                assert pieces[len(pieces) - overlap :] == ids[1 : 1 + overlap]
                assert len(ids) - 2 > overlap, "the last window brings something new"
            pieces += ids[1 + (overlap if place else 0) : -1]
        assert pieces == whole[1:-1]
        assert found.num_tokens_before[number] == len(whole)


def test_texts_that_fit_are_one_window_each(tokenizer: BertTokenizer) -> None:
    texts = ["good film", "bad"]
    found, plain = featurize_windows(texts, tokenizer, 20), featurize_texts(texts, None, tokenizer, max_length=20)
    assert found.sizes.tolist() == [1, 1]
    assert found.sequences.ids.tolist() == plain.ids.tolist()
