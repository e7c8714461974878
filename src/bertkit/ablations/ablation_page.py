"""The page of an ablation: what was asked, tables with paired intervals, pictures, what the paper found, and limits."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, ClassVar

from bertkit.ablations.plan import CURVES, Plan
from bertkit.ablations.unit_results import Comparison, UnitResult, compare
from bertkit.errors import MissingExtraError
from bertkit.system.atomic_files import write_atomically
from bertkit.system.console import aligned, say
from bertkit.visualize.ablation_pictures import Interval, difference_picture, loss_picture
from bertkit.visualize.drawn import Drawn, inline
from bertkit.visualize.figures import save_figure
from bertkit.visualize.page import document

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE, HTML, NUMBERS = "README.md", "ablation.html", "results.json"
HEADER = ("", "mean", "sd", "difference", "95 % interval", "")
#: How the intervals are made, for the reader.
METHOD = (
    "Differences are from the base, or from the arm that a row names, and are paired: the same seeds and the same "
    "scored examples on both sides. An interval is the middle 95 % "
    "of 1,000 bootstrap samples of seeds and examples; with few seeds it says little about other seeds. 'No difference "
    "seen' means that it contains 0."
)


class Ablation(Drawn):
    """What was found of a plan so far."""

    title: ClassVar[str] = "Ablation"

    def __init__(self, plan: Plan, results: Sequence[UnitResult]) -> None:
        self.plan, self.results = plan, list(results)
        self.tables = {name: compare(self.results, name, partial(plan.base_of, measure=name)) for name in plan.measures}

    @property
    def num_units(self) -> int:
        """Arms times seeds, of arms that something is measured of."""
        return self.plan.head.seeds * sum(bool(self.plan.measured(name)) for name in self.plan.arms)

    def to_dict(self) -> dict[str, Any]:
        head = self.plan.head
        tables = {name: [{**asdict(row), "verdict": row.verdict} for row in rows] for name, rows in self.tables.items()}
        return {
            "plan": self.plan.name,
            "finished": len(self.results),
            "units": self.num_units,
            **head.model_dump(),
            "paper": {name: dict(arm.paper) for name, arm in self.plan.arms.items() if arm.paper},
            "measures": tables,
            "runs": [{**asdict(result), "drawn": {}} for result in self.results],
        }

    def render(self) -> str:
        lines = [self.plan.head.title, self._progress()]
        for name, rows in self.tables.items():
            if rows:
                cells = [self._cells(row) for row in rows]
                lines += ["", self.plan.measures[name].title, *(f"  {x}" for x in aligned([HEADER, *cells]))]
        return "\n".join(lines)

    def figures(self) -> dict[str, Figure]:
        """A picture of each measure by its name, and ``curves``: held-out loss by step."""
        found = {}
        for name, rows in self.tables.items():
            compared = [Interval(self._compared(row), row.difference, row.interval) for row in rows if row.shared]
            if compared:
                base = self._title(self.plan.head.base)
                found[name] = difference_picture(compared, title=self.plan.measures[name].title, base=base)
        curves: dict[str, list[list[tuple[float, float]]]] = {}
        for result in self.results:
            points = [
                (each["step"], each["dev_masked_lm_loss"]) for each in result.curve if "dev_masked_lm_loss" in each
            ]
            if points:
                curves.setdefault(self._title(result.arm), []).append(points)
        if curves:
            found[CURVES] = loss_picture(curves)
        return found

    def figure(self) -> Figure:
        drawn = self.figures()
        return next(iter(drawn.values())) if drawn else difference_picture([], title=self.plan.head.title, base="")

    def page(self) -> str:
        head = self.plan.head
        parts = [f"<p>{html.escape(text)}</p>" for text in (self._claim(), self._progress(), METHOD)]
        for name, rows in self.tables.items():
            if rows:
                parts.append(f"<h2>{html.escape(self.plan.measures[name].title)}</h2>")
                parts.append(_html_table([HEADER, *(self._cells(row) for row in rows)]))
        parts += [f'<figure class="paper">{inline(figure)}</figure>' for figure in self.figures().values()]
        if paper := self._paper():
            parts.append(f"<h2>What the paper found: {html.escape(head.source)}</h2>{_html_table(paper)}")
        parts.append(f"<h2>What this scale can and cannot say</h2><p>{html.escape(head.limits)}</p>")
        parts.append(f"<h2>The same again</h2><pre>{html.escape(self._command())}</pre>")
        return document(head.title, "\n".join(parts))

    def markdown(self, pictures: Sequence[str]) -> str:
        """The page as Markdown, with these pictures beside it."""
        head = self.plan.head
        lines = [f"# {head.title}", "", self._claim(), "", self._progress(), "", METHOD, ""]
        for name, rows in self.tables.items():
            if rows:
                lines += [f"## {self.plan.measures[name].title}", ""]
                lines += [*_markdown_table([HEADER, *(self._cells(row) for row in rows)]), ""]
                lines += [f"![{name}]({name}.png)", ""] if name in pictures else []
        if CURVES in pictures:
            lines += ["## Held-out loss during pre-training", "", f"![{CURVES}]({CURVES}.png)", ""]
        if paper := self._paper():
            lines += [f"## What the paper found: {head.source}", "", *_markdown_table(paper), ""]
        lines += ["## What this scale can and cannot say", "", head.limits, "", "## The same again", ""]
        lines += [f"    {self._command()}", ""]
        return "\n".join(lines)

    def _claim(self) -> str:
        """What the paper found; its table follows where arms have its numbers, else it is named here."""
        return self.plan.head.claim if self._paper() else f"{self.plan.head.claim} See {self.plan.head.source}."

    def _command(self) -> str:
        plan = self.plan
        model = "" if plan.start is None else f" --model {quote(plan.start)}"
        seed = f" --seed {plan.first_seed}" if plan.first_seed else ""
        return f"bertkit ablate {quote(plan.asked)} --data DATA{model}{seed} --out DIR"

    def _progress(self) -> str:
        cost = self.plan.cost()
        done = f"{len(self.results)} of {self.num_units} runs (arm and seed) are finished"
        unfinished = "" if len(self.results) == self.num_units else "; what is below may change"
        tokens = f"; pre-training sees {cost.tokens / 1e6:,.0f} million tokens in all" if cost.tokens else ""
        return f"{done}{unfinished}{tokens}."

    def _title(self, arm: str) -> str:
        return self.plan.arms[arm].title

    def _compared(self, row: Comparison) -> str:
        """The arm of a row, and what it is compared with if that is not the plan's base."""
        other = row.base not in (None, self.plan.head.base)
        return f"{self._title(row.arm)} (from: {self._title(str(row.base))})" if other else self._title(row.arm)

    def _cells(self, row: Comparison) -> tuple[str, ...]:
        spread = "" if row.sd is None else f"{row.sd:.4f}"
        several = f"{row.mean:.4f}", spread
        if row.difference is None:
            return self._title(row.arm), *several, "", "", "base" if row.arm == self.plan.head.base else ""
        between = "" if row.interval is None else f"{row.interval[0]:+.4f} to {row.interval[1]:+.4f}"
        seeds = f" ({row.shared} seed{'s' if row.shared > 1 else ''})" if row.shared < self.plan.head.seeds else ""
        return self._compared(row), *several, f"{row.difference:+.4f}", between, row.verdict + seeds

    def _paper(self) -> list[tuple[str, ...]]:
        arms = {name: arm.paper for name, arm in self.plan.arms.items() if arm.paper}
        columns = list(dict.fromkeys(key for paper in arms.values() for key in paper))
        rows = [(self._title(name), *(_number(paper.get(key)) for key in columns)) for name, paper in arms.items()]
        return [("", *columns), *rows] if rows else []


def write_page(found: Ablation, folder: Path) -> None:
    """``README.md``, ``ablation.html``, ``results.json`` and, where matplotlib is installed, the pictures."""
    found.save(folder / NUMBERS)
    pictures: Mapping[str, Figure] = {}
    try:
        pictures = found.figures()
        for name, figure in pictures.items():
            save_figure(figure, folder / f"{name}.png")
        found.save(folder / HTML)
    except MissingExtraError as error:
        say(f"no pictures and no HTML page: {error}")
    write_atomically(folder / PAGE, found.markdown(list(pictures)))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    first, *others = [f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows]
    return [first, f"|---|{'--:|' * (len(rows[0]) - 1)}", *others]


def _html_table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    lines = ["<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in body]
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
