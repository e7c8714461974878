"""One training of a sentence encoder, by bertkit or by sentence-transformers, in a process of its own.

    python benchmarks/sentence_job.py sentence-transformers JOB.json

For ``sentence_training.py``, which writes the job and runs this with the Python that has the system. Prints one line of
JSON: seconds from loaded rows to the vectors of dev (without imports), steps, and the peak of memory of the process.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from beside_trainer import training_arguments
from job_file import JobFile

#: Rows that sentence-transformers computes at once where it caches gradients; bertkit goes by tokens.
MINI_BATCH = 32


@dataclass(frozen=True)
class Job(JobFile):
    """What is trained; ``texts`` get vectors afterwards, which are written to ``out``.

    columns: of the training rows: two lists of texts, and for the loss "cosent" their scores.
    """

    model: str
    loss: str
    columns: list[list[Any]]
    texts: list[str]
    out: str
    epochs: int
    rate: float
    batch: int
    length: int
    seed: int
    threads: int


def main() -> None:
    system, path = sys.argv[1:]
    job = Job.read(path)
    import torch

    torch.set_num_threads(job.threads)
    vectors, seconds, steps = (run_bertkit if system == "bertkit" else run_peer)(job)
    np.save(job.out, vectors)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"seconds": round(seconds, 1), "steps": steps, "peak_mb": peak}))


def run_bertkit(job: Job) -> tuple[Any, float, int]:
    """Vectors of the texts after the last epoch, seconds, steps."""
    from bertkit.tasks.embeddings.task import PAIRS, SCORED_PAIRS, EmbeddingExample
    from bertkit.tasks.workflow import workflow_of
    from bertkit.tokenization import AutoTokenizer
    from bertkit.tokenization.features import featurize_texts
    from bertkit.training.finetuning.finetune_settings import FinetuneConfig
    from bertkit.training.finetuning.fit import fit
    from bertkit.training.trainer.generators import seeded

    begin = time.perf_counter()
    first, second, *scores = job.columns
    numbers = scores[0] if scores else [None] * len(first)
    rows = [EmbeddingExample((a, b), score) for a, b, score in zip(first, second, numbers, strict=True)]
    settings = FinetuneConfig(
        loss=job.loss, learning_rate=job.rate, epochs=job.epochs, batch_size=job.batch, max_length=job.length,
        seed=job.seed, precision="fp32",
    )  # fmt: skip
    workflow = workflow_of(SCORED_PAIRS if scores else PAIRS)
    with seeded(job.seed):
        tokenizer = AutoTokenizer.from_pretrained(job.model)
        model = workflow.new_model(job.model, seed=job.seed, device=None, settings=settings)
        train = workflow.encode(rows, tokenizer, settings, labelled=True)
        trained = fit(model, workflow, train, None, settings, seed=job.seed)
        texts = featurize_texts(job.texts, None, tokenizer, max_length=job.length)
        vectors = workflow.scoring_engine(trained.model).vectors(texts, lambda count: None)
    return vectors, time.perf_counter() - begin, trained.progression.step


def run_peer(job: Job) -> tuple[Any, float, int]:
    """The same with ``SentenceTransformerTrainer``."""
    import datasets
    import sentence_transformers as peer
    import transformers
    from sentence_transformers.sentence_transformer import losses

    transformers.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    begin = time.perf_counter()
    transformers.set_seed(job.seed)
    model = peer.SentenceTransformer(job.model, device="cpu")
    model.max_seq_length = job.length
    names = ("first", "second", "score")[: len(job.columns)]
    rows = datasets.Dataset.from_dict(dict(zip(names, job.columns, strict=True)))
    if job.loss == "cosent":
        loss = losses.CoSENTLoss(model)
    elif job.batch > 128:
        loss = losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=MINI_BATCH)
    else:
        loss = losses.MultipleNegativesRankingLoss(model)
    with tempfile.TemporaryDirectory() as scratch:
        arguments = training_arguments(
            scratch, epochs=job.epochs, rate=job.rate, batch=job.batch, seed=job.seed,
            kind=peer.SentenceTransformerTrainingArguments,
            batch_sampler="batch_sampler" if job.loss == "cosent" else "no_duplicates",
        )  # fmt: skip
        trainer = peer.SentenceTransformerTrainer(model=model, args=arguments, train_dataset=rows, loss=loss)
        trainer.train()
        vectors = model.encode(job.texts, batch_size=MINI_BATCH, show_progress_bar=False)
    return vectors, time.perf_counter() - begin, trainer.state.global_step


if __name__ == "__main__":
    main()
