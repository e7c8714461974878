"""The jobs of tasks.py: data, metrics, sizes and estimated time."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Questions, texts or sentences per batch, and the peak rate, unless a job sets its own.
BATCH, LEARNING_RATE = 32, 1e-4
#: On two EPYC cores with MiniLM-L6: tokens per second in training (fp32) and evaluation, seconds per update and per
#: command.
TRAIN_RATE, EVALUATE_RATE, UPDATE_S, COMMAND_S = 2_300, 6_000, 0.15, 25
#: Speed-up of training in bf16 there.
HALF_GAIN = 1.5
#: Assumed time of the transformers loop relative to bertkit, for the estimate.
PEER_FACTOR = 2.0


@dataclass(frozen=True)
class Job:
    """One task on one dataset.

    name: for ``--tasks``. task, data, flags: of ``bertkit finetune`` (``command``). metrics: shown in the table.
    size, dev_size: rows in the files, or after holding out dev. tokens: mean per training row, for the estimate.
    rows, epochs, seeds: defaults, which options can reduce. few: fewer seeds than this data size needs, to save time.
    batch, rate: smaller batches if there would be too few updates otherwise; with a peer, the values of its module.
    stand_in: only a dev file exists; it is copied under this name, and dev is held out of it.
    peer: the benchmark whose loops are compared. note: for the reader of the table.
    """

    name: str
    task: str
    data: str
    metrics: tuple[str, ...]
    size: int
    dev_size: int
    tokens: int
    rows: int
    epochs: int
    seeds: int
    few: bool = False
    batch: int = BATCH
    rate: float = LEARNING_RATE
    flags: tuple[str, ...] = ()
    command: str = "finetune"
    stand_in: str | None = None
    peer: str | None = None
    note: str = ""


ACCURACY, F1_ACCURACY, SPANS = ("accuracy",), ("f1", "accuracy"), ("f1", "exact_match")
ENTITIES = ("f1", "precision", "recall")
IMDB_FLAGS = ("--dev-share", "0.05", "--max-length", "256", "--long-texts")
JOBS = (
    Job("wnli", "wnli", "glue/WNLI", ACCURACY, 635, 71, 37, 635, 2, 5),
    Job("cola", "cola", "glue/CoLA", ("matthews",), 8_551, 1_043, 11, 8_551, 3, 5),
    Job("sst2", "sst2", "glue/SST-2", ACCURACY, 67_349, 872, 14, 4_000, 2, 3),
    Job("stsb", "stsb", "glue/STS-B", ("spearman", "pearson"), 5_749, 1_500, 31, 2_500, 2, 5),
    Job("mrpc", "mrpc", "glue/MRPC", F1_ACCURACY, 3_668, 408, 53, 3_668, 3, 5, batch=16),
    Job("qqp", "qqp", "glue/QQP", F1_ACCURACY, 16_916, 1_880, 30, 3_000, 2, 3,
        note="only a slice of the training file is available; dev is held out of it"),
    Job("qnli", "qnli", "glue/QNLI/dev.tsv.xz", ACCURACY, 4_917, 546, 50, 3_000, 2, 5, batch=16,
        stand_in="QNLI/train.tsv.xz", note="only the dev file is available: trained on 90 % of it, scored on the rest"),
    Job("rte", "rte", "glue/RTE", ACCURACY, 2_490, 277, 70, 2_490, 3, 5, batch=16),
    Job("tweets", "tweets", "tweet_sentiment", ("accuracy", "macro_f1"), 19_236, 2_748, 20, 4_000, 2, 3),
    Job("tweets-frozen", "tweets", "tweet_sentiment", ("accuracy", "macro_f1"), 19_236, 2_748, 20, 4_000, 30, 3,
        flags=("--freeze-encoder",), note="the encoder runs once; only a classifier on its vectors is trained"),
    Job("tweets-frozen-mean", "tweets", "tweet_sentiment", ("accuracy", "macro_f1"), 19_236, 2_748, 20, 4_000, 30, 3,
        flags=("--freeze-encoder", "--pooling", "mean"), note="the same, on the mean of the tokens' vectors"),
    Job("tweets-500", "tweets", "tweet_sentiment", ("accuracy", "macro_f1"), 19_236, 2_748, 20, 500, 5, 3, batch=16,
        command="adapt", flags=("--adapt-steps", "200"),
        note="500 labels; 'adapted' first saw the other texts, without labels, in 200 masked-LM steps"),
    Job("imdb-head-tail", "imdb", "imdb", ACCURACY, 9_500, 500, 235, 600, 2, 5, batch=8,
        flags=(*IMDB_FLAGS, "head_tail"), note="256 tokens: beginning and end of a review"),
    Job("imdb-windows", "imdb", "imdb", ACCURACY, 9_500, 500, 340, 600, 2, 5, batch=8,
        flags=(*IMDB_FLAGS, "windows"), note="windows of 256 tokens with averaged logits"),
    Job("wikigold", "ner", "ner/wikigold", ENTITIES, 1_526, 170, 33, 1_526, 3, 5,
        note="dev: whole documents"),
    Job("btc", "ner", "ner/btc/g.conll.xz", ENTITIES, 1_924, 214, 25, 1_924, 3, 5,
        note="section G; dev held out"),
    Job("sec", "ner", "ner/sec_filings", ENTITIES, 1_048, 116, 48, 1_048, 4, 5, batch=8, rate=2e-4,
        note="FIN5; dev held out"),
    Job("wnut17", "ner", "ner/wnut17", ENTITIES, 3_394, 1_009, 26, 1_700, 3, 5, peer="ner"),
    Job("codah", "codah", "codah", ACCURACY, 1_665, 556, 92, 800, 2, 5, batch=16, peer="choice"),
    Job("arc-easy", "arc", "arc/arc_easy", ACCURACY, 2_142, 548, 130, 1_000, 2, 5, batch=8),
    Job("arc-challenge", "arc", "arc/arc_challenge_train.csv", ACCURACY, 986, 109, 140, 986, 2, 5, batch=8,
        note="dev held out"),
    Job("squad", "squad", "squad", SPANS, 5_700, 600, 190, 800, 2, 5, batch=8, rate=2e-4, peer="squad",
        note="v1.1 dev articles: 85 % of the questions for training, 600 about the other articles scored"),
    Job("squad2", "squad2", "squad/dev-v2.0-articles-1-28.json.xz", SPANS, 5_750, 640, 190, 1_600, 2, 3, few=True,
        batch=8, rate=2e-4, stand_in="squad2/train-v2.0.json.xz", flags=("--dev-share", "0.1"),
        note="v2.0 dev articles; 10 % of the questions, about other articles, held out"),
    Job("squad2-4000", "squad2", "squad/dev-v2.0-articles-1-28.json.xz", SPANS, 5_750, 640, 190, 4_000, 2, 1, few=True,
        batch=8, rate=2e-4, stand_in="squad2/train-v2.0.json.xz", flags=("--dev-share", "0.1"),
        note="the same with more training questions; one seed, to save time"),
)  # fmt: skip


def minutes_of(job: Job) -> float:
    """Estimated minutes of a job."""
    if "--freeze-encoder" in job.flags:
        return (COMMAND_S + (job.rows + job.dev_size) * job.tokens / EVALUATE_RATE + job.seeds * 20) / 60
    rate = TRAIN_RATE * (1 if job.peer else HALF_GAIN)
    train = job.rows * job.tokens / rate + math.ceil(job.rows / job.batch) * UPDATE_S
    evaluate = job.dev_size * job.tokens / EVALUATE_RATE
    seconds = job.seeds * (job.epochs * train + (1 if job.peer else job.epochs) * evaluate)
    if job.command == "adapt":
        adapting = int(job.flags[1]) * BATCH * 128 / rate * 1.3  # and the output layer over the vocabulary
        seconds = 2 * seconds + adapting
    return (COMMAND_S + seconds * (1 + PEER_FACTOR if job.peer else 1)) / 60
