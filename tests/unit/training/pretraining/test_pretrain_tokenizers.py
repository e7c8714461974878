"""Models of every family go on with their own tokenizers: from a corpus to a model that other software loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from bertkit import AutoModelForMaskedLM, AutoTokenizer, BertConfig, T5Config, pipeline
from bertkit.cli import main
from bertkit.errors import ConfigError, DataError
from bertkit.system.interrupts import Interrupted
from bertkit.training.pretraining.initial_model import make_network, with_vocabulary
from bertkit.training.pretraining.pretrain import pretrain
from pretrain_runs import SETTINGS, interrupt_after, weights
from seq2seq_helpers import pair
from store_families import DOCUMENTS, MASKED, checkpoint, store_of, tokenizer_of

#: The objective is that of the family.
WORDS = SETTINGS.replace(max_steps=3, max_seq_length=32)


@pytest.mark.slow
@pytest.mark.parametrize("family", MASKED)
def test_a_checkpoint_goes_on_with_its_tokenizer(family: str, shared: Path, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(family, shared, tmp_path)
    start = checkpoint(family, tokenizer, tmp_path / "start")
    store = store_of(tokenizer, tmp_path, DOCUMENTS * 6)
    result = pretrain(store, tmp_path / "run", WORDS.replace(masking="whole-word"), model=start, dev=store)
    assert result.progression.step == 3
    assert result.new_parts == ()
    assert set(result.scores) == {"masked_lm_loss", "masked_lm_accuracy"}
    ours = AutoModelForMaskedLM.from_pretrained(result.model)
    assert ours.load_report.new == ()
    before = AutoModelForMaskedLM.from_pretrained(start).state_dict()
    assert any(not torch.equal(value, before[name]) for name, value in ours.state_dict().items())
    # Other software reads the model and its tokenizer.
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(result.model).eval()
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(result.model)
    text = f"The old {tokenizer.mask_token} stands by the river."
    ids = AutoTokenizer.from_pretrained(result.model)(text, return_tensors="pt")["input_ids"]
    assert torch.equal(ids, their_tokenizer(text, return_tensors="pt")["input_ids"])
    with torch.no_grad():
        assert torch.allclose(ours(input_ids=ids).logits, theirs(input_ids=ids).logits, atol=1e-4)


@pytest.mark.slow
@pytest.mark.campaign  # every day with BERT's tokenizer
@pytest.mark.parametrize("family", ["modernbert", "deberta-v2"])
def test_a_run_goes_on_bit_for_bit(family: str, shared: Path, tmp_path: Path, monkeypatch: Any) -> None:
    tokenizer = tokenizer_of(family, shared, tmp_path)
    start, store = checkpoint(family, tokenizer, tmp_path / "start"), store_of(tokenizer, tmp_path, DOCUMENTS * 6)
    pretrain(store, tmp_path / "whole", WORDS, model=start)
    interrupt_after(monkeypatch, 2)
    with pytest.raises(Interrupted):
        pretrain(store, tmp_path / "parts", WORDS, model=start)
    pretrain(store, tmp_path / "parts", WORDS, model=start)
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


@pytest.mark.campaign
@pytest.mark.slow
def test_what_does_not_fit_is_refused(shared: Path, tmp_path: Path) -> None:
    made = {family: tokenizer_of(family, shared, tmp_path) for family in ("modernbert", "roberta", "t5", "xlm-roberta")}
    starts = {name: checkpoint(name, made[name], tmp_path / name / "start") for name in ("modernbert", "roberta")}
    stores = {name: store_of(each, tmp_path / name) for name, each in made.items()}
    # Pairs of sentences, which the family does not judge: the same with a checkpoint and with its config.
    pairs = WORDS.replace(objective="mlm+nsp")
    with pytest.raises(ConfigError, match=r"modernbert family, which has no head that judges pairs.*--objective mlm"):
        pretrain(stores["modernbert"], tmp_path / "run", pairs, model=starts["modernbert"])
    # A tokenizer that is not the checkpoint's, of the same size or not.
    with pytest.raises(DataError, match=r"not that of .*ModernBertTokenizer.*RobertaTokenizer.*prepare CORPUS --tok"):
        pretrain(stores["roberta"], tmp_path / "run", WORDS, model=starts["modernbert"])
    # Pairs that the tokenizer writes in another way than BERT's.
    bert = BertConfig(vocab_size=len(made["xlm-roberta"]), hidden_size=24, num_hidden_layers=1, num_attention_heads=2)
    with pytest.raises(ConfigError, match=r"makes pairs as BERT reads them.*XLMRobertaTokenizer.*--objective mlm"):
        make_network(bert, stores["xlm-roberta"], pairs)
    make_network(bert, stores["xlm-roberta"], WORDS.replace(objective="mlm"))
    original, shape = pairs.replace(protocol="original"), bert.replace(vocab_size=len(made["modernbert"]))
    with pytest.raises(ConfigError, match=r"'original' makes examples of BERT's word pieces.*ModernBertTokenizer"):
        pretrain(stores["modernbert"], tmp_path / "run", original, model=shape)
    # Encoder-decoders: the tokenizer of another model, and one without sentinels.
    pair("t5", "ForConditionalGeneration", tmp_path / "t5 model")
    made["t5"].save_pretrained(tmp_path / "t5 model")
    with pytest.raises(DataError, match=r"not that of .*T5Tokenizer.*RobertaTokenizer.*prepare CORPUS --tok"):
        pretrain(stores["roberta"], tmp_path / "run", WORDS, model=tmp_path / "t5 model")
    with pytest.raises(
        ConfigError, match=r"needs a tokenizer with sentinels .*prepare CORPUS --tokenizer.*train a BART"
    ):
        pretrain(stores["roberta"], tmp_path / "run", WORDS, model=with_vocabulary(T5Config(), stores["roberta"]))
    shape = bert.replace(vocab_size=len(made["t5"]))
    with pytest.raises(DataError, match=r"T5Tokenizer.* no mask_token"):
        pretrain(stores["t5"], tmp_path / "run", WORDS.replace(objective="mlm"), model=shape)
    assert not (tmp_path / "run" / "pretrain.json").exists()


@pytest.mark.slow
def test_new_weights_from_a_recipe(shared: Path, tmp_path: Path) -> None:
    """A recipe names the family; its vocabulary is the store's."""
    tokenizer = tokenizer_of("modernbert", shared, tmp_path)
    store = store_of(tokenizer, tmp_path, DOCUMENTS * 6)
    (tmp_path / "mine.toml").write_text(
        '# A small ModernBERT.\n[model]\nmodel_type = "modernbert"\nhidden_size = 24\nnum_hidden_layers = 2\n'
        "num_attention_heads = 2\nintermediate_size = 32\nmax_position_embeddings = 64\nlocal_attention = 8\n"
        "[training]\nmax_steps = 2\nbatch_size = 4\nmax_seq_length = 32\n"
    )
    command = ["pretrain", str(store.path), "--recipe", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "run")]
    assert main([*command, "--device", "cpu", "--no-curve", "-q"]) == 0
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert (config["model_type"], config["vocab_size"]) == ("modernbert", len(tokenizer))
    assert config["pad_token_id"] == tokenizer.pad_token_id
    fill = pipeline("fill-mask", model=tmp_path / "run" / "model", device="cpu")
    assert len(fill("The old [MASK].")) == 5


@pytest.mark.slow
@pytest.mark.parametrize("family", ["modernbert", "deberta-v2"])
def test_adapting(family: str, shared: Path, tmp_path: Path, capsys: Any) -> None:
    start = checkpoint(family, tokenizer_of(family, shared, tmp_path), tmp_path / "start")
    rows = [f"the old mill {('good', 'bad')[number % 2]} {number},{'yn'[number % 2]}" for number in range(40)]
    (tmp_path / "data.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    command = ["adapt", "csv", "--data", str(tmp_path / "data.csv"), "--model", str(start), "--no-compare"]
    command += ["--adapt-steps", "2", "--adapt-length", "24", "--epochs", "1", "--max-length", "16", "--no-baseline"]
    assert main([*command, "--out", str(tmp_path / "run"), "--device", "cpu", "-q", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"]["steps"] == 2
    classify = pipeline("text-classification", model=tmp_path / "run" / "with", device="cpu")
    assert classify("the mill")[0]["label"] in "yn"
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run" / "adapted" / "model")
    assert type(tokenizer) is type(AutoTokenizer.from_pretrained(start))


def test_only_word_pieces_are_extended(shared: Path, tmp_path: Path, capsys: Any) -> None:
    tokenizer_of("modernbert", shared, tmp_path).save_pretrained(tmp_path / "modern")
    (tmp_path / "text.txt").write_text("the old mill\n" * 20)
    for option in ("--extend", "--beside"):
        command = ["vocab", str(tmp_path / "text.txt"), option, str(tmp_path / "modern")]
        assert main([*command, "--out", str(tmp_path / "out")]) == 2
        assert f"{option} {tmp_path / 'modern'} is a ModernBertTokenizer" in capsys.readouterr().err
