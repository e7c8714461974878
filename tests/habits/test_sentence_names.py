"""The names of sentence-transformers: what is the same is there, and what is wrong is named with its row and ours."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import bertkit
from bertkit import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
    InputExample,
    SentenceEncoder,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SparseEncoder,
    SparseEncoderTrainer,
    SparseEncoderTrainingArguments,
    util,
)
from bertkit.errors import BertkitError, DataError, InputError
from bertkit.habit_table import Habit, habits
from bertkit.sentence_transformers import losses
from bertkit.sentence_transformers.cross_encoder.losses import LambdaLoss
from bertkit.sentence_transformers.sparse_encoder.losses import SparseMultipleNegativesRankingLoss, SpladeLoss
from bertkit.sentence_transformers.training_args import SentenceTransformerTrainingArguments
from finetune_data import labelled_texts, tiny_start
from habits.compared_texts import matches, scored_pairs, triplets
from habits.dataset_like import Dataset

MODULES = {
    "import": "bertkit",
    **{
        n: f"bertkit.sentence_transformers.{n}"
        for n in ("losses", "evaluation", "models", "util", "quantization", "datasets")
    },
    **{
        f"{kind}.{n}": f"bertkit.sentence_transformers.{kind}.{n}"
        for kind in ("cross_encoder", "sparse_encoder")
        for n in ("losses", "evaluation")
    },
}
ROWS = [row for row in habits().values() if "st" in row.worlds and row.entry in MODULES]
TEXTS = ["the film is good", "a bad day", "it was very sad"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_start(tmp_path_factory.mktemp("model") / "m")


@pytest.fixture
def model(folder: Path) -> SentenceTransformer:
    return SentenceTransformer(folder, device="cpu")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.entry}-{row.name}")
def test_a_name_is_there_or_its_error_says_what_to_write(row: Habit) -> None:
    home = import_module(MODULES[row.entry])
    if row.meaning == "same":
        assert getattr(home, row.name) is not None
    else:
        assert not hasattr(home, row.name)
        with pytest.raises(ImportError, match="; write ") as told:
            exec(f"from {home.__name__} import {row.name}")
        assert row.ours in str(told.value)


def test_where_release_6_has_its_names() -> None:
    inner = "bertkit.sentence_transformers.sentence_transformer"
    for place, name in (
        (f"{inner}.losses", "CoSENTLoss"),
        (f"{inner}.evaluation", "TripletEvaluator"),
        (f"{inner}.modules", "Pooling"),
        (inner, "SentenceTransformerTrainer"),
        ("bertkit.sentence_transformers.cross_encoder", "CrossEncoder"),
        ("bertkit.sentence_transformers.quantization", "quantize_embeddings"),
    ):
        assert getattr(import_module(place), name) is getattr(import_module(place), name)
    assert import_module(f"{inner}.losses").CoSENTLoss is losses.CoSENTLoss


def test_vectors_are_those_of_the_encoder(model: SentenceTransformer, folder: Path) -> None:
    np.testing.assert_array_equal(model.encode(TEXTS), SentenceEncoder(folder, device="cpu").encode(TEXTS))
    long = ["good film " * 100]
    with pytest.raises(BertkitError, match="limit is 32"):
        model.encoder.encode(long)
    assert np.isfinite(np.asarray(model.encode(long))).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.encode(TEXTS, normalise=True), "no argument 'normalise'"),
        (lambda m: m.encode(TEXTS, normalize=True), "write normalize_embeddings="),
        (lambda m: m.encode(TEXTS, prompt_name="none"), "no prompt 'none'"),
        (lambda m: m.encode(), "needs a text"),
        (lambda m: m.encode(TEXTS, output_value="words"), "output_value must be"),
        (lambda m: SentenceTransformer(m.encoder.pipeline.folder, token="x"), "write HF_TOKEN"),
        (lambda m: SentenceTransformer(), "needs a model"),
        (lambda m: setattr(m, "max_seq_length", 2), "3 or more, got 2"),
        (lambda m: m.fit([]), "trains one objective, got 0"),
        (lambda m: losses.CoSENTLoss(m, similarity_fct=util.dot_score), "omit similarity_fct"),
        (lambda m: SentenceTransformerTrainingArguments(epochs=2), "write num_train_epochs="),
        (lambda m: SentenceTransformerTrainingArguments(lr_scheduler_type="cosine"), "omit it"),
        (lambda m: SentenceTransformerTrainer(m, compute_metrics=print), "write evaluator="),
    ],
)
def test_what_is_not_there_is_answered_with_ours(
    call: Callable[[Any], Any], message: str, model: SentenceTransformer
) -> None:
    with pytest.raises(InputError, match=message):
        call(model)


def test_the_parts_of_a_model_and_blocks_of_fewer_numbers(model: SentenceTransformer, folder: Path) -> None:
    assert len(model) == 2
    assert model[0].get_word_embedding_dimension() == 16
    assert model[0].auto_model.config.hidden_size == 16
    assert model[1].modes == ("mean",)
    assert sum(p.numel() for p in model.train().parameters()) == sum(
        p.numel() for p in model[0].auto_model.parameters()
    )
    with model.truncate_sentence_embeddings(4):
        assert model.encode(TEXTS).shape == (3, 4)
    assert model.encode(TEXTS).shape == (3, 16)
    with pytest.raises(InputError, match="write encode"):
        model(model.tokenize(TEXTS))
    quiet = SentenceTransformer(folder, token=None, cache_folder="x", local_files_only=True)
    np.testing.assert_allclose(quiet.encode(TEXTS), model.encode(TEXTS), atol=1e-4)


def test_an_attribute_that_is_elsewhere_is_named(model: SentenceTransformer) -> None:
    with pytest.raises(AttributeError, match=r"write save_pretrained\("):
        model.push_to_hub("me/mine")
    with pytest.raises(AttributeError, match=r"did you mean 'encode'"):
        _ = model.encodes


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"anchor": "a film", "positive": "a book"}, {"anchor": "a day", "positive": None}],
            r"row 1 .*'positive' is empty",
        ),
        (pd.DataFrame({"anchor": ["good", "bad"], "positive": ["fine", float("nan")]}), r"row 1 .*'positive'"),
        ([InputExample(texts=["good", "fine"]), InputExample(texts=["bad"])], "row 1 has 1 texts, row 0 has 2"),
        ({"anchor": ["good", "bad"], "label": [1, 0]}, "reads two columns of texts"),
        ([], "no rows"),
        ({"nli": Dataset({"a": ["b"]})}, "train on one at a time"),
        ([{"anchor": "good", "positive": "fine"}], "1 training row"),
    ],
)
def test_the_training_row_that_is_wrong_is_named(rows: Any, message: str, model: SentenceTransformer) -> None:
    trainer = SentenceTransformerTrainer(model, train_dataset=rows, loss=losses.MultipleNegativesRankingLoss(model))
    with pytest.raises(DataError, match=message):
        trainer.train()


def test_scores_that_are_no_numbers_are_named(model: SentenceTransformer) -> None:
    rows = {"a": ["good", "bad"], "b": ["fine", "poor"], "score": [0.5, "high"]}
    with pytest.raises(DataError, match=r"row 1 .*high"):
        SentenceTransformerTrainer(model, train_dataset=rows, loss=losses.CoSENTLoss(model)).train()


@pytest.mark.parametrize("form", ["data set", "frame", "rows", "columns"])
def test_every_form_of_rows_trains_the_same_model(form: str, folder: Path) -> None:
    columns = {"anchor": [a for a, _ in matches(16)], "positive": [b for _, b in matches(16)]}
    rows: Any = {
        "data set": Dataset(columns),
        "frame": pd.DataFrame(columns),
        "rows": pd.DataFrame(columns).to_dict("records"),
        "columns": columns,
    }[form]
    model = SentenceTransformer(folder, device="cpu")
    args = SentenceTransformerTrainingArguments(num_train_epochs=1, per_device_train_batch_size=8, learning_rate=1e-3)
    done = SentenceTransformerTrainer(model, args, rows, loss=losses.MultipleNegativesRankingLoss(model)).train()
    again = SentenceTransformer(folder, device="cpu")
    SentenceTransformerTrainer(again, args, columns, loss=losses.MultipleNegativesRankingLoss(again)).train()
    np.testing.assert_array_equal(model.encode(TEXTS), again.encode(TEXTS))
    assert done.global_step == 2
    assert not np.allclose(model.encode(TEXTS), SentenceTransformer(folder, device="cpu").encode(TEXTS), atol=1e-4)


def test_steps_prompts_and_evaluators_of_a_training(folder: Path, tmp_path: Path) -> None:
    from bertkit.sentence_transformers.evaluation import EmbeddingSimilarityEvaluator, SequentialEvaluator

    model = SentenceTransformer(folder, device="cpu", prompts={"query": "the film: "})
    first, second, scores = zip(*scored_pairs(24), strict=True)
    judge = SequentialEvaluator([EmbeddingSimilarityEvaluator(first, second, scores, name="dev")])
    rows = {"sentence1": first, "sentence2": second, "score": scores}
    args = SentenceTransformerTrainingArguments(
        tmp_path, max_steps=5, per_device_train_batch_size=8, eval_strategy="epoch", learning_rate=1e-3
    )
    trainer = SentenceTransformerTrainer(
        model, args, rows, loss=losses.CoSENTLoss(model), evaluator=judge, eval_dataset=rows
    )
    found = trainer.train()
    assert found.global_step == 5
    assert model.prompts["query"] == "the film: "
    assert found.metrics["dev_spearman_cosine"] == pytest.approx(judge(model)["dev_spearman_cosine"], abs=1e-3)
    assert (tmp_path / "checkpoint-5" / "modules.json").exists()
    assert len((tmp_path / "EmbeddingSimilarityEvaluator_dev_results.csv").read_text().splitlines()) == 3
    told = trainer.evaluate()
    assert 0 < told["eval_loss"] < 20
    assert told["eval_sequential_score"] == pytest.approx(told["eval_dev_spearman_cosine"])


@pytest.mark.filterwarnings("ignore")
def test_a_loss_is_as_the_other_library_computes_it(folder: Path) -> None:
    home = pytest.importorskip("sentence_transformers")
    home_losses = import_module("sentence_transformers.losses")
    rows = {"a": [t[0] for t in triplets(8)], "p": [t[1] for t in triplets(8)], "n": [t[2] for t in triplets(8)]}
    theirs = home.SentenceTransformer(str(folder), device="cpu").eval()
    features = [theirs.tokenize(list(column)) for column in rows.values()]
    model = SentenceTransformer(folder, device="cpu")
    for name in ("TripletLoss", "MultipleNegativesRankingLoss"):
        with torch.inference_mode():
            expected = float(getattr(home_losses, name)(theirs)(features, None))
        args = SentenceTransformerTrainingArguments(per_device_train_batch_size=8)
        trainer = SentenceTransformerTrainer(model, args, eval_dataset=rows, loss=getattr(losses, name)(model))
        assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, abs=1e-4)
    labels = [1, 0, 1, 0, 0, 1, 1, 0]
    for name in ("ContrastiveLoss", "OnlineContrastiveLoss"):
        with torch.inference_mode():
            expected = float(getattr(home_losses, name)(theirs)(features[:2], torch.tensor(labels)))
        pairs = {"a": rows["a"], "p": rows["p"], "label": labels}
        trainer = SentenceTransformerTrainer(model, args, eval_dataset=pairs, loss=getattr(losses, name)(model))
        assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, abs=1e-4)
    scored = {**pairs, "label": [1, 0.5, *labels[2:]]}
    trainer = SentenceTransformerTrainer(model, args, scored, loss=losses.ContrastiveLoss(model))
    with pytest.raises(DataError, match=r"row 1 \(counted from 0\): ContrastiveLoss reads the labels 1 and 0, got 0.5"):
        trainer.train()


def ranked() -> dict[str, list[Any]]:
    """A query, documents, and whether they are of the good side."""
    rows = labelled_texts(64, seed=5)
    passages, labels = map(list, zip(*rows, strict=True))
    return {"query": ["the film was good"] * len(rows), "passage": passages, "label": labels}


def test_a_reranker_is_trained_on_pairs_and_on_lists(folder: Path, tmp_path: Path) -> None:
    model = CrossEncoder(folder, num_labels=1, device="cpu")
    rows = ranked()
    args = CrossEncoderTrainingArguments(num_train_epochs=12, per_device_train_batch_size=8, learning_rate=1e-2)
    trainer = CrossEncoderTrainer(model, args, rows, eval_dataset=rows)
    before = trainer.evaluate()["eval_loss"]
    pairs = list(zip(rows["query"], rows["passage"], strict=True))
    right = np.array(rows["label"])
    loss = -np.where(right == 1, np.log(model.predict(pairs)), np.log1p(-model.predict(pairs))).mean()
    assert before == pytest.approx(loss, abs=1e-3)
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before - 0.1
    model.save_pretrained(tmp_path / "kept")
    np.testing.assert_allclose(CrossEncoder(tmp_path / "kept").predict(pairs[:4]), model.predict(pairs[:4]), atol=1e-3)
    lists = {"query": rows["query"][:4], "docs": [["good film", "bad day"]] * 4, "labels": [[1, 0]] * 4}
    CrossEncoderTrainer(model, args, lists, loss=LambdaLoss(model)).train()
    for wrong, message in (
        ({**lists, "labels": [[1, 0], [1], [1, 0], [0, 1]]}, "row 1 .* has 2 documents and 1 labels"),
        ({**rows, "label": [-1.0, *rows["label"][1:]]}, "row 0 .* 0 or more"),
        ({"query": ["a"], "label": [1]}, "reads a column of queries"),
    ):
        with pytest.raises(DataError, match=message):
            CrossEncoderTrainer(model, args, wrong).train()


def test_a_sparse_encoder_is_trained(tmp_path: Path) -> None:
    words = tiny_start(tmp_path / "start")
    bertkit.BertForMaskedLM.from_pretrained(words, new_head=True).save_pretrained(tmp_path / "mlm")
    bertkit.AutoTokenizer.from_pretrained(words).save_pretrained(tmp_path / "mlm")
    model = SparseEncoder(tmp_path / "mlm", device="cpu")
    rows = {"anchor": [a for a, _ in matches()], "positive": [b for _, b in matches()]}
    loss = SpladeLoss(model, SparseMultipleNegativesRankingLoss(model), document_regularizer_weight=1e-4)

    def margin() -> float:
        scores = model.similarity(model.encode(rows["anchor"]), model.encode(rows["positive"]))
        return float(scores.diagonal().mean() - scores.mean())

    before = margin()
    args = SparseEncoderTrainingArguments(num_train_epochs=4, per_device_train_batch_size=8, learning_rate=3e-3)
    SparseEncoderTrainer(model, args, rows, loss=loss).train()
    assert margin() > before
    model.save_pretrained(tmp_path / "kept")
    again = SparseEncoder(tmp_path / "kept").encode(TEXTS, convert_to_sparse_tensor=False)
    np.testing.assert_allclose(again, model.encode(TEXTS, convert_to_sparse_tensor=False), atol=1e-3)


def test_pairs_that_are_none_are_named(folder: Path, tmp_path: Path) -> None:
    bertkit.BertForSequenceClassification.from_pretrained(folder, num_labels=1, new_head=True).save_pretrained(tmp_path)
    bertkit.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path)
    model = CrossEncoder(tmp_path, device="cpu")
    with pytest.raises(InputError, match=r"pair 1 \(counted from 0\) must be two texts, got \('a',\)"):
        model.predict([("good", "bad"), ("a",)])
    with pytest.raises(InputError, match=r"num_labels=3, but the classifier of .* has 1"):
        CrossEncoder(tmp_path, num_labels=3)
    assert model.predict([]).shape == (0,)


def test_evaluators_of_ones_own_and_those_that_return_a_number(tmp_path: Path) -> None:
    from bertkit.sentence_transformers.evaluation import (
        EmbeddingSimilarityEvaluator,
        InformationRetrievalEvaluator,
        SentenceEvaluator,
        SequentialEvaluator,
    )

    class Mine(SentenceEvaluator):
        def __call__(self, model: object, *given: object, **named: object) -> float:  # type: ignore[override]
            return 0.25

    model = SentenceTransformer("bertkit-tiny-en")
    assert SequentialEvaluator([Mine()])(model) == {"evaluator_0": 0.25, "sequential_score": 0.25}
    judge = EmbeddingSimilarityEvaluator(
        ["a"] * 3, ["a", "b", "c"], [1, 0.5, 0], similarity_fn_names=["cosine", "dot"], main_similarity="cosine"
    )
    judge(model)
    assert judge.primary_metric == "spearman_cosine"
    corpus = {str(number): "a cat" for number in range(4)}
    found = InformationRetrievalEvaluator({"q": "a cat"}, corpus, {"q": set(corpus)}, map_at_k=[2])(model)
    assert found["cosine_map@2"] == 1.0
