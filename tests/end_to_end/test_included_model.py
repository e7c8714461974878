"""The model in the package, without a network: every command that it is made for, from its name alone.

What it can do is measured in ``benchmarks/``; here it must only be clearly better than one that has learned nothing.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from bertkit import AutoModelForMaskedLM, AutoTokenizer
from bertkit.inference.protocol import model_hash
from bertkit.system.model_sources import INCLUDED, INCLUDED_FOLDER

ROOT = Path(__file__).resolve().parents[2]
MONTHS = set("january february march april may june july august september october november december".split())
ROWS = [
    ("billing", "I was charged twice this month"),
    ("billing", "Please refund my last payment"),
    ("billing", "The price on my receipt is wrong"),
    ("billing", "Do you offer a student discount?"),
    ("billing", "Why did the fee go up?"),
    ("billing", "I want to pay by bank transfer"),
    ("billing", "The invoice lists an item twice"),
    ("billing", "How much does the larger plan cost?"),
    ("billing", "My card was charged before the trial ended"),
    ("billing", "The tax on this bill is too high"),
    ("delivery", "My parcel has not arrived"),
    ("delivery", "The courier left it with a neighbour"),
    ("delivery", "Can you ship to Norway?"),
    ("delivery", "The box was crushed on the way"),
    ("delivery", "Tracking has not moved for a week"),
    ("delivery", "Please send it to another address"),
    ("delivery", "How long does shipping by air take?"),
    ("delivery", "Half of the package is missing"),
    ("delivery", "The driver never rang the bell"),
    ("delivery", "It has been stuck at customs since Monday"),
]
COMMANDS = {
    "place": ["fill-mask", "He studied law at the [MASK] of Oxford."],
    "month": ["fill-mask", "He was born on 12 [MASK] 1950 in London."],
    "similar": [
        "similarity",
        "A cat is sleeping on the sofa.",
        "A kitten lies on the couch.",
        "The bank raised its rates.",
    ],
    "zero-shot": ["classify", "--labels", "delivery, billing", "The package was left at the wrong house."],
    "build": ["search", "build", "index", "rows.csv"],
    "found": ["search", "query", "index", "The postman has lost my package.", "--top-k", "3"],
    "topics": ["topics", "rows.csv", "--k", "2"],
    "duplicates": ["duplicates", "rows.csv", "--threshold", "0.5", "--pairs"],
    "trained": ["finetune", "csv", "--data", "rows.csv", "--out", "run", "--epochs", "2", "--batch-size", "4"],
    "verified": ["inspect", INCLUDED, "--verify"],
}
#: Runs commands of bertkit in one process whose sockets lead nowhere, and writes what each has printed.
OFFLINE = """
import contextlib, io, json, socket, sys
sys.modules["matplotlib"] = None  # drawing takes longer than the training
def refuse(*_, **__):
    raise OSError("this test has no network")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = refuse
from bertkit.cli import main
printed = {}
for name, command in json.load(sys.stdin).items():
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = main(command)
    printed[name] = [code, out.getvalue()]
print(json.dumps(printed))
"""


@pytest.fixture(scope="module")
def offline(once: Callable[..., Any]) -> tuple[Path, dict[str, str]]:
    made: tuple[Path, dict[str, str]] = once("offline", lambda folder: (folder, run_offline(folder)))
    return made


@pytest.fixture
def folder(offline: tuple[Path, dict[str, str]]) -> Path:
    return offline[0]


@pytest.fixture
def printed(offline: tuple[Path, dict[str, str]]) -> dict[str, str]:
    return offline[1]


def run_offline(folder: Path) -> dict[str, str]:
    (folder / "rows.csv").write_text("label,text\n" + "".join(f'{label},"{text}"\n' for label, text in ROWS))
    unnamed = ("found", "verified")
    commands = {
        name: command if name in unnamed else [*command, "--model", INCLUDED] for name, command in COMMANDS.items()
    }
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "cache")}
    given = {"cwd": folder, "env": environment, "input": json.dumps(commands), "text": True, "check": False}
    done = subprocess.run([sys.executable, "-c", OFFLINE], capture_output=True, timeout=300, **given)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {name: code for name, (code, _) in found.items()} == dict.fromkeys(COMMANDS, 0), done.stderr
    return {name: out for name, (_, out) in found.items()}


def test_it_guesses_words(printed: dict[str, str]) -> None:
    guesses = {name: re.findall(r"(?m)^0\.\d+  (\S+)", printed[name]) for name in ("place", "month")}
    assert guesses["place"][0] == "university"
    assert guesses["month"][0] in MONTHS


def test_it_knows_what_is_alike(printed: dict[str, str]) -> None:
    alike, other = map(float, re.findall(r"(?m)^(-?\d\.\d+)\t?\s", printed["similar"]))
    assert alike > other + 0.2
    assert printed["zero-shot"].startswith("delivery ")


def test_it_finds_and_groups(printed: dict[str, str]) -> None:
    found = re.findall(r"rows\.csv:(\d+)\t", printed["found"])
    assert len(found) == 3
    assert all(ROWS[int(number) - 1][0] == "delivery" for number in found[:2])
    assert "20 texts in 2 clusters" in printed["topics"]
    assert all(float(line.split()[0]) >= 0.5 for line in printed["duplicates"].splitlines())


def test_training_starts_from_it(folder: Path, printed: dict[str, str]) -> None:
    """With the hash of its weights on record; few steps leave most of them nearly where they were."""
    start = json.loads((folder / "run" / "metrics.json").read_text())["protocol"]["start_checkpoint"]
    weights = INCLUDED_FOLDER / "model.safetensors"
    assert start == {"name": INCLUDED, "sha256": model_hash(INCLUDED_FOLDER), "from_hub": False}
    (trained,) = (load_file(file) for file in (folder / "run").glob("model*.safetensors"))
    assert {tensor.dtype for tensor in trained.values()} == {torch.float32}
    name = "bert.embeddings.word_embeddings.weight"
    change = (trained[name] - load_file(weights)[name].float()).abs()
    assert 0 < change.max() < 0.02
    assert "accuracy" in printed["trained"]


def test_it_computes_what_it_did_when_it_was_made(printed: dict[str, str]) -> None:
    assert f"compared with {INCLUDED_FOLDER / 'fingerprint.json'}: the same" in printed["verified"]


@pytest.mark.campaign  # that it is small enough in its wheel is seen in test_wheels.py
def test_it_is_small() -> None:
    files = [path for path in INCLUDED_FOLDER.rglob("*") if path.is_file()]
    assert sum(len(zlib.compress(path.read_bytes())) for path in files) <= 10_000_000


def test_it_is_stored_in_16_bits() -> None:
    tensors = load_file(INCLUDED_FOLDER / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float16}
    config = json.loads((INCLUDED_FOLDER / "config.json").read_text())
    assert config["architectures"] == ["BertForMaskedLM"]
    assert config["torch_dtype"] == "float32", (
        "other software computes in the type of the file unless this says otherwise"
    )
    assert (INCLUDED_FOLDER / "modules.json").is_file()


def test_its_license_and_card_are_beside_it() -> None:
    lite, card = ROOT / "packaging" / "lite", (INCLUDED_FOLDER / "README.md").read_text(encoding="utf-8")
    assert (INCLUDED_FOLDER / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    for name in ("LICENSE", "NOTICE"):
        assert (lite / name).read_bytes() == (INCLUDED_FOLDER / name).read_bytes()
    assert "license: apache-2.0" in card
    assert not re.findall(r"\{[\w ]*\}", card), "figures are missing"


def test_transformers_computes_the_same_words() -> None:
    transformers: Any = pytest.importorskip("transformers")
    text = "He studied law at the [MASK] of Oxford."
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(INCLUDED_FOLDER).eval()
    assert theirs.dtype == torch.float32
    ids = AutoTokenizer.from_pretrained(INCLUDED)(text, return_tensors="pt")
    assert ids.input_ids.tolist() == [transformers.AutoTokenizer.from_pretrained(INCLUDED_FOLDER)(text).input_ids]
    with torch.inference_mode():
        ours = AutoModelForMaskedLM.from_pretrained(INCLUDED)(**ids).logits
        torch.testing.assert_close(ours, theirs(**ids).logits, atol=1e-4, rtol=1e-4)
