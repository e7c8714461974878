"""``bertkit compare``: two runs on the same rows."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Common


def compare(
    first: Annotated[str, Parameter(help="Run folder of 'bertkit finetune'.")],
    second: Annotated[str, Parameter(help="Another one, of the same task.")],
    /,
    *,
    split: Annotated[
        str, Parameter(help="dev, or what 'bertkit evaluate' scored: the NAME in the evaluation-NAME.json of both.")
    ] = "dev",
    rows: Annotated[int, Parameter(help="How many changed rows and answers to list.")] = 10,
    common: Common = Common(),
) -> None:
    """Compare two runs on the rows that both were scored on.

    Prints the main metric of both, the difference with a 95 % interval over the same
    rows of both resampled, which rows only one of them has right, and the settings
    that differ. Reads the predictions in the run folders; no model is loaded.

    For example:

        bertkit compare run-a run-b
        bertkit compare run-a run-b --split new.csv-1a2b3c4d --rows 50
    """
    common.refuse_device("predictions are read, not computed")
    common.begin_without_torch()
    from bertkit.insight.run_comparison import compare_runs

    common.report(compare_runs(first, second, split, num_shown=rows))
