"""All heads at once: each answers as by itself, and the encoder reads each text once."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

import bertkit
from bertkit.bulk.cuts import Size
from bertkit.bulk.planner import How, predict_file
from bertkit.errors import CheckpointError, InputError
from bertkit.inference.analysis import Analyzer
from bertkit.inference.pipelines import pipeline
from bertkit.model.convert import convert
from bertkit.tasks import csv_task, task_of
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.several_heads import finetune_heads
from finetune_data import BAD, GOOD, QUICK, labelled_texts, no_pictures, tiny_start, write_heads_data, write_table

TEXTS = ["the film was good and great", "a sad day", "it is the book", "a film"]
LONG = "the film is very good and a great day " * 8
OPTIONS = {
    "mood": {"truncation": True},
    "kinds": {"truncation": True, "top_k": "chosen"},
    "score": {"truncation": True},
    "names": {"aggregation_strategy": "first"},
    "same": {"truncation": True},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("analysis")
    tiny_start(folder / "start")
    write_heads_data(folder)
    rows = labelled_texts(48, 1)
    for name, table in (
        ("mood", rows),
        ("score", [(text, 1.5 * label + len(text) / 99) for text, label in rows]),
        ("kinds", [(text, "|".join(["good"] * label + ["short"] * (len(text.split()) < 7))) for text, label in rows]),
    ):
        write_table(folder / f"{name}.csv", ("text", "label"), table, delimiter=",")
    pairs = [(f"it is {word}", f"very {other}", int(word == other)) for word in GOOD for other in (word, *BAD)]
    write_table(folder / "same.csv", ("text", "text_pair", "label"), pairs, delimiter=",")
    heads = {
        name: (csv_task(folder / f"{name}.csv", label="label", **more), folder / f"{name}.csv")
        for name, more in (("mood", {}), ("score", {}), ("kinds", {"problem": "multi_label"}), ("same", {}))
    }
    heads["names"] = (task_of("ner", folder / "ner"), folder / "ner")
    with no_pictures():
        finetune_heads(heads, folder / "start", folder / "run", FinetuneConfig(**QUICK), cache=None)
        frozen = FinetuneConfig(**{**QUICK, "max_length": None}, freeze_encoder=True, long_texts="windows")
        own = {name: heads[name] for name in ("mood", "names")}
        finetune_heads(own, folder / "start", folder / "frozen", frozen, cache=None)
    return folder


def same(ours, theirs):
    """Equal, numbers to rounding."""
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in theirs)
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return ours == theirs if isinstance(theirs, str | bool) else ours == pytest.approx(theirs, abs=1e-5)


@pytest.mark.slow
def test_each_head_answers_as_its_own_pipeline(place, tmp_path):
    texts = [*TEXTS, LONG]
    pairs = [("it is good", "very good"), ("it is great", "very sad")]
    found = bertkit.analyze([*texts, *pairs], model=place / "run")
    assert [list(said) for said in found] == [["kinds", "mood", "names", "score"]] * 5 + [["same"]] * 2
    for name, options in OPTIONS.items():
        convert(place / "run" / "heads" / name, tmp_path / name)
        asked = pairs if name == "same" else texts
        alone = pipeline(model=tmp_path / name)(asked, **options)
        assert same([said[name] for said in found if name in said], alone), name
    assert found[0]["mood"].keys() == {"label", "score", "truncated"}
    assert found[4]["mood"]["truncated"] is True
    assert same(bertkit.analyze(TEXTS[0], model=place / "run"), found[0])


def test_texts_in_windows_and_other_lengths_are_read_as_each_head_was_trained(place):
    found = bertkit.analyze([LONG, *TEXTS], model=place / "frozen")
    for name, options in (("mood", {}), ("names", OPTIONS["names"])):
        alone = pipeline(model=place / "frozen" / "heads" / name)([LONG, *TEXTS], **options)
        assert same([said[name] for said in found], alone)


def test_the_encoder_reads_each_text_once(place, monkeypatch):
    analyzer = Analyzer.open(place / "run")
    backend, read = analyzer.shared.encoder.backend, []
    compute = type(backend).compute
    monkeypatch.setattr(type(backend), "compute", lambda self, *args: read.append(args[0]) or compute(self, *args))
    analyzer(TEXTS)
    assert sum(len(pack.lengths) for pack in read) == len(TEXTS)
    assert len(read) == 1
    read.clear()
    for text in TEXTS:
        analyzer(text)
    assert len(read) == len(TEXTS)
    read.clear()  # a control: outside of an analysis every head asks for itself
    for head in analyzer.heads.values():
        if not head.reads_pairs:
            head.pipe(TEXTS, **head.options)
    assert len(read) == 4


def test_iterables_are_answered_as_they_are_drawn(place):
    analyzer = Analyzer.open(place / "run")
    drawn = []
    answers = bertkit.analyze((drawn.append(n) or TEXTS[n % 4] for n in range(300)), model=analyzer)
    first = next(answers)
    assert len(drawn) < 300
    assert len([first, *answers]) == 300
    assert analyzer([]) == []


def test_what_no_head_reads_is_refused(place, tmp_path):
    with pytest.raises(InputError, match="no head reads a pair"):
        bertkit.analyze(("a film", "a book"), model=place / "frozen")
    with pytest.raises(CheckpointError, match="no heads that read texts"):
        bertkit.analyze("a film", model=place / "start")


def test_a_whole_file_with_its_columns_and_resumed(place, tmp_path, monkeypatch):
    rows = [{"text": text, "mood": "mine"} for text in TEXTS] * 3
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert predict_file(place / "run", tmp_path / "texts.jsonl", tmp_path / "out.jsonl") == 12
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    alone = bertkit.analyze(TEXTS, model=Analyzer.open(place / "run", precision="auto"))
    assert found[1]["mood"] == "mine"
    assert same(found[1]["bertkit_mood"], alone[1]["mood"])
    assert same(found[1]["names"], alone[1]["names"])
    table = bertkit.BatchPredictor(place / "run")(pa.table({"text": TEXTS}))
    assert table["error"].null_count == len(TEXTS)
    assert table["mood"].to_pylist() == [said["mood"]["label"] for said in alone]
    assert same(table["names"].to_pylist(), [said["names"] for said in alone])
    # Five lines were written when it was killed; the encoder must not see them again.
    seen = []
    answer = Analyzer.answer
    how = How(size=Size(rows=5))
    with monkeypatch.context() as patch:
        patch.setattr(Analyzer, "answer", lambda self, texts: 1 / 0 if seen else seen.append(1) or answer(self, texts))
        with pytest.raises(ZeroDivisionError):
            predict_file(place / "run", tmp_path / "texts.jsonl", tmp_path / "more.jsonl", how=how)
    seen.clear()
    monkeypatch.setattr(Analyzer, "answer", lambda self, texts: seen.extend(texts) or answer(self, texts))
    predict_file(place / "run", tmp_path / "texts.jsonl", tmp_path / "more.jsonl", how=how)
    assert len(seen) == 7
    again = [json.loads(line) for line in (tmp_path / "more.jsonl").read_text().splitlines()]
    assert same(again, found)
    changed = np.array([row["bertkit_mood"]["score"] for row in found])
    assert len(set(changed.round(6))) > 1
