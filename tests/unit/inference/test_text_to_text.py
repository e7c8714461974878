"""Pipelines that write, with BART and T5."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import bertkit
from bertkit import pipeline
from bertkit.checkpoints.inspect import inspect
from bertkit.cli import main
from bertkit.errors import CheckpointError, ConfigError, InputError
from bertkit.export.onnx_export import export_onnx
from family_folders import make
from seq2seq_helpers import KINDS
from tokenizer_families import family_contestants, small

TEXTS = ["The little dog ran home.", "A cat", "It was a long day, and nobody had seen the boat since noon."]


@pytest.fixture(scope="module", params=["bart", "t5"])
def folder(request: pytest.FixtureRequest, shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model with a tokenizer of its family."""
    family = request.param
    path: Path = tmp_path_factory.mktemp(family)
    tokenizer: Any = (
        small("roberta", shared, path, num_merges=6000) if family == "bart" else family_contestants(shared, family).ours
    )
    values = {**KINDS[family][1], "vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    values["eos_token_id"] = tokenizer.sep_token_id if tokenizer.eos_token_id is None else tokenizer.eos_token_id
    torch.manual_seed(0)
    if family == "bart":
        config: Any = bertkit.BartConfig(**values, bos_token_id=tokenizer.cls_token_id)
        model: Any = bertkit.BartForConditionalGeneration(config)
    else:
        model = bertkit.T5ForConditionalGeneration(bertkit.T5Config(**values))
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def test_the_text_that_the_model_writes(folder: Path) -> None:
    """Each text gets what ``generate`` writes for it alone, in the order of the texts."""
    pipe = pipeline("summarization", model=folder, max_new_tokens=12)
    expected = []
    for text in TEXTS:
        ids = torch.tensor([pipe.tokenizer(f"sum: {text}")["input_ids"]])
        out = pipe.model.generate(ids, max_new_tokens=12)[0].tolist()
        expected.append({"summary_text": pipe.tokenizer.decode(out, skip_special_tokens=True).strip()})
    assert pipe(TEXTS, prefix="sum: ") == expected
    assert pipe(TEXTS[0], prefix="sum: ") == [expected[0]]
    assert list(pipe(iter(TEXTS), prefix="sum: ")) == expected
    assert len({found["summary_text"] for found in expected}) > 1  # a control: the text matters
    assert pipe(TEXTS) != expected


def test_several_texts_each_and_further_settings(folder: Path) -> None:
    pipe = pipeline(model=folder)
    assert pipe.task == "text2text-generation"
    beams = pipe(TEXTS, num_beams=3, num_return_sequences=2, settings={"length_penalty": 0.5, "max_new_tokens": 6})
    assert [[list(one) for one in each] for each in beams] == [[["generated_text"]] * 2] * 3
    drawn = [pipe(TEXTS[0], do_sample=True, seed=seed, max_new_tokens=8) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.campaign
@pytest.mark.slow
def test_every_setting_of_generation_is_a_keyword(folder: Path) -> None:
    pipe = pipeline("text2text-generation", model=folder, max_new_tokens=8)
    drawn = {"do_sample": True, "seed": 1}
    expected = pipe(TEXTS, settings={"top_k": 2, "repetition_penalty": 1.5}, **drawn)
    assert pipe(TEXTS, top_k=2, repetition_penalty=1.5, **drawn) == expected != pipe(TEXTS, **drawn)
    assert pipeline(model=folder, max_new_tokens=8, top_k=2, repetition_penalty=1.5)(TEXTS, **drawn) == expected
    with pytest.raises(ConfigError, match=r"generate has no 'topk' \(did you mean 'top_k'"):
        pipe(TEXTS, topk=2)
    with pytest.raises(InputError, match=r"no option 'topk'; write top_k="):
        pipeline(model=folder, topk=2)


def test_a_model_object(folder: Path) -> None:
    model = bertkit.AutoModelForSeq2SeqLM.from_pretrained(folder)
    with pytest.raises(InputError, match="does not know its tokenizer"):
        pipeline("translation", model=model)
    pipe = pipeline("translation", model=model, tokenizer=folder)
    assert list(pipe(TEXTS[0], max_new_tokens=3)[0]) == ["translation_text"]


def test_a_bart_without_a_vector_for_the_mask(tmp_path: Path) -> None:
    """As the authors' models for summaries: the tokenizer has one token more, ``<mask>``."""
    folder = tmp_path / "bart"
    make("bart", folder, tmp_path)
    cut_vocabulary(folder, 1)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    pipe = pipeline("text2text-generation", model=folder, max_new_tokens=6)
    assert len(pipe.tokenizer) == pipe.model.config.vocab_size + 1
    ids = torch.tensor([pipe.tokenizer("the river").input_ids])
    assert torch.equal(pipe.model.generate(ids), theirs.generate(ids))
    assert pipe(["the river"])[0]["generated_text"]
    assert inspect(folder).loadable
    with pytest.raises(InputError, match=r"(?s)input_ids.*vocab_size"):
        pipe("the <mask>")
    cut_vocabulary(folder, 1)  # a control: two tokens more belong to another model
    with pytest.raises(CheckpointError, match="do not belong together"):
        pipeline("summarization", model=folder)
    assert "the tokenizer belongs to another model" in inspect(folder).problems[0]


def cut_vocabulary(folder: Path, rows: int) -> None:
    """Remove the last rows of the embedding table."""
    tensors = load_file(folder / "model.safetensors")
    tensors["model.shared.weight"] = tensors["model.shared.weight"][:-rows].clone()
    tensors["final_logits_bias"] = tensors["final_logits_bias"][:, :-rows].clone()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": config["vocab_size"] - rows}))


def test_bad_input(folder: Path, minilm: Path) -> None:
    pipe = pipeline("text2text-generation", model=folder, max_new_tokens=4)
    with pytest.raises(InputError, match=r"text 1 .* is empty"):
        pipe(["a", " \n"])
    with pytest.raises(InputError, match="is a pair"):
        pipe({"text": "a", "text_pair": "b"})
    with pytest.raises(InputError, match="truncation must be True or False, got 'do_not_truncate'"):
        pipe("a", truncation="do_not_truncate")
    with pytest.raises(ConfigError, match="num_beams"):
        pipe("a", num_beams=0)
    with pytest.raises(ConfigError, match="generate has no 'lenght_penalty'"):
        pipe("a", settings={"lenght_penalty": 1.0})
    with pytest.raises(InputError, match="no option 'num_beam'"):
        pipeline("summarization", model=folder, num_beam=2)
    with pytest.raises(InputError, match="runs in its weights' dtype"):
        pipeline("summarization", model=folder, precision="int8")
    with pytest.raises(bertkit.BertkitError, match="those that write are bart, mbart, t5"):
        pipeline("summarization", model=minilm)
    if pipe.model.config.model_type == "bart":
        with pytest.raises(InputError, match="the limit is 40"):
            pipe("a b c " * 40)
        assert pipe("a b c " * 40, truncation=True) == pipe("a b c " * 39, truncation=True)


@pytest.mark.slow
def test_bart_fills_masks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the pipeline of transformers does, one token for each mask; for more tokens there is text2text-generation."""
    if "t5" in str(folder):
        with pytest.raises(CheckpointError, match="without a mask token"):
            pipeline("fill-mask", model=folder)
        return
    pipe = pipeline("fill-mask", model=folder, top_k=4)
    mask = pipe.tokenizer.mask_token
    texts = [f"The little {mask} ran home.", f"A cat {mask}", f"It {mask} a long day, and nobody {mask} seen the boat."]
    theirs: Any = transformers.BartForConditionalGeneration.from_pretrained(folder).eval()
    for text, found in zip(texts, pipe(texts), strict=True):
        ids = torch.tensor([pipe.tokenizer(text)["input_ids"]])
        with torch.no_grad():
            logits = theirs(input_ids=ids).logits[0][ids[0] == pipe.tokenizer.mask_token_id]
        scores, tokens = logits.softmax(-1).topk(4)
        guesses = found if isinstance(found[0], list) else [found]
        assert [[guess["token"] for guess in each] for each in guesses] == tokens.tolist()
        ours = torch.tensor([[guess["score"] for guess in each] for each in guesses])
        torch.testing.assert_close(ours, scores, atol=1e-6, rtol=0)
    again = pipeline("fill-mask", model=pipe.model, tokenizer=pipe.tokenizer, top_k=4)
    assert again(texts) == pipe(texts)
    assert main(["fill-mask", "--model", str(folder), "--top-k", "1", texts[1]]) == 0
    assert capsys.readouterr().out.split()[1] == pipe(texts[1])[0]["token_str"].strip()
    assert pipeline("fill-mask", model=folder, top_k=4, threads=1)(texts) == pipe(texts)
    with pytest.raises(ConfigError, match="bf16' needs the compiled encoder: only unchanged encoders"):
        pipeline("fill-mask", model=folder, precision="bf16")


@pytest.mark.campaign
@pytest.mark.slow
def test_what_is_for_encoders_only(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence that says what to use instead."""
    (tmp_path / "texts.txt").write_text("".join(f"Text number {number} of a list.\n" for number in range(120)))
    (tmp_path / "rows.tsv").write_text("sentence\tlabel\nfine\t1\nbad\t0\n")
    out, model = str(tmp_path / "out"), str(folder)
    export = "an encoder-decoder, which is neither exported to ONNX nor quantized"
    other = "an encoder-decoder, where an encoder is needed; it is for 'bertkit generate'"
    is_t5 = "t5" in folder.name
    labels = "it writes a label as text: use" if is_t5 else "(BartForConditionalGeneration), not a text classifier"
    answers = "it writes an answer as text: use" if is_t5 else "not a question-answering model: it has no span head"
    for code, said, command in (
        (2, export, ["export", model, "--out", out]),
        (2, export, ["export", model, "--out", out, "--task", "feature-extraction"]),
        (2, export, ["quantize", model, "--calibrate", str(tmp_path / "texts.txt"), "--out", out]),
        (4, other, ["benchmark", model, "--against", "none"]),
        (4, labels, ["classify", "--model", model, "a text"]),
        (4, "without a head for tokens; use an encoder", ["tag", "--model", model, "a text"]),
        (4, "without a next-sentence head; use a BERT", ["next-sentence", "--model", model, "a text", "another"]),
        (4, labels, ["evaluate", "sst2", "--model", model, "--data", str(tmp_path / "rows.tsv")]),
        (4, answers, ["answer", "--model", model, "--context", "a text", "who?"]),
    ):
        assert main(command) == code, command
        told = capsys.readouterr().err
        assert said in told, command
        assert told.count("\n") == 1
        assert not Path(out).exists()
    with pytest.raises(InputError, match=rf"ForConditionalGeneration is {export}"):
        export_onnx(bertkit.AutoModelForSeq2SeqLM.from_pretrained(folder), None, out)  # type: ignore[arg-type]
    if is_t5:
        assert main(["fill-mask", "--model", model, "a <mask>"]) == 4
        assert "T5 fills <extra_id_0>, with 'bertkit generate'" in capsys.readouterr().err


def with_tasks(folder: Path, out: Path, **tasks: Any) -> Path:
    """A copy of a model whose config.json names settings by task."""
    shutil.copytree(folder, out)
    config = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps({**config, "task_specific_params": tasks}))
    return out


@pytest.mark.campaign
@pytest.mark.slow
def test_a_task_has_the_prefix_and_settings_that_the_checkpoint_names(folder: Path, tmp_path: Path) -> None:
    german = {"prefix": "translate English to German: ", "max_length": 9, "min_length": 5, "num_beams": 3}
    tasks = {"translation_en_to_de": german, "translation_en_to_fr": {"prefix": "to French: "}}
    model = with_tasks(folder, tmp_path / "model", **tasks)
    plain = pipeline("text2text-generation", model=model)
    pipe = pipeline("translation_en_to_de", model=model)
    settings = {"max_length": 9, "min_length": 5, "num_beams": 3}
    expected = plain(TEXTS, prefix=german["prefix"], settings=settings)
    assert [found["translation_text"] for found in pipe(TEXTS)] == [found["generated_text"] for found in expected]
    assert pipe(TEXTS) != pipe(TEXTS, prefix="") or pipe(TEXTS) != pipe(TEXTS, num_beams=1)  # a control
    short = pipe(TEXTS[0], max_new_tokens=2, min_new_tokens=1)  # what a call says overrules what the checkpoint says
    assert len(pipe.tokenizer(short[0]["translation_text"], add_special_tokens=False)["input_ids"]) <= 4
    unchosen = pipeline("translation", model=model)
    with pytest.raises(
        InputError, match=r"choose a task \(translation_en_to_de, translation_en_to_fr\), or give prefix="
    ):
        unchosen(TEXTS)
    assert unchosen(TEXTS, prefix=german["prefix"], settings=settings) == pipe(TEXTS)
    only = with_tasks(folder, tmp_path / "only", translation_en_to_de=german)
    assert pipeline("translation", model=only)(TEXTS) == pipe(TEXTS)
    with pytest.raises(InputError, match="says nothing of 'translation_en_to_ro': it names translation_en_to_de"):
        pipeline("translation_en_to_ro", model=model)
    damaged = with_tasks(folder, tmp_path / "damaged", summarization={"prefix": 5})
    with pytest.raises(ConfigError, match="task_specific_params must name settings by task"):
        pipeline("summarization", model=damaged)


@pytest.mark.slow
def test_a_stream_writes_what_a_call_writes(folder: Path) -> None:
    pipe = pipeline(model=folder, max_new_tokens=10, min_new_tokens=10)
    several = 0
    for text in TEXTS:
        pieces = list(pipe.stream(text, prefix="x: "))
        several += len(pieces) > 1
        assert "".join(pieces) == pipe(text, prefix="x: ")[0]["generated_text"]
    assert several
    drawn = "".join(pipe.stream(TEXTS[0], do_sample=True, seed=3))
    assert drawn == pipe(TEXTS[0], do_sample=True, seed=3)[0]["generated_text"]
    for given, told in (
        ({"num_beams": 2}, "num_beams=2"),
        ({"num_return_sequences": 2, "do_sample": True}, "one text"),
    ):
        with pytest.raises(InputError, match=told):
            list(pipe.stream(TEXTS[0], **given))
    with pytest.raises(ConfigError, match="did you mean 'do_sample'"):
        pipe.stream(TEXTS[0], do_smple=True)


@pytest.mark.slow
def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def run(*argv: str) -> tuple[int, str, str]:
        code = main(["generate", "--model", str(folder), *argv])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    pipe = pipeline(model=folder, max_new_tokens=9)
    expected = [found["generated_text"] for found in pipe(TEXTS, prefix="x: ")]
    options = ("--max-new-tokens", "9", "--prefix", "x: ")
    assert run(*options, *TEXTS) == (0, "".join(f"{text}\n" for text in expected), "")
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(TEXTS) + "\n")
    assert run(*options, "--stream", "--file", str(file))[1] == "".join(f"{text}\n" for text in expected)
    code, out, _ = run(
        *options, "--json", "--num-beams", "2", "--num-return-sequences", "2", "--early-stopping", "true", TEXTS[0]
    )
    beams = pipe(TEXTS[0], prefix="x: ", num_beams=2, num_return_sequences=2, settings={"early_stopping": True})
    assert (code, json.loads(out)) == (0, {"text": TEXTS[0], "generated": [each["generated_text"] for each in beams]})
    for argv, code, told in (
        (["--stream", "--json", "a"], 2, "leave one out"),
        (["--task", "ner", "a"], 2, "--task ner: this command is for text2text-generation"),
        (["--num-beams", "0", "a"], 2, "--num-beams"),
        (["--num-return-sequences", "3", "a"], 2, "--num-return-sequences 3 texts need as many --num-beams"),
        ([], 2, "no text"),
        (["--task", "translation_en_to_de", "a"], 2, "says nothing of 'translation_en_to_de'"),
    ):
        found = run(*argv)
        assert (found[0], told in found[2]) == (code, True), found
