"""Names, keywords and attributes of transformers beyond the snippets: edges, errors, and both entries alike."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import pre_tokenizers

import bertkit
from bertkit import (
    AutoModel,
    AutoTokenizer,
    BartConfig,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    pipeline,
)
from bertkit.errors import CheckpointError, ConfigError, InputError, TextError
from bertkit.habit_table import habits
from bertkit.habits.trainer_data import collate_with
from pipeline_helpers import save_tiny

pytestmark = pytest.mark.slow

TEXTS = ["the film is good", "a great and very bad scene of it", "dull"]
THREE = {"id2label": {0: "a", 1: "b", 2: "c"}}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("m") / "classifier", BertForSequenceClassification, **THREE)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("m") / "encoder")


# Configs


def test_what_a_call_returns_is_kept_in_the_file_and_overruled_by_the_call(encoder: Path, tmp_path: Path) -> None:
    model = BertModel.from_pretrained(encoder)
    assert "output_hidden_states" not in model.config.to_dict()
    model.config.output_hidden_states = model.config.output_attentions = True
    model.save_pretrained(tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())
    assert (said["output_hidden_states"], said["output_attentions"]) == (True, True)
    again, theirs = BertModel.from_pretrained(tmp_path), transformers.BertModel.from_pretrained(tmp_path)
    assert theirs.config.output_hidden_states
    ids = torch.tensor([[2, 7, 8, 3]])
    assert [len(again(ids).hidden_states), len(again(ids).attentions)] == [3, 2]
    asked = again(ids, output_hidden_states=False, output_attentions=False)
    assert (asked.hidden_states, asked.attentions) == (None, None)
    with pytest.raises(ConfigError, match=r"config.output_attentions must be True or False, got 'yes'"):
        again.config.output_attentions = "yes"


def test_both_halves_of_a_bart_follow_their_config() -> None:
    sizes = {"encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = BartConfig(vocab_size=20, d_model=8, encoder_ffn_dim=8, decoder_ffn_dim=8, **sizes)
    config.output_hidden_states = True
    out = bertkit.BartModel(config).eval()(torch.tensor([[4, 5, 2]]))
    assert (len(out.encoder_hidden_states), len(out.decoder_hidden_states), out.encoder_attentions) == (3, 2, None)
    assert BartConfig.from_dict(config.to_dict()).output_hidden_states


# Models


def test_a_config_of_one_s_own(classifier: Path, encoder: Path) -> None:
    config = BertConfig.from_pretrained(encoder, num_labels=5, hidden_dropout_prob=0.3)
    model = BertForSequenceClassification.from_pretrained(encoder, config=config)
    assert (model.classifier.out_features, model.config.hidden_dropout_prob) == (5, 0.3)
    assert BertModel.from_pretrained(encoder, config=config).config.num_labels == 5
    with pytest.raises(CheckpointError, match=r"num_labels|labels"):
        BertForSequenceClassification.from_pretrained(classifier, config=config)
    with pytest.raises(InputError, match="config= is of the roberta family, and the checkpoint is a bert"):
        BertModel.from_pretrained(encoder, config=BertConfig(model_type="roberta"))


def test_a_head_of_the_right_size_is_kept(classifier: Path) -> None:
    trained = BertForSequenceClassification.from_pretrained(classifier)
    same = BertForSequenceClassification.from_pretrained(classifier, num_labels=3, ignore_mismatched_sizes=True)
    other = BertForSequenceClassification.from_pretrained(classifier, num_labels=4, ignore_mismatched_sizes=True)
    assert torch.equal(same.classifier.weight, trained.classifier.weight)
    assert other.classifier.weight.shape == (4, 32)
    assert torch.equal(other.bert.encoder.state_dict()[(key := next(iter(trained.bert.encoder.state_dict())))],
                       trained.bert.encoder.state_dict()[key])  # fmt: skip
    with pytest.raises(CheckpointError, match="new_head=True"):
        BertForSequenceClassification.from_pretrained(classifier, num_labels=4)


def test_the_type_of_the_file(encoder: Path, tmp_path: Path) -> None:
    for file in encoder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    save_file({name: x.half() for name, x in weights.items()}, tmp_path / "model.safetensors", {"format": "pt"})
    assert AutoModel.from_pretrained(tmp_path).dtype == torch.float32
    for name in ("dtype", "torch_dtype"):
        assert AutoModel.from_pretrained(tmp_path, **{name: "auto"}).dtype == torch.float16


def test_the_encoder_by_the_name_of_its_family() -> None:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    for family, name in (("roberta", "roberta"), ("distilbert", "distilbert"), ("deberta-v2", "deberta")):
        model = BertForSequenceClassification(BertConfig(model_type=family, vocab_size=20, **sizes))
        assert getattr(model, name) is model.base_model is model.bert
        with pytest.raises(AttributeError, match="has no attribute 'electra'"):
            _ = model.electra
    assert (model.bert.base_model is model.bert, model.num_labels) == (True, 2)


def test_unknown_attributes_say_what_to_write(classifier: Path) -> None:
    model = BertForSequenceClassification.from_pretrained(classifier)
    tokenizer, pipe = AutoTokenizer.from_pretrained(classifier), pipeline(model=classifier)
    encoded = tokenizer("a film", return_tensors="pt")
    for owner, name, said in (
        (model, "id2label", "write model.config.id2label"),
        (model, "nun_labels", "did you mean 'num_labels'"),
        (model(**encoded), "pooled_output", "write outputs.pooler_output"),
        (model(**encoded), "logit", "did you mean 'logits'"),
        (tokenizer, "apply_chat_template", r"write tokenizer\(text\)"),
        (tokenizer, "vocab_sise", "did you mean 'vocab_size'"),
        (pipe, "encode", r"write pipe\(texts, pooling='model'\)"),
        (pipe, "tokeniser", "did you mean 'tokenizer'"),
        (encoded, "ids", "write encoding.input_ids"),
        (encoded, "imput_ids", "did you mean 'input_ids'"),
    ):
        assert not hasattr(owner, name)
        with pytest.raises(AttributeError, match=rf"{name}'.*{said}"):
            getattr(owner, name)
    for whole in (model, tokenizer, pipe.model):
        assert type(copy.deepcopy(whole)) is type(pickle.loads(pickle.dumps(whole))) is type(whole)


def test_saving_takes_what_has_no_effect_and_refuses_the_rest(classifier: Path, tmp_path: Path) -> None:
    for whole in (BertModel(BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1)),
                  AutoTokenizer.from_pretrained(classifier)):  # fmt: skip
        whole.save_pretrained(tmp_path, safe_serialization=True, max_shard_size="5GB", push_to_hub=False)
        with pytest.raises(InputError, match=r"no argument 'push_to_hub'; write model.push_to_hub\(name\)"):
            whole.save_pretrained(tmp_path, push_to_hub=True)


# Pipelines


def test_constructor_and_call_take_and_refuse_the_same(classifier: Path) -> None:
    pipe = pipeline("text-classification", model=classifier, device="cpu")
    expected = pipe(TEXTS)
    placed = ("device_map", "torch_dtype", "model_kwargs")
    for (entry, name), habit in habits().items():
        if entry != "pipeline" or habit.meaning == "same":
            continue
        if habit.meaning == "nothing":
            assert pipeline(model=classifier, device="cpu", **{name: 1})(TEXTS) == pipe(TEXTS, **{name: 1}) == expected
            continue
        said = []
        for use in (lambda given: pipeline(model=classifier, **given), lambda given: pipe(TEXTS, **given)):
            with pytest.raises((InputError, TypeError)) as told:
                use({name: 1})
            said.append(str(told.value).split("; it takes")[0])
        assert said[0] == said[1]
        assert habit.ours in said[0]
    assert all(("pipeline", name) in habits() for name in placed)


def test_options_of_version_four(classifier: Path) -> None:
    pipe = pipeline(model=classifier, return_all_scores=False)
    assert pipe("a film") == pipe("a film", top_k="best")
    every = pipe("a film", return_all_scores=True)
    assert [[each["label"] for each in row] for row in every] == [["a", "b", "c"]]
    assert sorted(every[0], key=lambda each: -each["score"]) == pipe("a film", top_k=None)
    assert pipe(iter(TEXTS), return_all_scores=True).__next__() == pipe(TEXTS, top_k="all")[0]
    with pytest.raises(InputError, match="return_all_scores must be one of True, False, got 'yes'"):
        pipe("a film", return_all_scores="yes")
    with pytest.raises(InputError, match="truncation must be"):
        pipe("a film", tokenize_kwargs={"truncation": "sometimes"})
    with pytest.raises(InputError, match=r"no option 'maxlen' \(did you mean 'max_length'"):
        pipe("a film", tokenize_kwargs={"maxlen": 3})


def test_where_the_model_is_and_its_type(classifier: Path) -> None:
    for given in ({"device_map": "cpu"}, {"device_map": {"": "cpu"}}, {"model_kwargs": {"device_map": "cpu"}}):
        assert str(pipeline(model=classifier, **given).device) == "cpu"
    assert pipeline(model=classifier, torch_dtype=torch.bfloat16).model.dtype == torch.bfloat16
    with pytest.raises(InputError, match="device_map is another name for device"):
        pipeline(model=classifier, device_map="auto", device="cpu")
    with pytest.raises(InputError, match="torch_dtype is another name for dtype"):
        pipeline(model=classifier, torch_dtype="float32", dtype="float32")
    with pytest.raises(InputError, match=r"model_kwargs has 'num_labels'.*from_pretrained\(name, num_labels=...\)"):
        pipeline(model=classifier, model_kwargs={"num_labels": 4})


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA, pd.NaT])
def test_a_missing_text_is_named_with_its_row_and_the_remedy(classifier: Path, missing: Any) -> None:
    pipe = pipeline(model=classifier)
    series = pd.Series(["good", missing, "bad"], index=[10, 20, 30], dtype=object)
    with pytest.raises(InputError, match=r"text 1 \(row 20\) is missing .*dropna\(\).*fillna\(''\)"):
        pipe(series)
    assert pipe(series.dropna()) == pipe(["good", "bad"])
    with pytest.raises(InputError, match=r"text 1 is missing \(None\).*drop_nulls\(\)"):
        pipe(pl.Series(["good", None, "bad"]))


def test_a_sentence_model_is_saved_with_its_modules(classifier: Path, minilm: Path, tmp_path: Path) -> None:
    pipe = pipeline("feature-extraction", model=minilm, pooling="model")
    pipe.save_pretrained(tmp_path / "out")
    again = pipeline("feature-extraction", model=tmp_path / "out", pooling="model")
    np.testing.assert_allclose(again("A girl plays."), pipe("A girl plays."), atol=1e-6)
    assert abs(np.linalg.norm(again("A girl plays.")) - 1) < 1e-5  # which only its modules say
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="is a file"):
        pipe.save_pretrained(tmp_path / "file")
    cased = AutoTokenizer.from_pretrained(classifier, do_lower_case=False)
    pipeline(model=classifier, tokenizer=cased).save_pretrained(tmp_path / "cased")
    assert not AutoTokenizer.from_pretrained(tmp_path / "cased").do_lower_case


def test_the_mask_of_another_family_is_named(tmp_path: Path) -> None:
    fill = pipeline(model=save_tiny(tmp_path / "m", BertForMaskedLM))
    with pytest.raises(TextError, match=r"text 1 .* has <mask>.* is \[MASK\]: write 'a \[MASK\] film'"):
        fill(["a [MASK] film", "a <mask> film"])
    assert fill("a <mask> film with [MASK]")  # a text about masks


# Tokenizers


def test_special_tokens_by_name(classifier: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(classifier)
    assert tokenizer.add_special_tokens({"pad_token": "[PAD]", "cls_token": "[CLS]"}) == 0
    assert tokenizer.add_special_tokens({"sep_token": "[END]", "additional_special_tokens": ["[A]"]}) == 2
    assert tokenizer.convert_ids_to_tokens(tokenizer("a film").input_ids) == ["[CLS]", "a", "film", "[END]"]
    assert tokenizer.additional_special_tokens == ["[A]"]
    assert tokenizer.add_special_tokens({"additional_special_tokens": ["[B]"]}) == 1
    assert tokenizer.additional_special_tokens == ["[B]"]
    assert tokenizer.decode(tokenizer("[A] [B] film").input_ids, skip_special_tokens=True) == "[A] film"
    with pytest.raises(InputError, match=r"BertTokenizer has no special token 'bos_token'.*additional_special_tokens"):
        tokenizer.add_special_tokens({"bos_token": "<s>"})
    tokenizer.pad_token = "[NONE]"
    assert tokenizer.pad_token_id == len(tokenizer) - 1 == tokenizer(["a", "a a"], padding=True).input_ids[0][-1]
    assert tokenizer.add_tokens([bertkit.AddedToken("[W]", lstrip=True), "[W]"]) == 1
    assert tokenizer.get_special_tokens_mask(tokenizer("a", "b").input_ids, already_has_special_tokens=True) == \
        tokenizer.get_special_tokens_mask([1], [1]) == [1, 0, 1, 0, 1]  # fmt: skip


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_new_vocabulary_is_that_of_transformers(family: str, classifier: Path, tmp_path: Path) -> None:
    old: Any = AutoTokenizer.from_pretrained(classifier)
    if family == "roberta":
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        letters = {token: number for number, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", "<mask>", *alphabet])}
        old = bertkit.RobertaTokenizer(vocab=letters, merges=[])
        old.save_pretrained(tmp_path / "old")
    texts = [f"{a} {b} films" for a in ("good", "goods", "better") for b in ("bad", "badly", "worse")] * 3
    new = old.train_new_from_iterator([texts[:5], texts[5:]], 300 if family == "roberta" else 60)
    theirs = transformers.AutoTokenizer.from_pretrained(classifier if family == "bert" else tmp_path / "old")
    expected = theirs.train_new_from_iterator([texts[:5], texts[5:]], 300 if family == "roberta" else 60)
    for text in ("good films", "badly goods", texts[7]):
        assert new.tokenize(text) == expected.tokenize(text)
        assert new.decode(new(text).input_ids) == expected.decode(expected(text).input_ids)
    assert len(new) == len(expected)
    with pytest.raises(InputError, match=r"no 'min_freq' \(did you mean 'min_frequency'"):
        old.train_new_from_iterator(texts, 60, min_freq=2)


def test_texts_to_write(classifier: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(classifier)
    both = tokenizer(TEXTS, text_target=TEXTS[::-1], padding=True)
    assert both["labels"] == tokenizer(TEXTS[::-1], padding=True)["input_ids"] == tokenizer(
        text_target=TEXTS[::-1], padding=True)["input_ids"]  # fmt: skip
    with pytest.raises(InputError, match="no argument 'pad_to_max_length'; write padding='max_length'"):
        tokenizer("a", pad_to_max_length=True)
    one = tokenizer("a film", text_target="bad", return_tensors="pt")
    assert (one["input_ids"].shape, one["labels"].shape) == ((1, 4), (1, 3))
    assert dict(tokenizer("a", verbose=False)) == dict(tokenizer("a"))


# Training helpers


def test_collators_against_transformers(classifier: Path) -> None:
    ours, theirs = AutoTokenizer.from_pretrained(classifier), transformers.AutoTokenizer.from_pretrained(classifier)
    rows = [{**ours(text), "labels": ours(text).input_ids[1:]} for text in TEXTS]
    for name, options in (
        ("DataCollatorForSeq2Seq", {"pad_to_multiple_of": 4}),
        ("DataCollatorForTokenClassification", {"label_pad_token_id": -1}),
        ("DataCollatorWithPadding", {"padding": "max_length", "max_length": 12}),
    ):
        given = [{key: value for key, value in row.items() if key != "labels" or "For" in name} for row in rows]
        mine = getattr(bertkit, name)(ours, **options)(copy.deepcopy(given))
        other = getattr(transformers, name)(theirs, **options)(copy.deepcopy(given))
        assert {key: value.tolist() for key, value in mine.items()} == {k: v.tolist() for k, v in other.items()}
    scored = bertkit.DataCollatorWithPadding(ours)([{**ours(text), "label": 0.5} for text in TEXTS])
    assert (scored["labels"].dtype, scored["labels"].tolist()) == (torch.float32, [0.5] * 3)
    with pytest.raises(InputError, match=r"the column 'text' holds texts.*remove_columns\(\['text'\]\)"):
        bertkit.DataCollatorWithPadding(ours)([{**ours("a"), "text": "a"}])


def test_masking_can_be_repeated_and_be_left_out(classifier: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(classifier)
    rows = [tokenizer(f"{text} {text} {text}") for text in TEXTS]
    collate = bertkit.DataCollatorForLanguageModeling(tokenizer)
    found = []
    for seed in (1, 1, 2):
        bertkit.set_seed(seed)
        found.append(collate(rows)["labels"])
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    plain = bertkit.DataCollatorForLanguageModeling(tokenizer, mlm=False)(rows)
    real = plain["attention_mask"] == 1
    assert torch.equal(plain["labels"][real], plain["input_ids"][real])
    assert set(plain["labels"][~real].tolist()) == {-100}
    whole = bertkit.DataCollatorForWholeWordMask(tokenizer, mlm_probability=0.4, mask_replace_prob=1.0,
                                                 random_replace_prob=0.0)([tokenizer("filmx filmy film")])  # fmt: skip
    hidden = (whole["labels"][0] != -100).tolist()
    words = tokenizer("filmx filmy film").word_ids()
    assert all(len({hidden[place] for place, other in enumerate(words) if other == word}) == 1 for word in set(words))


def test_what_a_schedule_needs() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    assert bertkit.get_scheduler("constant", optimizer).get_last_lr() == [0.1]
    with pytest.raises(InputError, match="needs num_training_steps="):
        bertkit.get_scheduler("linear", optimizer)
    with pytest.raises(InputError, match=r"no schedule 'cosin' \(did you mean 'cosine'"):
        bertkit.get_scheduler("cosin", optimizer)


def test_ids_of_a_generation_config_must_be_the_models() -> None:
    sizes = {"vocab_size": 20, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    model = bertkit.T5ForConditionalGeneration(bertkit.T5Config(**sizes, decoder_start_token_id=0)).eval()
    ids = torch.tensor([[4, 5, 1]])
    settings = bertkit.GenerationConfig(max_new_tokens=3, eos_token_id=1, use_cache=True)
    assert torch.equal(model.generate(ids, generation_config=settings), model.generate(ids, max_new_tokens=3))
    assert model.generate(ids, generation_config=settings, max_new_tokens=2).shape[1] <= 3
    with pytest.raises(ConfigError, match="eos_token_id must be that of the model, 1"):
        model.generate(ids, generation_config=bertkit.GenerationConfig(eos_token_id=7))


def test_names_of_tensorflow_and_flax_say_the_name_here() -> None:
    for name, ours in (("TFRobertaModel", "RobertaModel"), ("FlaxAutoModel", "AutoModel")):
        with pytest.raises(ImportError, match=rf"write from bertkit import {ours} \(PyTorch\)"):
            exec(f"from bertkit import {name}")
        with pytest.raises(AttributeError, match=rf"write from bertkit import {ours} \(PyTorch\)"):
            getattr(bertkit, name)
    with pytest.raises(AttributeError):
        _ = bertkit.TFNothing


def test_a_trainer_s_own_padding_keeps_numbers_as_they_are(classifier: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(classifier)
    collate = collate_with(tokenizer)
    assert collate([{**tokenizer(text), "label": 0.25} for text in TEXTS])["labels"].tolist() == [0.25] * 3
    with pytest.raises(InputError, match=r"'labels' has rows of different lengths: .*DataCollatorForTokenClass"):
        collate([{**tokenizer(text), "labels": tokenizer(text).input_ids} for text in TEXTS])


def test_outputs_are_mappings_and_configs_leave_out_what_changes_nothing(classifier: Path, tmp_path: Path) -> None:
    model = BertForSequenceClassification.from_pretrained(classifier, finetuning_task="sst2")
    out = model(torch.tensor([[2, 7, 3]]))
    assert [name for name, _ in out.items()] == list(out.keys()) == ["logits"]
    assert out.values()[0] is out.logits
    model.save_pretrained(save_directory=tmp_path)
    assert BertConfig.from_pretrained(tmp_path, num_labels=4, use_cache=False).num_labels == 4
    with pytest.raises(ConfigError, match="unknown field 'finetuning_tusk'"):
        BertConfig.from_pretrained(tmp_path, finetuning_tusk="sst2")
    with pytest.raises(InputError, match="save_pretrained needs a folder"):
        model.save_pretrained()
    with pytest.raises(AttributeError, match=r"has no attribute 'n_layers'; write config.num_hidden_layers"):
        _ = model.config.n_layers
    assert copy.deepcopy(model.config) == pickle.loads(pickle.dumps(model.config)) == model.config
