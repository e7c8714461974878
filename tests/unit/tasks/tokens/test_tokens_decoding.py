"""From probabilities of pieces to entities: what each strategy does, and where an entity begins and ends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit import BertForTokenClassification, BertTokenizer, pipeline
from bertkit.batch import collate
from bertkit.errors import ConfigError, InputError
from bertkit.tasks.pieces import Pieces
from bertkit.tasks.tokens.decoding import STRATEGIES, Strategy, find_entities, word_labels
from bertkit.tasks.tokens.features import TokenWindows, windows_of_texts, windows_of_words
from pipeline_helpers import VOCABULARY, save_tiny

LABELS = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"}


def tokenizer(**options: Any) -> BertTokenizer:
    return BertTokenizer({token: number for number, token in enumerate(VOCABULARY)}, **options)


def pieces_of(text: str, spans: list[tuple[int, int]], inside: Sequence[int] = ()) -> Pieces:
    """One text's pieces; those with the numbers ``inside`` go on with the word of the one before."""
    starts, ends = np.array(spans, dtype=np.int64).T
    words = np.cumsum(~np.isin(np.arange(len(spans)), inside)) - 1
    return Pieces((text,), np.zeros(len(spans), np.int32), np.array([0, len(spans)]), starts, ends, words)


def found_in(pieces: Pieces, *arguments: Any, **options: Any) -> list[dict[str, Any]]:
    """The entities of the only text."""
    (found,) = find_entities(pieces, *arguments, **options)
    return found


def sure(*labels: int, of: int = 5, rest: float = 0.1) -> np.ndarray:
    """Probabilities with the given label far ahead in each row."""
    table = np.full((len(labels), of), rest)
    table[np.arange(len(labels)), labels] = 1 - rest * (of - 1)
    return table


def told(entities: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return [(entity["entity_group"], entity["start"], entity["end"]) for entity in entities]


def test_the_strategies_read_a_torn_word_each_in_its_way() -> None:
    """ "micro|soft| com|pany" with B-PER I-LOC | I-PER I-PER, the second piece the surest."""
    text = "microsoft company"
    pieces = pieces_of(text, [(0, 5), (5, 9), (10, 13), (13, 17)], [1, 3])
    table = np.array(
        [
            [0.1, 0.4, 0.2, 0.1, 0.2],
            [0.0, 0.0, 0.1, 0.0, 0.9],
            [0.1, 0.0, 0.6, 0.1, 0.2],
            [0.1, 0.0, 0.7, 0.1, 0.1],
        ]
    )
    found = {name: found_in(pieces, table, LABELS, name) for name in ("simple", "first", "average", "max")}
    assert told(found["simple"]) == [("PER", 0, 5), ("LOC", 5, 9), ("PER", 10, 17)]
    assert told(found["first"]) == [("PER", 0, 17)]
    assert found["first"][0]["score"] == pytest.approx((0.4 + 0.6) / 2)
    assert told(found["average"]) == [("LOC", 0, 9), ("PER", 10, 17)]
    assert found["average"][0]["score"] == pytest.approx((0.2 + 0.9) / 2)
    assert told(found["max"]) == [("LOC", 0, 9), ("PER", 10, 17)]
    assert found["max"][0]["score"] == pytest.approx(0.9)
    single = found_in(pieces, table, LABELS, "none")
    assert [(e["entity"], e["index"], e["word"]) for e in single] == [
        ("B-PER", 1, "micro"),
        ("I-LOC", 2, "soft"),
        ("I-PER", 3, "com"),
        ("I-PER", 4, "pany"),
    ]


def test_a_new_beginning_ends_an_entity_and_ignored_types_are_left_out() -> None:
    pieces = pieces_of("a b c d", [(0, 1), (2, 3), (4, 5), (6, 7)])
    table = sure(1, 1, 2, 4)
    assert told(found_in(pieces, table, LABELS)) == [("PER", 0, 1), ("PER", 2, 5), ("LOC", 6, 7)]
    assert told(found_in(pieces, table, LABELS, ignore_labels=["PER"])) == [("LOC", 6, 7)]
    assert told(found_in(pieces, sure(0, 0, 1, 0), LABELS, ignore_labels=[])) == [
        ("O", 0, 3),
        ("PER", 4, 5),
        ("O", 6, 7),
    ]


@pytest.mark.parametrize("strategy", ["simple", "first", "average", "max"])
def test_a_type_called_o_is_not_the_tag_o(strategy: Strategy) -> None:
    pieces = pieces_of("a b c d", [(0, 1), (2, 3), (4, 5), (6, 7)])
    labels = {0: "O", 1: "B-O", 2: "I-O"}
    table = sure(0, 1, 2, 0, of=3)
    assert told(found_in(pieces, table, labels, strategy)) == [("O", 2, 5)]
    assert told(found_in(pieces, table, labels, strategy, ())) == [("O", 0, 1), ("O", 2, 5), ("O", 6, 7)]


def test_a_model_without_the_tag_o_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for names, told_of in ((["b-per", "i-per", "o"], True), (["NOUN", "VERB", "X"], False), (["O", "o", "x"], False)):
        folder = save_tiny(tmp_path / names[0], BertForTokenClassification, id2label=dict(enumerate(names)))
        pipeline("token-classification", model=folder, device="cpu")
        assert ("the model has no tag 'O'" in capsys.readouterr().err) == told_of


def test_tags_of_bioes_are_read_as_such() -> None:
    labels = {0: "O", 1: "S-PER", 2: "B-PER", 3: "E-PER"}
    pieces = pieces_of("a b c d e", [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)])
    assert told(found_in(pieces, sure(1, 1, 2, 3, 0, of=4), labels)) == [
        ("PER", 0, 1),
        ("PER", 2, 3),
        ("PER", 4, 7),
    ]


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("Jose\u0301 was", ["José".replace("é", "e\u0301")], ["Jose\u0301"]),  # the accent stays with its letter
        ("le cafe\u0301", ["cafe\u0301"], ["cafe\u0301"]),
        ("a ❤\ufe0f b", ["❤\ufe0f"], ["❤\ufe0f"]),
        ("New York\r\nis", ["New York"], ["New York"]),
        ("in 東京都。", ["東京都"], ["東京都"]),
        ("x 👩‍👩‍👧 y", ["👩‍👩‍👧"], ["👩‍👩‍👧"]),
        ("hi @bob!", ["@bob"], ["@bob"]),
    ],
)
def test_an_entity_is_whole_in_every_script(text: str, words: list[str], expected: list[str]) -> None:
    """Pieces inside of the words are labelled, and what comes out are the words as they were written."""
    chars = sorted({char for char in "東京都。❤👩👧@!" if char not in VOCABULARY})
    known = BertTokenizer({token: number for number, token in enumerate([*VOCABULARY, *chars])})
    windows = windows_of_texts([text], known, max_length=64)
    pieces = windows.pieces
    spans = [(text.index(word), text.index(word) + len(word)) for word in words]
    labels, begun = [], set()
    for start, end in zip(pieces.starts.tolist(), pieces.ends.tolist(), strict=True):
        span = next((span for span in spans if span[0] <= start and end <= span[1]), None)
        labels.append(0 if span is None else 2 if span in begun else 1)
        begun |= {span}
    for strategy in ("simple", "first", "average", "max"):
        found = found_in(pieces, sure(*labels), LABELS, strategy)
        assert [entity["word"] for entity in found] == expected, strategy
        assert all(text[entity["start"] : entity["end"]] == entity["word"] for entity in found)


def test_pieces_of_nothing_and_bytes_of_one_character_are_no_entities_of_their_own() -> None:
    """As tokenizers of bytes and of sentences make them: a piece of white space, four pieces of one emoji."""
    text = "New  York 👍"
    pieces = pieces_of(text, [(0, 3), (4, 4), (5, 9), (10, 11), (10, 11)], [4])
    table = sure(1, 0, 2, 3, 1)
    for strategy in ("simple", "first", "max"):
        assert told(found_in(pieces, table, LABELS, strategy)) == [("PER", 0, 9), ("LOC", 10, 11)]
    assert [entity["word"] for entity in found_in(pieces, table, LABELS, "none")] == ["New", "York", "👍", "👍"]
    assert found_in(pieces_of(" ", [(1, 1)]), sure(1), LABELS) == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_texts_at_once_are_texts_one_by_one(strategy: Strategy) -> None:
    """Entities at the edges of texts, and texts without a piece, do not touch each other."""
    random = np.random.default_rng(0)
    texts = ["", "a film", "", "the film is not very good", " ", "bad", "42nd", ""] * 20
    pieces = windows_of_texts(texts, tokenizer(), max_length=64).pieces
    assert {0, 1, 2} < set(np.diff(pieces.boundaries).tolist())
    table = (
        sure(*random.choice(5, len(pieces.ids), p=[0.2, 0.1, 0.4, 0.1, 0.2])) + random.random((len(pieces.ids), 5)) / 9
    )
    together = find_entities(pieces, table, LABELS, strategy, ignore_labels=["O", "PER"])
    assert sum(map(len, together)) > 50
    for number, text in enumerate(texts):
        own = pieces.span(number)
        alone = Pieces(
            (text,),
            pieces.ids[own],
            np.array([0, own.stop - own.start]),
            pieces.starts[own],
            pieces.ends[own],
            pieces.words[own],
        )
        assert found_in(alone, table[own], LABELS, strategy, ignore_labels=["O", "PER"]) == together[number]


def test_words_without_a_piece_are_outside() -> None:
    windows = windows_of_words(["a \u200b b"], [[(0, 1), (2, 3), (4, 5)]], tokenizer(), max_length=8)
    assert [row.tolist() for row in word_labels(sure(1, 2), windows)] == [[1, 0, 2]]
    assert [row.tolist() for row in word_labels(sure(1, 2), windows, outside=4)] == [[1, 4, 2]]


def test_words_of_one_piece_and_words_without_one_go_on_with_an_entity() -> None:
    inner = [0, 2, 2, 4, 4]
    shared = windows_of_words(["กข"], [[(0, 1), (1, 2)]], tokenizer(), max_length=8)  # [UNK] is all of it
    assert [row.tolist() for row in word_labels(sure(1), shared)] == [[1, 1]]
    assert [row.tolist() for row in word_labels(sure(1), shared, inner=inner)] == [[1, 2]]
    words = [[(0, 1), (2, 3), (4, 5), (6, 7)]]
    gap = windows_of_words(["a \u200b \u200b b"], words, tokenizer(), max_length=8)
    for labels, expected in (
        ((1, 2), [1, 2, 2, 2]),
        ((1, 4), [1, 0, 0, 4]),
        ((1, 1), [1, 0, 0, 1]),
        ((0, 2), [0, 0, 0, 2]),
    ):
        assert [row.tolist() for row in word_labels(sure(*labels), gap, inner=inner)] == [expected]
    texts = windows_of_words(["a \u200b", "b"], [[(0, 1), (2, 3)], [(0, 1)]], tokenizer(), max_length=8)
    assert [row.tolist() for row in word_labels(sure(1, 2), texts, inner=inner)] == [[1, 0], [2]], "of its own text"


def test_all_pieces_of_a_word_may_be_labelled() -> None:
    text, words = "good xyz a", [(0, 4), (5, 8), (9, 10)]
    first = windows_of_words([text], [words], tokenizer(), max_length=16, labels=[[1, 3, 0]])
    every = windows_of_words(
        [text], [words], tokenizer(), max_length=16, labels=[[1, 3, 0]], inner_labels=[0, 2, 2, 4, 4]
    )
    assert first.labels is not None
    assert every.labels is not None
    assert first.labels.tolist() == [-100, 1, 3, -100, -100, 0, -100]
    assert every.labels.tolist() == [-100, 1, 3, 4, 4, 0, -100]
    batch = collate(every.rows, [0], token_targets={"labels": every.labels})
    assert batch.targets["labels"].tolist() == every.labels.tolist()


def test_batches_of_windows_have_the_labels_of_their_rows() -> None:
    words = [[(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)], [(0, 4)]]
    windows = windows_of_words(
        ["a a a a a", "good"], words, tokenizer(), max_length=5, labels=[[1, 2, 0, 3, 4], [1]], overlap=1
    )
    assert len(windows) == 3
    assert windows.row_texts.tolist() == [0, 0, 1]
    batch = collate(windows.rows, [2, 0, 1], token_targets={"labels": windows.labels})
    assert batch.layout.lengths == (3, 5, 5)
    # The third word is in both windows, and counts in the first.
    assert batch.targets["labels"].tolist() == [-100, 1, -100, -100, 1, 2, 0, -100, -100, -100, 3, 4, -100]
    with pytest.raises(InputError, match="no labels"):
        collate(windows.rows, [0], token_targets={"labels": windows_of_texts(["a"], tokenizer(), max_length=5).labels})


def test_windows_that_cannot_be_are_refused() -> None:
    def made(**options: Any) -> TokenWindows:
        return windows_of_texts(["a a a"], tokenizer(), **options)

    with pytest.raises(ConfigError, match="leaves no room"):
        made(max_length=2)
    for overlap in (-1, 3, 9):
        with pytest.raises(ConfigError, match=f"windows of 3 pieces cannot overlap by {overlap}"):
            made(max_length=5, overlap=overlap)
    with pytest.raises(InputError, match="no texts"):
        windows_of_texts([], tokenizer(), max_length=5)
    with pytest.raises(InputError, match="2 labels for 1 word; give one"):
        windows_of_words(["a"], [[(0, 1)]], tokenizer(), max_length=5, labels=[[1, 1]])


@pytest.fixture(scope="module")
def pipe(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = save_tiny(tmp_path_factory.mktemp("m"), BertForTokenClassification, id2label=LABELS)
    return pipeline("token-classification", model=folder, device="cpu")


def test_the_shape_of_the_answer_is_that_of_the_question(pipe: Any) -> None:
    text = "the film is great"
    one = pipe(text)
    assert one
    assert pipe([text, "", text]) == [one, [], one]
    lazy = pipe(iter([text, text]))
    assert next(lazy) == one
    assert pipe([]) == []
    assert pipe(text.split(), is_split_into_words=True) == one
    assert pipe([text.split(), ["a"]], is_split_into_words=True)[0] == one
    assert list(pipe(iter([text.split()]), is_split_into_words=True)) == [one]


def test_a_long_text_is_read_whole_or_said_to_be_cut(pipe: Any) -> None:
    text = "a good film " * 60
    for strategy in ("none", "first"):
        whole = pipe(text, aggregation_strategy=strategy, ignore_labels=[])
        assert whole[-1]["end"] == len(text) - 1
        cut = pipe([text, "a"], aggregation_strategy=strategy, ignore_labels=[], truncation=True, max_length=8)
        assert cut[0][-1]["end"] == len("a good film a good film")
        assert [cut[0][-1]["truncated"], cut[1][-1]["truncated"]] == [True, False]
    none = pipe(text, ignore_labels=[])
    assert [entity["index"] for entity in none] == list(range(1, 181))
    # With windows that share nearly all, each piece is seen from its best side; with none, from one side only.
    near, far = (pipe(text, stride=stride, ignore_labels=[]) for stride in (60, 0))
    assert [entity["start"] for entity in near] == [entity["start"] for entity in far]
    assert near != far


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"aggregation_strategy": "firts"}, r"aggregation_strategy='firts' is unknown \(did you mean 'first'\?\)"),
        ({"stride": 62}, "stride must be a whole number from 0 to 61 for windows of 64 tokens, got 62"),
        ({"stride": True}, "got True"),
        ({"max_length": 65}, "max_length must be from 3 to 64"),
        ({"ignore_labels": "O"}, "ignore_labels must be a list"),
        ({"is_split_into_words": True}, "the input is a list of words, got str"),
    ],
)
def test_wrong_options_are_refused_at_once(pipe: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        pipe("a film", **options)


def test_pairs_are_refused(pipe: Any) -> None:
    with pytest.raises(InputError, match="single texts, got a pair: 'a'"):
        pipe([{"text": "a", "text_pair": "b"}])
