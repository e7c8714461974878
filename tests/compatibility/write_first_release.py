"""Write the artefacts of the first release beside this file: tiny run folders, a token store, checkpoints.

    python tests/compatibility/write_first_release.py

The tree of that release is checked out into a temporary folder and run there; what it wrote is kept, in
``first_release/``, together with what it read. A run that was stopped holds other steps each time this is run, and
floats differ from processor to processor: the tests allow for both.

    data/        what everything was made from
    tokenizer/   of ``bertkit vocab``
    start/       the model all fine-tuning began with, of ``save_pretrained``
    store/       of ``bertkit prepare``
    own/         a finished run of ``bertkit pretrain``
    finetuned/        a finished run of ``bertkit finetune`` for each kind of task, evaluated once
    stopped/     two runs that were stopped by a signal
    converted/   a TensorFlow checkpoint, converted
    *.json       what its commands say of them, and what does not depend on the processor: ids, names, options
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
sys.path.insert(0, str(TESTS / "same"))

import same_data  # noqa: E402

BASE = "47da807"
OUT = HERE / "first_release"
#: Beside what differs from run to run: long, and of no use to a test.
NOT_KEPT = ("*.png", "n-best-dev.json", "evaluation-n-best-dev.json", "errors-dev.jsonl", "evaluation-errors-dev.jsonl")
MAX_BYTES = 400_000
TRAINING = "--batch-size 8 --learning-rate 5e-3 --max-length 24 --device cpu --no-baseline --restarts 0 -q"
RUNS = {
    "text": "csv --data data/reviews --text body --label stars --epochs 4",
    "ner": "ner --data data/ner --epochs 4",
    "squad": "squad2 --data data/squad --doc-stride 12 --epochs 3",
    "swag": "swag --data data/swag --epochs 4",
}
STOPPED = {
    "stopped/text": f"finetune csv --data data/reviews --text body --label stars --epochs 10 --checkpoint-every-s 0 "
    f"--model start --out stopped/text {TRAINING}",
    "stopped/own": "pretrain store --recipe data/own.toml --max-steps 40 --checkpoint-every-s 0 --out stopped/own -q",
}
MASKED = "the river [MASK] the mill"
RECIPE = """# A layer of 6.
[model]
hidden_size = 6
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 8
max_position_embeddings = 32
[training]
max_steps = 6
batch_size = 8
max_seq_length = 24
learning_rate = 2e-3
curve = false
keep_checkpoints = 1
"""
START = """
import sys, torch
from bertkit import BertConfig, BertForPreTraining, BertTokenizer
tokenizer = BertTokenizer.from_pretrained("tokenizer", model_max_length=32)
torch.manual_seed(0)
shape = BertConfig(vocab_size=tokenizer.vocab_size, hidden_size=6, num_hidden_layers=1, num_attention_heads=2,
                   intermediate_size=8, max_position_embeddings=32, initializer_range=0.2)
BertForPreTraining(shape).save_pretrained("start")
tokenizer.save_pretrained("start")
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bertkit-first-release-") as temporary:
        tree, work = Path(temporary) / "tree", Path(temporary) / "work"
        work.mkdir()
        subprocess.run(["git", "-C", str(HERE), "worktree", "add", "--detach", "-q", str(tree), BASE], check=True)
        try:
            write_data(work / "data")
            run_everything(work, tree)
        finally:
            subprocess.run(["git", "-C", str(HERE), "worktree", "remove", "--force", str(tree)], check=True)
        prune(work)
        shutil.rmtree(OUT, ignore_errors=True)
        shutil.copytree(work, OUT)
    total = sum(path.stat().st_size for path in OUT.rglob("*") if path.is_file())
    print(f"{total:,} bytes in {OUT}")
    assert total <= MAX_BYTES, "too large to be committed: make the models or the data smaller"


def write_data(folder: Path) -> None:
    """Less of what ``make same`` uses."""
    folder.mkdir()
    same_data.write_corpus(folder / "corpus.txt", 12, seed=1)
    same_data.write_reviews(folder / "reviews", 32, 10)
    same_data.write_conll(folder / "ner", 32, 10)
    same_data.write_squad(folder / "squad", 15, 6, no_answers=True)
    same_data.write_swag(folder / "swag", 24, 10)
    (folder / "own.toml").write_text(RECIPE, encoding="utf-8")
    lines = ["The river ran past the old mill.", *same_data.DIFFICULT]
    (folder / "texts.json").write_text(json.dumps(lines, indent=0) + "\n", encoding="utf-8")


def run_everything(work: Path, tree: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree / "src"),
        "PYTHONSAFEPATH": "1",
        "OMP_NUM_THREADS": "1",
        "XDG_CACHE_HOME": str(work.parent / "cache"),
        "COLUMNS": "200",
    }

    def python(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=work, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout

    def bertkit(command: str) -> str:
        return python("-m", "bertkit", *command.split())

    found = python("-c", "import bertkit; print(bertkit.__file__)").strip()
    assert Path(found).is_relative_to(tree), found
    bertkit("vocab data/corpus.txt --size 120 --held-out 0 --out tokenizer -q")
    python("-c", START)
    bertkit("prepare data/corpus.txt --tokenizer tokenizer --workers 1 --out store -q")
    bertkit("pretrain store --recipe data/own.toml --out own -q")
    for name, arguments in RUNS.items():
        bertkit(f"finetune {arguments} --model start --out finetuned/{name} {TRAINING}")
        task, _, rest = arguments.partition(" --data ")
        bertkit(f"evaluate {task} --data {rest.split()[0]} --model finetuned/{name} --device cpu -q")
    for folder, command in STOPPED.items():
        log = work / folder / ("seed-0/log.jsonl" if command.startswith("finetune") else "log.jsonl")
        stop_after(20, [sys.executable, "-m", "bertkit", *command.split()], log, work, environment)
    shutil.copytree(TESTS / "golden" / "tensorflow" / "original", work / "tensorflow")
    bertkit("convert tensorflow converted -q")
    shutil.rmtree(work / "tensorflow")
    inspected = json.loads(bertkit("inspect own/model --json"))
    del inspected["tensors"]
    (work / "inspected.json").write_text(json.dumps(inspected) + "\n", encoding="utf-8")
    (work / "store_seen.json").write_text(bertkit("inspect store --json"), encoding="utf-8")
    guesses = python("-m", "bertkit", *"fill-mask --model own/model --top-k 3 --json --device cpu".split(), MASKED)
    (work / "guesses.json").write_text(f"[{guesses.strip()}]\n", encoding="utf-8")
    (work / "commands.json").write_text(json.dumps(STOPPED, indent=1) + "\n", encoding="utf-8")
    python(str(HERE / "first_release_facts.py"), ".")


def stop_after(step: int, command: list[str], log: Path, work: Path, environment: dict[str, str]) -> None:
    """Stop a run by a signal once its log tells of this step; it must leave a training state."""
    process = subprocess.Popen(command, cwd=work, env=environment)
    while process.poll() is None:
        if log.exists() and f'"step": {step},' in log.read_text(encoding="utf-8"):
            process.send_signal(signal.SIGTERM)
            process.wait()
        time.sleep(0.001)
    assert process.returncode == 143, f"{command} ended with {process.returncode}, not by the signal"
    assert list(log.parent.glob("checkpoints/step-*")), f"{log.parent} holds no training state"


def prune(work: Path) -> None:
    for pattern in NOT_KEPT:
        for path in work.rglob(pattern):
            path.unlink()
    # One finished run keeps its log and its seed, so that another can be added to it; of the stopped runs the newest
    # state is enough.
    unneeded = [path for run in work.glob("finetuned/*") if run.name != "text" for path in run.glob("seed-*")]
    for folder in [
        *unneeded,
        work / "finetuned" / "text" / "seed-0" / "last",
        *work.rglob("checkpoints/step-00000020"),
    ]:
        shutil.rmtree(folder, ignore_errors=True)
    for path in [
        work / "data" / "squad" / "train.json",
        work / "data" / "swag" / "train.csv",
        work / "data" / "ner" / "train.conll",
    ]:
        path.unlink()
    for run in work.glob("finetuned/*"):
        if run.name != "text":
            for path in [run / "log.jsonl", *run.glob("evaluation-*")]:
                path.unlink()


if __name__ == "__main__":
    main()
