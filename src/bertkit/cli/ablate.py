"""``bertkit ablate``: an experiment of the BERT paper at a small size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from bertkit.cli.amounts import seconds_of
from bertkit.cli.common_options import COMMON_GROUP, Output, write_json, write_line
from bertkit.errors import ConfigError
from bertkit.system.console import aligned, set_quiet

if TYPE_CHECKING:
    from bertkit.ablations.plan import Plan


def ablate(
    plan: Annotated[str | None, Parameter(help="TOML file, or a name that --list shows.")] = None,
    /,
    *,
    out: Annotated[Path | None, Parameter(alias="-o", help="Folder to write; new, or of the same plan.")] = None,
    data: Annotated[Path | None, Parameter(help="Folder that the plan's files lie in; default: here.")] = None,
    model: Annotated[
        str | None, Parameter(alias="-m", help="Model for the arms that begin with a finished one.")
    ] = None,
    shared: Annotated[
        Path | None,
        Parameter(help="Folder of text and pre-trained models, which several plans can share; default: OUT/shared."),
    ] = None,
    shard: Annotated[str | None, Parameter(help="Run one part of several, such as 1/3, on this machine.")] = None,
    max_time: Annotated[
        str | None, Parameter(help="Stop after this time (90s, 20m, 1h30m); the same command resumes.")
    ] = None,
    list_plans: Annotated[
        bool, Parameter(name="--list", negative=(), help="Show the plans of the package and what they cost.")
    ] = False,
    seed: Annotated[int, Parameter(group=COMMON_GROUP, help="First seed; the plan says how many follow.")] = 0,
    output: Output = Output(),
) -> None:
    r"""Repeat an experiment of the BERT paper in small: arms that differ in one thing.

    Each arm is pre-trained with the same budget and seeds, then measured: hidden
    words, tags, pairs of sentences. OUT/README.md and OUT/ablation.html show means,
    paired intervals against the plan's base arm, pictures, what the paper found, and
    what this scale can say. Finished arms are kept; if stopped, the same command
    resumes. With --shard, machines that share OUT (or whose OUT/results are copied
    together) run a part each; the command without --shard then writes the page.

    For example:

        bertkit ablate --list
        bertkit ablate left-to-right --data data --out ltr --max-time 2h
        bertkit ablate masking --data data --out masking --shard 1/3
        bertkit ablate feature-based --data data --model DIR --out features
    """
    from bertkit.ablations.plan import load_plan, plan_names

    set_quiet(output.quiet)
    if list_plans:
        if plan is not None or out is not None:
            raise ConfigError("--list stands alone; leave PLAN and --out out")
        _list([load_plan(name) for name in plan_names()], as_json=output.json)
        return
    if plan is None:
        raise ConfigError(f"give a plan, a TOML file or one of: {', '.join(plan_names())}; see --list")
    if out is None:
        raise ConfigError("give --out, the folder to write")
    chosen = load_plan(plan, start=model, first_seed=seed)
    part = None if shard is None else _shard_of(shard)
    seconds = None if max_time is None else seconds_of(max_time)
    from bertkit.ablations.experiment import ablate as run_plan
    from bertkit.system.device import find_device

    device = str(find_device(output.device))
    found = run_plan(chosen, out, data=data, shared=shared, shard=part, max_seconds=seconds, device=device)
    output.report(found, folder=str(out))


def _list(plans: list[Plan], *, as_json: bool) -> None:
    rows = [("plan", "trainings", "tokens", "core hours", "")]
    for plan in plans:
        cost = plan.cost()
        if as_json:
            write_json({"plan": plan.name, "summary": plan.summary, **cost._asdict()})
        hours = f"{cost.hours:.1f}" if cost.trainings else "fine-tuning only"
        rows.append((plan.name, str(cost.trainings), f"{cost.tokens / 1e6:,.0f} M", hours, plan.summary))
    if not as_json:
        for line in aligned(rows):
            write_line(line)


def _shard_of(text: str) -> tuple[int, int]:
    number, slash, count = text.partition("/")
    if not (slash and number.isascii() and number.isdigit() and count.isascii() and count.isdigit()):
        raise ConfigError(f"--shard {text!r}: write the part and the number of parts, such as 1/3")
    return int(number), int(count)
