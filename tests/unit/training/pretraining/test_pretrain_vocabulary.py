"""Continued pre-training with an extended tokenizer: what is an extension, how new words begin, whole runs."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest
import torch

from bertkit.cli import main
from bertkit.data.store.prepare import prepare
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import ConfigError, DataError
from bertkit.model.models import BertForMaskedLM, BertForPreTraining, BertModel
from bertkit.system.interrupts import Interrupted
from bertkit.tokenization import AddedToken, BertTokenizer
from bertkit.training.pretraining.initial_model import make_network
from bertkit.training.pretraining.new_words import find_new_words
from bertkit.training.pretraining.pretrain import pretrain
from pretrain_runs import SETTINGS, SHAPE, interrupt_after, weights
from tokenizer_helpers import learn_vocabulary

SPECIAL = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused2]"]
PIECES = "the heart beat card mid night . ##io ##lo ##gy ##log ##vers ##ion".split()
LETTERS = "abcdefghijklmnopqrstuvwxyz"
BASE = [*SPECIAL, *PIECES, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
TEXTS = ["the heart beats . cardiology the cardioversion cardiology hearts", "midnight cardiology . the cardio hearts"]


def tokenizer(tokens: list[str], lower: bool = True, **settings) -> BertTokenizer:
    return BertTokenizer({token: number for number, token in enumerate(tokens)}, lower, **settings)


def extended(size: int = len(BASE) + 3) -> list[str]:
    return learn_vocabulary(TEXTS * 3, size, do_lower_case=True, extend=BASE)


def placed(**changes: str) -> list[str]:
    """The base with some tokens in other places; ``at_3="x"`` puts ``x`` there."""
    tokens = list(BASE)
    for place, token in changes.items():
        tokens[int(place.removeprefix("at_"))] = token
    return tokens


def test_new_words_and_their_pieces() -> None:
    base, larger = tokenizer(BASE), tokenizer(extended())
    words = find_new_words(base, larger)
    assert (words.base_size, words.size, len(words), words.num_in_unused_places) == (len(BASE), len(BASE) + 3, 6, 3)
    names = {number: larger.convert_ids_to_tokens(number) for number in words.pieces}
    assert set(names) == {1, 2, 7, len(BASE), len(BASE) + 1, len(BASE) + 2}
    assert {"cardiology", "hearts", "midnight"} <= set(names.values())
    for number, name in names.items():
        assert list(words.pieces[number]) == base.convert_tokens_to_ids(base.tokenize(name))
    by_name = {name: words.pieces[number] for number, name in names.items()}
    assert by_name["cardiology"] == tuple(base.convert_tokens_to_ids(["card", "##io", "##log", "##y"]))
    assert str(words).startswith("6 new words, 3 in the places of [unusedN] and 3 after the last token")


def test_tokens_that_continue_a_word_or_were_unknown() -> None:
    base = tokenizer(BASE)
    new = ["##logy", "##iology", "##é", "é", "ж", "new heart"]  # by hand: an uncased tokenizer never finds é
    words = find_new_words(base, tokenizer([*BASE, *new]))
    pieces = dict(zip(new, words.pieces.values(), strict=True))
    for ending in new[:2]:  # what follows "c" in a word that begins with it
        assert base.tokenize("c" + ending.removeprefix("##"))[0] == "c"
        assert list(pieces[ending]) == base.convert_tokens_to_ids(base.tokenize("c" + ending.removeprefix("##"))[1:])
    unknown = (base.unk_token_id,)
    assert (pieces["##é"], pieces["ж"]) == (unknown, unknown)
    assert pieces["é"] == (base.vocab["e"],)
    assert pieces["new heart"][-1] == base.vocab["heart"]
    assert words.num_unknown == 2
    assert "2 of them [UNK]" in str(words)


@pytest.mark.slow
def test_a_text_without_new_words_has_the_ids_that_it_had() -> None:
    base, larger = tokenizer(BASE), tokenizer(extended())
    new = set(find_new_words(base, larger).pieces)
    random = Random(0)
    parts = [*"theartbcdioglymn", "card", "iology", "heart", "s", " ", " ", ".", "é", "[MASK]"]
    same = 0
    for _ in range(2000):
        text = "".join(random.choices(parts, k=random.randint(1, 9)))
        ids = larger.encode(text)
        if not new & set(ids):
            same += 1
            assert ids == base.encode(text)
    assert 500 < same < 2000
    assert base.encode("cardiology") != larger.encode("cardiology")


@pytest.mark.parametrize(
    ("tokens", "settings", "told"),
    [
        (BASE[:-1], {}, f"id {len(BASE) - 1} is '{BASE[-1]}' in the checkpoint's tokenizer, no token in the store's"),
        (placed(at_8="heart", at_9="the"), {}, "id 8 is 'the' in the checkpoint's tokenizer, 'heart' in the store's"),
        (placed(at_11="cardiology"), {}, "id 11 is 'card' in the checkpoint's tokenizer, 'cardiology' in the store's"),
        (placed(at_1="[unused1]", at_2="[unused0]"), {}, r"id 1 is '\[unused0\]'.*'\[unused1\]'"),
        ([*placed(at_1="words"), "[unused0]"], {}, rf"id {len(BASE)} is no token .*'\[unused0\]' in the store's"),
        ([*BASE, "word"], {"lower": False}, "do_lower_case is True in the checkpoint's .* False in the store's"),
        ([*BASE, "word"], {"strip_accents": False}, "strip_accents is True .* False"),
        ([*BASE, "word"], {"tokenize_chinese_chars": False}, "tokenize_chinese_chars is True .* False"),
        ([*BASE, "word"], {"mask_token": "heart"}, r"mask_token is '\[MASK\]' .* 'heart'"),
        ([*BASE, "word"], {"max_input_chars_per_word": 9}, "max_input_chars_per_word is 100 .* 9"),
        ([*BASE, "word"], {"added_tokens": [AddedToken("the", 8)]}, "how 'the' is found .* is None .* AddedToken"),
    ],
    ids="shrunk swapped other-word moved-unused unused-at-the-end case accents chinese mask long never-split".split(),
)  # fmt: skip
def test_what_is_no_extension(tokens, settings, told) -> None:
    with pytest.raises(DataError, match=told):
        find_new_words(tokenizer(BASE), tokenizer(tokens, **settings))


def test_what_is_one() -> None:
    base = tokenizer(BASE, added_tokens=[AddedToken("[ENT]", len(BASE))])
    assert len(find_new_words(base, base)) == 0
    assert len(find_new_words(base, replace_settings(base, strip_accents=True))) == 0  # as it does without saying so
    more = [AddedToken("[ENT]", len(BASE)), AddedToken("[DATE]", len(BASE) + 1)]
    assert list(find_new_words(base, tokenizer(BASE, added_tokens=more)).pieces) == [len(BASE) + 1]
    with pytest.raises(DataError, match=r"how '\[ENT\]' is found"):
        find_new_words(base, tokenizer([*BASE, "[ENT]"]))


def replace_settings(base: BertTokenizer, **settings) -> BertTokenizer:
    vocabulary = replace(base._vocabulary, **settings)
    return BertTokenizer(
        vocabulary.vocab, vocabulary.do_lower_case, vocabulary.strip_accents, added_tokens=vocabulary.added
    )


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join("\n".join(TEXTS) for _ in range(12)) + "\n")
    return path


@pytest.fixture
def base(tmp_path):
    """A small model of the base, saved with its tokenizer; with more rows than tokens, as some published ones."""

    def save(cls=BertForPreTraining, rows: int = len(BASE)):
        torch.manual_seed(7)
        model = cls(SHAPE.replace(vocab_size=rows))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape))
        model.save_pretrained(tmp_path / "base")
        tokenizer(BASE).save_pretrained(tmp_path / "base")
        return tmp_path / "base", model

    return save


def store_of(text, words: BertTokenizer) -> TokenStore:
    prepare(text, words, text.parent / "store", sentences="line", workers=1)
    return TokenStore(text.parent / "store")


@pytest.mark.parametrize(("cls", "rows"), [(BertForPreTraining, 0), (BertForPreTraining, 8), (BertModel, 0)])
def test_a_checkpoint_goes_on_with_new_words(text, base, capsys, cls, rows) -> None:
    path, before = base(cls, len(BASE) + rows)
    words = tokenizer(extended())
    network, start = make_network(path, store_of(text, words), SETTINGS.replace(dropout=0.0))
    assert network.config.vocab_size == max(len(words), len(BASE) + rows)
    assert start.shape["vocab_size"] == network.config.vocab_size
    assert start.new_words == {
        "count": 6, "in_unused_places": 3, "after_the_last_token": 3, "began_as": "mean of the rows of their pieces",
        "began_as_unk": 0,
    }  # fmt: skip
    assert "has 6 new words, 3 in the places of [unusedN]" in capsys.readouterr().err
    old = (before if cls is BertModel else before.bert).embeddings.word_embeddings.weight
    table, bias = network.bert.embeddings.word_embeddings.weight, network.cls.predictions.bias
    pieces = find_new_words(tokenizer(BASE), words).pieces
    for number, split in pieces.items():
        assert torch.allclose(table[number], old[list(split)].mean(0), atol=1e-6)
        if cls is BertForPreTraining:
            assert torch.allclose(bias[number], before.cls.predictions.bias[list(split)].mean(), atol=1e-6)
    kept = [number for number in range(len(BASE) + rows) if number not in pieces]
    assert torch.equal(table[kept], old[kept])
    batch = torch.tensor([[4, 8, 9, 10, 5]])
    encoder = before if cls is BertModel else before.bert
    with torch.no_grad():
        seen = [model.eval()(batch).last_hidden_state for model in (encoder, network.bert)]
    assert torch.equal(*seen)


def test_anything_else_is_refused_with_the_first_difference(text, base) -> None:
    path, _ = base()
    store = store_of(text, tokenizer(placed(at_8="heart", at_9="the")))
    with pytest.raises(DataError, match=r"id 8 is 'the' .*'heart'.*prepare CORPUS --tokenizer .*base.*--extend"):
        make_network(path, store, SETTINGS)


def test_a_table_smaller_than_its_own_tokenizer_is_refused(text, base) -> None:
    path, _ = base(BertForMaskedLM)
    added = [AddedToken("[ENT]", len(BASE))]
    tokenizer(BASE, added_tokens=added).save_pretrained(path)
    added.append(AddedToken("[DATE]", len(BASE) + 1))
    with pytest.raises(ConfigError, match=rf"the model has vocab_size={len(BASE)}, but .* has {len(BASE) + 2} tokens"):
        make_network(path, store_of(text, tokenizer(BASE, added_tokens=added)), SETTINGS)


@pytest.mark.campaign  # ``test_pretrain.py`` resumes a run of today's procedure every day
@pytest.mark.slow
def test_a_run_learns_new_words_and_goes_on_bit_for_bit(text, base, tmp_path, monkeypatch) -> None:
    path, _ = base()
    store = store_of(text, tokenizer(extended()))
    config = SETTINGS.replace(max_steps=4)
    result = pretrain(store, tmp_path / "whole", config, model=str(path))
    assert result.num_new_words == 6
    assert json.loads((tmp_path / "whole" / "metrics.json").read_text())["start"]["new_words"]["count"] == 6
    assert pretrain(store, tmp_path / "whole", config, model=str(path)) == result
    trained, begun = BertForPreTraining.from_pretrained(result.model), make_network(path, store, config)[0]
    number = store.tokenizer().vocab["cardiology"]
    rows = [model.bert.embeddings.word_embeddings.weight[number] for model in (trained, begun)]
    assert not torch.equal(*rows)
    # The model of the run goes on too, and nothing is new to it.
    assert make_network(result.model, store, config)[1].new_words is None
    interrupt_after(monkeypatch, 2)
    with pytest.raises(Interrupted):
        pretrain(store, tmp_path / "parts", config, model=str(path))
    pretrain(store, tmp_path / "parts", config, model=str(path))
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


@pytest.mark.slow
def test_the_commands(text, base, tmp_path, capsys) -> None:
    """Extend, prepare, pre-train, use."""
    path, _ = base()
    names = {name: str(tmp_path / name) for name in ("tokenizer", "store", "run")}
    size = str(len(BASE) + 2)
    extend = ["vocab", str(text), "--extend", str(path), "--size", size, "--held-out", "0", "--out", names["tokenizer"]]
    assert main([*extend, "-q"]) == 0
    assert main(["prepare", str(text), "--tokenizer", names["tokenizer"], "--out", names["store"], "-q"]) == 0
    command = ["pretrain", names["store"], "--model", str(path), "--max-seq-length", "32", "--batch-size", "4"]
    command += ["--max-steps", "2", "--no-curve", "--device", "cpu", "--out", names["run"]]
    capsys.readouterr()
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert "has 5 new words, 3 in the places of [unusedN] and 2 after the last token" in err
    assert "new words, initialized as the mean of their pieces: 5" in out
    assert main([*command, "-q", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_new_words"] == 5
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert config["vocab_size"] == len(BASE) + 2
    assert main(["fill-mask", "--model", names["run"] + "/model", "the [MASK] .", "--top-k", str(len(BASE) + 2)]) == 0
    assert "cardiology" in capsys.readouterr().out
    more = ["pretrain", names["store"], "--model", names["run"] + "/model", *command[4:-1], names["run"] + "-2"]
    assert main([*more, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["num_new_words"] == 0
    assert "new words" not in err


@pytest.mark.campaign
@pytest.mark.slow
def test_a_published_model_learns_new_words(minilm, tmp_path) -> None:
    words = BertTokenizer.from_pretrained(minilm)
    text = tmp_path / "text.txt"
    sentences = ["Cardioversion restores the rhythm of the heart.", "Thrombolysis dissolves a clot."]
    text.write_text("\n\n".join("\n".join(sentences) for _ in range(20)) + "\n")
    command = ["vocab", str(text), "--extend", str(minilm), "--size", str(len(words)), "--held-out", "0"]
    assert main([*command, "--out", str(tmp_path / "tokenizer"), "-q"]) == 0
    larger = BertTokenizer.from_pretrained(tmp_path / "tokenizer")
    network, start = make_network(minilm, store_of(text, larger), SETTINGS)
    encoder = BertModel.from_pretrained(minilm)
    place = larger.vocab["cardioversion"]
    assert words.convert_ids_to_tokens(place).startswith("[unused")
    assert start.new_words["count"] == start.new_words["in_unused_places"] >= 2
    old, new = (model.embeddings.word_embeddings.weight for model in (encoder, network.bert))
    assert old.shape == new.shape
    assert torch.allclose(new[place], old[words.encode("cardioversion", add_special_tokens=False)].mean(0), atol=1e-6)
    ids = torch.tensor([larger.encode("The heart is a muscle, and a good one.")])
    with torch.no_grad():
        assert torch.equal(encoder(ids).last_hidden_state, network.bert(ids).last_hidden_state)
