"""bertkit.classic's model, optimizer and data readers, beside transformers, the published update, and the data."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bertkit
from bertkit import classic
from bertkit.classic import modeling, optimization, run_classifier, tokenization
from bertkit.errors import ConfigError, DataError, InputError, TrainingError
from pipeline_helpers import VOCABULARY, save_tiny
from published_adam import F, published_step
from tokenizer_helpers import vocab_file

IDS = torch.tensor([[2, 9, 30, 41, 3, 0, 0], [2, 7, 3, 8, 9, 50, 3]])
MASK = (IDS != 0).long()
TYPES = torch.tensor([[0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1, 1]])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"), bertkit.BertForPreTraining)


@pytest.mark.slow
def test_a_run_gives_what_transformers_gives(tiny: Path) -> None:
    from transformers import BertModel as Peer

    model = bertkit.BertModel.from_pretrained(tiny)
    run = classic.BertModel(model.config, False, IDS, MASK, TYPES, model=model)
    with torch.no_grad():
        peer = Peer.from_pretrained(tiny)
        expected = peer(IDS, MASK, TYPES, output_hidden_states=True)
    states = [run.get_embedding_output(), *run.get_all_encoder_layers()]
    assert len(run.get_all_encoder_layers()) == 2
    for ours, theirs in zip(states, expected.hidden_states, strict=True):
        torch.testing.assert_close(ours[MASK == 1], theirs[MASK == 1], rtol=1e-5, atol=1e-5)
    assert torch.equal(run.get_sequence_output(), states[-1])
    torch.testing.assert_close(run.get_pooled_output(), expected.pooler_output, rtol=1e-5, atol=1e-5)
    assert torch.equal(run.get_embedding_table(), peer.embeddings.word_embeddings.weight)
    lists = classic.BertModel(model.config, False, IDS.tolist(), MASK.tolist(), TYPES.tolist(), model=model)
    assert torch.equal(lists.get_pooled_output(), run.get_pooled_output())


def test_is_training_decides_dropout_and_leaves_the_model_as_it_was(tiny: Path) -> None:
    model = bertkit.BertForPreTraining.from_pretrained(tiny)
    quiet = [classic.BertModel(model.config, False, IDS, model=model).get_sequence_output() for _ in range(2)]
    loud = [classic.BertModel(model.config, True, IDS, model=model).get_sequence_output() for _ in range(2)]
    assert torch.equal(*quiet)
    assert not torch.equal(*loud)
    assert not model.training
    loud[0].sum().backward()
    assert model.bert.embeddings.word_embeddings.weight.grad.abs().sum() > 0


def test_without_a_model_new_weights_are_drawn() -> None:
    config = modeling.BertConfig(50, 16, 1, 2, 32, max_position_embeddings=10)
    run = modeling.BertModel(config, is_training=False, input_ids=[[2, 4, 3]])
    assert run.get_sequence_output().shape == (1, 3, 16)
    again = modeling.BertModel(config, is_training=False, input_ids=[[2, 4, 3]], model=run.model)
    assert torch.equal(again.get_pooled_output(), run.get_pooled_output())


def test_config_is_that_of_the_original(tmp_path: Path) -> None:
    assert modeling.BertConfig(32000).type_vocab_size == 16
    assert modeling.BertConfig(100, 8, 1, 2, 16, "relu", 0.2, 0.3, 64, 2, 0.01) == modeling.BertConfig(
        vocab_size=100, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        hidden_act="relu", hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.3, max_position_embeddings=64,
        type_vocab_size=2, initializer_range=0.01,
    )  # fmt: skip
    published = tmp_path / "bert_config.json"
    published.write_text(json.dumps({
        "attention_probs_dropout_prob": 0.1, "directionality": "bidi", "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1, "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072,
        "max_position_embeddings": 512, "num_attention_heads": 12, "num_hidden_layers": 12, "pooler_fc_size": 768,
        "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3, "pooler_size_per_head": 128,
        "pooler_type": "first_token_transform", "type_vocab_size": 2, "vocab_size": 21128,
    }))  # fmt: skip
    config = modeling.BertConfig.from_json_file(published)
    assert isinstance(config, modeling.BertConfig)
    assert (config.vocab_size, config.type_vocab_size, config.num_labels) == (21128, 2, 2)
    for wrong, told in (((), "vocab_size is missing"), ((9, 8, 1, 2, 16, "relu", 0, 0, 64, 2, 0.01, 1), "12")):
        with pytest.raises(ConfigError, match=told):
            modeling.BertConfig(*wrong)
    with pytest.raises(ConfigError, match="hidden_size twice"):
        modeling.BertConfig(9, 8, hidden_size=8)


def test_another_shape_than_the_models_is_refused(tiny: Path) -> None:
    model = bertkit.BertModel.from_pretrained(tiny)
    with pytest.raises(ConfigError, match="num_hidden_layers is 3 in the config and 2 in the model"):
        classic.BertModel(model.config.replace(num_hidden_layers=3), False, IDS, model=model)
    bare = bertkit.BertModel(model.config, add_pooling_layer=False)
    with pytest.raises(InputError, match="no pooler"):
        classic.BertModel(model.config, False, IDS, model=bare).get_pooled_output()


@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 5), st.integers(0, 99))
def test_gather_indexes_takes_the_vectors_at_the_positions(rows: int, width: int, count: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, width, 3, generator=generator)
    positions = torch.randint(width, (rows, count), generator=generator)
    expected = torch.stack([x[b, p] for b in range(rows) for p in positions[b].tolist()])
    assert torch.equal(modeling.gather_indexes(x, positions), expected)


def test_gather_indexes_refuses_what_does_not_fit() -> None:
    x = torch.zeros(2, 4, 3)
    for tensor, positions, told in (
        (x[0], [[0], [0]], "sequence_tensor must have 3 axes, got 2"),
        (x, [0, 1], "positions must have 2 axes"),
        (x, [[0]], "1 rows, sequence_tensor 2"),
        (x, [[0], [4]], "position 4 is outside 0 ... 3"),
        (x, [[-1], [0]], "position -1"),
    ):
        with pytest.raises(InputError, match=told):
            modeling.gather_indexes(tensor, positions)


def test_gelu_is_the_tanh_form() -> None:
    x = np.linspace(-6, 6, 101)
    tanh_form = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(modeling.gelu(torch.from_numpy(x)).numpy(), tanh_form, atol=1e-12)
    erf_form = torch.nn.functional.gelu(torch.from_numpy(x)).numpy()
    assert np.abs(erf_form - tanh_form).max() > 1e-4


def published_rate(step: int, init_lr: float, num_train_steps: int, num_warmup_steps: int) -> float:
    """The published schedule: polynomial decay of power 1, replaced by the warm-up while that lasts."""
    decayed = init_lr * (1 - min(step, num_train_steps) / num_train_steps)
    return init_lr * step / num_warmup_steps if step < num_warmup_steps else decayed


@pytest.mark.parametrize(("num_steps", "num_warmup"), [(9, 3), (8, 0), (7, 6), (1000, 7)])
def test_train_op_is_the_published_one(num_steps: int, num_warmup: int) -> None:
    """Schedule, clipping by the global norm and update, on a matrix that decays and a bias that does not."""
    generator = np.random.default_rng(num_steps)
    module = torch.nn.Linear(3, 2)
    optimizer = optimization.create_optimizer(module, 1e-2, num_steps, num_warmup)
    named = dict(module.named_parameters())
    x = {name: p.detach().numpy().copy().ravel() for name, p in named.items()}
    m, v = ({name: np.zeros(p.numel(), F) for name, p in named.items()} for _ in range(2))
    for step in range(min(num_steps, 12)):
        grads = {name: generator.normal(size=tuple(p.shape)).astype(F) * (10 if step % 2 else 0.1)
                 for name, p in named.items()}  # fmt: skip
        norm = np.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in grads.values()))
        assert (norm > 1) == (step % 2 == 1)
        for name, p in named.items():
            p.grad = torch.from_numpy(grads[name].copy())
        optimizer.step()
        rate = published_rate(step, 1e-2, num_steps, num_warmup)
        for name in named:
            decay = 0.0 if name == "bias" else 0.01
            for at, grad in enumerate((grads[name] / max(norm, 1.0)).astype(F).ravel()):
                x[name][at], m[name][at], v[name][at] = published_step(
                    x[name][at], grad, m[name][at], v[name][at], lr=rate, decay=decay
                )
            np.testing.assert_allclose(named[name].detach().numpy().ravel(), x[name], rtol=2e-6, atol=1e-8)
    assert optimizer.global_step == min(num_steps, 12)


def test_a_saved_optimizer_goes_on_where_it_stopped() -> None:
    def train(steps: list[int], module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for step in steps:
            optimizer.zero_grad()
            module(torch.full((1, 2), float(step + 1))).sum().backward()
            optimizer.step()

    torch.manual_seed(0)
    whole = torch.nn.Linear(2, 1)
    first = torch.nn.Linear(2, 1)
    first.load_state_dict(whole.state_dict())
    train([0, 1, 2, 3], whole, optimization.create_optimizer(whole.parameters(), 0.1, 4, 2))
    stopped = optimization.create_optimizer(first, 0.1, 4, 2)
    train([0, 1], first, stopped)
    resumed = optimization.create_optimizer(first, 0.1, 4, 2)
    resumed.load_state_dict(stopped.state_dict())
    assert resumed.global_step == 2
    train([2, 3], first, resumed)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), first.parameters(), strict=True))


def test_the_first_step_learns_nothing_and_bad_gradients_are_refused() -> None:
    module = torch.nn.Linear(2, 1)
    before = module.weight.detach().clone()
    optimizer = optimization.create_optimizer(module, 0.1, 10, 5)
    module(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert torch.equal(module.weight, before)
    module.weight.grad.fill_(float("nan"))
    with pytest.raises(TrainingError, match="gradients of step 1 have the norm nan"):
        optimizer.step()
    assert torch.equal(module.weight, before)
    for steps, warmup in ((0, 0), (5, 5), (5, -1)):
        with pytest.raises(ConfigError, match="num_warmup_steps from 0 to below it"):
            optimization.create_optimizer(module, 0.1, steps, warmup)


@pytest.mark.slow
def test_processors_read_the_published_files(shared: Path, tmp_path: Path) -> None:
    glue = shared / "data" / "glue"
    processor = run_classifier.MrpcProcessor()
    dev = processor.get_dev_examples(glue / "MRPC")
    rows = classic.DataProcessor._read_tsv(glue / "MRPC" / "dev.tsv")
    assert rows[0] == ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
    assert [(e.guid, e.text_a, e.text_b, e.label) for e in dev] == [
        (f"dev-{number}", row[3], row[4], row[0]) for number, row in enumerate(rows) if number
    ]
    assert {e.label for e in processor.get_test_examples(glue / "MRPC")} == {"0"}
    assert len(processor.get_train_examples(glue / "MRPC")) == 3668
    packed = classic.DataProcessor._read_tsv(glue / "CoLA" / "train.tsv")  # only train.tsv.xz is there
    cola = run_classifier.ColaProcessor().get_train_examples(glue / "CoLA")
    assert [(e.guid, e.text_a, e.label) for e in cola] == [(f"train-{n}", r[3], r[1]) for n, r in enumerate(packed)]
    assert run_classifier.ColaProcessor().get_labels() == ["0", "1"]
    with pytest.raises(DataError, match=r"nothing\.tsv does not exist; .*MRPC/ has 'SOURCE|dev\.tsv"):
        classic.DataProcessor._read_tsv(glue / "MRPC" / "nothing.tsv")
    quoted = tmp_path / "quoted.tsv"
    quoted.write_text('a\t"b\tc"\n\nd\te\n', encoding="utf-8")
    assert classic.DataProcessor._read_tsv(quoted, quotechar='"') == [["a", "b\tc"], ["d", "e"]]
    assert classic.DataProcessor._read_tsv(quoted) == [["a", '"b', 'c"'], ["d", "e"]]


@pytest.mark.parametrize("quotechar", [None, '"'])
def test_a_table_in_another_encoding_is_refused(tmp_path: Path, quotechar: str | None) -> None:
    """UTF-8, with or without a byte order mark, is read."""
    file = tmp_path / "x.tsv"
    for encoding in ("utf-8", "utf-8-sig"):
        file.write_text("a\tb\nc\tcaf\u00e9\n", encoding=encoding)
        assert classic.DataProcessor._read_tsv(file, quotechar) == [["a", "b"], ["c", "caf\u00e9"]]
    file.write_text("a\tb\nc\tcaf\u00e9 und T\u00fcr\n", encoding="latin-1")
    with pytest.raises(DataError, match=r"x\.tsv:2: .*UTF-8"):
        classic.DataProcessor._read_tsv(file, quotechar)


def test_features_are_those_of_transformers(shared: Path) -> None:
    from transformers import BertTokenizer as Peer

    vocab = vocab_file(shared, "uncased")
    tokenizer = classic.FullTokenizer(vocab, do_lower_case=True)
    examples = run_classifier.MrpcProcessor().get_dev_examples(shared / "data" / "glue" / "MRPC")[:50]
    peer = Peer(vocab=tokenization.load_vocab(vocab), do_lower_case=True)
    texts = [e.text_a for e in examples]
    single = [classic.InputExample(e.guid, e.text_a, None, e.label) for e in examples]
    for asked, expected in (
        (examples, peer(texts, [e.text_b for e in examples], padding="max_length", max_length=128)),
        (single, peer(texts, padding="max_length", truncation=True, max_length=20)),
    ):
        width = len(expected["input_ids"][0])
        features = classic.convert_examples_to_features(asked, ["0", "1"], width, tokenizer)
        assert [f.input_ids for f in features] == expected["input_ids"]
        assert [f.input_mask for f in features] == expected["attention_mask"]
        assert [f.segment_ids for f in features] == expected["token_type_ids"]
        assert [f.label_id for f in features] == [int(e.label) for e in asked]


def test_a_pair_is_cut_from_its_longer_text_at_the_end() -> None:
    tokenizer = classic.FullTokenizer({token: number for number, token in enumerate(VOCABULARY)})
    for num_a, num_b, kept in ((9, 2, (3, 2)), (2, 9, (2, 3)), (9, 9, (3, 2)), (1, 1, (1, 1))):
        example = classic.InputExample("x", "a " * num_a, "b " * num_b)
        features = classic.convert_single_example(0, example, [], 8, tokenizer)
        tokens = tokenization.convert_ids_to_tokens(tokenizer.inv_vocab, features.input_ids)
        assert tokens[: sum(kept) + 3] == ["[CLS]", *["a"] * kept[0], "[SEP]", *["b"] * kept[1], "[SEP]"]
        assert sum(features.input_mask) == sum(kept) + 3
        assert features.segment_ids == [0] * (kept[0] + 2) + [1] * (kept[1] + 1) + [0] * (8 - sum(kept) - 3)
    with pytest.raises(DataError, match=r"example 7 \(x\): label 'goood' is not one of 'bad', 'good' \(did you mean"):
        classic.convert_single_example(7, classic.InputExample("x", "a", label="goood"), ["bad", "good"], 8, tokenizer)
    with pytest.raises(InputError, match="max_seq_length=4 leaves no room"):
        classic.convert_single_example(0, classic.InputExample("x", "a", "b"), [], 4, tokenizer)


def test_functions_of_the_vocabulary() -> None:
    vocab = {"a": 0, "b": 1}
    assert classic.convert_tokens_to_ids(vocab, ["b", "a"]) == [1, 0]
    assert classic.convert_ids_to_tokens({0: "a", 1: "b"}, [0, 0]) == ["a", "a"]
    assert classic.whitespace_tokenize(" a  b\n") == ["a", "b"]
    assert classic.convert_to_unicode(b"caf\xc3\xa9") == classic.convert_to_unicode("café") == "café"
    with pytest.raises(InputError, match="'c' is not in the vocabulary of 2"):
        classic.convert_tokens_to_ids(vocab, ["c"])
    with pytest.raises(InputError, match="must be str or bytes, got int"):
        classic.convert_to_unicode(3)


def test_every_name_is_there() -> None:
    assert set(classic.__all__) == set(classic._MODULE_OF)
    for name in classic.__all__:
        assert getattr(classic, name) is not None
    for module in ("create_pretraining_data", "modeling", "optimization", "run_classifier", "tokenization"):
        assert getattr(classic, module).__name__ == f"bertkit.classic.{module}"
    with pytest.raises(AttributeError, match="get_optimizer"):
        classic.get_optimizer  # noqa: B018
    rng = random.Random(0)
    assert classic.create_masked_lm_predictions(["[CLS]", "a", "[SEP]"], 1.0, 1, ["a"], rng)[1] == [1]


@pytest.mark.parametrize("nothing", [None, "", " "])
def test_a_second_text_without_words_makes_no_pair(nothing: str | None, shared: Path) -> None:
    tokenizer = tokenization.FullTokenizer(vocab_file(shared, "uncased"))
    features = [
        run_classifier.convert_single_example(
            0, run_classifier.InputExample("0", "a b", text_b, "0"), ["0"], 8, tokenizer
        )
        for text_b in (None, nothing)
    ]
    assert features[0] == features[1]
    assert sum(features[1].segment_ids) == 0


@given(st.characters())
def test_kinds_of_characters(char: str) -> None:
    """Beside the definitions in the original's docstrings: category by category."""
    import unicodedata

    category = unicodedata.category(char)
    assert tokenization._is_whitespace(char) == (category == "Zs" or char in "\t\n\r")
    assert tokenization._is_control(char) == (category in ("Cc", "Cf") and char not in "\t\n\r")
    code = ord(char)
    ascii_sign = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    assert tokenization._is_punctuation(char) == (ascii_sign or category.startswith("P"))


@pytest.mark.parametrize(
    ("name", "lower"),
    [
        ("uncased_L-12_H-768_A-12", True),
        ("multilingual_L-12_H-768_A-12", True),
        ("chinese_L-12_H-768_A-12", True),
        ("cased_L-24_H-1024_A-16", False),
        ("multi_cased_L-12_H-768_A-12", False),
    ],
)
def test_case_is_what_the_name_of_a_checkpoint_says(name: str, lower: bool) -> None:
    checkpoint = f"gs://models/{name}/bert_model.ckpt"
    tokenization.validate_case_matches_checkpoint(lower, checkpoint)
    with pytest.raises(ConfigError, match=f"pass do_lower_case={lower}"):
        tokenization.validate_case_matches_checkpoint(not lower, checkpoint)
    for other in (None, "", "mine/model.ckpt", "my_model/bert_model.ckpt"):
        tokenization.validate_case_matches_checkpoint(not lower, other)


def test_the_original_s_config_test() -> None:
    config = modeling.BertConfig(vocab_size=99, hidden_size=37)
    values = json.loads(config.to_json_string())
    assert (values["vocab_size"], values["hidden_size"]) == (99, 37)
    assert tokenization.printable_text(b"caf\xc3\xa9") == "café"
