r"""Pre-training a BERT from scratch in an hour on a CPU: vocabulary, store, pre-training, downstream scores.

    python benchmarks/pretrain_hour.py --data ../shared/data --work /tmp/hour --max-time 55m \
        --out benchmarks/results/pretrain-hour.md

Every stage is the command that a user would type, on the Wikipedia and Wikinews texts, with the valid parts of both
held out. The masked-LM loss on all held-out documents is reported next to the unigram baseline: the loss, at the same
targets, of predicting by the word frequencies of the training text, which is where a run that learns no context stays.
Then SST-2 and MRPC are fine-tuned from the result and from random weights of the same shape. Each seed has different
random weights and a different sample of the rows; both starts use the same rows and settings. The command can be
interrupted at any time and resumed by running it again; finished stages are not repeated.

About 80 minutes with the defaults: 2 for vocabulary and stores, --max-time, and 20 for fine-tuning. For a quick run:
--mb 1 --max-time 20s --layers 2 --width 128 --seeds 2 --rows 500 --finetune='--epochs 1'.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import shlex
import shutil
import statistics
from pathlib import Path
from typing import Any

from machine import about, block, publish
from stages import Stages, stop_on_sigterm

SOURCES = ("wikipedia_en", "wikinews_en")
TASKS = {"sst2": "glue/SST-2", "mrpc": "glue/MRPC"}
#: For both starts, whatever dropout the model was pre-trained with.
FINETUNE_DROPOUT = 0.1
SENTENCES = (
    "He was born in New [MASK] City in 1950.",
    "The president of the United [MASK] spoke on Tuesday.",
    "She won the gold [MASK] at the Olympic Games.",
    "The film was [MASK] by a young director.",
    "Police said that two people were [MASK] in the accident.",
    "The river flows [MASK] the sea.",
    "The team won the match and the [MASK] was happy.",
    "It is one of the [MASK] cities in the world.",
)


def main() -> None:
    args = parse_args()
    stop_on_sigterm()
    args.work.mkdir(parents=True, exist_ok=True)
    stages = Stages(args.work / "stages")
    learn(args, stages)
    held_out = stages.compute("held-out", lambda: score_held_out(args), depends=["pretrain"])
    guesses = stages.run("fill-mask", ["fill-mask", "--model", args.work / "run" / "model", *SENTENCES, "--json"])
    tasks = {task: compare_starts(task, args, stages) for task in args.tasks}
    report = {
        "about": about(args.threads),
        "stage_seconds": stages.seconds,
        "run": json.loads((args.work / "run" / "metrics.json").read_text(encoding="utf-8")),
        "shape": json.loads((args.work / "run" / "model" / "config.json").read_text(encoding="utf-8")),
        "flags": {key: getattr(args, key) for key in ("recipe", "max_time", "pretrain", "finetune")},
        "held_out": held_out,
        "fill_mask": [json.loads(line) for line in guesses.splitlines()],
        "tasks": tasks,
    }
    publish(render(report), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with pretrain_text/ and glue/")
    parser.add_argument("--work", type=Path, required=True, help="working folder; pass it again to resume")
    parser.add_argument("--mb", type=float, help="use only this many MB of each training text")
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--recipe", help="recipe of 'bertkit pretrain', which then also sets the shape")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, help="default: one per 64 of the width")
    parser.add_argument("--dropout", type=float, default=0.1, help="of the model during pre-training")
    parser.add_argument("--max-time", default="55m", help="time budget of pre-training")
    parser.add_argument("--pretrain", default="", help="further options for 'bertkit pretrain', in one string")
    parser.add_argument("--tasks", nargs="*", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=20_000, help="maximum training rows of a task")
    parser.add_argument("--finetune", default="", help="further options for 'bertkit finetune', in one string")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    args = parser.parse_args()
    if args.seeds < 2:
        parser.error("--seeds must be at least 2: the spread is part of the result")
    return args


def learn(args: argparse.Namespace, stages: Stages) -> None:
    """Vocabulary, stores, initial weights, pre-training."""
    work = args.work
    train, valid = (find_texts(args, part) for part in ("train", "valid"))
    stages.run("vocab", ["vocab", *train, "--size", args.vocabulary, "--out", work / "tokenizer", "--json"])
    for name, texts in (("train", train), ("dev", valid)):
        stages.run(f"prepare-{name}", ["prepare", *texts, "--tokenizer", work / "tokenizer", "--out", work / name,
                                       "--json"])  # fmt: skip
    if args.recipe is None:
        start = ["--model", random_weights(shape_of(args), work / "tokenizer", work / "start", seed=0)]
    else:
        start = ["--recipe", args.recipe]
    flags = ["--max-time", args.max_time, *shlex.split(args.pretrain)]
    stages.run("pretrain", ["pretrain", work / "train", "--dev", work / "dev", *start, "--out", work / "run", *flags,
                            "--json"])  # fmt: skip


def find_texts(args: argparse.Namespace, part: str) -> list[Path]:
    """The compressed texts, or their first part."""
    packed = [args.data / "pretrain_text" / f"{source}.{part}.txt.xz" for source in SOURCES]
    if args.mb is None or part == "valid":
        return packed
    heads = []
    for path in packed:
        heads.append(args.work / path.name.removesuffix(".xz"))
        if not heads[-1].exists():
            with lzma.open(path, "rt", encoding="utf-8") as text:
                heads[-1].write_text(text.read(int(args.mb * 1e6)), encoding="utf-8")
    return heads


def random_weights(shape: Any, tokenizer: Path, folder: Path, *, seed: int) -> Path:
    """Write a checkpoint of random weights."""
    import torch

    from bertkit import BertForPreTraining, BertTokenizer

    if not (folder / "model.safetensors").exists():
        torch.manual_seed(seed)
        BertTokenizer.from_pretrained(tokenizer).save_pretrained(folder)
        BertForPreTraining(shape).save_pretrained(folder)
    return folder


def shape_of(args: argparse.Namespace) -> Any:
    """The model config that the options describe."""
    from bertkit import BertConfig, BertTokenizer

    return BertConfig(
        vocab_size=len(BertTokenizer.from_pretrained(args.work / "tokenizer")),
        hidden_size=args.width,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads or args.width // 64,
        intermediate_size=4 * args.width,
        hidden_dropout_prob=args.dropout,
        attention_probs_dropout_prob=args.dropout,
    )


def with_dropout(model: Path, folder: Path) -> Path:
    """Copy a checkpoint, so that it is fine-tuned with the same dropout as the random weights."""
    shutil.copytree(model, folder, dirs_exist_ok=True)
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    config |= {"hidden_dropout_prob": FINETUNE_DROPOUT, "attention_probs_dropout_prob": FINETUNE_DROPOUT}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return folder


def score_held_out(args: argparse.Namespace) -> dict[str, float]:
    """Losses (nats) and accuracies over all held-out examples, and the unigram loss on the same targets."""
    import numpy as np
    import torch
    from torch.nn.functional import cross_entropy

    from bertkit import BertForPreTraining
    from bertkit.data.examples.masking import MaskVocabulary
    from bertkit.data.examples.pairs import Rules
    from bertkit.data.examples.pretrain_batches import PretrainData
    from bertkit.data.store.token_store import TokenStore
    from bertkit.training.pretraining.word_statistics import unigram_counts

    torch.set_num_threads(args.threads)
    train, dev = TokenStore(args.work / "train"), TokenStore(args.work / "dev")
    tokenizer = dev.tokenizer()
    counts = unigram_counts(train) + 1.0  # add-one smoothing
    log_p = torch.from_numpy(np.log(counts / counts.sum()))
    model = BertForPreTraining.from_pretrained(args.work / "run" / "model").eval()
    vocabulary = MaskVocabulary.of(tokenizer.convert_ids_to_tokens(range(len(tokenizer))))
    settings = json.loads((args.work / "run" / "metrics.json").read_text(encoding="utf-8"))["settings"]
    data = PretrainData(dev, vocabulary, Rules(max_seq_length=settings["max_seq_length"]), batch_size=64)
    sums = dict.fromkeys(("masked_lm", "right", "unigram", "words", "follows", "random", "pairs"), 0.0)
    for step in range(data.steps_per_epoch):
        for batch in data.micro_batches(step):
            with torch.inference_mode():
                out = model.forward_packed(batch)
            assert batch.logit_rows is not None
            labels, pairs = batch.targets["labels"][batch.logit_rows], batch.targets["next_sentence_label"]
            sums["masked_lm"] += float(cross_entropy(out.prediction_logits, labels, reduction="sum"))
            sums["right"] += float((out.prediction_logits.argmax(-1) == labels).sum())
            sums["unigram"] -= float(log_p[labels].sum())
            sums["words"] += len(labels)
            sums["follows"] += float((out.seq_relationship_logits.argmax(-1) == pairs).sum())
            sums["random"] += float(pairs.sum())
            sums["pairs"] += len(pairs)
    return {
        "documents": len(dev),
        "masked_words": int(sums["words"]),
        "masked_lm_loss": sums["masked_lm"] / sums["words"],
        "masked_lm_accuracy": sums["right"] / sums["words"],
        "unigram_floor": sums["unigram"] / sums["words"],
        "pairs": int(sums["pairs"]),
        "next_sentence_accuracy": sums["follows"] / sums["pairs"],
        "random_pairs": sums["random"] / sums["pairs"],
    }


def compare_starts(task: str, args: argparse.Namespace, stages: Stages) -> dict[str, Any]:
    """Fine-tune from the pre-trained and from random weights with every seed."""
    from bertkit import BertConfig

    scores: dict[str, list[dict[str, float]]] = {"pre-trained": [], "random": []}
    pretrained = with_dropout(args.work / "run" / "model", args.work / "pretrained")
    shape = BertConfig.from_json_file(pretrained / "config.json")
    for seed in range(args.seeds):
        scratch = random_weights(shape, pretrained, args.work / f"random-{seed}", seed=1000 + seed)
        for name, start in (("pre-trained", pretrained), ("random", scratch)):
            out = args.work / f"{task}-{name}-{seed}"
            found = stages.run(out.name, [
                "finetune", task, "--data", args.data / TASKS[task], "--model", start, "--out", out, "--seed", seed,
                "--max-train-rows", args.rows, "--no-baseline", *shlex.split(args.finetune), "--json",
            ], fresh=out)  # fmt: skip
            result = json.loads(found)
            scores[name].append(result["mean"])
    protocol = result["protocol"]
    margins = {}
    for metric in protocol["metrics"]:
        ours, theirs = ([one[metric] for one in scores[name]] for name in scores)
        # Standard error of the difference of two means over n seeds each.
        spread = math.sqrt((statistics.variance(ours) + statistics.variance(theirs)) / len(ours))
        margins[metric] = {
            "pre-trained": summary(ours),
            "random": summary(theirs),
            "margin": statistics.fmean(ours) - statistics.fmean(theirs),
            "standard_error": spread,
            "outside_the_spread": min(ours) > max(theirs),
        }
    settings = ("learning_rate", "epochs", "batch_size")
    return {"margins": margins, "data": protocol["data"], **{key: protocol[key] for key in settings}}


def summary(values: list[float]) -> dict[str, Any]:
    return {"mean": statistics.fmean(values), "sd": statistics.stdev(values), "seeds": values}


def render(report: dict[str, Any]) -> list[str]:
    shape, held = report["shape"], report["held_out"]
    steps = report["run"]["progression"]
    lines = ["# Pre-training a BERT from scratch in an hour on a CPU", "", *block(report["about"]), ""]
    lines += [
        f"{shape['num_hidden_layers']} layers, width {shape['hidden_size']}, vocabulary {shape['vocab_size']:,}; "
        f"{steps['step']:,} steps in {steps['seconds'] / 60:.1f} minutes. Options: `{json.dumps(report['flags'])}`.",
        "",
        f"| on {held['documents']:,} held-out documents | |",
        "|---|---|",
        f"| masked-LM loss ({held['masked_words']:,} masked words) | **{held['masked_lm_loss']:.3f}** |",
        f"| unigram loss on the same words | {held['unigram_floor']:.3f} |",
        f"| masked-LM accuracy | {held['masked_lm_accuracy']:.3f} |",
        f"| next-sentence accuracy ({held['pairs']:,} pairs, {held['random_pairs']:.1%} random) | "
        f"**{held['next_sentence_accuracy']:.3f}** |",
        "",
        "```",
    ]
    for sentence, row in zip(SENTENCES, report["fill_mask"], strict=True):
        lines.append(f"{sentence:<60} {guesses_of(row)}")
    lines += ["```", "", "Dev scores, mean ± sd over the seeds:", ""]
    lines += ["| task | metric | pre-trained | random weights | margin | every seed better |"]
    lines += ["|---|---|---|---|---|---|"]
    for task, found in report["tasks"].items():
        for metric, r in found["margins"].items():
            cells = [f"{r[name]['mean']:.4f} ± {r[name]['sd']:.4f}" for name in ("pre-trained", "random")]
            better = "yes" if r["outside_the_spread"] else "no"
            margin = f"**{r['margin']:+.4f}** ± {r['standard_error']:.4f}"
            lines.append("| " + " | ".join([task, metric, *cells, margin, better]) + " |")
    lines.append("")
    for task, found in report["tasks"].items():
        data = found["data"]
        lines.append(
            f"- {task}: {data['train_rows']:,} training rows, {data['dev_rows']:,} dev rows, {found['epochs']} epochs, "
            f"rate {found['learning_rate']:g}, batches of {found['batch_size']}; best epoch of each seed"
        )
    minutes = ", ".join(f"{name} {seconds / 60:.1f}" for name, seconds in report["stage_seconds"].items())
    return [*lines, "", f"Minutes of each stage: {minutes}."]


def guesses_of(row: dict[str, Any]) -> str:
    """The top predictions for the mask of a sentence, with their probabilities."""
    return ", ".join(f"{guess['token_str']} {guess['score']:.2f}" for guess in row["masks"][0][:4])


if __name__ == "__main__":
    main()
