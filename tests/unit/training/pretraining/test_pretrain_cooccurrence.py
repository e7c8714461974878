"""First word embeddings from pairs of near tokens: counts, information and vectors against plain arithmetic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bertkit.data.store.prepare import prepare
from bertkit.data.store.token_store import TokenStore
from bertkit.system.interrupts import Interrupted
from bertkit.tokenization import BertTokenizer
from bertkit.training.pretraining import initial_model as pretrain_start
from bertkit.training.pretraining.initial_model import make_network
from bertkit.training.pretraining.pretrain import pretrain
from bertkit.training.pretraining.word_statistics import cooccurrence_vectors, count_pairs
from bertkit.training.word_vectors import cooccurrence as module
from bertkit.training.word_vectors.cooccurrence import WINDOW
from pretrain_runs import SETTINGS, SHAPE, interrupt_after, weights

TABLE = "bert.embeddings.word_embeddings.weight"


def plain_counts(store: TokenStore, *, across: bool = False) -> np.ndarray:
    """Every pair, one at a time; ``across`` documents too."""
    num_tokens = store.manifest.tokenizer.num_tokens
    counts = np.zeros((num_tokens, num_tokens))
    documents = [store.tokens_of(number).tolist() for number in range(len(store))]
    for tokens in [[token for document in documents for token in document]] if across else documents:
        for at, token in enumerate(tokens):
            for distance, near in enumerate(tokens[at + 1 : at + 1 + WINDOW], 1):
                counts[token, near] += 1 / distance
                counts[near, token] += 1 / distance
    return counts


def plain_information(counts: np.ndarray) -> np.ndarray:
    shares = counts.sum(0) ** 0.75 / (counts.sum(0) ** 0.75).sum()
    expected = np.outer(counts.sum(1), shares)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.maximum(0, np.where(counts > 0, np.log(counts / expected), 0))


def test_pairs_are_counted_within_documents(stores) -> None:
    expected = plain_counts(stores[0])
    np.testing.assert_allclose(count_pairs(stores[0]), expected, rtol=1e-4)
    assert not np.allclose(plain_counts(stores[0], across=True), expected, rtol=1e-4)  # control


def test_contexts_are_the_most_frequent_where_memory_is_short(stores, monkeypatch) -> None:
    every = plain_counts(stores[0])
    monkeypatch.setattr(module, "MAX_ENTRIES", 7 * len(every) + 1)
    counts = np.bincount(np.concatenate([stores[0].tokens_of(number) for number in range(len(stores[0]))]))
    contexts = np.sort(np.argsort(-counts, kind="stable")[:7])
    np.testing.assert_allclose(count_pairs(stores[0]), every[:, contexts], rtol=1e-4)
    assert cooccurrence_vectors(stores[0], 32).shape == (len(every), 7)


def test_vectors_are_those_of_an_exact_decomposition(stores) -> None:
    """What a sign or a rotation cannot change: the cosines. All dimensions, so that the randomized SVD is exact."""
    counts = plain_counts(stores[0])
    seen = counts.any(1)
    left, singular, _ = np.linalg.svd(plain_information(counts))
    whole = left * np.sqrt(singular)
    whole -= whole[seen].mean(0)
    whole = whole[seen] / np.linalg.norm(whole[seen], axis=1, keepdims=True)
    vectors = cooccurrence_vectors(stores[0], len(counts))
    assert vectors.dtype == np.float32
    assert not vectors[~seen].any()
    np.testing.assert_allclose(vectors[seen] @ vectors[seen].T, whole @ whole.T, atol=2e-3)


def test_words_of_the_same_company_begin_alike(tmp_path: Path) -> None:
    """Cats and dogs stand among the same words, and never beside each other; stones among others."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "dog", "stone", "eats", "sleeps", "lies", "falls"]
    alive, dead = ("eats", "sleeps"), ("lies", "falls")
    draw = np.random.default_rng(0)
    sentences = []
    for _ in range(300):
        word, verbs = [("cat", alive), ("dog", alive), ("stone", dead)][draw.integers(3)]
        sentences.append(f"{verbs[draw.integers(2)]} {word} {verbs[draw.integers(2)]}")
    (tmp_path / "text.txt").write_text("\n\n".join(sentences) + "\n")
    tokenizer = BertTokenizer({token: number for number, token in enumerate(tokens)})
    prepare(tmp_path / "text.txt", tokenizer, tmp_path / "store", sentences="line")
    vectors = cooccurrence_vectors(TokenStore(tmp_path / "store"), 4)
    cat, dog, stone = vectors[tokens.index("cat") : tokens.index("stone") + 1]
    assert cat @ dog > 0.9
    assert cat @ stone < 0.2
    assert not vectors[:5].any()  # special tokens stand near nothing


@pytest.mark.parametrize("rows_more", [0, 3])
def test_a_new_model_can_begin_with_them(stores, rows_more: int) -> None:
    store = stores[0]
    num_tokens = len(store.tokenizer())
    shape = SHAPE.replace(vocab_size=num_tokens + rows_more)
    settings = SETTINGS.replace(word_embeddings="cooccurrence")
    random = dict(make_network(shape, store, SETTINGS)[0].named_parameters())
    begun = dict(make_network(shape, store, settings)[0].named_parameters())
    assert {name for name, value in begun.items() if not value.equal(random[name])} == {TABLE}
    drawn, table = random[TABLE].detach().numpy(), begun[TABLE].detach().numpy()
    vectors = cooccurrence_vectors(store, shape.hidden_size, seed=SETTINGS.seed)
    seen, width = np.flatnonzero(vectors.any(1)), vectors.shape[1]
    assert 0 < len(seen) < num_tokens == width < shape.hidden_size, "so few tokens do not give all dimensions"
    lengths = np.linalg.norm(drawn[seen, :width], axis=1, keepdims=True)
    np.testing.assert_allclose(table[seen, :width], vectors[seen] * lengths, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(table[:, width:], drawn[:, width:])
    np.testing.assert_array_equal(np.delete(table, seen, 0), np.delete(drawn, seen, 0))


@pytest.mark.slow
def test_a_run_begins_with_them_and_is_resumed_without_counting(stores, tmp_path, monkeypatch) -> None:
    settings = SETTINGS.replace(word_embeddings="cooccurrence", max_steps=4)
    pretrain(stores[0], tmp_path / "whole", settings, model=SHAPE)
    pretrain(stores[0], tmp_path / "random", settings.replace(word_embeddings="random"), model=SHAPE)
    with monkeypatch.context() as change:
        interrupt_after(change, 2)
        with pytest.raises(Interrupted):
            pretrain(stores[0], tmp_path / "stopped", settings, model=SHAPE)
    monkeypatch.setattr(pretrain_start, "cooccurrence_vectors", lambda *_, **__: pytest.fail("counted again"))
    pretrain(stores[0], tmp_path / "stopped", settings, model=SHAPE)
    found = {name: weights(tmp_path / name) for name in ("whole", "random", "stopped")}
    assert all(torch.equal(value, found["stopped"][name]) for name, value in found["whole"].items())
    assert not torch.equal(found["whole"][TABLE], found["random"][TABLE])  # control
