"""Does the present tree compute what an earlier commit did? ``make same`` runs both and compares to the last bit.

    python tests/same/same.py
    python tests/same/same.py --only 'finetune*' --keep /tmp/same     a part, and keep what was written
    python tests/same/same.py --break                                 shows that the check can fail

The commit, :data:`BASE`, is checked out into a temporary folder. Each tree runs the jobs of :mod:`same_jobs` as
processes of their own, the two trees side by side on one machine, so that nothing depends on the processor. A first
pass computes in torch with one thread. A second pass uses the compiled encoder, of which each tree builds its own
library with the same compiler, in several precisions, with one thread and with two. Do not edit the tree meanwhile:
each job imports it anew. What is meant to differ stands in ``expected_differences.toml`` with the number of its
finding. Exit code 1 where anything else differs.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import onnxruntime
from same_compare import Difference, compare_outputs, judge, read_expected
from same_data import write_all
from same_jobs import JOBS, Job

#: The commit that results are compared with.
BASE = "8e782f98"
HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
#: What ``--break`` adds to a job of the present tree; each must then be reported as different.
BROKEN = {
    "finetune text": "--seed 1",
    "pretrain pairs": "--learning-rate 0.0021",
    "vocab --cased": "--held-out 0.2",
    "distill vectors": "--seed 1",
}
#: Jobs of the second pass that ``--break`` runs without the compiled encoder: torch rounds its sums otherwise.
BROKEN_SECOND = {f"native {command} fp32 {threads}" for command in ("embed", "answer") for threads in (1, 2)}
#: Differences shown of one item.
SHOWN = 4


@dataclass(frozen=True)
class Side:
    """One tree: its source, and the folder in which its jobs run."""

    name: str
    tree: Path
    folder: Path

    def environment(self) -> dict[str, str]:
        """One thread, this tree's package, no network, and no cache that the other side might have filled.

        The compiled encoder and oneDNN's products are switched off but for the second pass; see :meth:`run`.
        """
        return {
            **os.environ,
            "PYTHONPATH": str(self.tree / "src"),
            "PYTHONSAFEPATH": "1",
            "OMP_NUM_THREADS": "1",
            # Otherwise MKL's sums depend on where weights lie in memory, so on the length of the header before them.
            "MKL_CBWR": "COMPATIBLE",
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "HF_HUB_OFFLINE": "1",
            "BERTKIT_NATIVE": "0",
            "COLUMNS": "120",
        }

    def prepare(self, material: Path, tensorflow: Path) -> None:
        """Lay out the material, and see that it is this tree's package that runs.

        Raises:
            SystemExit: another bertkit is imported.
        """
        shutil.copytree(material, self.folder / "data")
        shutil.copytree(tensorflow, self.folder / "tensorflow")
        for name in ("models", "predicted", "streams", "runs", "converted", "onnx", "quantized", "distilled"):
            (self.folder / name).mkdir()
        command = [sys.executable, "-c", "import bertkit; print(bertkit.__file__)"]
        found = subprocess.run(command, env=self.environment(), capture_output=True, text=True, check=True).stdout
        if not Path(found.strip()).is_relative_to(self.tree):
            raise SystemExit(f"the side {self.name!r} imports {found.strip()}, not the package in {self.tree}")

    def serve(self) -> subprocess.Popen[str]:
        """The process that runs jobs; see :mod:`same_server`."""
        command = [sys.executable, str(HERE / "same_server.py")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=self.folder, env=self.environment(), **pipes)

    def run(self, server: subprocess.Popen[str], job: Job, more: str = "") -> float:
        """Run one job; its exit code and what it says are kept below ``streams``. Returns its seconds of CPU time."""
        arguments = shlex.split(f"{job.command} {more}")
        if job.is_script:
            arguments[0] = str(HERE / arguments[0])
        out, err = self.stream(job, "out"), self.stream(job, "err")
        order = {
            "argv": arguments, "stdin": job.stdin or os.devnull, "stdout": str(out), "stderr": str(err),
            "environment": {"BERTKIT_NATIVE": "1" if job.native else "0"},
        }  # fmt: skip
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(order) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline().split()
        if not answer:
            raise SystemExit(f"the process that runs the jobs of the side {self.name!r} died at {job.item!r}")
        self.stream(job, "code").write_text(f"{answer[0]}\n")
        out.write_bytes(out.read_bytes().replace(str(self.folder).encode(), b"SIDE"))
        return float(answer[1])

    def stream(self, job: Job, kind: str) -> Path:
        """Where a job's standard output (out), standard error (err) or exit code is kept."""
        return self.folder / "streams" / f"{job.item.replace(' ', '_')}.{kind}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=BASE, help="commit to compare with")
    parser.add_argument("--tree", type=Path, default=REPOSITORY, help="what to compare with it; default: this tree")
    parser.add_argument("--only", action="append", help="pattern of items to compare; the jobs they need run as well")
    parser.add_argument("--keep", type=Path, help="new folder for everything that is written")
    parser.add_argument("--break", dest="broken", action="store_true", help="control: change the present tree's jobs")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="bertkit-same-") as temporary:
        root = arguments.keep or Path(temporary)
        root.mkdir(parents=True, exist_ok=True)
        tree = Path(temporary) / "tree"
        git("worktree", "add", "--detach", "--quiet", str(tree), arguments.base)
        try:
            return compare_trees(
                root.resolve(), tree, arguments.tree.resolve(), arguments.only, broken=arguments.broken
            )
        finally:
            git("worktree", "remove", "--force", str(tree))


def git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(REPOSITORY), *arguments], check=True)


def compare_trees(root: Path, base: Path, present: Path, only: Sequence[str] | None, *, broken: bool) -> int:
    """Run both sides, print the table, and return the exit code."""
    patterns = only or ["*"]
    started = time.monotonic()
    material = root / "material"
    material.mkdir()
    write_all(material)
    sides = [Side("before", base, root / "before"), Side("now", present, root / "now")]
    jobs = needed(patterns)
    with ThreadPoolExecutor(len(sides)) as pool:
        seconds = list(pool.map(lambda side: run_side(side, material, jobs, broken=broken), sides))
    differences: dict[str, list[Difference]] = {}
    for job in jobs:
        if any(fnmatchcase(job.item, pattern) for pattern in patterns):
            found = differences_of(job, *sides)
            differences[job.item] = [one for one in found if not any(fnmatchcase(one.where, p) for p in job.ignored)]
    expected = read_expected(HERE / "expected_differences.toml")
    every = [one for found in differences.values() for one in found]
    unexpected, meant, useless = judge(every, expected, list(differences))
    for item, found in differences.items():
        show(item, [one for one in found if one in unexpected], sum(one in meant for one in found))
    failed = list(failures(jobs, sides))
    for line in failed:
        print(line)
    for entry in useless:
        print(f"no longer needed in expected_differences.toml: {entry}")
    num_same = sum(not found for found in differences.values())
    print(
        f"\n{len(differences)} items, {num_same} of them the same. Differences: {len(unexpected)}, and {len(meant)} "
        f"expected. Entries no longer needed: {len(useless)}. Failed jobs: {len(failed)}. "
        f"{time.monotonic() - started:.0f} s (CPU time: {seconds[0]:.0f} s before, {seconds[1]:.0f} s now)"
    )
    if broken:
        missed = sorted((BROKEN.keys() | BROKEN_SECOND) & differences.keys() - {one.item for one in unexpected})
        print(f"control: {'missed ' + ', '.join(missed) if missed else 'every change was found'}")
        return 1 if missed or not unexpected else 0
    return 1 if unexpected or useless or failed else 0


def run_side(side: Side, material: Path, jobs: Sequence[Job], *, broken: bool) -> float:
    """All jobs of one tree, in order. Returns their seconds of CPU time."""
    total = 0.0
    side.prepare(material, REPOSITORY / "tests" / "golden" / "tensorflow")
    with side.serve() as server:
        for job in jobs:
            more = ""
            if broken and side.name == "now":
                job, more = replace(job, native=job.native and job.item not in BROKEN_SECOND), BROKEN.get(job.item, "")
            used = side.run(server, job, more)
            print(f"{side.name:6} {used:5.1f} s CPU  {job.item}", file=sys.stderr, flush=True)
            total += used
    return total


def needed(patterns: Sequence[str]) -> list[Job]:
    """The jobs of these items, and the earlier ones whose files they read."""
    chosen: list[Job] = []
    for job in reversed(JOBS):
        words = shlex.split(" ".join(one.command for one in chosen))
        made_for_others = any(
            word == place or word.startswith(f"{place}/") or place.startswith(f"{word}/")
            for word in words
            for place in job.keep
        )
        if made_for_others or any(fnmatchcase(job.item, pattern) for pattern in patterns):
            chosen.insert(0, job)
    return chosen


def differences_of(job: Job, before: Side, now: Side) -> Iterator[Difference]:
    """Of exit code, standard output, files, and what exported graphs compute."""
    for kind, where in (("code", "exit code"), ("out", "stdout")):
        yield from compare_outputs(
            job.item, where, before.stream(job, kind), now.stream(job, kind), shape_only=job.shape_only
        )
    for place in job.keep:
        yield from compare_outputs(job.item, place, before.folder / place, now.folder / place)
        yield from compare_graphs(job.item, place, before, now)


def compare_graphs(item: str, place: str, before: Side, now: Side) -> Iterator[Difference]:
    """Run the ONNX graphs of both sides on the same inputs."""
    graphs = {path.name for side in (before, now) for path in (side.folder / place).glob("*.onnx")}
    for name in sorted(graphs):
        paths = [side.folder / place / name for side in (before, now)]
        if all(path.exists() for path in paths):
            outputs = [graph_outputs(path) for path in paths]
            for key in sorted(outputs[0].keys() | outputs[1].keys()):
                one, other = (found.get(key) for found in outputs)
                if one is None or other is None or one.tobytes() != other.tobytes():
                    yield Difference(item, f"{place}/{name}: {key}", "the graphs' outputs differ")
        else:
            yield Difference(item, f"{place}/{name}", "only before" if paths[0].exists() else "only now")


def graph_outputs(path: Path) -> dict[str, np.ndarray]:
    """What a graph computes for two batches made of nothing but its inputs' names and shapes."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    found = {}
    for lengths in ((12, 12, 12), (3, 20, 1, 9)):
        feeds = graph_inputs([one.name for one in session.get_inputs()], lengths)
        for output, value in zip(session.get_outputs(), session.run(None, feeds), strict=True):
            found[f"{output.name} {lengths}"] = value
    return found


def graph_inputs(names: Sequence[str], lengths: Sequence[int]) -> dict[str, np.ndarray]:
    """Random ids for sequences of these lengths: padded where the graph has a mask, else packed."""
    rng = np.random.default_rng(0)
    padded = "attention_mask" in names
    shape = (len(lengths), max(lengths)) if padded else (sum(lengths),)
    ids = rng.integers(5, 250, shape, dtype=np.int64)
    given = {
        "input_ids": ids,
        "token_type_ids": ids % 2,
        "attention_mask": (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64),
        "cu_seqlens": np.cumsum([0, *lengths], dtype=np.int64),
        "logit_rows": np.arange(sum(lengths)),
    }
    return {name: given[name] for name in names}


def show(item: str, unexpected: Sequence[Difference], num_meant: int) -> None:
    """One row of the table, and the first differences."""
    state = "DIFFERENT" if unexpected else "as expected" if num_meant else "same"
    print(f"{item:32} {state}{f' ({num_meant} expected)' if num_meant else ''}")
    for one in unexpected[:SHOWN]:
        print(f"    {one.where}: {one.what}")
    if len(unexpected) > SHOWN:
        print(f"    and {len(unexpected) - SHOWN:,} more")


def failures(jobs: Sequence[Job], sides: Sequence[Side]) -> Iterator[str]:
    """What makes a comparison worth nothing: jobs that failed but should not, and the other way round."""
    for job in jobs:
        for side in sides:
            code = side.stream(job, "code").read_text().strip()
            if (code != "0") != job.fails:
                lines = side.stream(job, "err").read_text(errors="replace").strip().splitlines()
                yield f"FAILED {side.name}: {job.item}: exit code {code}: {lines[-1] if lines else ''}"
    for side in sides:
        if any(job.native for job in jobs) and not any((side.folder / "cache").rglob("*.so")):
            yield f"FAILED {side.name}: the compiled encoder was not built, so the second pass compares nothing"


if __name__ == "__main__":
    sys.exit(main())
