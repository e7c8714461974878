"""A small sentence encoder that learns the vectors of a larger one."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from bertkit import AutoConfig, AutoTokenizer, BertForMaskedLM, BertModel, SentenceEncoder
from bertkit.batch import collate
from bertkit.cli import main
from bertkit.data.examples.masking import MaskVocabulary
from bertkit.errors import ConfigError, DataError
from bertkit.training.distillation import distill_vectors as module
from bertkit.training.distillation.distill_settings import DistillRecipe, Student, VectorDistillation, VectorTraining
from bertkit.training.distillation.distill_vectors import distill_vectors
from bertkit.training.distillation.taught_vectors import MaskedTexts, WordMeans, masked_words, narrowing
from bertkit.training.trainer.batch_plan import EpochPlan
from bertkit.training.trainer.loop import Trainer
from bertkit.training.trainer.run_folder import read_log
from embedding_data import TOPICS, WORDS, untrained


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("teacher") / "model")


@pytest.fixture(scope="module")
def texts():
    generator = np.random.default_rng(0)
    found = []
    for _ in range(400):
        words = WORDS[generator.integers(TOPICS)]
        found.append(" ".join(generator.choice(words, generator.integers(2, 7))))
    return found


def recipe(student, *, loss="mse", words=0.0, **training):
    config = VectorTraining(**{"learning_rate": 3e-3, "epochs": 6, "batch_size": 32, "dev_texts": 40, **training})
    settings = VectorDistillation(loss=loss, masked_lm_weight=words)
    return DistillRecipe("test", "", settings, config, Student.parse(student))


@pytest.mark.parametrize(
    ("student", "loss"), [("2x16", "mse"), pytest.param("2x48", "cosine", marks=pytest.mark.campaign)]
)
def test_a_student_of_another_width_nears_its_teacher(teacher, texts, tmp_path, student, loss):
    result = distill_vectors(teacher, texts, tmp_path / "out", recipe(student, loss=loss))
    assert result.student.cosine_mean > 0.9
    assert result.student.cosine_mean > result.start.cosine_mean + 0.1
    assert result.student.same_neighbour > result.start.same_neighbour
    assert result.texts == {"train": len(set(texts)) - result.texts["dev"], "dev": result.texts["dev"]}
    assert (result.kept < 1) == (student == "2x16")
    encoder = SentenceEncoder(tmp_path / "out/model")
    vectors = encoder.encode(texts[:5])
    assert vectors.shape == (5, 16 if student == "2x16" else 32)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    kinds = [
        module["type"].rpartition(".")[2] for module in json.loads((tmp_path / "out/model/modules.json").read_text())
    ]
    assert kinds == ["Transformer", "Pooling", *(["Dense"] if student == "2x48" else []), "Normalize"]


def test_pooling_and_width_can_be_chosen_and_a_new_linear_layer_begins_with_least_squares(teacher, texts, tmp_path):
    given = recipe("2x16", epochs=1, learning_rate=1e-9)
    settings = given.distillation.model_copy(update={"pooling": ("cls", "mean"), "dimensions": 24})
    result = distill_vectors(teacher, texts, tmp_path / "out", replace(given, distillation=settings))
    assert result.student.cosine_mean > result.start.cosine_mean + 0.2, "without any training of the layers"
    folder = tmp_path / "out/model"
    assert SentenceEncoder(folder).encode(texts[:5]).shape == (5, 24)
    assert SentenceEncoder(folder).config.pooling == ("cls", "mean")
    plain = replace(given, distillation=VectorDistillation(final_embedding_weight=0.5))
    with pytest.raises(ConfigError, match="final_embedding_weight: the student has no new linear layer"):
        distill_vectors(teacher, texts, tmp_path / "plain", plain)
    wide = replace(given, distillation=settings.model_copy(update={"dimensions": 33}))
    with pytest.raises(ConfigError, match=r"dimensions=33: what is to be learned of a text has 32 numbers"):
        distill_vectors(teacher, texts, tmp_path / "wide", wide)
    again = replace(given, distillation=settings, student=Student(model=str(folder)))
    with pytest.raises(ConfigError, match=r"pooling, dimensions: the student .* layers of its own"):
        distill_vectors(teacher, texts, tmp_path / "again", again)
    for refused in ("plain", "wide", "again"):
        assert not (tmp_path / refused).exists(), "refused before anything is made"


@pytest.mark.campaign
def test_a_student_of_vectors_and_masked_words_is_both_models(teacher, tmp_path):
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(WORDS[number % 2], generator.integers(4, 8))) for number in range(400)]
    result = distill_vectors(teacher, texts, tmp_path / "out", recipe("1x32", words=1.0, learning_rate=1e-2))
    assert result.student.cosine_mean > 0.9
    losses = [record["masked_lm_loss"] for record in read_log(tmp_path / "out/log.jsonl") if "event" not in record]
    assert losses[0] > np.log(100) > np.log(25) > losses[-1]  # of 167 words it has found the 20 that occur
    folder = tmp_path / "out/model"
    assert np.allclose(np.linalg.norm(SentenceEncoder(folder).encode(texts[:5]), axis=1), 1, rtol=1e-5)
    filled = BertForMaskedLM.from_pretrained(folder)
    for ours, theirs in zip(filled.bert.parameters(), BertModel.from_pretrained(folder).parameters(), strict=False):
        assert torch.equal(ours, theirs)
    assert 0 < result.masked_lm["most_frequent"] < 0.3
    assert "masked words found: " in result.render()


def test_words_of_a_text_are_the_mean_of_its_embeddings_as_long_as_the_teachers_vectors(teacher, texts):
    vectors = 3 * np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    words = WordMeans.of(teacher, texts[:50], vectors, max_length=4)
    table = BertModel.from_pretrained(teacher).embeddings.word_embeddings.weight.detach().numpy()
    tokenizer = AutoTokenizer.from_pretrained(teacher)
    pieces = [tokenizer(text, add_special_tokens=False)["input_ids"][:4] for text in texts[:50]]
    means = np.array([table[ids].mean(axis=0) for ids in pieces])
    wanted = means - means.mean(axis=0)
    wanted *= np.sqrt((vectors**2).sum() / (wanted**2).sum())
    np.testing.assert_allclose(words(texts[:50]), wanted, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(words(["", "\u200b"]), 0, atol=1e-6)  # no tokens: as the mean of all
    both = words.beside(vectors, texts[:50], 0.5)
    expected = np.concatenate([vectors, wanted / 2], axis=1) / np.sqrt(1.25)
    np.testing.assert_allclose(both, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.campaign
def test_a_student_can_learn_the_words_of_a_text_beside_the_teachers_vector(teacher, texts, tmp_path):
    """With much weight its neighbours are those of the words, not those of the teacher."""
    words = WordMeans.of(teacher, texts, np.ones((len(texts), 1)), 128)
    near = {}
    for weight in (0.0, 3.0):
        given = recipe("2x32")
        given = replace(given, distillation=given.distillation.model_copy(update={"embedding_weight": weight}))
        distill_vectors(teacher, texts, tmp_path / str(weight), given)
        found, wanted = (
            each / np.linalg.norm(each, axis=1, keepdims=True)
            for each in (SentenceEncoder(tmp_path / str(weight) / "model").encode(texts), words(texts))
        )
        near[weight] = np.corrcoef((found @ found.T).ravel(), (wanted @ wanted.T).ravel())[0, 1]
    assert near[3.0] > 0.8
    assert near[0.0] < 0.6


@pytest.mark.campaign
def test_the_last_layer_can_be_fitted_once_more_with_another_weight(teacher, texts, tmp_path):
    """Its vectors are then as near to the teacher's as those of a layer that was fitted so from the beginning."""
    near, weights = {}, {}
    for final in (None, 0.0):
        settings = VectorDistillation(embedding_weight=2.0, final_embedding_weight=final, dimensions=32)
        given = replace(recipe("2x16", epochs=1), distillation=settings)
        distill_vectors(teacher, texts, tmp_path / str(final), given)
        vectors = [SentenceEncoder(path).encode(texts) for path in (tmp_path / str(final) / "model", teacher)]
        ours, theirs = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in vectors)
        near[final] = np.corrcoef((ours @ ours.T).ravel(), (theirs @ theirs.T).ravel())[0, 1]
        weights[final] = load_file(tmp_path / str(final) / "model/model.safetensors")
    assert near[0.0] > near[None] + 0.05
    assert all((weights[0.0][name] == x).all() for name, x in weights[None].items()), "the encoder is the same"


def test_found_words_are_counted_at_masked_places_alone(teacher, texts):
    tokenizer = AutoTokenizer.from_pretrained(teacher)
    words = BertForMaskedLM(AutoConfig.from_pretrained(teacher)).eval()
    vocabulary = MaskVocabulary.of_tokenizer(tokenizer)
    rows = tokenizer.encode_ragged(["aq ar", "aq as at", "aq aq aq aq aq aq"])
    wanted = tokenizer.convert_tokens_to_ids(["aq"])[0]
    with torch.no_grad():  # it always says the same word
        words.cls.predictions.bias[wanted] = 1e4
    found = masked_words(words, rows, vocabulary, max_tokens=10)
    assert found["accuracy"] == found["most_frequent"] in {1 / 3, 2 / 3, 1.0}
    with torch.no_grad():
        words.cls.predictions.bias[vocabulary.mask_id] = 1e6
    assert masked_words(words, rows, vocabulary, max_tokens=10)["accuracy"] == 0


def test_frozen_word_embeddings_stay_those_of_the_start(teacher, texts, tmp_path):
    tables = {}
    for frozen in (True, False):
        out = tmp_path / str(frozen)
        distill_vectors(teacher, texts, out, recipe("1", epochs=1, freeze_word_embeddings=frozen))
        tables[frozen] = BertModel.from_pretrained(out / "model").embeddings.word_embeddings.weight
    start = BertModel.from_pretrained(teacher).embeddings.word_embeddings.weight
    assert torch.equal(tables[True], start)
    assert not torch.equal(tables[False], start)


def test_words_are_masked_in_some_of_the_texts_and_anew_at_every_step(teacher, texts):
    tokenizer = AutoTokenizer.from_pretrained(teacher)
    rows = tokenizer.encode_ragged(texts)
    vocabulary = MaskVocabulary.of_tokenizer(tokenizer)

    def plan(share):
        options = {"step_size": len(rows), "max_tokens": 500, "seed": 3, "vocabulary": vocabulary}
        return MaskedTexts(rows.lengths.tolist(), lambda numbers: collate(rows, numbers), share=share, **options)

    for share in (0.3, 1.0):
        batches = plan(share).micro_batches(0)
        assert len(batches) > 2
        masked = []
        for batch, plain in zip(batches, EpochPlan.micro_batches(plan(share), 0), strict=True):
            labels = batch.targets["labels"]
            assert torch.equal(torch.where(labels == -100, batch.input_ids, labels), plain.input_ids)
            assert not torch.isin(labels, torch.tensor([vocabulary.cls_id, vocabulary.sep_id])).any()
            masked += [bool((labels[start:end] != -100).any()) for start, end in batch.layout.spans()]
        assert abs(np.mean(masked) - share) < 0.08
        again, next_step = plan(share).micro_batches(0), plan(share).micro_batches(1)
        assert all(torch.equal(a.input_ids, b.input_ids) for a, b in zip(batches, again, strict=True))
        assert not all(torch.equal(a.input_ids, b.input_ids) for a, b in zip(batches, next_step, strict=False))


@pytest.mark.parametrize("words", [0.0, pytest.param(0.5, marks=pytest.mark.campaign)])
def test_a_killed_run_goes_on_bit_for_bit_and_the_teacher_is_not_asked_again(
    teacher, texts, tmp_path, monkeypatch, words
):
    plan = recipe("2x16" if words else "1", checkpoint_every_s=0, epochs=2, words=words)
    whole = distill_vectors(teacher, texts, tmp_path / "whole", plan)
    step = Trainer.train_step

    def dying(self):
        if self.at.step == 7:
            raise KeyError("killed")
        return step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_step", dying)
        with pytest.raises(KeyError, match="killed"):
            distill_vectors(teacher, texts, tmp_path / "cut", plan)
    monkeypatch.setattr(module.SentenceEncoder, "encode", _refusing(module.SentenceEncoder.encode))
    again = distill_vectors(teacher, texts, tmp_path / "cut", plan)
    ours, theirs = (tmp_path / name / "model/model.safetensors" for name in ("whole", "cut"))
    assert ours.read_bytes() == theirs.read_bytes()
    assert again.student == whole.student
    steps = [record["step"] for record in read_log(tmp_path / "cut/log.jsonl") if "event" not in record]
    assert steps == list(range(1, len(steps) + 1))
    assert distill_vectors(teacher, texts, tmp_path / "cut", plan).to_dict() == again.to_dict()


def _refusing(encode):
    """The teacher's vectors were kept: only single texts, whose time is taken, may be encoded."""

    def checked(self, texts, **options):
        assert isinstance(texts, str), "the teacher is asked again"
        return encode(self, texts, **options)

    return checked


def test_narrowing_keeps_dot_products_best():
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(200, 8)).astype(np.float32) * np.array([5, 4, 3, 1, 1, 0.5, 0.2, 0.1], np.float32)
    chosen, kept = narrowing(vectors, 3)
    left, values, _ = np.linalg.svd(vectors.astype(np.float64), full_matrices=False)
    np.testing.assert_allclose(kept, (values[:3] ** 2).sum() / (values**2).sum(), rtol=1e-6)
    best = (left[:, :3] * values[:3]) @ (left[:, :3] * values[:3]).T
    np.testing.assert_allclose((vectors @ chosen) @ (vectors @ chosen).T, best, atol=1e-3)
    assert narrowing(vectors, 8) == (None, 1.0)


def test_the_command_and_what_it_refuses(teacher, texts, tmp_path, capsys):
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(texts))
    command = ["distill", "vectors", "--teacher", str(teacher), "--student", "1", "--quiet", "--set", "epochs=1"]
    assert main([*command, "--data", str(file), "--out", str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["student"]["cosine_mean"] > 0.5
    for given, message in (
        (["--out", str(tmp_path / "no")], "needs texts: give --data"),
        (["--out", str(tmp_path / "no"), "--data", str(file), "--teacher", "x"], "has one teacher, got 2"),
        (["--out", str(tmp_path / "no"), "--data", str(file), "--task", "sst2"], "--task is for recipe task"),
        (["--out", str(tmp_path / "no"), "--data", str(file), "--no-compare"], "--no-compare is for recipe task"),
        (["--out", str(tmp_path / "no"), "--data", str(file), "--dev", str(file)], "--dev is for recipes on running"),
    ):
        assert main([*command, *given]) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(DataError, match="2 different texts are too few"):
        distill_vectors(teacher, ["a", "b", "a", " "], tmp_path / "few", recipe("1"))
    assert not (tmp_path / "few").exists()
    with pytest.raises(ConfigError, match="not of method vectors"):
        distill_vectors(teacher, texts, tmp_path / "no", "task")
