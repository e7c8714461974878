"""Answers are pieces of the user's text, from contexts of any length, with the threshold that lies beside the model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertkit import BertForQuestionAnswering, BertModel, BertTokenizer, pipeline
from bertkit.cli import main
from bertkit.config.decision import write_decision
from bertkit.errors import CheckpointError, InputError
from bertkit.inference import question_answering as answer
from bertkit.tasks.spans.task import SpanExample
from bertkit.tasks.workflow import workflow_of
from pipeline_helpers import save_tiny

CONTEXT = "The great scene is in the end;\r\n it was not a dull film \U0001f3ac at all, nor bad."
LONG = " ".join(f"{CONTEXT} {number}" for number in range(12))
ASKED = {"question": "what is great?", "context": CONTEXT}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("qa"), BertForQuestionAnswering)


@pytest.fixture(scope="module")
def pipe(folder: Path) -> Any:
    return pipeline("question-answering", model=folder, device="cpu")


def test_shapes_are_those_of_transformers(pipe: Any) -> None:
    one = pipe(question="what is great?", context=CONTEXT)
    assert set(one) == {"score", "start", "end", "answer"}
    assert one == pipe(ASKED) == pipe("what is great?", CONTEXT) == pipe(SpanExample("a", "what is great?", CONTEXT))
    ranked = pipe(ASKED, top_k=3)
    assert [a["score"] for a in ranked] == sorted((a["score"] for a in ranked), reverse=True)
    assert (len(ranked), ranked[0]) == (3, one)
    both = pipe(question=["what is great?", "a film?"], context=CONTEXT)
    assert both == pipe([ASKED, ("a film?", CONTEXT)]) == pipe(["what is great?", "a film?"], [CONTEXT, CONTEXT])
    assert both[0] == one
    lazy = pipe(iter([ASKED, ASKED]), top_k=2)
    assert isinstance(lazy, Iterator)
    assert list(lazy) == [ranked[:2], ranked[:2]]
    assert pipe([]) == []


def test_every_answer_is_a_piece_of_the_context(pipe: Any) -> None:
    for context in (CONTEXT, LONG, f"  {CONTEXT}\n", "film"):
        for one in pipe("what is great?", context, top_k=50, max_seq_len=32, doc_stride=7):
            assert one["answer"] == context[one["start"] : one["end"]]
            assert one["answer"].strip() == one["answer"] != ""
    with_parts = pipe("what?", "unscene great", top_k=50, align_to_words=False)
    assert any(a["answer"] in ("nscen", "scen", "nsc", "ns") for a in with_parts)
    whole = pipe("what?", "unscene great", top_k=50)
    assert {a["answer"] for a in whole} == {"unscene", "great", "unscene great"}


def test_long_contexts_are_searched_to_their_end(pipe: Any) -> None:
    """Every short span of the text is a candidate, whatever the windows, and together they have all probability."""
    options = {"max_seq_len": 40, "max_answer_len": 3, "align_to_words": False}
    fine = pipe("what?", LONG, doc_stride=1, top_k=100_000, **options)
    assert sum(a["score"] for a in fine) == pytest.approx(1.0, abs=1e-6)
    assert max(a["end"] for a in fine) > len(LONG) - 20
    assert min(a["start"] for a in fine) < 20
    coarse = pipe("what?", LONG, doc_stride=16, top_k=100_000, **options)
    assert {(a["start"], a["end"]) for a in coarse} == {(a["start"], a["end"]) for a in fine}


def test_a_question_does_not_depend_on_its_neighbours(pipe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [{"question": f"what {number}?", "context": LONG[number:]} for number in range(7)]
    alone = [pipe(one, top_k=2) for one in many]
    together = pipe(many, top_k=2)
    monkeypatch.setattr(answer, "QUESTIONS", answer.QUESTIONS._replace(items=3))
    in_parts = list(pipe(iter(many), top_k=2))
    for found in (together, in_parts):
        for mine, other in zip(found, alone, strict=True):
            assert [(a["start"], a["end"]) for a in mine] == [(a["start"], a["end"]) for a in other]
            assert [a["score"] for a in mine] == pytest.approx([a["score"] for a in other], abs=1e-5)


def test_no_answer_where_it_is_possible(pipe: Any) -> None:
    for wrong in (float("nan"), "1", True):
        with pytest.raises(InputError, match="null_threshold must be a number"):
            pipe(ASKED, null_threshold=wrong)
    never = pipe(ASKED, handle_impossible_answer=True, null_threshold=1e9)
    always = pipe(ASKED, handle_impossible_answer=True, null_threshold=-1e9)
    assert never["answer"]
    assert (always["answer"], always["start"], always["end"]) == ("", 0, 0)
    assert never["score"] < pipe(ASKED)["score"]  # "no answer" has a share now
    ranked = pipe(ASKED, handle_impossible_answer=True, null_threshold=1e9, top_k=200)
    assert sum(a["answer"] == "" for a in ranked) == 1
    assert always == next(a for a in ranked if a["answer"] == "")
    assert sum(a["score"] for a in ranked) <= 1 + 1e-6
    first, *others = pipe(ASKED, handle_impossible_answer=True, null_threshold=-1e9, top_k=200)
    assert first == always
    assert all(a["answer"] for a in others)


def test_what_was_chosen_on_dev_lies_with_the_model_and_is_used(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path, BertForQuestionAnswering)
    decision = {"max_length": 40, "doc_stride": 9, "max_query_length": 8, "max_answer_length": 2}
    write_decision(folder, decision)
    told = pipeline("question-answering", model=folder, device="cpu")
    named = {"max_seq_len": 40, "doc_stride": 9, "max_question_len": 8, "max_answer_len": 2}
    plain = pipeline("question-answering", model=told.model, tokenizer=told.tokenizer)
    assert told("what?", LONG, top_k=5) == plain("what?", LONG, top_k=5, **named)
    assert told("what?", LONG, top_k=5) != plain("what?", LONG, top_k=5)
    write_decision(folder, {**decision, "null_threshold": -1e6})
    tuned = pipeline("question-answering", model=folder, device="cpu")
    assert tuned("what?", LONG)["answer"] == ""
    assert tuned("what?", LONG, handle_impossible_answer=False)["answer"]
    assert tuned("what?", LONG, null_threshold=1e6)["answer"]
    write_decision(folder, {"doc_stride": "9"})
    with pytest.raises(CheckpointError, match=r"decision.json is damaged: doc_stride = '9'"):
        pipeline("question-answering", model=folder, device="cpu")("what?", LONG)
    (folder / "decision.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"decision.json is damaged"):
        pipeline("question-answering", model=folder)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda pipe: pipe("what?"), "a question needs its context"),
        (lambda pipe: pipe(context="x"), "a context needs a question"),
        (lambda pipe: pipe("what?", " "), "the context of the question is empty"),
        (lambda pipe: pipe("", "x"), "the question of the question is empty"),
        (lambda pipe: pipe([ASKED, {"question": "x"}]), "question 1 is a dict with .'question'."),
        (lambda pipe: pipe([ASKED, "x"]), "question 1 must be .*got str"),
        (lambda pipe: pipe(3), "got int"),
        (lambda pipe: pipe(["a", "b"], ["c"]), "got 2 questions but 1 context;"),
        (lambda pipe: pipe(b"what?", "x"), "must be a str, got int"),
        (lambda pipe: pipe(ASKED, top_k=0), "top_k must be"),
        (lambda pipe: pipe(ASKED, max_answer_len=0), "max_answer_len must be"),
        (lambda pipe: pipe(ASKED, max_seq_len=65), "max_seq_len must be at most 64"),
        (lambda pipe: pipe(ASKED, truncation="yes"), "truncation must be"),
        (lambda pipe: pipe("what is " * 40, "x"), "question 0 .* has 200 word pieces; the limit is 32"),
        (lambda pipe: pipe("what?", "\u200b"), "has no word piece"),
    ],
)
def test_errors_say_what_to_do(pipe: Any, call: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        call(pipe)


def test_a_question_is_cut_only_when_allowed(pipe: Any) -> None:
    found = pipe("is it " * 20, CONTEXT, truncation=True, max_question_len=5)
    assert found["truncated"] is True
    assert pipe("is it", CONTEXT, truncation=True)["truncated"] is False


def test_another_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is an encoder without a head"):
        pipeline("question-answering", model=save_tiny(tmp_path, BertModel))
    model = BertModel.from_pretrained(tmp_path)
    with pytest.raises(InputError, match="needs a BertForQuestionAnswering"):
        pipeline("question-answering", model=model, tokenizer=tmp_path)


def test_a_model_that_trains_goes_on_training(folder: Path) -> None:
    model = BertForQuestionAnswering.from_pretrained(folder).train()
    pipe = pipeline("question-answering", model=model, tokenizer=folder)
    assert pipe(ASKED) == pipe(ASKED)
    assert model.training
    with torch.no_grad():
        model.qa_outputs.weight.fill_(float("nan"))
    with pytest.raises(CheckpointError, match="start logits are not finite"):
        pipe(ASKED)


@pytest.mark.slow
def test_windows_and_logits_are_those_of_transformers(minilm: Path, shared: Path, tmp_path: Path) -> None:
    """Windows by the overlap that the same step gives, padded logits, and the best span of each window by hand."""
    import transformers

    from bertkit.batch import collate
    from bertkit.tasks.spans.features import SpanSettings, featurize_spans
    from bertkit.tasks.spans.task import SQUAD

    BertForQuestionAnswering.from_pretrained(minilm, new_head=True, seed=3).save_pretrained(tmp_path)
    BertTokenizer.from_pretrained(minilm).save_pretrained(tmp_path)
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path, attn_implementation="eager").eval()
    encode = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = BertForQuestionAnswering.from_pretrained(tmp_path)
    examples = workflow_of(SQUAD).read(shared / "data" / "squad" / "xquad.en-articles-1-28.json", "train")[:60:20]
    pipe = pipeline("question-answering", model=ours, tokenizer=tmp_path)
    settings = SpanSettings(max_length=100, doc_stride=32)
    windows = featurize_spans(examples, pipe.tokenizer, settings)
    with torch.inference_mode():
        out = ours.forward_packed(collate(windows.rows, range(len(windows))))
    rows = 0
    for number, example in enumerate(examples):
        asked = len(encode(example.question, add_special_tokens=False).input_ids)
        enc = encode(example.question, example.context, truncation="only_second", max_length=100, padding="max_length",
                     stride=100 - 3 - asked - 32, return_overflowing_tokens=True, return_offsets_mapping=True,
                     return_tensors="pt")  # fmt: skip
        assert len(enc.input_ids) == windows.first_rows[number + 1] - windows.first_rows[number]
        with torch.inference_mode():
            other = theirs(**{name: enc[name] for name in ("input_ids", "token_type_ids", "attention_mask")})
        for row in range(len(enc.input_ids)):
            real = int(enc.attention_mask[row].sum())
            span = slice(*windows.rows.boundaries[rows : rows + 2].tolist())
            assert enc.input_ids[row, :real].tolist() == windows.rows[rows].tolist()
            assert enc.token_type_ids[row, :real].tolist() == windows.rows.types(rows).tolist()
            for name in ("start_logits", "end_logits"):
                np.testing.assert_allclose(out[name][span], other[name][row, :real], atol=2e-5)
            rows += 1
        if len(enc.input_ids) == 1:  # one window: the plain search of every pair must find the same
            best = search(other.start_logits[0], other.end_logits[0], enc, example.context)
            mine = pipe(example, align_to_words=False)
            assert mine["answer"] == best[0]
            assert mine["score"] == pytest.approx(best[1], abs=1e-5)
    assert rows == len(windows) > len(examples)
    whole = encode(examples[0].question, examples[0].context, return_offsets_mapping=True, return_tensors="pt")
    with torch.inference_mode():
        names = ("input_ids", "token_type_ids", "attention_mask")
        other = theirs(**{name: whole[name] for name in names})
    best = search(other.start_logits[0], other.end_logits[0], whole, examples[0].context)
    mine = pipe(examples[0], align_to_words=False)
    assert (mine["answer"], mine["score"]) == (best[0], pytest.approx(best[1], abs=1e-5))


def search(starts: torch.Tensor, ends: torch.Tensor, enc: Any, context: str) -> tuple[str, float]:
    offsets = enc["offset_mapping"][0].tolist()
    places = [place for place, part in enumerate(enc.sequence_ids(0)) if part == 1]
    found = {
        (first, last): float(starts[first]) + float(ends[last])
        for first in places
        for last in places
        if first <= last < first + 30
    }
    first, last = max(found, key=found.__getitem__)
    share = np.exp(found[first, last]) / sum(np.exp(value) for value in found.values())
    return context[offsets[first][0] : offsets[last][1]], float(share)


def test_the_command_answers_like_the_pipeline(folder: Path, pipe: Any, tmp_path: Path, capsys: Any) -> None:
    from bertkit.cli import main

    def run(*argv: object) -> tuple[int, str, str]:
        code = main([str(part) for part in argv])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    command = ("answer", "-m", folder, "--device", "cpu")
    code, out, err = run(*command, "what is great?", "a film?", "--context", CONTEXT, "--json")
    assert (code, err) == (0, "")
    found = [json.loads(line) for line in out.splitlines()]
    assert found[0] == {"question": "what is great?", **pipe(ASKED)}
    code, out, _ = run(*command, "what is great?", "--context", CONTEXT, "--top-k", 2)
    best = pipe(ASKED)
    assert len(out.splitlines()) == 2
    assert out.startswith(f"{best['score']:.4f}  {best['start']}:{best['end']}")
    text = tmp_path / "context.txt"
    text.write_bytes(b"\xef\xbb\xbf" + LONG.encode())
    code, out, _ = run(*command, "what?", "--context-file", text, "--json", "--top-k", 3)
    assert [a["start"] for a in json.loads(out)["answers"]] == [a["start"] for a in pipe("what?", LONG, top_k=3)]
    questions = {"data": [{"paragraphs": [{"context": CONTEXT, "qas": [{"id": "q1", "question": "what is great?"}]}]}]}
    source, target = tmp_path / "questions.json", tmp_path / "predictions.json"
    source.write_text(json.dumps(questions))
    code, out, err = run(*command, "--file", source, "--out", target)
    assert (code, out) == (0, "")
    assert "wrote 1 answer " in err
    assert json.loads(target.read_text("utf-8")) == {"q1": best["answer"]}
    code, out, _ = run(*command, "--file", source, "--json", "--impossible", "--threshold", -1000)
    assert json.loads(out) == {"id": "q1", "question": "what is great?", **json.loads(out), "answer": ""}
    for wrong, said in (
        (("what?",), "either --context TEXT or --context-file"),
        (("--context", "x"), "no question"),
        (("what?", "--context", "x", "--file", source), "--file brings its own questions"),
        (("what?", "--context", "x", "--out", target), "--out needs --file"),
        (("--file", source, "--out", target), "exists already"),
    ):
        code, out, err = run(*command, *wrong)
        assert (code, out) == (2, "")
        assert said in err


def test_no_answers_cannot_be_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["answer", "--model", str(folder), "--top-k", "0", "What?", "--context", "a film"]) == 2
    assert "--top-k must be a whole number from 1" in capsys.readouterr().err
