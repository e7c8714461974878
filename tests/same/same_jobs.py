"""What ``make same`` runs in each tree: commands, and scripts that use public names; in this order.

All paths are relative to the folder of one side, in which ``data`` holds what :mod:`same_data` writes, and
``tensorflow`` the golden checkpoints. A later job may use what an earlier one made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

#: Common to all fine-tuning runs: some seconds each.
#: As many epochs as there are. Protocol original has no patience at all.
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
    native: it runs with the compiled encoder, which the other jobs do without.
    """

    item: str
    command: str
    keep: tuple[str, ...] = ()
    stdin: str | None = None
    shape_only: bool = False
    fails: bool = False
    ignored: tuple[str, ...] = ()
    native: bool = False

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


def distilling(name: str, method: str, teachers: Sequence[str], data: str, student: str, settings: str = "") -> Job:
    """A student; a setting is ``NAME=VALUE``, and what begins with ``--`` is another option."""
    given = " ".join(one if one.startswith("--") else f"--set {one}" for one in settings.split())
    models = " ".join(f"--teacher {teacher}" for teacher in teachers)
    command = f"distill {method} {models} --data {data} --student {student} {given} --out distilled/{name} --json"
    return Job(f"distill {name}", command, (f"distilled/{name}",), ignored=("*resident*", "*peak*"))


_FEW = (
    "epochs=2 batch_size=16 learning_rate=3e-3 max_length=32 restarts=0 precision=fp32 checkpoint_every_s=0 "
    "soft_weight=0.6 "
)
_STEPS = "max_steps=12 batch_size=16 max_seq_length=32 learning_rate=2e-3"
DISTILLATION = [
    distilling(
        "text", "task", ("runs/text", "runs/windows"), "data/reviews", "1", f"{_FEW} --texts=data/texts.txt patience=6"
    ),
    distilling(
        "states", "tinybert-task", ("runs/text",), "data/reviews", "1x16",
        f"{_FEW} heads=4 state_epochs=2 augment=2 --texts=data/texts.txt --no-compare",
    ),
    distilling(
        "pairs", "task", ("runs/pairs",), "data/pairs", "1x16", f"{_FEW} mimetic=true teacher_embeddings=true heads=4"
    ),
    distilling("score", "task", ("runs/score",), "data/STS-B", "models/encoder", f"{_FEW} --no-compare"),
    distilling("several", "task", ("runs/several",) * 2, "data/topics", "1", f"{_FEW} ensemble=logits --no-compare"),
    distilling("ner", "task", ("runs/ner",), "data/ner", "1", f"{_FEW} --texts=data/words/train.conll seeds=2"),
    distilling("squad", "task", ("runs/squad", "runs/squad2"), "data/squad", "1", f"{_FEW} --no-compare"),
    distilling("swag", "task", ("runs/swag",), "data/swag", "1", f"{_FEW} --no-compare"),
    distilling(
        "vectors", "vectors", ("models/encoder",), "data/lines.txt", "1x16",
        "epochs=2 masked_lm_weight=0.5 embedding_weight=0.5 dimensions=24 checkpoint_every_s=0 heads=2",
    ),
    distilling(
        "vectors-layers", "vectors", ("models/encoder",), "data/lines.txt", "0,",
        "epochs=3 loss=cosine max_texts=60 patience=1 freeze_word_embeddings=true learning_rate=1e-2 max_tokens=128",
    ),
    distilling(
        "words", "distilbert", ("pretrained/pairs/model",), "store", "1", f"{_STEPS} --dev=dev-store positions=masked"
    ),
    distilling(
        "relations", "minilmv2", ("pretrained/pairs/model",), "store", "1x16", f"{_STEPS} heads=2 relation_heads=8"
    ),
    distilling("layers", "tinybert-general", ("models/encoder",), "store", "1x16", f"{_STEPS} heads=4"),
    Job(
        "predict distilled",
        "predict data/reviews/dev.csv --text body --model distilled/text/with --out predicted/distilled.jsonl "
        "--device cpu",
        ("predicted/distilled.jsonl",),
    ),
]  # fmt: skip
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
#: Command of the second pass -> the model that it uses, and the rest of its arguments.
SECOND = {
    "embed": ("models/encoder", "--file data/texts.txt --truncate"),
    "classify": ("models/classifier", "--file data/texts.txt --truncate --all"),
    "tag": ("runs/ner", "--file data/texts.txt"),
    "answer": ("runs/squad", f"'when was it?' who? {_CONTEXT} --top-k 3"),
    "fill-mask": ("models/words", "[MASK] 'the [MASK] was [MASK].' 'a [MASK] river and the old mill'"),
}


def with_compiled_encoder() -> Iterator[Job]:
    """The second pass: each command in each precision, and in as many threads. int8 takes a model in 8 bits."""
    for command, (model, arguments) in SECOND.items():
        in_bytes = f"quantized/{command}"
        yield Job(
            f"quantize for {command}",
            f"quantize {model} --calibrate data/lines.txt --any-speed --out {in_bytes} --json",
            (in_bytes,),
            ignored=("*speed*",),
        )
        for precision, chosen in (("fp32", model), ("int8", in_bytes), ("auto", model)):
            for threads in (1, 2):
                yield Job(
                    f"native {command} {precision} {threads}",
                    f"{command} {arguments} --model {chosen} --precision {precision} --threads {threads} --json "
                    "--device cpu",
                    native=True,
                )


JOBS = [*MODELS, *PRETRAINING, *FINETUNING, *DISTILLATION, *USE, *LOOK, *REFUSED, *with_compiled_encoder()]
