"""CoNLL files of every make are read into the same entities; what is wrong is named with file and line."""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertkit.errors import CheckpointError, ConfigError, DataError, InputError
from bertkit.metrics.tags import Entity, notation_of, read_entities, read_strictly, spelling_of, write_tags
from bertkit.ragged import Ragged, boundaries_of
from bertkit.tasks.examples import Examples
from bertkit.tasks.hold_out import plain_text
from bertkit.tasks.pieces import Pieces
from bertkit.tasks.registry import task_from_dict, task_to_dict
from bertkit.tasks.tokens.features import TokenWindows
from bertkit.tasks.tokens.metrics import entity_scores
from bertkit.tasks.tokens.reading import hold_out_sentences, ner_task, tagged_files
from bertkit.tasks.tokens.report import near_tags, tagged_report
from bertkit.tasks.tokens.task import TaggedExample, TaggedExamples, TokenTask, score_tags
from bertkit.tasks.workflow import workflow_of

ANN = (Entity("PER", 0, 2), Entity("LOC", 3, 4))
TASK = TokenTask("ner", ("LOC", "PER"))


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(path: Path, task: TokenTask = TASK, **options: str) -> Examples[TaggedExample]:
    return workflow_of(task).read(path, "train", **options)  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------------- formats


@pytest.mark.parametrize(
    "text",
    [
        "Ann B-PER\nBee I-PER\nin O\nRome B-LOC\n",
        "Ann\tB-PER\nBee\tI-PER\nin\tO\nRome\tB-LOC",
        "Ann\tB-PER\r\nBee\tI-PER\r\nin\tO\r\nRome\tB-LOC\r\n\r\n",
        "\ufeffAnn B-PER\nBee I-PER\nin O\nRome B-LOC\n\n\n",
        "-DOCSTART- -X- -X- O\n\nAnn NNP I-NP I-PER\nBee NNP I-NP I-PER\nin IN I-PP O\nRome NNP I-NP I-LOC\n",
        "Ann   NNP  B-PER \nBee NNP E-PER\nin IN O\nRome NNP S-LOC\n",
        "Ann B-PER\nBee L-PER\nin O\nRome U-LOC\n",
        "Ann PER\nBee PER\nin O\nRome LOC\n",
        "# id = 3\nAnn I-PER\nBee I-PER\nin O\nRome I-LOC\n",
        "# id 9f0 x\nAnn _ _ B-PER\nBee _ _ I-PER\nin _ _ O\nRome _ _ B-LOC\n",
        "Ann B-PER\nBee I-PER\nin O\nRome I-LOC\n",
    ],
)
def test_formats_and_schemes_give_the_same_entities(text: str, tmp_path: Path) -> None:
    (example,) = read(write(tmp_path / "train.conll", text))
    assert example.words == ("Ann", "Bee", "in", "Rome")
    assert example.entities == ANN
    assert example.tags == ["B-PER", "I-PER", "O", "B-LOC"]
    assert example.text == "Ann Bee in Rome"
    assert [example.text[start:end] for start, end in example.spans] == list(example.words)


def test_columns_may_stand_anywhere_and_files_may_be_packed(tmp_path: Path) -> None:
    text = "B-PER;x;Ann\nI-PER;x;Bee\nO;x;in\nB-LOC;x;Rome\n"
    path = tmp_path / "train.conll.xz"
    path.write_bytes(lzma.compress(text.encode()))
    task = ner_task(path, word_column=3, tag_column=1, delimiter=";")
    assert task.types == ("LOC", "PER")
    assert read(path, task)[0].entities == ANN


def test_with_tabs_a_word_may_be_blank_or_empty_and_a_line_of_white_space_ends_a_sentence(tmp_path: Path) -> None:
    path = write(tmp_path / "train.conll", "New York\tB-LOC\n\u00a0\tO\n\tO\n \tO\n\t\nAnn\tB-PER\n")
    first, second = read(path)
    assert first.words == ("New York", "\u00a0", "", " ")
    assert second.row == 6
    assert [first.text[start:end] for start, end in first.spans] == list(first.words)


def test_a_hash_is_a_word_where_it_has_a_tag(tmp_path: Path) -> None:
    path = write(tmp_path / "train.conll", "# O\nAnn B-PER\n\n# one two\n# O\nRome B-LOC\n\n# B-PER\n")
    assert [example.words for example in read(path)] == [("#", "Ann"), ("#", "Rome"), ("#",)]
    bare = write(tmp_path / "bare.conll", "Ann PER\n\n# PER\n")
    assert [example.words for example in read(bare)] == [("Ann",), ("#",)]


def test_documents_are_counted_and_rows_point_at_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "train.conll", "-DOCSTART- O\n\na O\n\nb B-PER\n\n-DOCSTART- O\nc O\nd O\n")
    assert [(example.document, example.row) for example in read(path)] == [(1, 3), (1, 5), (2, 8)]
    assert read(path)[1].where == f"{path}:5"


def write_parquet(path: Path, rows: list[dict[str, object]], names: list[str] | None) -> Path:
    """As the Hub writes it: with names, tags are numbers, and the names stand in the notes of the schema."""
    table = pa.Table.from_pylist(rows)
    if names is not None:
        feature = {"feature": {"names": names, "_type": "ClassLabel"}, "_type": "List"}
        notes = {"info": {"features": {"tokens": {}, "ner_tags": feature}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(notes)})
    pq.write_table(table, path)
    return path


def test_rows_of_words_and_tags(tmp_path: Path) -> None:
    words = ["Ann", "Bee", "in", "Rome"]
    file = tmp_path / "train.jsonl"
    rows = [{"id": 1, "words": words, "tags": ["B-PER", "I-PER", "O", "B-LOC"]}, {"words": [], "tags": []}]
    write(file, "".join(json.dumps(row) + "\n" for row in rows))
    (example,) = read(file)
    assert (example.words, example.entities, example.row) == (tuple(words), ANN, 1)
    numbers = [{"tokens": words, "ner_tags": [3, 4, 0, 1]}] * 2
    named = write_parquet(tmp_path / "x.parquet", numbers, ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"])  # type: ignore[arg-type]
    task = ner_task(named)
    assert task.types == ("LOC", "PER")
    assert [(example.entities, example.row) for example in read(named, task)] == [(ANN, 1), (ANN, 2)]
    test = write(tmp_path / "test.jsonl", '{"tokens": ["Ann", "spoke"]}\n')
    assert workflow_of(TASK).read(test, "test")[0].entities is None
    tagged = write(tmp_path / "test.jsonl", '{"tokens": ["Ann"], "tags": ["B-PER"]}\n')
    assert workflow_of(TASK).read(tagged, "test")[0].entities == (Entity("PER", 0, 1),)


def test_rows_without_tags_are_all_or_none(tmp_path: Path) -> None:
    bare, tagged = '{"tokens": ["Ann"]%s}\n', '{"tokens": ["Ann"], "ner_tags": ["B-PER"]}\n'
    nothing = write(tmp_path / "null.jsonl", bare % ', "ner_tags": null' + bare % "")
    assert [example.entities for example in workflow_of(TASK).read(nothing, "test")] == [None, None]
    for text in (bare % "" + tagged, tagged + bare % "", tagged + bare % ', "ner_tags": null'):
        with pytest.raises(DataError, match=r"no 'ner_tags', but line . has them"):
            workflow_of(TASK).read(write(tmp_path / "mixed.jsonl", text), "test")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{"tokens": ["a"], "tags": ["O"]}\n{"tokens": ["a"], "tags": []}\n',
            r":2: column 'tags' holds 0 tags for 1 word\.",
        ),
        ('{"tokens": "a b", "tags": ["O"]}\n', r":1: column 'tokens' holds 'a b', expected a list of words"),
        ('{"tokens": ["a"], "tags": [1]}\n', r":1: .*numbers, and the file does not name them"),
        ('{"text": "a", "tags": ["O"]}\n', r"no words column 'tokens' or 'words'.*rename the column that holds them"),
        ('{"tokens": ["a"], "x": ["O"]}\n', r"no tags column 'ner_tags'"),
        ('{"tokens": [], "tags": []}\n', r"has no sentence in column tokens or words"),
        ('{"tokens": ["a"], "tags": ["B-TOWN"]}\n', r":1: tag 'B-TOWN' is of no known type"),
    ],
)
def test_a_bad_row_is_named(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said):
        read(write(tmp_path / "train.jsonl", text))


def test_numbers_of_no_tag_are_named(tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "train.parquet", [{"tokens": ["a"], "ner_tags": [7]}], ["O", "B-PER"])
    with pytest.raises(DataError, match=r":1: column 'ner_tags' holds \[7\], expected numbers from 0 to 1"):
        read(file)


# ----------------------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Ann B-PER\nBee\n", r":2: the line has 1 column, the file began with 2 \(separated by blanks\)"),
        ("Ann\tB-PER\nBee I-PER\n", r":2: the line has 1 column, the file began with 2 \(separated by tabs\)"),
        ("Ann B-PER\nRome B-LOK\n", r":2: tag 'B-LOK' is of no known type \(did you mean 'LOC'\?\); the types are"),
        ("Ann\tB-PER\nRome\t\n", r":2: no tag in column -1"),
        ("Ann\nBee\n", r":1: one column only, where a word and its tag are expected. Separate them"),
        (b"Ann B-PER\ncaf\x81 O\n", r":2: byte 4 of the line, 0x81, is not UTF-8"),
        (b"Ann B-PER\na\0b O\n", r":2: a NUL byte"),
        ("", "is empty: expected one word and its tag a line"),
        ("\n\n-DOCSTART- O\n", "is empty"),
    ],
)
def test_a_bad_line_is_named(text: str | bytes, said: str, tmp_path: Path) -> None:
    path = write(tmp_path / "train.conll", text)
    with pytest.raises(DataError, match=said) as caught:
        read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("end", ["", "\t", "\t\t"])
def test_tabs_at_the_end_of_every_line_begin_no_column(end: str, tmp_path: Path) -> None:
    lines = ["-DOCSTART-", "", "# a comment", "Ann\tB-PER", "in\tO", "", "# another", "Rome\tB-LOC"]
    text = "".join(line + (end if "\t" in line else "") + "\n" for line in lines)
    path = write(tmp_path / "train.conll", text)
    assert ner_task(path).types == ("LOC", "PER")
    assert [(example.words, example.tags) for example in read(path)] == [
        (("Ann", "in"), ["B-PER", "O"]),
        (("Rome",), ["B-LOC"]),
    ]
    words = write(tmp_path / "test.conll", f"Ann{end}\nin{end}\n")
    assert [example.words for example in workflow_of(TASK).read(words, "test")] == [("Ann", "in")]


def test_what_to_do_about_many_rows_is_said_once(tmp_path: Path) -> None:
    path = write(tmp_path / "test.txt", "It was late\n" + "Ann went home to Rome\n" * 30)
    with pytest.raises(DataError, match=r"(?s)test.txt:2: the line has 5 columns.*and 20 more") as caught:
        workflow_of(TASK).read(path, "test")
    assert str(caught.value).count("Is this running text?") == 1


def test_one_column_is_not_both(tmp_path: Path) -> None:
    path = write(tmp_path / "train.conll", "Ann NNP B-PER\n")
    with pytest.raises(DataError, match=r":1: column 3 of 3 is named for the word and for the tag; name two"):
        ner_task(path, word_column=3)


def test_skipping_leaves_out_the_sentence_of_a_bad_line_and_lists_the_line(tmp_path: Path) -> None:
    text = b"Ann B-PER\n\nBee B-PER\nin\nRome B-LOC\n\ncaf\x81 O\nx O\n\nOslo B-TOWN\n\nRome B-LOC\n"
    found = read(write(tmp_path / "train.conll", text), on_error="skip")
    assert [example.words for example in found] == [("Ann",), ("Rome",)]
    assert [(row.where.rpartition(":")[2], row.kind) for row in found.skipped] == [
        ("4", "ragged line"),
        ("7", "not UTF-8"),
        ("10", "unknown type"),
    ]
    with pytest.raises(DataError, match=r"no row can be used; the first of 1: .*:2: the line has 1 column,"):
        read(write(tmp_path / "all.conll", "a O\nb\n"), on_error="skip")


def test_running_text_is_not_taken_for_words(tmp_path: Path) -> None:
    for text in ("It was late.\nAnn went home to Rome.\n", "Ann went home.\n"):
        with pytest.raises(DataError, match=r"Is this running text\? bertkit tag --file reads one text per line"):
            workflow_of(TASK).read(write(tmp_path / "test.txt", text), "test")


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "train.conll.xz"
    path.write_bytes(lzma.compress(b"Ann B-PER\n" * 99)[:-20])
    with pytest.raises(DataError, match="damaged or cut short"):
        read(path)


def test_the_wrong_column_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "train.conll", "".join(f"O word{number}\n\n" for number in range(300)))
    with pytest.raises(DataError, match=r"300 different entity types.*Is this the column of the tags"):
        ner_task(path)
    with pytest.raises(DataError, match=":1: the file has 2 columns, so there is no column 4"):
        ner_task(path, tag_column=4)
    with pytest.raises(ConfigError, match="there is no column 0"):
        ner_task(path, tag_column=0)
    with pytest.raises(DataError, match="every word is tagged O"):
        ner_task(write(tmp_path / "none.conll", "a O\nb O\n"))


# ------------------------------------------------------------------------------------------------ files and the task


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["train.conll", "dev.conll", "test.conll"], ["train.conll", "dev.conll", "test.conll"]),
        (["eng.train", "eng.testa", "eng.testb"], ["eng.train", "eng.testa", "eng.testb"]),
        (
            ["wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"],
            ["wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"],
        ),
        (["de-train.tsv", "valid.txt", "README.md"], ["de-train.tsv", "valid.txt"]),
        (["fin5_train.conll.xz", "fin3_test.conll"], ["fin5_train.conll.xz", "fin3_test.conll"]),
        (["wikigold.conll.txt", "LICENSE"], ["wikigold.conll.txt"]),
        (["nertrain.txt", "nerdev.txt", "ner2test.txt", "latest.txt"], ["nertrain.txt", "nerdev.txt", "ner2test.txt"]),
        (["contest.txt"], ["contest.txt"]),
    ],
)
def test_names_tell_the_split(names: list[str], expected: list[str], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert [path.name for path in tagged_files(tmp_path).values()] == expected


def test_what_is_not_clear_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        tagged_files(tmp_path / "nowhere")
    for name in ("a.conll", "b.conll"):
        write(tmp_path / name, "Ann B-PER\n")
    with pytest.raises(
        DataError, match=r"no data of task ner in .*\.conll.*; found 'a.conll', 'b.conll'\. Give the path"
    ):
        tagged_files(tmp_path)
    task = TokenTask("ner", ("PER",))
    assert workflow_of(task).read(tmp_path / "a.conll", "test").path == tmp_path / "a.conll"
    for name in ("a.train.conll", "b.train.conll"):
        write(tmp_path / name, "Ann B-PER\n")
    with pytest.raises(DataError, match=r"has 2 files for train: 'a.train.conll', 'b.train.conll'"):
        tagged_files(tmp_path)
    with pytest.raises(DataError, match=r"no dev file in .*only train"):
        workflow_of(task).read(tmp_path / "a.train.conll", "dev")


def test_a_test_file_may_have_words_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "test.conll", "Ann\nspoke\n\nRome\n")
    found = workflow_of(TASK).read(path, "test")
    assert [example.words for example in found] == [("Ann", "spoke"), ("Rome",)]
    assert found.spelling is None
    with pytest.raises(DataError, match=":1: the sentence has no tags"):
        _ = found[0].tags


def test_a_task_survives_json_and_has_bio_labels(tmp_path: Path) -> None:
    task = ner_task(write(tmp_path / "x.conll", "Ann I-b\nBee I-a\n"), joiner="")
    assert task.labels == ("O", "B-a", "I-a", "B-b", "I-b")
    assert task.numbers_of(["I-b", "O"]) == [4, 0]
    assert task.notes == ("train is tagged in IO, where neighbours of one type are one entity",)
    assert task_from_dict(json.loads(json.dumps(task_to_dict(task)))) == task
    with pytest.raises(ConfigError, match="listed twice"):
        TokenTask("x", ("A", "A"))
    with pytest.raises(ConfigError, match="no entity types"):
        TokenTask("x", ())
    with pytest.raises(ConfigError, match="unknown metric 'f2'"):
        TokenTask("x", ("A",), metrics=("f2",))
    with pytest.raises(ConfigError, match="main_metric 'f1' is not one of"):
        TokenTask("x", ("A",), metrics=("precision",))
    with pytest.raises(CheckpointError, match=r"a task is damaged: .*main_metric 'f1' is not"):
        task_from_dict({**task_to_dict(task), "metrics": ["precision"]})


def test_without_blanks_between_words_the_text_has_none(tmp_path: Path) -> None:
    path = write(tmp_path / "train.conll", "東 B-LOC\n京 I-LOC\nは O\n")
    (example,) = read(path, ner_task(path, joiner=""))
    assert example.text == "東京は"
    assert [example.text[start:end] for start, end in example.spans] == ["東", "京", "は"]


def test_perfect_predictions_score_one_and_nothing_scores_zero() -> None:
    tags = [["B-PER", "I-PER", "O"], ["B-LOC"]]
    assert score_tags(TASK, tags, tags) == dict.fromkeys(TASK.metrics, 1.0)
    nothing = score_tags(TASK, [["O"] * 3, ["O"]], tags)
    assert nothing == {**dict.fromkeys(TASK.metrics, 0.0), "tag_accuracy": 0.25}


# ----------------------------------------------------------------------------------------------------------- tags


def in_bio(tags: list[str]) -> list[str]:
    return write_tags(read_entities(tags), len(tags))


def test_the_repair_rule() -> None:
    assert in_bio(["I-PER", "I-LOC", "I-LOC", "O", "I-LOC", "B-LOC"]) == [
        "B-PER",
        "B-LOC",
        "I-LOC",
        "O",
        "B-LOC",
        "B-LOC",
    ]
    assert in_bio(["E-X", "I-X", "S-X", "I-X", "B-X", "O", "B-X", "I-Y", "E-Y"]) == [
        *["B-X", "B-X", "B-X", "B-X", "B-X", "O", "B-X", "B-Y", "I-Y"],
    ]


@pytest.mark.parametrize(
    ("sentences", "scheme", "repaired"),
    [
        (["B-A I-A O B-A", "O O"], "BIO", 0),
        (["B-A I-A O I-A", "B-A"], "BIO", 1),
        (["I-A B-A O I-A"], "IOB1", 0),
        (["I-A I-A O I-B"], "IO", 0),
        (["B-A E-A S-A O"], "BIOES", 0),
        (["B-A I-A O S-A"], "BIOES", 1),
        (["B-A L-A U-A O"], "BIOES", 0),
        (["A A O B"], "bare", 0),
        (["E-mail person O E-mail"], "bare", 0),
        (["B-A E-A O", "S-A O S-B", "-"], "BIOES", 1),
        (["B-A I-A O E-mail person"], "IOB1", 1),
        (["O O"], "BIO", 0),
        (["A-B A-I O B-B"], "BIO", 0),
        (["A-I A-I O A-I A-B"], "IOB1", 0),
    ],
)
def test_the_scheme_is_found_out(sentences: list[str], scheme: str, repaired: int) -> None:
    spelling = spelling_of([tags.split() for tags in sentences])
    assert (spelling.scheme, spelling.repaired) == (scheme, repaired)


def test_types_may_look_like_letters() -> None:
    tags = ["E-mail", "E-mail", "O", "U-boat"]
    assert read_entities(tags, notation_of([*tags, "person"])) == [Entity("E-mail", 0, 2), Entity("U-boat", 3, 4)]
    assert read_entities(["B-creative-work", "I-creative-work"]) == [Entity("creative-work", 0, 2)]


def test_wrong_calls_are_refused() -> None:
    with pytest.raises(InputError, match="overlaps"):
        write_tags([Entity("A", 0, 2), Entity("B", 1, 3)], 3)
    with pytest.raises(InputError, match="leaves a sentence of 3 words"):
        write_tags([Entity("A", 2, 4)], 3)
    with pytest.raises(InputError, match="the strict scheme must be BIO or BIOES"):
        read_strictly(["O"], "IO")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="tag 'E-A' does not belong to the scheme BIO"):
        read_strictly(["E-A"])
    for wrong in ([["O"], ["O"]], [["O", "O"]]):
        with pytest.raises(InputError, match=r"2 predicted sentences|sentence 0 has 1 word, but 2 predicted"):
            entity_scores(wrong, [["O"]])
    with pytest.raises(InputError, match="a flat list of tags"):
        entity_scores(["O"], [["O"]])
    with pytest.raises(InputError, match="nothing to score"):
        entity_scores([[]], [[]])
    with pytest.raises(InputError, match=r"unknown mode 'strickt'.*did you mean 'strict'"):
        entity_scores([["O"]], [["O"]], mode="strickt")  # type: ignore[arg-type]


def test_the_table_of_types() -> None:
    scores = entity_scores([["B-A", "O", "B-B"]], [["B-A", "B-A", "O"]])
    assert scores.by_class["A"].to_dict() == {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3), "support": 2}
    assert scores.to_dict()["micro"]["precision"] == 0.5
    head, a, b, *_, total = scores.render().splitlines()
    assert head.split() == ["type", "precision", "recall", "f1", "entities"]
    assert a.split() == ["A", "1.0000", "0.5000", "0.6667", "2"]
    assert b.split() == ["B", "0.0000", "0.0000", "0.0000", "0"]
    assert total.split()[0] == "(micro"


# ----------------------------------------------------------------------------------------- held out


def sentences(count: int, *, documents: int = 0) -> Examples[TaggedExample]:
    rows = [
        TaggedExample(
            (f"w{number % (count - 5)}", "in", "Rome"),
            (Entity("LOC", 2, 3),) if number % 3 == 0 else (),
            number + 1,
            "f",
            number % documents + 1 if documents else 0,
        )
        for number in range(count)
    ]
    return Examples(rows, Path("f"), "train")


def test_equal_sentences_and_documents_are_not_torn_apart() -> None:
    stay, held = hold_out_sentences(sentences(100), 0.2, seed=1)
    assert len(held) == pytest.approx(20, abs=2)
    assert sorted([*stay, *held], key=lambda example: example.row) == list(sentences(100))
    assert not {plain_text(row.text) for row in stay} & {plain_text(row.text) for row in held}
    assert any(example.entities for example in held)
    stay, held = hold_out_sentences(sentences(200, documents=25), 0.2, seed=1)
    assert not {example.document for example in stay} & {example.document for example in held}
    assert hold_out_sentences(sentences(100), 0.2, seed=1) == hold_out_sentences(sentences(100), 0.2, seed=1)
    assert hold_out_sentences(sentences(100), 0.2, seed=1) != hold_out_sentences(sentences(100), 0.2, seed=2)


def test_what_cannot_be_held_out_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"at most 0\.5"):
        hold_out_sentences(sentences(100), 0.6, 0)
    with pytest.raises(DataError, match="without tags"):
        hold_out_sentences(Examples([TaggedExample(("a",)), TaggedExample(("b",))]), 0.2, 0)
    with pytest.raises(DataError, match="too few"):
        hold_out_sentences(Examples([TaggedExample(("a",), ())]), 0.2, 0)


# ------------------------------------------------------------------------------------------------------- real data


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "split", "num_sentences", "num_words", "scheme", "entities"),
    [
        ("wnut17", "train", 3394, 62_730, "BIO", {"person": 660, "location": 548, "creative-work": 140}),
        ("wnut17", "dev", 1009, 15_733, "BIO", {"person": 470}),
        ("btc/f.conll", "train", 2000, 35_427, "BIO", {"PER": 2650, "ORG": 1090, "LOC": 636}),
        ("wikigold", "train", 1696, 39_007, "IO", {"LOC": 1014, "MISC": 712, "ORG": 898, "PER": 934}),
        ("sec_filings", "test", 303, 13_246, "IO", {"PER": 216}),
    ],
)
def test_real_files(
    name: str, split: str, num_sentences: int, num_words: int, scheme: str, entities: dict[str, int], shared: Path
) -> None:
    data = shared / "data" / "ner" / name
    found = workflow_of(ner_task(data)).read(data, split)  # type: ignore[arg-type]
    assert len(found) == num_sentences
    assert sum(len(example.words) for example in found) == num_words
    assert found.spelling is not None
    assert (found.spelling.scheme, found.spelling.repaired) == (scheme, 0)
    assert entities.items() <= found.spelling.entities.items()


def test_reading_imports_no_torch() -> None:
    code = "import sys, bertkit.tasks.tokens.task, bertkit.tasks.tokens.report, bertkit.tasks.tokens.baseline"
    code += "; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def windows_like(num_pieces: list[int], num_rows: int, first_pieces: list[int]) -> TokenWindows:
    """What the report counts of windows; no token ids."""
    none = np.zeros(0, dtype=np.int64)
    rows = Ragged(none.astype(np.int32), np.zeros(num_rows + 1, dtype=np.int64), none.astype(np.int8), none)
    pieces = Pieces((), none.astype(np.int32), boundaries_of(num_pieces), none, none, none)
    return TokenWindows(rows, pieces, none, none, np.array(first_pieces))


def test_the_report_tells_what_should_make_a_reader_stop() -> None:
    rome, ann = Entity("LOC", 0, 1), Entity("PER", 0, 1)
    train = Examples(
        [TaggedExample(("Rome", "is"), (rome,)), TaggedExample(("rome", " is"), ())], Path("a/train.conll")
    )
    dev = Examples([TaggedExample(("Rome", "is"), (rome,)), TaggedExample(("Ann",), (ann,))], skipped=[])
    encoded = {"train": windows_like([2, 2], 2, [0, -1]), "dev": windows_like([2, 38], 3, [0, 0, 0])}
    report = tagged_report(TASK, {"train": train, "dev": dev}, encoded, max_length=24)
    assert report.overlap == {"dev": 1}
    said = report.render()
    for line in (
        "train: 2 sentences, 4 words from train.conll",
        "NO ENTITY of type 'PER'",
        "1 word without a word piece; predicted O, or as the entity around it",
        "2 words beginning in the same word piece as the word before, and sharing its label",
        "duplicates: 1 sentence with the words of an earlier one",
        "CONTRADICTIONS: 2 sentences with the same words but several sets of entities",
        "word pieces of a sentence: 4 to 40, median 22; windows of 24 make 3 rows",
        "50.0 % of the entities are not in train",
        "LEAK: 1 of 2 dev sentences (50.0 %) are also in train",
    ):
        assert line in said, said
    assert json.loads(json.dumps(report.to_dict()))["splits"]["dev"]["unseen"] == 0.5
    assert "NEAR-TAGS" not in said
    near = TokenTask("ner", ("B_PER", "LOC", "b-per", "e-mail", "o", "0"))
    (line,) = near_tags(near.types)
    assert line.endswith(
        "letter: 'B_PER' (is it 'B-PER'?), 'b-per' (is it 'B-per'?), 'o' (is it 'O'?), '0' (is it 'O', the letter?)"
    )
    assert line in tagged_report(near, {"dev": dev}, {"dev": encoded["dev"]}, max_length=24).render()
    broken = load_tagged_text("I-PER O\n")
    assert (
        "REPAIRED: 1 tag outside the scheme BIO"
        in tagged_report(TASK, {"train": broken}, {"train": encoded["train"]}, max_length=24).render()
    )
    assert (
        "1 sentence without tags"
        in tagged_report(TASK, {"test": [TaggedExample(("a",))]}, {"test": encoded["train"]}, max_length=24).render()
    )


def load_tagged_text(tags: str) -> Examples[TaggedExample]:
    """One sentence with these tags behind one that keeps to BIO."""
    rows = [TaggedExample(("a",), (Entity("PER", 0, 1),)), TaggedExample(("a", "b"), (Entity("PER", 0, 1),))]
    found = TaggedExamples(rows)
    found.spelling = spelling_of([["B-PER"], tags.split()])
    return found
