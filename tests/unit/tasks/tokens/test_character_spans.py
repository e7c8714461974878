"""Entities marked by characters are read from, and written to, the forms of annotation tools."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.finetune_data import QUICK, no_pictures
from tests.kinds_data import sentences, tagger_start

from bertkit.bulk.planner import predict_file
from bertkit.errors import ConfigError, DataError, MissingExtraError
from bertkit.inference.evaluate import evaluate_run
from bertkit.metrics.tags import Entity
from bertkit.tasks.examples import Examples
from bertkit.tasks.own_files import task_of
from bertkit.tasks.reading.bad_rows import BadRows
from bertkit.tasks.reading.given_rows import given_data
from bertkit.tasks.reading.splits import SPLIT_NAMES
from bertkit.tasks.tokens.marked_texts import Mark, words_of
from bertkit.tasks.tokens.reading import ner_task, read_tagged
from bertkit.tasks.tokens.span_files import FORMS, Form, Tagged, read_marked, row_of, write_marked
from bertkit.tasks.tokens.task import TaggedExample
from bertkit.tasks.workflow import workflow_of
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_settings import FinetuneConfig

pytestmark = pytest.mark.slow

NAMES = {"spans": "x.jsonl", "doccano": "x.jsonl", "prodigy": "x.jsonl", "label-studio": "x.json", "brat": "x"}
TEXT = "Ann Lee flew to Rome."
MARKS = (Mark(0, 7, "PER"), Mark(16, 20, "LOC"))


def read(path: Path, **options: Any) -> Examples[TaggedExample]:
    return read_tagged(ner_task(path, **options), path, "train", **options)


def marks_in(example: TaggedExample) -> list[Mark]:
    """The entities of an example by the characters of its text."""
    spans = example.spans
    return [Mark(spans[first][0], spans[end - 1][1], kind) for kind, first, end in example.entities or ()]


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


# ------------------------------------------------------------------------------------------------------------- forms


@pytest.mark.parametrize(
    ("row", "form"),
    [
        # As the documentation of each tool shows its export, with other texts.
        ({"text": TEXT, "entities": [{"entity_group": "PER", "score": 0.9, "start": 0, "end": 7, "word": "ann lee"},
                                     {"entity_group": "LOC", "score": 0.9, "start": 16, "end": 20}]}, "own form"),
        ({"text": TEXT, "entities": [[0, 7, "PER"], [16, 20, "LOC"]]}, "own form"),
        ({"id": 1, "text": TEXT, "label": [[0, 7, "PER"], [16, 20, "LOC"]], "Comments": []}, "doccano"),
        ({"id": 1, "text": TEXT, "labels": [[16, 20, "LOC"], [0, 7, "PER"]]}, "doccano"),
        ({"id": 1, "text": TEXT, "relations": [], "entities": [
            {"id": 1, "label": "PER", "start_offset": 0, "end_offset": 7},
            {"id": 2, "label": "LOC", "start_offset": 16, "end_offset": 20}]}, "doccano"),
        ({"text": TEXT, "_input_hash": 1, "tokens": [{"text": "Ann", "start": 0, "end": 3, "id": 0}], "spans": [
            {"start": 0, "end": 7, "token_start": 0, "token_end": 1, "label": "PER"},
            {"start": 16, "end": 20, "label": "LOC"}], "answer": "accept"}, "Prodigy"),
        ({"id": 1, "text": TEXT, "annotator": 1, "label": [
            {"start": 0, "end": 7, "text": "Ann Lee", "labels": ["PER"]},
            {"start": 16, "end": 20, "text": "Rome", "labels": ["LOC"]}]}, "Label Studio"),
        ({"id": 1, "data": {"text": TEXT}, "predictions": [], "annotations": [{"was_cancelled": False, "result": [
            {"id": "a", "type": "labels", "from_name": "label", "to_name": "text",
             "value": {"start": 0, "end": 7, "text": "Ann Lee", "labels": ["PER"]}},
            {"type": "choices", "value": {"choices": ["good"]}},
            {"type": "relation", "from_id": "a", "to_id": "b"},
            {"type": "labels", "value": {"start": 16, "end": 20, "text": "Rome", "labels": ["LOC"]}}]}]},
         "Label Studio"),
    ],
)  # fmt: skip
def test_the_exports_of_tools_are_known_by_their_first_row(row: dict[str, Any], form: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps([row]))
    for file in (path, lines(tmp_path / "x.jsonl", row)):
        (example,) = read(file)
        assert (example.text, marks_in(example)) == (TEXT, list(MARKS))
        task = ner_task(file)
        assert form in " ".join(task.notes)
        assert task.types == ("LOC", "PER")


def test_rows_of_older_releases_of_spacy(tmp_path: Path) -> None:
    row = [TEXT, {"entities": [list(mark) for mark in MARKS]}]
    (tmp_path / "x.json").write_text(json.dumps([row]))
    for data in (tmp_path / "x.json", given_data([row], None, SPLIT_NAMES)):
        assert isinstance(data, Path)
        assert [marks_in(example) for example in read(data)] == [list(MARKS)]


def test_a_folder_of_brat_is_one_split_or_has_them(tmp_path: Path) -> None:
    for split in ("train", "dev"):
        folder = tmp_path / split
        folder.mkdir()
        (folder / "a.txt").write_bytes(b"Ann Lee\r\nflew to Rome.\r\n")
        (folder / "a.ann").write_text(
            "T1\tPER 0 7\tAnn Lee\nT2\tLOC 17 21\tRome\nR1\tIn Arg1:T1 Arg2:T2\t\n#1\tAnnotatorNotes T1\twho\n"
        )
    (example,) = read(tmp_path / "train")
    assert marks_in(example) == [Mark(0, 7, "PER"), Mark(17, 21, "LOC")]
    assert example.where.endswith("a.txt:1")
    work = workflow_of(ner_task(tmp_path))
    assert list(work.splits(tmp_path)) == ["train", "dev"]
    assert len(work.read(tmp_path, "dev")) == 1
    (tmp_path / "mine").mkdir()
    for name in ("a.txt", "a.ann"):
        (tmp_path / "train" / name).rename(tmp_path / "mine" / name)
    assert list(work.splits(tmp_path / "mine")) == ["train"]
    assert len(work.read(tmp_path / "mine", "dev")) == 1, "as a file without a split in its name"


def test_a_docbin_of_spacy(tmp_path: Path) -> None:
    tokens, spacy = pytest.importorskip("spacy.tokens"), pytest.importorskip("spacy")
    path = tmp_path / "x.spacy"
    write_marked(path, "spacy", [Tagged(TEXT, MARKS, "7"), Tagged("Nothing", ())])
    assert [marks_in(example) for example in read(path)] == [list(MARKS), []]
    documents = list(tokens.DocBin().from_disk(path).get_docs(spacy.blank("en").vocab))
    assert [document.user_data.get("id") for document in documents] == ["7", None]
    own = spacy.blank("en")(TEXT)
    own.ents = [own.char_span(mark.start, mark.end, mark.type) for mark in MARKS]
    tokens.DocBin(docs=[own]).to_disk(path)  # as spaCy's own users write it
    assert marks_in(read(path)[0]) == list(MARKS)


@pytest.mark.skipif(find_spec("spacy") is not None, reason="spaCy is installed")
def test_without_spacy_its_extra_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingExtraError, match=re.escape("pip install 'bertkit[spacy]'")):
        write_marked(tmp_path / "x.spacy", "spacy", [Tagged(TEXT, MARKS)])


@pytest.mark.parametrize("form", ["spans", "doccano", "prodigy", "label-studio", "brat"])
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_what_is_written_is_read_back_equal(form: Form, data: st.DataObject) -> None:
    letters = st.text(st.sampled_from("ab é\n\t\r.'東🙂\u0301\u2028"), max_size=12)
    texts: list[tuple[str, list[Mark]]] = []
    for text in data.draw(st.lists(letters.filter(lambda text: bool(text.strip())), min_size=1, max_size=4)):
        places, kinds = words_of(text), st.sampled_from(["PER", "B-x", "é"])
        borders = sorted(data.draw(st.sets(st.integers(0, len(places)), max_size=6)))
        pairs = zip(borders[::2], borders[1::2], strict=False)
        texts.append((text, [Mark(places[a][0], places[b - 1][1], data.draw(kinds)) for a, b in pairs]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / NAMES[form]
        write_marked(path, form, [Tagged(*each, str(number)) for number, each in enumerate(texts)])
        found, read_texts = read_marked(path, BadRows(), None, tagged=True)
        assert [(each.text, list(each.marks or ())) for each in read_texts] == texts
        assert found == form
        if any(marks for _, marks in texts):
            examples = read(path)
            assert [(example.text, marks_in(example)) for example in examples] == texts


@pytest.mark.campaign
def test_real_sentences_survive_as_spans_and_back(shared: Path, tmp_path: Path) -> None:
    gold = shared / "data" / "ner" / "wnut17" / "dev.conll"
    examples = read_tagged(ner_task(gold), gold, "train")[:300]
    texts = [(example.text, marks_in(example)) for example in examples]
    assert sum(len(marks) for _, marks in texts) > 200
    for form, name in NAMES.items():
        write_marked(tmp_path / form / name, form, [Tagged(*each) for each in texts])  # type: ignore[arg-type]
        back = read(tmp_path / form / name)
        kept = [marks_in(example) for example in back]
        # A few marks of these sentences end inside a word of running text, such as "Rob 's".
        assert sum(a == b for a, (_, b) in zip(kept, texts, strict=True)) >= 297
        assert [example.text for example in back] == [text for text, _ in texts]


# ------------------------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't  go.", ["Don", "'", "t", "go", "."]),
        ("a_b\n\u00a0c3", ["a_b", "c3"]),
        ("東京へ行く", ["東", "京", "へ", "行", "く"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("กขa", ["ก", "ข", "a"]),
    ],
)
def test_words_of_running_text(text: str, words: list[str]) -> None:
    assert [text[start:end] for start, end in words_of(text)] == words


def test_a_mark_inside_a_word_takes_the_word_and_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = lines(
        tmp_path / "x.jsonl",
        {"text": "NewYork is", "label": [[3, 7, "LOC"]]},
        {"text": " Oslo is", "label": [[0, 6, "LOC"]]},
    )
    examples = read(path)
    assert [marks_in(example) for example in examples] == [[Mark(0, 7, "LOC")], [Mark(1, 5, "LOC")]]
    assert examples.moved == 1, "white space at the ends of a mark moves nothing"  # type: ignore[attr-defined]
    said = capsys.readouterr().err
    assert re.search(r"x\.jsonl: 1 entity begins or ends inside a word .*x\.jsonl:1: 'York' to 'NewYork'", said)


def test_positions_that_count_in_utf16_are_known_by_the_words(tmp_path: Path) -> None:
    value = {"start": 3, "end": 6, "text": "Ann", "labels": ["PER"]}
    path = lines(tmp_path / "x.jsonl", {"data": {"text": "🙂 Ann"}, "annotations": [{"result": [{"value": value}]}]})
    assert marks_in(read(path)[0]) == [Mark(2, 5, "PER")]


# ------------------------------------------------------------------------------------------------------------ faults


def _studio(*annotations: Sequence[Any]) -> dict[str, Any]:
    made = [
        {"result": [{"value": {"start": s, "end": e, "labels": [k]}} for s, e, k in marks]} for marks in annotations
    ]
    return {"data": {"text": TEXT}, "annotations": made}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": TEXT, "label": [[0, 7, "PER"], [4, 7, "LOC"]]},
         r"x\.jsonl:2: .* 'Ann Lee' at 0:7 \(PER\) and 'Lee' at 4:7 \(LOC\) share the word 'Lee'.*Remove one"),
        ({"text": TEXT, "label": [[0, 2, "PER"], [2, 3, "LOC"]]}, "'An' at 0:2 .* 'n' at 2:3 .* share the word 'Ann'"),
        ({"text": TEXT, "label": [[16, 40, "LOC"]]}, r"x\.jsonl:2: the entity at 16:40 \(LOC\) .* which has 0:21"),
        ({"text": TEXT, "label": [[3, 4, "LOC"]]}, "nothing but white space"),
        ({"text": TEXT, "label": [[3, 3, "LOC"]]}, "does not lie in the text"),
        ({"text": TEXT, "label": [[0, "3", "LOC"]]}, r"expected \[start, end, type\]"),
        ({"text": TEXT, "label": [["LOC", 0, 3]]}, r"expected \[start, end, type\]"),
        ({"text": TEXT, "label": 1}, "'label' holds 1, expected a list such as"),
        ({"text": TEXT}, r"x\.jsonl:2: the text has no list of its entities"),
        ({"text": " ", "label": []}, "is empty"),
        ({"text": TEXT, "label": [{"entity": "B-PER", "index": 1, "start": 0, "end": 3}]}, "without --strategy none"),
        (_studio([(0, 7, "PER")], [(0, 3, "PER")]), "2 annotations that differ"),
        ({"data": {"a": "b", "c": "d"}, "annotations": []}, "'data' has no 'text', but 'a', 'c'"),
        ({"data": {"text": TEXT}, "annotations": [{"result": [{"value": {
            "start": 1, "end": 4, "text": "Bob", "labels": ["PER"]}}]}]}, "said to be 'Bob', but the text has 'nn '"),
    ],
)  # fmt: skip
def test_a_bad_mark_is_named_with_its_line(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = lines(tmp_path / "x.jsonl", {"text": TEXT, "label": [[0, 7, "PER"]]}, row)
    with pytest.raises(DataError, match=message):
        read(path)
    assert len(read(path, on_error="skip")) == 1


def test_rejected_rows_and_cancelled_annotations_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"text": TEXT, "spans": [{"start": 0, "end": 7, "label": "PER"}], "answer": "accept"}
    path = lines(tmp_path / "x.jsonl", row, {**row, "answer": "reject"}, {"text": "b", "answer": "accept"})
    assert [marks_in(example) for example in read(path)] == [[MARKS[0]], []]
    assert "1 row whose 'answer' is not 'accept' left out" in capsys.readouterr().err
    studio = _studio([(0, 3, "PER")], [(0, 7, "PER")])
    studio["annotations"][0]["was_cancelled"] = True
    assert marks_in(read(lines(tmp_path / "y.jsonl", studio))[0]) == [MARKS[0]]


@pytest.mark.parametrize(
    ("standoff", "message"),
    [
        ("T1\tPER 0 3;8 12\tAnn flew\n", r"a\.ann:1: the entity 'Ann flew' is of several pieces"),
        ("R1\tx\nT1\tPER 0 3\tBob\n", r"a\.ann:2: .* said to be 'Bob'"),
        ("T1 PER 0 3 Ann\n", r"a\.ann:1: expected T1, a tab"),
    ],
)
def test_faults_of_brat(standoff: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "a.ann").write_text(standoff)
    with pytest.raises(DataError, match=message):
        read(tmp_path)
    (tmp_path / "b.ann").write_text("")
    with pytest.raises(DataError, match=r"b\.ann: there is no b\.txt beside it"):
        read(tmp_path)


def test_unmarked_texts_are_read_for_prediction_and_half_a_file_is_refused(tmp_path: Path) -> None:
    task = ner_task(lines(tmp_path / "x.jsonl", {"text": TEXT, "label": [[0, 7, "PER"]]}))
    (example,) = read_tagged(task, lines(tmp_path / "new.jsonl", {"text": "a  b"}), "test")
    assert (example.text, example.entities, example.words) == ("a  b", None, ("a", "b"))
    mixed = lines(tmp_path / "mixed.jsonl", {"text": TEXT, "label": [[0, 7, "PER"]]}, {"text": "a"})
    with pytest.raises(DataError, match=r"mixed\.jsonl:2: the text has no list .*mixed\.jsonl:1 has one"):
        read_tagged(task, mixed, "test")
    other = lines(tmp_path / "other.jsonl", {"text": TEXT, "label": [[0, 7, "PERS"]]})
    with pytest.raises(DataError, match=r"other\.jsonl:1: type 'PERS' of the entity 'Ann' .*did you mean 'PER'"):
        read_tagged(task, other, "dev")


def test_tables_of_words_are_still_read_as_such(tmp_path: Path) -> None:
    row = {"text": "ignored", "tokens": ["Ann", "flew"], "labels": ["B-PER", "O"]}
    (example,) = read(lines(tmp_path / "x.jsonl", row))
    assert example.words == ("Ann", "flew")
    assert example.entities == (Entity("PER", 0, 1),)


def test_ids_are_kept_in_every_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [Tagged(TEXT, MARKS, "b-2"), Tagged("Nothing", (), "a.1")]
    for form in ("spans", "doccano"):
        assert [row_of(form, each)["id"] for each in texts] == ["b-2", "a.1"]  # type: ignore[arg-type]
    assert row_of("prodigy", texts[0])["meta"] == {"id": "b-2"}
    assert row_of("label-studio", texts[0])["data"] == {"id": "b-2", "text": TEXT}
    write_marked(tmp_path / "brat", "brat", texts)
    assert sorted(path.name for path in (tmp_path / "brat").iterdir()) == ["a.1.ann", "a.1.txt", "b-2.ann", "b-2.txt"]
    assert len(read_marked(tmp_path / "brat", BadRows(), None, tagged=True)[1]) == 2
    assert "numbered" not in capsys.readouterr().err
    for number, names in enumerate((["a/b", "c"], ["a", "A"], ["a", None], ["..", "a"])):
        write_marked(tmp_path / str(number), "brat", [Tagged("Nothing", (), name) for name in names])
        assert {path.stem for path in (tmp_path / str(number)).iterdir()} == {"000001", "000002"}
        assert "files are numbered in the order of the texts" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_in_brat_may_count_or_not(encoding: str, tmp_path: Path) -> None:
    for name, start in (("counted", 1), ("left out", 0)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "a.txt").write_bytes("Ann Lee flew to Rome.".encode(encoding))
        marks = f"T1\tPER {start} {start + 7}\tAnn Lee\nT2\tLOC {start + 16} {start + 20}\tRome\n"
        (folder / "a.ann").write_bytes(marks.encode(encoding))
        (found,) = read_marked(folder, BadRows(), None, tagged=True)[1]
        assert (found.text, found.marks) == ("Ann Lee flew to Rome.", (Mark(0, 7, "PER"), Mark(16, 20, "LOC")))


@pytest.mark.parametrize("form", FORMS)
def test_the_name_of_an_output_fits_its_form(form: Form, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(ConfigError, match=r"must end in|new one"):
        write_marked(tmp_path / ("full" if form == "brat" else "x.csv"), form, [])
    if form == "brat":
        with pytest.raises(DataError, match="no type with a blank"):
            write_marked(tmp_path / "new", form, [Tagged(TEXT, [Mark(0, 3, "a b")])])
        assert not (tmp_path / "new").exists()


# -------------------------------------------------------------------------------------------------------------- runs


def test_a_run_on_spans_is_the_run_on_the_same_words(tmp_path: Path) -> None:
    """The same sentences as words and as spans give the same scores; places are those in the text."""
    words, spans = tmp_path / "words", tmp_path / "spans"
    words.mkdir()
    for name, count, seed in (("train", 60, 1), ("dev", 20, 2)):
        (words / f"{name}.conll").write_text(sentences(count, seed))
        task = ner_task(words / f"{name}.conll")
        texts = [(example.text, marks_in(example)) for example in read_tagged(task, words / f"{name}.conll", "dev")]
        write_marked(spans / f"{name}.jsonl", "doccano", [Tagged(*each) for each in texts])
    start, config = tagger_start(tmp_path / "start"), FinetuneConfig(**{**QUICK, "epochs": 2})  # type: ignore[arg-type]
    with no_pictures():
        made = {
            data.name: finetune("ner", data, start, tmp_path / f"run-{data.name}", config, cache=None)
            for data in (words, spans)
        }
    assert made["spans"].scores == pytest.approx(made["words"].scores, abs=1e-6)
    run = tmp_path / "run-spans"
    again = evaluate_run("ner", spans / "dev.jsonl", run, write=False)
    assert again.scores == pytest.approx(made["spans"].scores, abs=1e-6)
    new = lines(tmp_path / "new.jsonl", {"id": 7, "text": "Ann   Bell,\nin Oslo"})
    assert predict_file(run, new, tmp_path / "out.jsonl") == 1
    row = json.loads((tmp_path / "out.jsonl").read_text())
    assert row["text"] == "Ann   Bell,\nin Oslo"
    assert row["words"] == ["Ann", "Bell", ",", "in", "Oslo"]
    assert all(row["text"][each["start"] : each["end"]] == each["word"] for each in row["entities"])


def test_rows_in_memory_are_read_like_files() -> None:
    rows = [{"text": TEXT, "entities": [(0, 7, "PER"), {"start": 16, "end": 20, "label": "LOC"}]}]
    of_spacy = [(TEXT, {"entities": [(0, 7, "PER"), (16, 20, "LOC")]})]
    for held in (rows, of_spacy, pd.DataFrame(rows), {"text": [TEXT], "label": [list(MARKS)]}):
        data = given_data(held, None, SPLIT_NAMES)
        task = task_of("ner", data)
        (example,) = workflow_of(task).read(data, "train")
        assert (example.text, marks_in(example)) == (TEXT, list(MARKS))
    data = given_data([{"text": TEXT, "label": [[0, 7, "PER"], [4, 7, "LOC"]]}], None, SPLIT_NAMES)
    with pytest.raises(DataError, match=r"<data>: row 0 \(counted from 0\): .* share the word 'Lee'"):
        task_of("ner", data)
