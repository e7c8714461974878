"""A page for each file of measurements, with a list of machines, dates and commits; and the check of ``results.md``.

Each figure in a result of that page must be a number of the files that its row names, rounded as it is there, or be
computed from such numbers by a formula of ``derived-figures.toml``.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

from fact_pages import escaped

DOCS = Path(__file__).parents[1]
RESULTS = DOCS.parent / "benchmarks" / "results"
NUMBER = re.compile(r"(?<!\w)(?:\d[\d,]*(?:\.\d+)?|\.\d+)")


def result_pages() -> dict[str, str]:
    """Path of each page -> its Markdown: the file as its program wrote it."""
    files = sorted(RESULTS.glob("*.md"))
    texts = {file.stem: file.read_text(encoding="utf-8") for file in files}
    commits = _commits()
    rows = "\n".join(
        f"| [{escaped(_title(text))}]({name}.md) | {' | '.join(_where(text))} | {commits.get(name, '')} |"
        for name, text in texts.items()
    )
    tree = "\n".join(texts)
    index = (
        "# Measurements\n\nEvery file of `benchmarks/results/`, as the program that measured wrote it, and its last "
        f"commit.\n\n| measured | date | processor | version | commit |\n|---|---|---|---|---|\n{rows}\n\n"
        f"```{{toctree}}\n:hidden:\n\n{tree}\n```\n"
    )
    return {"measurements/index.md": index, **{f"measurements/{name}.md": text for name, text in texts.items()}}


def _title(text: str) -> str:
    return text.partition("\n")[0].lstrip("# ")


def _where(text: str) -> list[str]:
    """Date, processor and version, as the file says them."""
    found = [re.search(rf"^{name}: *(.+)$", text, re.MULTILINE) for name in ("date", "cpu", "bertkit")]
    day = re.search(r"20\d\d-\d\d-\d\d", text)
    said = [match[1] if match else "" for match in found]
    return [escaped(each) for each in (said[0] or (day[0] if day else ""), said[1].partition(" (")[0], said[2])]


def _commits() -> dict[str, str]:
    """File of measurements -> the commit that brought it as it is; empty where there is no repository."""
    command = ["git", "log", "--format=commit %h", "--name-only", "--", str(RESULTS)]
    try:
        done = subprocess.run(command, cwd=DOCS, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # there is no git
        return {}
    found: dict[str, str] = {}
    for part in done.stdout.split("commit ")[1:]:
        commit, *names = part.split()
        for name in names:
            found.setdefault(Path(name).stem, commit)
    return found


def figure_errors(docs: Path = DOCS) -> Iterator[str]:
    """What is wrong in the table of ``results.md``: files that are gone, and figures that no file has."""
    derived = tomllib.loads((docs / "derived-figures.toml").read_text(encoding="utf-8"))
    lines = (docs / "results.md").read_text(encoding="utf-8").splitlines()
    files: list[str] = []
    for number, line in enumerate(lines, 1):
        if line.count("|") != 5 or set(line) <= set("|-: ") or "`benchmarks/results/`" in line:
            continue
        *_, result, named, _ = line.split("|")
        files = [*(files if "same" in named else ()), *re.findall(r"`([\w.-]+\.md)`", named)]
        if gone := [name for name in files if not (RESULTS / name).exists()]:
            yield f"docs/results.md:{number}: benchmarks/results/ has no {', '.join(gone)}"
            continue
        have = [_decimal(each) for name in files for each in NUMBER.findall((RESULTS / name).read_text("utf-8"))]
        for figure in NUMBER.findall(result):
            if not _is_there(figure, have) and not _is_derived(figure, derived.get(figure, ""), have):
                yield (
                    f"docs/results.md:{number}: {figure} is no number of {', '.join(files) or 'a file'}; "
                    "mend it, or give the formula in docs/derived-figures.toml"
                )


def _decimal(figure: str) -> Decimal:
    return Decimal(figure.replace(",", ""))


def _is_there(figure: str, have: Sequence[Decimal]) -> bool:
    """Whether one of the numbers is the figure, at the figure's digits; a half may have been rounded either way."""
    wanted = _decimal(figure)
    half = Decimal(5).scaleb(wanted.as_tuple().exponent - 1)
    return any(abs(each - wanted) <= half and _digits(each) >= _digits(wanted) for each in have)


def _digits(number: Decimal) -> int:
    return -int(number.as_tuple().exponent)


def _is_derived(figure: str, formula: str, have: Sequence[Decimal]) -> bool:
    """Whether a formula of numbers that are there (besides 100 and 1000, for other units) gives the figure."""
    parts = [each for each in NUMBER.findall(formula) if each not in ("100", "1000")]
    if not parts or not all(_is_there(each, have) for each in parts) or re.search(r"[^\d. ()+*/-]", formula):
        return False
    return _is_there(figure, [Decimal(repr(round(eval(formula), 9))) + Decimal("0.000000000000")])
