"""Runs the code blocks of the pages and keeps what they print.

``python docs/_ext/run_blocks.py [--all | --check] [PAGE...]``

The blocks of a page that are marked ``python`` or ``bash`` are run from top to bottom in one new folder: those of
Python in one namespace, the shell's with the variables of earlier ones. Other blocks (``console``, ``text``) are only
shown. The column ``bertkit`` of a table is a block of Python, too, of a line each row.

``docs/outputs/PAGE.json`` keeps outputs and seconds by a key: a hash of the block and of all before it on the page, of
the page's own data (``docs/data/PAGE/``, copied into the folder), and of bertkit's version. A page with a key that is
not kept is stale: it is run, or with ``--check`` reported. Pages that are not stale are run again while they are quick
(``BUDGET`` seconds together, the quickest first), and must print the same words; numbers may differ.

A picture that a page shows as ``images/PAGE/NAME`` is the file ``NAME`` that its blocks write; it is kept, too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from shutil import copytree
from typing import NamedTuple

from bertkit import __version__
from chooser import chooser_pages

DOCS = Path(__file__).parents[1]
OUTPUTS, DATA, PICTURES = DOCS / "outputs", DOCS / "data", DOCS / "images"
#: Pages with blocks that tests run already, with stricter checks than ours, and pages that are lists of notes.
ELSEWHERE = (
    "tour.md", "batch.md", "habits.md", "backends.md", "results.md", "decisions/",
    "measurements/", "reference/",
)  # fmt: skip
#: Seconds of pages that are run though nothing of them has changed.
BUDGET = 30.0
LANGUAGES = ("python", "bash")
#: A line that says how far a command is; it comes when some seconds have passed.
PROGRESS = re.compile(r"(?m)^.+: [\d,]+/[\d,]+ \w+ \(\d+ %\).*\n")
#: A block between fences, or a table with a column of Python: its header, the line below that, and its rows.
BLOCK = re.compile(r"^```(\w+)\n((?s:.*?))^```|^(\|.*\| bertkit \|.*)\n\|[-| ]+\n((?:\|.*\n)+)", flags=re.M)


class Block(NamedTuple):
    """A block of a page: where its text begins (line, from 1), what it is written in, its text, and its key."""

    line: int
    language: str
    text: str
    key: str


def pages() -> Iterator[str]:
    """Pages whose blocks are run here, as paths below ``docs/``."""
    written = (path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md")))
    for name in dict.fromkeys((*chooser_pages(), *written)):
        if not name.startswith((*ELSEWHERE, "data/")) and blocks_of(name):
            yield name


def _text_of(page: str) -> str:
    return chooser_pages().get(page) or (DOCS / page).read_text(encoding="utf-8")


def pictures_of(page: str) -> list[str]:
    """The files of pictures that the blocks of a page write."""
    return re.findall(rf"!\[[^\]]*\]\((?:\.\./)*images/{Path(page).stem}/([^)\s]+)\)", _text_of(page))


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page that are run."""
    text = _text_of(page)
    chain = hashlib.sha256(f"{__version__}\n{_data_of(page)}".encode())
    found = []
    for each in BLOCK.finditer(text):
        language, block, header, rows = each.groups()
        if header:
            language, block = "python", _cells(header, rows)
        if language in LANGUAGES:
            chain.update(f"\n{language}\n{block}".encode())
            line = text.count("\n", 0, each.start()) + (3 if header else 2)
            found.append(Block(line, language, block, chain.hexdigest()[:20]))
    return found


def _cells(header: str, rows: str) -> str:
    """The code of a table's column ``bertkit``, a line for each row."""
    column = [cell.strip() for cell in header.split("|")].index("bertkit")
    cells = [row.split("|")[column] for row in rows.splitlines()]
    return "".join("; ".join(re.findall(r"`([^`]+)`", cell)) + "\n" for cell in cells)


def _data_of(page: str) -> str:
    files = sorted(path for path in (DATA / Path(page).stem).rglob("*") if path.is_file())
    return "".join(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n" for path in files)


def kept(page: str) -> dict[str, dict[str, object]]:
    """Key of a block -> ``output`` and ``seconds``, as the last run left them."""
    path = _outputs_path(page)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _outputs_path(page: str) -> Path:
    return OUTPUTS / f"{page.removesuffix('.md').replace('/', '--')}.json"


def stale(page: str) -> list[Block]:
    """Blocks of which no output is kept; all, if a picture is missing."""
    have = kept(page) if all((PICTURES / Path(page).stem / name).exists() for name in pictures_of(page)) else {}
    return [block for block in blocks_of(page) if block.key not in have]


#: Runs in a process of its own. Reads the blocks, and writes after each one its output and the seconds of a processor
#: that it took, so that a failure loses none.
PROGRAM = r"""
import contextlib, io, json, os, re, subprocess, sys, traceback
answers = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what blocks start and leave running prints there
names, variables = {"__name__": "__main__"}, []
for number, (line, language, block) in enumerate(json.load(sys.stdin)):
    start, failure = sum(os.times()[:4]), ""
    if language == "bash":
        command = ["bash", "-euo", "pipefail", "-c", "\n".join([*variables, block])]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        output = done.stdout
        failure = f"exit code {done.returncode}\n{done.stderr[-3000:]}" if done.returncode else ""
        variables += re.findall(r"(?m)^[A-Z]+=.*", block)
    else:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            try:
                exec(compile(block, f"block at line {line}", "exec"), names)
            except BaseException:
                failure = traceback.format_exc(limit=-2)
        output = printed.getvalue()
    print(json.dumps([output, round(sum(os.times()[:4]) - start, 1), failure]), file=answers, flush=True)
    if failure:
        break
"""


def run(page: str, *, keeps_pictures: bool = False) -> tuple[dict[str, dict[str, object]], str]:
    """Run all blocks of a page; returns the outputs to keep, and what failed (``""``: nothing)."""
    blocks, found = blocks_of(page), {}
    with tempfile.TemporaryDirectory() as folder:
        if (DATA / Path(page).stem).is_dir():
            copytree(DATA / Path(page).stem, folder, dirs_exist_ok=True)
        answers = [json.loads(line) for line in _answers(json.dumps([block[:3] for block in blocks]), folder)]
        for block, (output, seconds, failure) in zip(blocks, answers, strict=False):
            if failure:
                return found, f"docs/{page}:{block.line}: the block failed: {failure}"
            found[block.key] = {"output": without_chance(output, folder), "seconds": seconds}
        if len(answers) < len(blocks):
            return found, f"docs/{page}:{blocks[len(answers)].line}: the process ended in this block"
        missing = [name for name in pictures_of(page) if not Path(folder, name).exists()]
        if missing:
            return found, f"docs/{page}: no block writes {missing[0]}, which the page shows"
        if keeps_pictures:
            _keep_pictures(page, Path(folder))
    return found, ""


def _keep_pictures(page: str, folder: Path) -> None:
    for name in pictures_of(page):
        path = PICTURES / Path(page).stem / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_few_colors(folder / name) if path.suffix == ".png" else (folder / name).read_bytes())


def _few_colors(path: Path) -> bytes:
    """A PNG with 64 colors, a quarter of its size; drawings do not need more."""
    from PIL import Image

    small = BytesIO()
    Image.open(path).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return small.getvalue()


def _answers(blocks: str, folder: str) -> list[str]:
    """Lines of the program for blocks; what they have started and not stopped (a server) ends with it."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as lines:
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            cwd=folder,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=lines,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        program.communicate(blocks)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGTERM)
        lines.seek(0)
        return lines.readlines()


def environment() -> dict[str, str]:
    """Variables of the process in which blocks run."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HF_HUB_OFFLINE": "1", "COLUMNS": "100", "NO_COLOR": "1"}


def without_chance(output: str, folder: str) -> str:
    """An output without the folder in which it was made, and without lines on progress."""
    return PROGRESS.sub("", output.replace(folder, "."))


def words(output: object) -> str:
    """An output without numbers and their formats, which go by the processor, and without the spaces that they move."""
    return " ".join(re.sub(r"\b(?:bf|fp|tf)\d+\b|[+-]?\d+(?:[.,]\d+)*(?:e-?\d+)?", "#", str(output)).split())


def main(arguments: list[str]) -> int:
    """Run what is asked for; returns 1 where a page failed or is stale."""
    asked = [each for each in arguments if not each.startswith("--")] or list(pages())
    old = {page: stale(page) for page in asked}
    if "--check" in arguments:
        errors = [
            f"docs/{page}:{blocks[0].line}: no output is kept of this block; run 'make docs'"
            for page, blocks in old.items()
            if blocks
        ]
        print("\n".join(errors), file=sys.stderr)
        return int(bool(errors))
    errors, left = [], BUDGET
    for page in sorted(asked, key=lambda each: (not old[each], _seconds(each))):
        if old[page] or "--all" in arguments or _seconds(page) <= left:
            start = time.perf_counter()
            errors += _run_and_keep(page, is_stale=bool(old[page]))
            left -= 0 if old[page] else time.perf_counter() - start
    print("\n".join(errors), file=sys.stderr)
    return int(bool(errors))


def _seconds(page: str) -> float:
    return sum(float(str(each["seconds"])) for each in kept(page).values())


def _run_and_keep(page: str, *, is_stale: bool) -> Iterator[str]:
    print(f"docs/{page}: running {len(blocks_of(page))} blocks", flush=True)
    before = kept(page)
    found, failure = run(page, keeps_pictures=is_stale)
    if failure:
        yield failure
        return
    for block in blocks_of(page):
        if not is_stale and words(before[block.key]["output"]) != words(found[block.key]["output"]):
            yield (
                f"docs/{page}:{block.line}: prints other words than those that are kept; if they are right, delete "
                f"{_outputs_path(page).relative_to(DOCS.parent)} and run 'make docs'"
            )
    if is_stale:
        OUTPUTS.mkdir(exist_ok=True)
        text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
        _outputs_path(page).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
