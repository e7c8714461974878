"""The contract of a pipeline's call: shapes, laziness, limits, modes and errors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch

import bertkit
from bertkit import (
    BertForMaskedLM,
    BertForNextSentencePrediction,
    BertForSequenceClassification,
    BertModel,
    BertTokenizer,
    pipeline,
)
from bertkit.config.decision import write_decision
from bertkit.errors import CheckpointError, ConfigError, InputError
from bertkit.inference import open_pipeline, pipeline_base
from bertkit.system import console
from pipeline_helpers import save_tiny

TEXTS = ["the film is good", "", "a very bad end", "it was not great and not dull " * 3]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    classes: dict[str, Any] = {
        "fill-mask": BertForMaskedLM,
        "next-sentence": BertForNextSentencePrediction,
        "text-classification": BertForSequenceClassification,
        "feature-extraction": BertModel,
    }
    return {task: save_tiny(root / task, model_class) for task, model_class in classes.items()}


@pytest.fixture(scope="module")
def embed(folders: dict[str, Path]) -> Any:
    return pipeline("feature-extraction", model=folders["feature-extraction"], device="cpu")


@pytest.fixture(scope="module")
def classify(folders: dict[str, Path]) -> Any:
    return pipeline("text-classification", model=folders["text-classification"], device="cpu")


@pytest.fixture(scope="module")
def fill(folders: dict[str, Path]) -> Any:
    return pipeline("fill-mask", model=str(folders["fill-mask"]), device="cpu")


def test_one_text_one_result_list_for_list_lazy_for_the_rest(embed: Any) -> None:
    one = embed("a film", pooling="mean")
    listed = embed(["a film", "the end"], pooling="mean")
    lazy = embed(iter(["a film", "the end"]), pooling="mean")
    assert one.shape == (32,)
    assert one.dtype == np.float32
    assert isinstance(listed, list)
    assert np.stack(listed).shape == (2, 32)
    assert isinstance(lazy, Iterator)
    np.testing.assert_allclose(np.stack(list(lazy)), np.stack(listed), atol=1e-6)
    np.testing.assert_allclose(one, listed[0], atol=1e-6)
    assert embed([], pooling="mean") == []
    assert list(embed(iter([]), pooling="mean")) == []


def test_poolings_are_what_they_say(embed: Any) -> None:
    for text in TEXTS:
        nested = embed(text)
        assert nested.shape == (1, nested.num_tokens, 32)
        matrix = nested[0]
        np.testing.assert_allclose(embed(text, pooling="cls"), matrix[0], atol=1e-6)
        np.testing.assert_allclose(embed(text, pooling="mean"), matrix.mean(axis=0), atol=1e-6)
        np.testing.assert_allclose(embed(text, pooling="max"), matrix.max(axis=0), atol=1e-6)
        assert np.linalg.norm(embed(text, pooling="max", normalize=True)) == pytest.approx(1.0, abs=1e-6)


def test_the_empty_text_is_cls_and_sep(embed: Any) -> None:
    assert embed("").num_tokens == 2


def test_an_infinite_stream_is_read_only_as_far_as_needed(embed: Any) -> None:
    drawn = []

    def stream() -> Iterator[str]:
        for number in count():
            drawn.append(number)
            yield f"film {number}"

    found = list(islice(embed(stream(), pooling="mean"), 5))
    assert len(found) == 5
    assert len(drawn) == pipeline_base.TEXTS.first


def test_a_fault_in_a_stream_comes_after_the_results_before_it(embed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_base, "TEXTS", pipeline_base.TEXTS._replace(first=2))
    stream = embed(iter(["a", "b", 3]), pooling="mean")
    next(stream)
    next(stream)
    with pytest.raises(InputError, match="text 2 must be a str, got int"):
        next(stream)


def test_bad_options_are_refused_at_once_also_for_streams(embed: Any, classify: Any, fill: Any) -> None:
    with pytest.raises(InputError, match=r"pooling='mena' is unknown \(did you mean 'mean'\?\)"):
        embed(iter(["a"]), pooling="mena")
    with pytest.raises(InputError, match="max_length must be from 3 to 64"):
        embed(iter(["a"]), max_length=65)
    with pytest.raises(InputError, match="truncation must be"):
        embed("a", truncation="always")
    with pytest.raises(InputError, match="top_k must be a whole number from 1"):
        classify("a", top_k=0)
    with pytest.raises(InputError, match="function_to_apply='tanh' is unknown"):
        classify("a", function_to_apply="tanh")
    with pytest.raises(InputError, match="top_k"):
        fill("a [MASK]", top_k=0)


def test_a_long_text_is_refused_with_its_number_count_and_limit(embed: Any) -> None:
    with pytest.raises(InputError, match=r"text 2 \(counted from 0\) has 82 tokens.*the limit is 64.*truncation=True"):
        embed(["a", "b", "film " * 80, "c", "film " * 90])
    with pytest.raises(InputError, match=r"has 7 tokens.*the limit is 6"):
        embed("a b c d e", max_length=6)


def test_a_long_text_can_be_cut_and_says_so(embed: Any, classify: Any) -> None:
    short, long = embed(["a film", "film " * 80], pooling="mean", truncation=True)
    assert (short.truncated, short.num_tokens) == (False, 4)
    assert (long.truncated, long.num_tokens) == (True, 64)
    assert embed("a b c d e", truncation=True, max_length=6).shape == (1, 6, 32)
    np.testing.assert_allclose(long, embed("film " * 62, pooling="mean"), atol=1e-6)
    assert [r["truncated"] for r in classify(["a", "film " * 80], truncation=True)] == [False, True]
    assert [r["truncated"] for r in classify("film " * 80, truncation=True, top_k=None)] == [True, True]


def test_a_limit_can_be_met_exactly(embed: Any) -> None:
    assert embed("film " * 62).num_tokens == 64
    with pytest.raises(InputError, match="has 65 tokens"):
        embed("film " * 63)


def test_classification_has_the_shapes_of_transformers(classify: Any) -> None:
    single = classify("a good film")
    assert isinstance(single, list)
    assert set(single[0]) == {"label", "score"}
    best, _ = classify(["a good film", "a bad film"])
    assert best == {"label": single[0]["label"], "score": pytest.approx(single[0]["score"], abs=1e-6)}
    ranked = classify("a good film", top_k=None)
    assert [r["score"] for r in ranked] == sorted((r["score"] for r in ranked), reverse=True)
    assert sum(r["score"] for r in ranked) == pytest.approx(1.0)
    assert classify("a good film", top_k=1) == [ranked[0]]
    assert classify(["a good film"], top_k=1) == [[ranked[0]]]
    logits = {r["label"]: r["score"] for r in classify("a good film", top_k=None, function_to_apply="none")}
    sigmoids = {r["label"]: r["score"] for r in classify("a good film", top_k=None, function_to_apply="sigmoid")}
    for label, logit in logits.items():
        assert sigmoids[label] == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-6)


def test_pairs_in_every_form_are_the_same_pair(classify: Any) -> None:
    expected = classify({"text": "a film", "text_pair": "the end"})
    assert classify(("a film", "the end")) == expected
    assert classify("a film", "the end") == expected
    assert classify([("a film", "the end")]) == [expected]
    assert classify(["a film"], ["the end"]) == [expected]
    both = classify(["a film", ("a film", "the end"), "the end"])
    assert both[1]["score"] == pytest.approx(expected["score"], abs=1e-6)
    assert both[0]["score"] == pytest.approx(classify("a film")[0]["score"], abs=1e-6)
    assert both[0]["score"] != pytest.approx(both[1]["score"], abs=1e-4)


@pytest.mark.parametrize(
    ("settings", "function"),
    [
        ({"num_labels": 1, "problem_type": "regression"}, lambda x: x),
        ({"num_labels": 1}, lambda x: 1 / (1 + np.exp(-x))),
        ({"num_labels": 3, "problem_type": "multi_label_classification"}, lambda x: 1 / (1 + np.exp(-x))),
        ({"num_labels": 3}, lambda x: np.exp(x) / np.exp(x).sum()),
    ],
)
def test_the_default_function_is_that_of_the_problem(tmp_path: Path, settings: dict[str, Any], function: Any) -> None:
    pipe = pipeline("text-classification", save_tiny(tmp_path / "m", BertForSequenceClassification, **settings))
    logits = pipe("a good film", top_k=None, function_to_apply="none")
    scores = pipe("a good film", top_k=None)
    expected = function(np.array([r["score"] for r in logits]))
    np.testing.assert_allclose([r["score"] for r in scores], expected, atol=1e-6)


def test_next_sentence(folders: dict[str, Path]) -> None:
    pipe = pipeline("next-sentence", model=folders["next-sentence"], device="cpu")
    found = pipe("a film", "the end")
    assert found["label"] in ("is_next", "not_next")
    assert found["score"] >= 0.5
    is_next = found["score"] if found["label"] == "is_next" else 1 - found["score"]
    assert found["is_next"] == pytest.approx(is_next)
    assert pipe([("a film", "the end")]) == [found]
    with pytest.raises(InputError, match="needs a pair"):
        pipe("a film")
    with pytest.raises(InputError, match="text 0 is a single text"):
        pipe(["a film", "the end"])


def test_fill_mask(fill: Any) -> None:
    single = fill("the film is [MASK]", top_k=3)
    assert [set(guess) for guess in single] == [{"score", "token", "token_str", "sequence"}] * 3
    assert [guess["score"] for guess in single] == sorted((guess["score"] for guess in single), reverse=True)
    assert fill("the film is [MASK]", targets="good")[0]["sequence"] == "the film is good"
    double = fill("the [MASK] is [MASK]", top_k=2)
    assert [len(guesses) for guesses in double] == [2, 2]
    double = fill("the [MASK] is [MASK]", targets=["film"])
    assert [guesses[0]["sequence"] for guesses in double] == [
        "[CLS] the film is [MASK] [SEP]",
        "[CLS] the [MASK] is film [SEP]",
    ]
    assert fill("the film is [MASK]", top_k=10_000)[-1]["score"] >= 0


def test_targets_are_judged_over_the_whole_vocabulary(fill: Any) -> None:
    everything = {guess["token_str"]: guess["score"] for guess in fill("the film is [MASK]", top_k=10_000)}
    found = fill("the film is [MASK]", targets=["good", "Bad", "good"])
    assert {guess["token_str"] for guess in found} == {"good", "bad"}
    for guess in found:
        assert guess["score"] == pytest.approx(everything[guess["token_str"]], rel=1e-5)
    with pytest.raises(InputError, match="target 'films' is not one token of this vocabulary"):
        fill("the film is [MASK]", targets="films")
    with pytest.raises(InputError, match="it is read as"):
        fill("the film is [MASK]", targets=["good", "☃"])
    with pytest.raises(InputError, match="targets is empty"):
        fill("the film is [MASK]", targets=[])


def test_a_text_without_a_mask_is_named(fill: Any) -> None:
    with pytest.raises(InputError, match=r"text 1 \(counted from 0\) has no \[MASK\]"):
        fill(["the [MASK]", "the film"])
    with pytest.raises(InputError, match=r"has no \[MASK\] in its first 64 tokens, and truncation cut the rest"):
        fill("film " * 80 + "[MASK]", truncation=True)


def test_similarity(folders: dict[str, Path], embed: Any) -> None:
    pipe = pipeline("sentence-similarity", model=folders["feature-extraction"], device="cpu")
    a, b, c = embed(["a film", "a good film", "not the end"], pooling="mean", normalize=True)
    scores = pipe("a film", ["a good film", "not the end"])
    np.testing.assert_allclose(scores, [a @ b, a @ c], atol=1e-6)
    assert pipe({"source_sentence": "a film", "sentences": ["a good film", "not the end"]}) == scores
    assert pipe("a film", "a good film") == pytest.approx(scores[0])
    pairs = [("a film", "a good film"), ("a film", "not the end")]
    np.testing.assert_allclose(pipe(pairs), scores, atol=1e-6)
    np.testing.assert_allclose(list(pipe(iter(pairs))), scores, atol=1e-6)
    assert pipe("a film", "a film") == pytest.approx(1.0)
    assert [s.truncated for s in pipe("a film", ["b", "film " * 80], truncation=True)] == [False, True]
    with pytest.raises(InputError, match="single text"):
        pipe("a film")
    with pytest.raises(InputError, match="one text when sentences are given"):
        pipe(["a film"], ["b"])


def test_dropout_is_off_in_a_model_that_is_being_trained(folders: dict[str, Path]) -> None:
    model = BertModel.from_pretrained(folders["feature-extraction"])
    tokenizer = BertTokenizer.from_pretrained(folders["feature-extraction"])
    pipe = pipeline("feature-extraction", model=model, tokenizer=tokenizer)
    expected = pipe("a good film", pooling="mean")
    model.train()
    np.testing.assert_allclose(pipe("a good film", pooling="mean"), expected, atol=1e-4)
    assert model.training
    assert all(module.training for module in model.modules())


def test_a_changed_model_object_gives_changed_results(folders: dict[str, Path]) -> None:
    model = BertModel.from_pretrained(folders["feature-extraction"])
    pipe = pipeline("feature-extraction", model=model, tokenizer=folders["feature-extraction"])
    before = pipe("a good film", pooling="mean")
    with torch.no_grad():
        model.embeddings.word_embeddings.weight.mul_(2)
    assert np.abs(pipe("a good film", pooling="mean") - before).max() > 1e-3


def test_a_model_with_nan_is_an_error_not_a_result(folders: dict[str, Path]) -> None:
    for task, text in (("feature-extraction", "a"), ("text-classification", "a"), ("fill-mask", "[MASK]")):
        model_class = open_pipeline.TASKS[task].model_class
        model = getattr(bertkit, model_class).from_pretrained(folders[task])
        with torch.no_grad():
            next(iter(model.modules())).get_parameter(
                "embeddings.LayerNorm.bias" if task == "feature-extraction" else "bert.embeddings.LayerNorm.bias"
            )[0] = float("nan")
        with pytest.raises(CheckpointError, match="not finite"):
            pipeline(task, model=model, tokenizer=folders[task])(text)


@pytest.mark.parametrize("task", ["text-to-speech", "visual-question-answering"])
def test_a_task_of_a_later_version_says_what_there_is(task: str) -> None:
    with pytest.raises(InputError, match=f"no pipeline for task '{task}'.*available: fill-mask, next-sentence"):
        pipeline(task, model="x")


def test_progress_is_shown_where_it_was_asked_for(
    embed: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Off a terminal: nothing by default, lines now and then when asked for."""
    monkeypatch.setattr(console, "LINE_EVERY_S", 0.0)
    texts = ["a film"] * 700
    for asked in (None, False):
        embed(texts, pooling="mean", progress=asked)
        assert capsys.readouterr().err == ""
    embed(texts, pooling="mean", progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 1
    assert lines[-1].startswith("feature-extraction: 700/700 texts (100 %)")


def test_what_is_wrong_with_a_pipeline_is_said(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = folders["feature-extraction"]
    with pytest.raises(InputError, match="write 'fill-mask'"):
        pipeline("fill_mask", model=folder)
    with pytest.raises(InputError, match="did you mean 'fill-mask'"):
        pipeline("fil-mask", model=folder)
    for task in ("text-classification", "zero-shot-classification", None):
        with pytest.raises(InputError, match=r"needs model=.*; only fill-mask, .* have a default"):
            pipeline(task)
    with pytest.raises(InputError, match="pass tokenizer="):
        pipeline("feature-extraction", model=BertModel.from_pretrained(folder))
    with pytest.raises(InputError, match="needs a BertForMaskedLM, got BertModel"):
        pipeline("fill-mask", model=BertModel.from_pretrained(folder), tokenizer=folder)
    with pytest.raises(ConfigError, match="unknown device 'gpu'"):
        pipeline("feature-extraction", model=folder, device="gpu")
    with pytest.raises(ConfigError, match="no device 'cuda:99'"):
        pipeline("feature-extraction", model=folder, device="cuda:99")
    with pytest.raises(CheckpointError):
        pipeline("fill-mask", model=folder)
    with pytest.raises(CheckpointError):
        pipeline("feature-extraction", model=tmp_path / "nothing")


def test_a_head_model_gives_features_of_its_encoder(folders: dict[str, Path]) -> None:
    model = BertForSequenceClassification.from_pretrained(folders["text-classification"])
    pipe = pipeline("feature-extraction", model=model, tokenizer=folders["text-classification"])
    assert pipe("a film", pooling="cls").shape == (32,)


def test_a_foreign_tokenizer_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    small = BertModel.from_pretrained(save_tiny(tmp_path / "m"))
    other = tmp_path / "vocab.txt"
    other.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(500))]) + "\n")
    with pytest.raises(CheckpointError, match="do not belong together"):
        pipeline("feature-extraction", model=small, tokenizer=BertTokenizer(vocab_file=other))


def test_the_task_is_inferred_from_the_models_head(folders: dict[str, Path]) -> None:
    for task, folder in folders.items():
        assert pipeline(model=folder).task == task
    model = BertForSequenceClassification.from_pretrained(folders["text-classification"])
    assert pipeline(model=model, tokenizer=folders["text-classification"]).task == "text-classification"


def test_a_model_without_a_known_head_has_no_task(folders: dict[str, Path], tmp_path: Path) -> None:
    save_tiny(tmp_path, BertModel)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": None}), encoding="utf-8")
    with pytest.raises(InputError, match=r"cannot infer the task: the model names no class.*pass one of: fill-mask"):
        pipeline(model=tmp_path)


def test_options_of_construction_are_defaults_of_the_calls(folders: dict[str, Path]) -> None:
    folder = folders["text-classification"]
    plain = pipeline("text-classification", model=folder, device=-1)
    pipe = pipeline("text-classification", model=folder, device=-1, top_k=None, truncation=True, batch_size=8)
    long = "good " * 200
    assert pipe(long) == [plain(long, top_k=None, truncation=True)]  # nested, as in transformers
    assert len(pipe("good")[0]) > 1
    assert pipe("good", top_k="best", truncation=False, batch_size=2) == plain("good")
    vectors = pipeline(model=folders["feature-extraction"], pooling="mean")
    assert vectors("a film").shape == (32,)


def test_an_unknown_option_of_construction_is_an_error(folders: dict[str, Path]) -> None:
    with pytest.raises(InputError, match=r"no option 'top_kk' \(did you mean 'top_k'\?\); it takes: top_k, "):
        pipeline("text-classification", model=folders["text-classification"], top_kk=3)


def test_the_number_of_a_gpu_that_is_not_there_is_an_error(folders: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match="no device 'cuda:99': this machine has"):
        pipeline(model=folders["feature-extraction"], device=99)


def test_a_dataframe_is_refused_and_its_column_is_read(classify: Any) -> None:
    table = pandas.DataFrame({"text": ["good", "bad"], "label": [1, 0]})
    with pytest.raises(InputError, match=r"a table with the columns 'text', 'label'; pass one column"):
        classify(table)
    assert classify(table["text"]) == classify(["good", "bad"])


@pytest.mark.parametrize("task", [None, "text-classification"])
def test_a_weights_file_is_read_with_its_folder(folders: dict[str, Path], classify: Any, task: str | None) -> None:
    pipe = pipeline(task, model=folders["text-classification"] / "model.safetensors", device="cpu")
    assert pipe(TEXTS) == classify(TEXTS)


@pytest.mark.parametrize(
    ("decision", "told"),
    [
        ({"temperature": None}, r"temperature = None: .* number"),
        ({"temperature": "hot"}, r"temperature = 'hot': .* got text"),
        ({"temperature": True}, r"temperature = True: .* got a boolean"),
        ({"temperature": -1.0}, r"temperature = -1.0: .* greater than"),  # would turn the labels round
        ({"temperature": 0}, r"temperature = 0: .* greater than"),
        ({"temperature": 1e-300}, r"temperature = 1e-300: .* greater than"),
        ({"temperature": 1e300}, r"temperature = 1e\+300: .* less than"),
        ({"thresholds": {"LABEL_0": -0.5, "LABEL_1": 0.5}}, r"thresholds.LABEL_0 = -0.5: .* greater than"),
        ({"thresholds": {"LABEL_1": 2.0}}, r"thresholds.LABEL_1 = 2.0: .* less than"),
        ({"long_texts": "windows", "overlap": "2"}, r"overlap = '2': .* got text"),
        ({"long_texts": "windows", "overlap": -2}, r"overlap = -2: .* greater than"),
        ({"long_texts": "all"}, r"long_texts = 'all': "),
        ({"max_length": 2}, r"max_length = 2: .* greater than"),
        ({"null_threshold": [1]}, r"null_threshold = \[1\]: "),
        ({"temprature": 2.0}, r"unknown field 'temprature' \(did you mean 'temperature'\?\)"),
    ],
)
def test_a_wrong_decision_is_the_fault_of_its_file(tmp_path: Path, decision: dict[str, Any], told: str) -> None:
    folder = save_tiny(tmp_path, BertForSequenceClassification)
    write_decision(folder, decision)
    with pytest.raises(CheckpointError, match=rf"decision\.json is damaged: {told}"):
        pipeline("text-classification", model=folder, device="cpu")("a good film")


@pytest.mark.parametrize("number", ["1e999", "-1e+999", "9" * 400 + ".0", "NaN", "Infinity"])
def test_a_decision_with_a_number_that_is_not_finite_is_damaged(tmp_path: Path, number: str) -> None:
    folder = save_tiny(tmp_path, BertForSequenceClassification)
    (folder / "decision.json").write_text(f'{{"null_threshold": {number}}}', encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"decision\.json is damaged: it holds"):
        pipeline("text-classification", model=folder, device="cpu")
    (folder / "decision.json").write_text('{"null_threshold": 1e100}', encoding="utf-8")
    assert pipeline("text-classification", model=folder, device="cpu").decision == {"null_threshold": 1e100}


def test_what_truncation_may_be_depends_on_the_pipeline(classify: Any, embed: Any) -> None:
    with pytest.raises(InputError, match="truncation must be True, False, 'head_tail' or 'windows', got 'tail'"):
        classify("a", truncation="tail")
    with pytest.raises(InputError, match="truncation must be True or False, got 'tail'"):
        embed("a", truncation="tail")


def test_a_model_is_looked_up_once_and_after_its_arguments(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def counting(name: str | Path, **given: Any) -> Path:
        asked.append(name)
        return find(name, **given)

    find = open_pipeline.resolve
    monkeypatch.setattr(open_pipeline, "resolve", counting)
    with pytest.raises(InputError, match="no option 'topk'"):
        pipeline("fill-mask", model="somebody/something", topk=1)
    with pytest.raises(ConfigError, match="unknown device"):
        pipeline("fill-mask", model="somebody/something", device="warp")
    assert asked == [], "nothing was downloaded"
    pipeline(model=folders["fill-mask"], device="cpu")
    assert asked == [folders["fill-mask"]]


def test_every_entry_leads_to_the_pipeline_of_its_task():
    assert all(entry.load().task == task for task, entry in open_pipeline.TASKS.items())
    assert {entry.load().task for entry, _ in open_pipeline.METHODS.values()} == {open_pipeline.ZERO_SHOT}
    assert {head for _, head in open_pipeline.METHODS.values()} <= open_pipeline.TASKS.keys()


@pytest.mark.slow
def test_only_the_pipeline_that_is_asked_for_is_imported():
    code = (
        "import sys\n"
        "from bertkit.inference.open_pipeline import TASKS\n"
        "from bertkit.inference.pipelines import pipeline\n"
        "pipeline('feature-extraction', model='bertkit-tiny-en', device='cpu')('a text')\n"
        "others = {f'bertkit.inference.{name}' for name in ('fill_mask', 'question_answering', 'text_to_text')}\n"
        "others |= {f'bertkit.tokenization.{name}_tokenizer' for name in ('gemma', 'roberta')} | {'tokenizers'}\n"
        "others |= {'bertkit.tasks', 'bertkit.checkpoints.adapter_folder', 'torch'}\n"
        "assert not others & set(sys.modules), others & set(sys.modules)\n"
        "TASKS['fill-mask'].load()\n"
        "assert 'bertkit.inference.fill_mask' in sys.modules, 'the control'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_a_command_imports_what_its_answer_needs():
    code = (
        "import sys\n"
        "from bertkit.cli import main\n"
        "others = {'bertkit.tasks.registry', 'bertkit.tasks.reading.tables', 'numpy.random', 'torch'}\n"
        "assert main(['embed', '--model', 'bertkit-tiny-en', '--quiet', 'a text']) == 0\n"
        "assert not others & set(sys.modules), others & set(sys.modules)\n"
        "assert main(['embed', '--model', 'bertkit-tiny-en', '--quiet', '--seed', '-1', 'a text']) == 2\n"
        "import bertkit.tasks\n"
        "assert bertkit.tasks.csv_task and others & set(sys.modules), 'the control'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
