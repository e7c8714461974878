"""``bertkit visualize errors``: where a run is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Common
from bertkit.cli.visualize.picture_options import Out, check_out, show
from bertkit.errors import ConfigError


def errors(
    run: Annotated[str, Parameter(help="Run folder of 'bertkit finetune', of texts with one label each.")],
    /,
    *,
    split: Annotated[
        str, Parameter(help="dev, or what 'bertkit evaluate' scored: the NAME in its evaluation-NAME.json.")
    ] = "dev",
    top: Annotated[int, Parameter(help="Mistakes, and likely wrong labels, to list.")] = 20,
    data: Annotated[Path | None, Parameter(help="The file of the scored rows, for --column.")] = None,
    column: Annotated[
        tuple[str, ...], Parameter(help="Columns of --data whose values become slices; may be repeated.")
    ] = (),
    check_labels: Annotated[
        bool, Parameter(negative=(), help="Also look for wrong labels, by cross-validation on frozen vectors.")
    ] = False,
    encoder: Annotated[
        str | None, Parameter(help="With --check-labels: the model of these vectors; default: that of the run.")
    ] = None,
    out: Out = None,
    common: Common = Common(),
) -> None:
    """List the most confident mistakes of a run, its weak slices and likely wrong labels.

    Slices are the rows of a label, of a length, or with a value in a column of the
    file, with the 95 % interval of their accuracy. With --check-labels, a label counts
    as likely wrong where models that have not seen the row are confident of another
    one (confident learning).

    For example:

        bertkit visualize errors run --out errors.html
        bertkit visualize errors run --data dev.csv --column source
        bertkit visualize errors run --check-labels --encoder DIR --json
    """
    if encoder is not None and not check_labels:
        raise ConfigError("--encoder goes with --check-labels; give it, or leave --encoder out")
    common.begin()
    check_out(out)
    from bertkit.insight.run_errors import errors as errors_of

    found = errors_of(
        run,
        split,
        top=top,
        data=data,
        columns=column,
        check_labels=encoder or check_labels,
        seed=common.seed,
        device=common.device,
    )
    show(found, out, common)
