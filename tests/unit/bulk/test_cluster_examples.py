"""The examples for clusters: their shells run them, up to the program, and the program takes what it is given."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from bertkit import cli
from everyday import some

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "cluster"
FILES = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
NUM_SHARDS = {"slurm.sh": 16, "kubernetes.yaml": 16, "skypilot.yaml": 4}
#: In place of the programs: each command of bertkit as a line, its words apart.
SHIMS = r"""
bertkit() { printf '%s\x1f' "$@"; echo; }
srun() { "$@"; }
ray() { while [ "$1" != -- ]; do shift; done; shift; "$@"; }
"""


def script_of(name: str) -> str:
    if name.endswith(".sh"):
        return FILES[name]
    found: Any = yaml.safe_load(FILES[name])
    if name == "skypilot.yaml":
        return str(found["run"])
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["sh", "-c"]
    return str(container["args"][0].removeprefix("exec "))


def commands(name: str, **environment: object) -> list[list[str]]:
    """What bertkit is called with."""
    given = {**os.environ, **{key: str(value) for key, value in environment.items()}}
    done = subprocess.run(
        ["bash", "-c", SHIMS + script_of(name)], env=given, capture_output=True, text=True, check=True
    )
    return [line.split("\x1f")[:-1] for line in done.stdout.splitlines()]


def taken(words: list[str]) -> dict[str, Any]:
    """The arguments of the command as its parser gives them; an error for an unknown option or a wrong value."""
    app = cli.build_app((words[0],))
    _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    return dict(bound.arguments)


def shards(name: str) -> list[str]:
    number = NUM_SHARDS[name]
    found = []
    for index in range(number):
        said = dict.fromkeys(("SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX", "SKYPILOT_NODE_RANK"), index)
        (words,) = commands(name, **said, SLURM_ARRAY_TASK_COUNT=number, SKYPILOT_NUM_NODES=number)
        found.append(taken(words)["blocks"].shard)
    return found


@pytest.mark.parametrize("name", some(NUM_SHARDS, ["skypilot.yaml"]))
def test_all_shards_are_asked_for_once(name: str) -> None:
    number = NUM_SHARDS[name]
    assert shards(name) == [f"{index}/{number}" for index in range(1, number + 1)]


def test_the_numbers_of_shards_are_those_of_the_files() -> None:
    assert f"--array=0-{NUM_SHARDS['slurm.sh'] - 1}\n" in FILES["slurm.sh"]
    job = yaml.safe_load(FILES["kubernetes.yaml"])["spec"]
    assert (job["completionMode"], job["completions"]) == ("Indexed", NUM_SHARDS["kubernetes.yaml"])
    assert job["template"]["spec"]["restartPolicy"] == "Never"  # what backoffLimitPerIndex asks for
    sky = yaml.safe_load(FILES["skypilot.yaml"])
    assert sky["num_nodes"] == NUM_SHARDS["skypilot.yaml"]
    assert sky.keys() <= {"name", "num_nodes", "resources", "file_mounts", "setup", "run", "envs", "workdir"}


def test_ray_job() -> None:
    predict, finetune = commands("ray-job.sh")
    assert taken(predict)["blocks"].engine == "ray"
    assert taken(predict)["blocks"].shard is None
    config = taken(finetune)["config"]
    assert (config.seeds, config.search, config.workers, config.engine) == (5, 20, 4, "ray")


def test_a_wrong_option_would_be_found() -> None:
    """The control of the tests above."""
    from cyclopts import CycloptsError

    with pytest.raises(CycloptsError):
        taken(["predict", "texts", "--model", "run", "--out", "labels", "--shards", "1/2"])


@pytest.mark.parametrize("name", [name for name in FILES if name != "README.md"])
def test_each_is_short_and_on_the_page(name: str) -> None:
    assert f"`{name}`" in FILES["README.md"]
    lines = [line for line in FILES[name].splitlines() if line and not re.match(r"#(?!SBATCH)", line)]
    assert len(lines) <= 20
    if name.endswith(".sh"):
        assert subprocess.run(["bash", "-n", FOLDER / name], check=False).returncode == 0
    if name.endswith(".sh") and shutil.which("shellcheck"):
        done = subprocess.run(["shellcheck", FOLDER / name], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
