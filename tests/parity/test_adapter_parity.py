"""Adapters of every family: their names and values in models of ``transformers``, by the formula and by ``peft``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bertkit
from adapter_helpers import apply_by_hand, settings, stir
from bertkit.config.adapter_config import AdapterConfig
from bertkit.model.adapters import add_adapters, merge_adapters, unmerge_adapters
from bertkit.model.auto import MODEL_CLASSES
from family_helpers import CASES, SHAPES, inputs, pair, their_model
from parity_measures import error
from seq2seq_helpers import KINDS
from seq2seq_helpers import pair as seq2seq_pair

#: What is fine-tuned, and the bare encoder.
HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice", "Model")
TRAINED = [(shape, head) for shape, head in CASES if head.endswith(HEADS)]
#: Every family with one head, and every head of one family, in each run of the suite; the rest in campaigns.
USUAL = [(*case, "all-linear") for case in TRAINED if case[1] == "BertForSequenceClassification" or case[0] == "bert"]
#: Of the three parts of a matrix some.
USUAL += [("bert", "BertForTokenClassification", "key"), ("deberta-v3", "BertModel", "query_proj,value_proj,dense")]
#: In float64; transformers computes scales of DeBERTa, angles of ModernBERT and norms of T5 in float32 even then.
LIMITS = dict.fromkeys(("deberta-v2", "modernbert", "t5"), 1e-5)
LIMIT = 1e-9


def first(output: Any) -> torch.Tensor:
    found = output[0]
    assert isinstance(found, torch.Tensor)
    return found


def adapted_pair(shape: str, head: str, folder: Path, targets: tuple[str, ...], **config: Any) -> tuple[Any, Any]:
    """A model of transformers in float64, and the same here with random adapters, saved in ``folder / "adapter"``."""
    theirs, _ = pair(shape, head, folder / "base")
    ours = MODEL_CLASSES[head].from_pretrained(folder / "base", dtype="float64")
    where = str(folder / "base")
    add_adapters(ours, AdapterConfig(base_model_name_or_path=where, target_modules=targets, **config))
    stir(ours)
    ours.save_pretrained(folder / "adapter")
    return theirs.double(), ours


@pytest.mark.parametrize(("shape", "head", "targets"), USUAL)
def test_the_formula_in_a_model_of_transformers_gives_the_same(
    shape: str, head: str, targets: str, tmp_path: Path
) -> None:
    """Unmerged here, merged and unmerged again, and read from the files: as ``W + B A * alpha / r`` there."""
    theirs, ours = adapted_pair(shape, head, tmp_path, tuple(targets.split(",")), r=3, lora_alpha=5)
    given, limit = inputs(shape, head, padded=False), LIMITS.get(SHAPES[shape][0], LIMIT)
    with torch.no_grad():
        plain = first(theirs(**given))
        changed = apply_by_hand(theirs, tmp_path / "adapter")
        expected = first(theirs(**given))
        assert error(plain, expected) > 1e3 * limit, "the adapters do something"
        for step in (None, merge_adapters, unmerge_adapters):
            if step is not None:
                step(ours)
            assert error(first(ours(**given)), expected) < limit, step
        read = MODEL_CLASSES[head].from_pretrained(tmp_path / "adapter", dtype="float64")
        assert error(first(read(**given)), expected) < limit
    owners = settings(tmp_path / "adapter")["modules_to_save"] or []
    linear = {name for name, module in theirs.named_modules() if isinstance(module, nn.Linear)}
    if targets == "all-linear":
        assert set(changed) == {name for name in linear if name.partition(".")[0] not in owners}, "all but the head"
    else:
        ends = tuple(f".{target}" for target in targets.split(","))
        assert set(changed) == {name for name in linear if f".{name}".endswith(ends)}


@pytest.mark.parametrize("kind", KINDS)
def test_encoder_decoders(kind: str, tmp_path: Path) -> None:
    made = seq2seq_pair(kind, "ForConditionalGeneration", tmp_path / "base", dtype=torch.float64)
    where = str(tmp_path / "base")
    add_adapters(made.ours, AdapterConfig(base_model_name_or_path=where, r=2, lora_alpha=3))
    stir(made.ours)
    made.ours.save_pretrained(tmp_path / "adapter")
    changed = apply_by_hand(made.peer, tmp_path / "adapter")
    given = {"input_ids": made.ids, "attention_mask": made.mask, "decoder_input_ids": made.ids}
    read = type(made.ours).from_pretrained(tmp_path / "adapter", dtype="float64")
    with torch.no_grad():
        expected = made.peer(**given).logits
        for model in (made.ours, read):
            assert error(model(**given).logits, expected) < LIMITS.get(kind.partition(" ")[0], LIMIT)
        assert torch.equal(read.generate(made.ids, made.mask), made.ours.generate(made.ids, made.mask))
    linear = {name for name, module in made.peer.named_modules() if isinstance(module, nn.Linear)}
    assert set(changed) == linear - {"lm_head"}
    assert settings(tmp_path / "adapter")["task_type"] == "SEQ_2_SEQ_LM"


# ------------------------------------------------------------------------------------------- peft, where it is


@pytest.mark.campaign
@pytest.mark.parametrize(("shape", "head"), TRAINED)
def test_peft_reads_ours(shape: str, head: str, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    theirs, ours = adapted_pair(shape, head, tmp_path, ("all-linear",), r=3, lora_alpha=5, use_rslora=True)
    given = inputs(shape, head, padded=False)
    model = peft.PeftModel.from_pretrained(theirs, tmp_path / "adapter").eval().get_base_model()
    with torch.no_grad():  # the model inside, because that for questions hands no segments on
        assert error(first(ours(**given)), first(model(**given))) < LIMITS.get(SHAPES[shape][0], LIMIT)


@pytest.mark.campaign
@pytest.mark.parametrize(("shape", "head"), TRAINED)
def test_we_read_those_of_peft(shape: str, head: str, tmp_path: Path) -> None:
    """Without a ``config.json`` or a tokenizer; of other ranks and scales in some layers."""
    peft = pytest.importorskip("peft")
    their_model(shape, head.replace(head[4:], "Model")).save_pretrained(tmp_path / "base")
    their_class = type(their_model(shape, head))
    theirs = their_class.from_pretrained(tmp_path / "base", num_labels=2 if "Question" in head else 3).eval()
    task = {
        "SequenceClassification": "SEQ_CLS",
        "TokenClassification": "TOKEN_CLS",
        "QuestionAnswering": "QUESTION_ANS",
    }
    kind = task.get(head.partition("For")[2], "FEATURE_EXTRACTION" if head == "BertModel" else None)
    owners = {"modules_to_save": sorted({name.partition(".")[0] for name, p in theirs.named_parameters()} - {
        theirs.base_model_prefix})} if head != "BertModel" else {}  # fmt: skip
    names = [name for name, module in theirs.named_modules() if isinstance(module, nn.Linear)]
    names = [name for name in names if name.partition(".")[0] not in owners.get("modules_to_save", ())]
    patterns = {"rank_pattern": {f"^{names[0]}": 4}, "alpha_pattern": {names[1]: 9}}
    config = peft.LoraConfig(r=2, lora_alpha=3, target_modules=names, task_type=kind, **owners, **patterns)
    model = peft.get_peft_model(theirs, config).eval()
    stir(model)
    model.save_pretrained(tmp_path / "adapter")
    assert not (tmp_path / "adapter/config.json").exists()
    ours = MODEL_CLASSES[head].from_pretrained(tmp_path / "adapter")
    given = inputs(shape, head, padded=False)
    with torch.no_grad():
        assert error(first(ours(**given)), first(model.get_base_model()(**given))) < 1e-5


@pytest.mark.campaign
@pytest.mark.parametrize("kind", KINDS)
def test_encoder_decoders_and_peft(kind: str, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    made = seq2seq_pair(kind, "ForConditionalGeneration", tmp_path / "base")
    config = peft.LoraConfig(r=2, lora_alpha=3, target_modules="all-linear", task_type="SEQ_2_SEQ_LM")
    their_class = type(made.peer)
    model = peft.get_peft_model(their_class.from_pretrained(tmp_path / "base"), config).eval()
    stir(model)
    model.save_pretrained(tmp_path / "theirs")
    given = {"input_ids": made.ids, "attention_mask": made.mask, "decoder_input_ids": made.ids}
    ours = bertkit.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "theirs")
    with torch.no_grad():
        assert error(ours(**given).logits, model(**given).logits) < 1e-5
    again = type(ours).from_pretrained(tmp_path / "base")
    add_adapters(again, AdapterConfig(base_model_name_or_path=str(tmp_path / "base"), target_modules=("q", "v")
                 if kind.startswith("t5") else ("q_proj", "fc2")))  # fmt: skip
    stir(again)
    again.save_pretrained(tmp_path / "ours")
    peer = peft.PeftModel.from_pretrained(their_class.from_pretrained(tmp_path / "base"), tmp_path / "ours").eval()
    with torch.no_grad():
        assert error(again(**given).logits, peer(**given).logits) < 1e-5
