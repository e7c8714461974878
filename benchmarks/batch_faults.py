r"""Are results of a batch the same, row for row, after kills of workers and drivers, whatever computed them?

    python benchmarks/batch_faults.py --model MODEL --out benchmarks/results/batch-faults.md

Texts, one of which ends the process that reads it, are labelled on Ray with two workers, whose workers and driver are
killed (SIGKILL) at random moments, twenty times in all; the same command resumes each time. Every file of the output
must be, byte for byte, that of ``--engine local`` with two workers that nobody killed. Spark with two threads labels
the same texts without the poisonous one; a Python worker is killed in the middle, and then the driver, which starts
over. Its rows must be those of ``BatchPredictor`` here. As a control, a model with other weights must differ.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bertkit import BatchPredictor, BertForSequenceClassification
from machine import about, block, publish

BLOCK_ROWS, BATCH_ROWS, POISON = 16, 64, "poison"
#: What both engines load first, in every process: a row that no process survives.
POISONED = """
import os, signal
from bertkit.inference.runs import Run

kept = Run.answers


def answers(self, examples, **others):
    if any(example.text == "poison" for example in examples):
        os.kill(os.getpid(), signal.SIGKILL)
    return kept(self, examples, **others)


Run.answers = answers
"""
PREDICT = """
import sys, poisoned
from pathlib import Path
from bertkit.bulk.cuts import Size
from bertkit.bulk.planner import How, What, compute_folder
from bertkit.bulk import pools


def work_poisoned(*given):
    import poisoned
    from bertkit.bulk import pools

    return pools._work_on_ray(*given)  # there, it is not replaced


pools._work_on_ray = work_poisoned
if __name__ == "__main__":
    model, source, out, engine = sys.argv[1:]
    compute_folder(What(model), [source], Path(out), How(engine=engine, workers=2, size=Size(rows=ROWS)))
""".replace("ROWS", str(BLOCK_ROWS))
SPARK = """
import sys
from pyspark.sql import SparkSession
import bertkit

model, source, out = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2,4]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.parquet.compression.codec", "uncompressed")
    .config("spark.sql.execution.arrow.maxRecordsPerBatch", ROWS)
    .getOrCreate()
)
texts = spark.read.parquet(source)
predictor = bertkit.BatchPredictor(model)
labelled = texts.mapInArrow(predictor.arrow_iterator, bertkit.spark.schema(predictor, texts))
labelled.write.mode("overwrite").parquet(out)
""".replace("ROWS", str(BATCH_ROWS))


def main() -> None:
    args = parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "poisoned.py").write_text(POISONED)
        (work / "predict.py").write_text(PREDICT)
        (work / "spark.py").write_text(SPARK)
        rows = [ray_after_kills(args.model, work, args.rows, args.kills)]
        if not args.no_spark:
            rows.append(spark_after_kills(args.model, work, args.rows))
    lines = ["| engine | kills of workers | kills of the driver | output |", "|---|---|---|---|", *rows]
    page = ["# Batches after kills", "", *(__doc__ or "").splitlines(), "", *lines, "", *block(about(1))]
    publish(page, {"rows": rows}, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a folder with a text classifier")
    parser.add_argument("--rows", type=int, default=2048, help="texts, a multiple of 512")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--no-spark", action="store_true")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def texts(number: int) -> list[str]:
    drawn = random.Random(0)
    words = "the film was good bad long and very dull or lovely in parts".split()
    return [" ".join(drawn.choices(words, k=drawn.randint(1, 40))) for _ in range(number)]


def ray_after_kills(model: Path, work: Path, number: int, kills: int) -> str:
    import ray

    lines = texts(number)
    lines[number // 3] = POISON
    source = work / "texts.txt"
    source.write_text("\n".join(lines) + "\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(work), *sys.path]), "RAY_USAGE_STATS_ENABLED": "0"}

    def command(out: str, engine: str) -> list[str]:
        return [sys.executable, str(work / "predict.py"), str(model), str(source), str(work / out), engine]

    subprocess.run(command("local", "local"), env=environment, check=True)
    os.environ["PYTHONPATH"] = environment["PYTHONPATH"]
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    environment["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
    workers, drivers = killed_at_random(command("ray", "ray"), environment, kills)
    subprocess.run(command("ray", "ray"), env=environment, check=True)
    ray.shutdown()
    ours, theirs = results(work / "ray"), results(work / "local")
    assert sum(data.count(b"\n") for name, data in theirs.items() if name.startswith("part-")) == number
    return f"| Ray, 2 workers | {workers} | {drivers} | {'the same bytes' if ours == theirs else 'DIFFERS'} |"


def killed_at_random(command: Sequence[str], environment: dict[str, str], kills: int) -> tuple[int, int]:
    """Start and kill until as many processes were killed; the number of workers and of drivers among them."""
    drawn, workers, drivers = random.Random(1), 0, 0
    while workers + drivers < kills:
        running = subprocess.Popen(command, env=environment)
        time.sleep(2 + 4 * drawn.random())
        for _ in range(drawn.randint(0, 2)):
            if running.poll() is None and (found := processes_named("ray::work_poisoned")):
                os.kill(drawn.choice(found), signal.SIGKILL)
                workers += 1
            time.sleep(drawn.random())
        if running.poll() is not None:
            print("finished after", workers, "and", drivers, "kills: more --rows are needed", file=sys.stderr)
            break
        running.kill()
        running.wait()
        drivers += 1
    return workers, drivers


def processes_named(name: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if name.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:  # it has ended
            continue
    return found


def results(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file() and not path.name.startswith(".")}


def spark_after_kills(model: Path, work: Path, number: int) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    given, size = pa.table({"n": range(number), "text": texts(number)}), number // 8
    (work / "input").mkdir()
    for part in range(8):  # of whole batches, so that each batch has the same rows wherever it is computed
        pq.write_table(given.slice(part * size, size), work / "input" / f"{part}.parquet", compression="none")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYSPARK_PYTHON": sys.executable}
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    command = [sys.executable, str(work / "spark.py"), str(model), str(work / "input"), str(work / "spark")]
    stopped = subprocess.Popen(command, env=environment, start_new_session=True)
    wait_for(lambda: bool(processes_named("pyspark.daemon")), stopped)
    time.sleep(1)
    os.killpg(stopped.pid, signal.SIGKILL)
    stopped.wait()
    again = subprocess.Popen(command, env=environment)
    wait_for(lambda: len(processes_named("pyspark.daemon")) > 1, again)  # the daemon, and a worker that it forked
    time.sleep(0.5)
    workers = sorted(processes_named("pyspark.daemon"))[1:]
    for worker in workers[:1]:
        os.kill(worker, signal.SIGKILL)
    assert again.wait() == 0
    found = pq.read_table(work / "spark").sort_by("n").to_pylist()
    predict = BatchPredictor(model)
    expected = [row for at in range(0, number, BATCH_ROWS) for row in predict(given.slice(at, BATCH_ROWS)).to_pylist()]
    assert found != of_other_weights(model, work, given), "the control"
    return f"| Spark, 2 threads | {len(workers[:1])} | 1 | {'the same rows' if found == expected else 'DIFFERS'} |"


def of_other_weights(model: Path, work: Path, given: Any) -> Any:
    other = BertForSequenceClassification.from_pretrained(model)
    next(other.parameters()).data.mul_(1.01)
    other.save_pretrained(work / "other")
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        if (model / name).exists():
            (work / "other" / name).write_bytes((model / name).read_bytes())
    return BatchPredictor(work / "other")(given).to_pylist()


def wait_for(met: Callable[[], bool], running: subprocess.Popen[bytes]) -> None:
    while not met():
        assert running.poll() is None, "it ended before it could be killed"
        time.sleep(0.05)


if __name__ == "__main__":
    main()
