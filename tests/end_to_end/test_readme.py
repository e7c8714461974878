"""The README and the tour run as they are written, in one folder, from top to bottom, with the results they state."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import openpyxl
import pytest

from bertkit.cli import main

README = Path(__file__).resolve().parents[2] / "README.md"
PAGES = [README, README.parent / "docs" / "tour.md", README.parent / "docs" / "results.md"]
TEXTS = [page.read_text(encoding="utf-8") for page in PAGES]
BLOCKS = [block for text in TEXTS for block in re.findall(r"^```(\w+)\n(.*?)^```", text, flags=re.M | re.S)]
TYPED = [
    line.split("#")[0].strip() for language, block in BLOCKS if language == "console" for line in block.splitlines()
]


def test_the_readme_is_short_and_installs_before_it_makes():
    assert len(TEXTS[0].splitlines()) <= 150
    assert TYPED.index("pip install bertkit") < TYPED.index("make demo") < TYPED.index("make test")


def test_speeds_on_a_gpu_are_not_claimed_before_they_are_measured():
    """Every figure under "How fast" has a file, and while no file is of a GPU, the README says so."""
    figures = TEXTS[0].split("## How fast, how good")[1].split("\n## ")[0]
    measured = any((README.parent / "benchmarks" / "results").glob("gpu*.md"))
    assert ("On a GPU: not measured in this state; `benchmarks/gpu_all.py` is ready to run" in figures) is not measured


def test_the_command_in_a_terminal_answers(capsys: pytest.CaptureFixture[str]):
    (command,) = [line for line in TYPED if line.startswith("bertkit similarity")]
    assert main(shlex.split(command)[1:]) == 0
    scores = [(float(line.split()[0]), line) for line in capsys.readouterr().out.splitlines()]
    assert max(scores)[1].endswith("I forgot my login")


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_make_says_what_it_does_before_anything_else_and_pip_talks(tmp_path: Path):
    """With an environment that is still to be made, without making it."""
    planned = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "demo", f"VENV={tmp_path / 'new'}"],
        cwd=README.parent,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert planned[0].startswith("echo ")
    assert not [line for line in planned if re.search(r"pip install.* (-q|--quiet)\b", line)]
    assert planned[-1] == f"{tmp_path / 'new'}/bin/bertkit demo"
    assert (
        subprocess.run(["make", "--dry-run", "test"], cwd=README.parent, capture_output=True, check=False).returncode
        == 0
    )


#: Runs the blocks in a process of its own: those of Python in one namespace, the shell's with the variables of earlier
#: ones. Writes what each has printed.
RUN_BLOCKS = """
import contextlib, io, json, re, subprocess, sys
names, variables, outputs = {"__name__": "__main__"}, [], []
for language, block in json.load(sys.stdin):
    if language == "bash":
        command = ["bash", "-euc", "\\n".join([*variables, block])]
        outputs.append(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        variables += re.findall(r"(?m)^[A-Z]+=.*", block)
    else:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(block, names)
        outputs.append(printed.getvalue())
print(json.dumps(outputs))
"""


@pytest.mark.campaign  # the tutorials and their tests have one of each kind
def test_the_tour_runs(tmp_path):
    """From top to bottom, the Python blocks as one script; names live on through the tour, in the shell too."""
    environment = {
        **{name: value for name, value in os.environ.items() if name != "MINILM"},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HF_HUB_OFFLINE": "1",
    }
    blocks = [(language, block) for language, block in BLOCKS if language not in ("text", "console")]
    assert {language for language, _ in blocks} == {"bash", "python"}
    outputs = json.loads(run([sys.executable, "-c", RUN_BLOCKS], tmp_path, environment, json.dumps(blocks)))
    printed = [output for (language, _), output in zip(blocks, outputs, strict=True) if language == "bash"]
    said = "".join(output for (language, _), output in zip(blocks, outputs, strict=True) if language == "python")
    assert all(block in said for language, block in BLOCKS if language == "text")
    assert "['delivery']" in said
    classified, untrained, searched, _, in_blocks, tagged, _, inside, pretrained = printed
    assert inside.startswith("billing (predicted)")
    assert {"why.html", "layers.json", "curves.html", "map.html", "attention.html"} <= {
        p.name for p in tmp_path.iterdir()
    }
    assert re.findall(r"(?m)^(\w+) 0\.\d{4}\t", classified) == ["delivery", "billing", "login"]
    bert, tfidf = map(float, re.search(r"accuracy +([\d.]+) +([\d.]+)", classified).groups())
    assert bert > 0.7 > 0.5 > tfidf
    assert re.findall(r"(?m)^(\w+) 0\.\d{4}\t", untrained) == ["delivery", "billing", "login"]
    scores = {method: float(score) for method, score in re.findall(r"(?m)^  ([\w-]+) +(0\.\d{4})", untrained)}
    assert scores["embedding"] == round(28 / 30, 4)
    assert 0.4 > scores["majority"] > scores["tf-idf"]
    assert re.findall(r"requests\.csv:\d+\t(.+)", searched)[0] == "The box was crushed"
    assert "30 texts in 3 clusters" in searched
    topics = {word for line in re.findall(r"(?m)^  \d  .*", searched) for word in line.split("  ")[-1].split(", ")}
    assert {"password", "invoice", "payment"} <= topics
    assert not {"it", "how", "since", "has", "the", "you", "to", "was", "not"} & topics
    assert re.search(r"group \d+: 2 texts\n  1\.0000\trequests\.csv:22\t.*\n  0\.\d{4}\trequests\.csv:24\t", searched)
    _, *rows = openpyxl.load_workbook(tmp_path / "labelled.xlsx").active.iter_rows(values_only=True)
    assert [row[1] for row in rows] == ["delivery", "billing", "login"]
    assert (tmp_path / "clusters.csv").read_bytes().startswith(b"\xef\xbb\xbftext;")
    assert "1 of 1 blocks done (100 %), 30 rows, 0 without" in in_blocks
    assert len((tmp_path / "all.csv").read_text(encoding="utf-8").splitlines()) == 1 + 30
    assert re.findall(r"(?m)^  (\w+) .* (Ada Lee|Madrid)$", tagged) == [("PER", "Ada Lee"), ("LOC", "Madrid")]
    assert "unigram_entropy" in pretrained
    assert "masked_lm_loss" in pretrained
    assert len((tmp_path / "labels.jsonl").read_text(encoding="utf-8").splitlines()) == 3
    assert list((tmp_path / "run").glob("model*.safetensors"))


def test_every_path_and_results_file_exists():
    for path in re.findall(r"`((?:src|docs|examples|benchmarks)/[\w./-]*)`", "".join(TEXTS)):
        assert (README.parent / path).exists(), path
    names = re.findall(r"`([\w.-]+_(?:epyc|xeon)[\w.-]+\.md)`", "".join(TEXTS))
    assert len(names) > 30
    for name in names:
        assert (README.parent / "benchmarks" / "results" / name).exists(), name
    for page, text in zip(PAGES, TEXTS, strict=True):
        for picture in re.findall(r"!\[.*?\]\((.*?)\)", text):
            assert (page.parent / picture).stat().st_size < 60_000
        for link in re.findall(r"(?<!!)\[[^]]*\]\(([^)#]*)(?:#[\w-]*)?\)", text):
            assert (page.parent / link).exists(), link


def test_every_path_that_contributors_are_sent_to_exists():
    source = README.parent / "src" / "bertkit"
    text = README.with_name("CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = [path for path in re.findall(r"`([a-z_]+/[\w./-]*)`", text) if not re.search("NAME|NNNN|^build/", path)]
    assert len(paths) > 20
    for path in paths:
        assert (source / path).exists() or (README.parent / path).exists(), path


def run(command: list[str], folder: Path, environment: dict[str, str], given: str) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment, input=given, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
