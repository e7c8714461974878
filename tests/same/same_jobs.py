"""What ``make same`` runs in each tree: commands, and scripts that use public names; in this order.

All paths are relative to the folder of one side, in which ``data`` holds what :mod:`same_data` writes, and
``tensorflow`` the golden checkpoints. A later job may use what an earlier one made.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Common to all fine-tuning runs: some seconds each.
#: As many epochs as there are: the first release had no patience by default. Protocol original has none at all.
PATIENT = "--patience 6 "
FORMAT = "--precision fp32 --device cpu"
QUICK = f"--epochs 6 {PATIENT}--batch-size 16 --learning-rate 3e-3 --max-length 32 --restarts 0 --json {FORMAT}"
PRETRAIN = "--device cpu --json"


@dataclass(frozen=True)
class Job:
    """One process in each tree, and what of it is compared.

    item: its name in the table; ``--only`` and the list of expected differences use it.
    command: the arguments of ``bertkit``, split as a shell would; or a script of this folder with its arguments.
    keep: files and folders that it writes.
    stdin: a file for standard input.
    shape_only: of its JSON only keys and types are compared: the values are about the machine.
    fails: it must end with an exit code that is not 0, the same in both trees.
    ignored: patterns of places that may differ.
    """

    item: str
    command: str
    keep: tuple[str, ...] = ()
    stdin: str | None = None
    shape_only: bool = False
    fails: bool = False
    ignored: tuple[str, ...] = ()

    @property
    def is_script(self) -> bool:
        return self.command.partition(" ")[0].endswith(".py")


def finetuning(
    name: str, task: str, data: str, more: str = "", *, test: str, start: str = "models/encoder"
) -> list[Job]:
    """Fine-tuning, evaluation and prediction of one kind of task.

    Args:
        name: of the kind, and of the run's folder.
        task: as the command calls it.
        data: the task's files.
        more: further options of the training.
        test: a file to predict.
        start: model to begin with.
    """
    run = f"runs/{name}"
    return [
        Job(f"finetune {name}", f"finetune {task} --data {data} --model {start} --out {run} {QUICK} {more}", (run,)),
        Job(f"evaluate {name}", f"evaluate {task} --data {data} --model {run} --json --device cpu"),
        Job(
            f"predict {name}",
            f"predict {test} --model {run} --out predicted/{name}.jsonl --device cpu",
            (f"predicted/{name}.jsonl",),
        ),
    ]


def export(name: str, model: str, more: str = "") -> Job:
    """One ONNX export; :mod:`same` runs its graphs, which may be written otherwise if they compute the same."""
    command = f"export {model} --out onnx/{name} {more or '--variant both'} --json --no-check"
    return Job(f"export {name}", command, (f"onnx/{name}",), ignored=("*variants.*.sha256", "*variants.*bytes"))


MODELS = [
    Job("vocab", "vocab data/corpus.txt --size 280 --held-out 0.1 --out tokenizer --json", ("tokenizer",)),
    Job(
        "vocab --extend",
        "vocab data/documents.jsonl --text body --extend tokenizer --size 300 --beside tokenizer --out extended --json",
        ("extended",),
    ),
    Job("vocab --cased", "vocab data/corpus.txt --cased --size 260 --workers 2 --out cased --json", ("cased",)),
    Job("random models", "same_models.py tokenizer models", ("models",)),
]
PRETRAINING = [
    Job(
        "prepare",
        "prepare data/corpus.txt --tokenizer tokenizer --out store --workers 1 --dedup near --json",
        ("store",),
    ),
    Job(
        "prepare lines",
        "prepare data/dev.txt --sentences line --tokenizer tokenizer --out dev-store --workers 2 --json",
        ("dev-store",),
    ),
    Job(
        "prepare jsonl",
        "prepare data/documents.jsonl --text body --tokenizer cased --out cased-store --workers 1 --json",
        ("cased-store",),
    ),
    *(
        Job(
            f"pretrain {name}",
            f"pretrain {store} --dev {dev} --recipe data/{name}.toml --out pretrained/{name} {PRETRAIN}",
            (f"pretrained/{name}",),
        )
        for name, store, dev in (
            ("pairs", "store", "dev-store"),
            ("order", "store", "dev-store"),
            ("words", "cased-store", "cased-store"),
            ("original", "dev-store", "dev-store"),
        )
    ),
    Job(
        "pretrain --model",
        "pretrain store --model models/pretraining --max-steps 20 --batch-size 8 --max-seq-length 32 --no-curve "
        f"--seed 3 --dropout 0.2 --out pretrained/on {PRETRAIN}",
        ("pretrained/on",),
    ),
]
FINETUNING = [
    *finetuning("text", "csv", "data/reviews", "--text body --label stars --seeds 2", test="data/reviews/dev.csv"),
    *finetuning("pairs", "csv", "data/pairs", "--class-weights balanced", test="data/pairs/dev.csv"),
    *finetuning("score", "stsb", "data/STS-B", "--accumulation 2 --max-tokens 128", test="data/STS-B/dev.tsv"),
    *finetuning(
        "several", "csv", "data/topics", "--multi-label --tune-thresholds --calibrate", test="data/topics/dev.csv"
    ),
    *finetuning("ner", "ner", "data/ner", "--label-all-pieces", test="data/ner/dev.conll"),
    *finetuning("squad", "squad", "data/squad", "--doc-stride 12", test="data/squad/dev.json"),
    *finetuning("squad2", "squad2", "data/squad2", "--doc-stride 12", test="data/squad2/dev.json"),
    *finetuning("swag", "swag", "data/swag", "", test="data/swag/val.csv"),
    *finetuning("codah", "codah", "data/codah", "", test="data/codah/dev.tsv")[:1],
    Job(
        "finetune windows",
        "finetune csv --data data/reviews/train.csv --text body --label stars --long-texts windows --overlap 8 "
        f"--layer-decay 0.9 --protocol original --model models/encoder --out runs/windows {QUICK.replace(PATIENT, '')}",
        ("runs/windows",),
    ),
    Job(
        "finetune frozen",
        "finetune csv --data data/reviews --text body --label stars --freeze-encoder --long-texts head_tail "
        f"--model models/encoder --out runs/frozen {QUICK}",
        ("runs/frozen",),
    ),
    Job(
        "adapt",
        "adapt csv --data data/reviews --text body --label stars --model models/pretraining --adapt-steps 6 "
        f"--adapt-length 32 --max-train-rows 48 --out adapted {QUICK}",
        ("adapted",),
    ),
    Job("predict stdin", "predict - --model runs/text --json --device cpu", stdin="data/texts.txt"),
    Job(
        "predict csv",
        "predict data/reviews/dev.csv --text body --model runs/windows --out predicted/windows.csv --device cpu",
        ("predicted/windows.csv",),
    ),
    Job(
        "predict parquet",
        "predict data/pairs/dev.csv --model runs/pairs --out predicted/pairs.parquet --device cpu",
        ("predicted/pairs.parquet",),
    ),
]
_TEXTS = "--file data/texts.txt --truncate --json --device cpu"
_CONTEXT = "--context 'The river ran past Bob in 1912, and the mill stood by 7 boats.'"
USE = [
    Job("fill-mask", "fill-mask [MASK] 'the [MASK] was [MASK].' --model pretrained/pairs/model --json --device cpu"),
    Job(
        "fill-mask --targets",
        "fill-mask 'the [MASK] and' --targets the --targets and --model pretrained/on/model --json",
    ),
    Job("next-sentence", "next-sentence --file data/pair-lines.txt --model models/nextsentence --json --device cpu"),
    Job("classify", f"classify --model models/classifier --all {_TEXTS}"),
    Job("classify plain", "classify 'a good book' 'an awful film' --model runs/text --device cpu"),
    Job("classify several", "classify report match 'the report of a match' --model runs/several --json --device cpu"),
    Job("classify --pairs", "classify --pairs --file data/pair-lines.txt --model runs/pairs --json --device cpu"),
    Job("classify windows", "classify --file data/texts.txt --model runs/windows --json --device cpu"),
    Job("tag", "tag --file data/texts.txt --model runs/ner --json --device cpu"),
    Job(
        "tag --strategy none",
        "tag 'Bob Lee went to Riga with Ann' Oslo --strategy none --stride 4 --model runs/ner --json --device cpu",
    ),
    Job("tag --strategy max", "tag --file data/texts.txt --strategy max --model models/tagger --json --device cpu"),
    Job("answer", f"answer 'when was it?' who? {_CONTEXT} --top-k 3 --model runs/squad --json --device cpu"),
    Job(
        "answer --impossible",
        f"answer 'when was it?' who? {_CONTEXT} --impossible --model runs/squad2 --json --device cpu",
    ),
    Job(
        "answer --file",
        "answer --file data/squad2/dev.json --model runs/squad2 --out predicted/answers.json --device cpu",
        ("predicted/answers.json",),
    ),
    Job("embed", f"embed --model models/encoder {_TEXTS}"),
    Job(
        "embed --out",
        "embed --file data/texts.txt --truncate --pooling max --normalize --model pretrained/pairs/model "
        "--out predicted/vectors.npy",
        ("predicted/vectors.npy",),
    ),
    Job(
        "embed --out parquet",
        "embed --file data/texts.txt --max-length 16 --truncate --pooling cls --model models/encoder "
        "--out predicted/vectors.parquet",
        ("predicted/vectors.parquet",),
    ),
    Job("similarity", f"similarity 'the river' --top-k 9 --model models/encoder {_TEXTS}"),
    Job("public names", "same_names.py models data runs public", ("public",)),
]
LOOK = [
    Job("inspect model", "inspect models/pretraining --json"),
    Job("inspect run", "inspect runs/ner --json"),
    Job("inspect store", "inspect store --json"),
    Job("inspect --verify", "inspect pretrained/order/model --verify --json --device cpu"),
    Job(
        "inspect --against", "inspect pretrained/on/model --against models/pretraining --json --device cpu", fails=True
    ),
    Job("convert", "convert tensorflow/original converted/original --json", ("converted/original",)),
    Job(
        "convert classifier",
        "convert tensorflow/classifier converted/classifier --config tensorflow/original/bert_config.json "
        "--vocab tensorflow/original/vocab.txt --json",
        ("converted/classifier",),
    ),
    Job(
        "convert albert",
        "convert tensorflow/albert converted/albert --vocab tensorflow/original/vocab.txt --json",
        ("converted/albert",),
    ),
    Job("convert SavedModel", "convert tensorflow/hub converted/hub --json", ("converted/hub",)),
    Job("convert pickled", "convert models/pickled converted/pickled --trust-pickle --json", ("converted/pickled",)),
    Job("doctor", "doctor --json", shape_only=True),
    export("text", "runs/text"),
    export("ner", "runs/ner", "--variant packed"),
    export("squad", "runs/squad", "--variant padded"),
    export("swag", "runs/swag", "--variant packed"),
    export("fill-mask", "pretrained/pairs/model", "--variant packed --task fill-mask"),
]
#: What is refused, and with which exit code.
REFUSED = [
    Job("refused: usage", "classify a --model models/classifier --no-such-option", fails=True),
    Job("refused: data", "predict data/no-such-file.csv --model runs/text", fails=True),
    Job("refused: no head", "fill-mask [MASK] --model models/encoder", fails=True),
    Job(
        "refused: too long",
        "classify --file data/texts.txt --max-length 8 --model models/classifier --device cpu",
        fails=True,
    ),
    Job(
        "refused: a run that is there",
        f"finetune csv --data data/reviews --model models/encoder --out runs/text {QUICK}",
        fails=True,
    ),
]
JOBS = [*MODELS, *PRETRAINING, *FINETUNING, *USE, *LOOK, *REFUSED]
