"""``bertkit visualize confusion``: confusion matrix and calibration."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Common
from bertkit.cli.visualize.picture_options import Out, check_out, show


def confusion(
    run: Annotated[str, Parameter(help="Run folder of 'bertkit finetune'.")],
    /,
    *,
    split: Annotated[
        str, Parameter(help="dev, or what 'bertkit evaluate' scored: the NAME in its evaluation-NAME.json.")
    ] = "dev",
    out: Out = None,
    common: Common = Common(),
) -> None:
    """Show what an evaluated run confuses, and how far its probabilities can be trusted.

    Reads the predictions in the run folder; no model is loaded. The confusion matrix
    has a row for each true label. The calibration curve shows how often answers of a
    probability are right: below the diagonal, the model is too sure.

    For example:

        bertkit visualize confusion run --out confusion.png
        bertkit visualize confusion run --split test --json
    """
    common.refuse_device("predictions are read, not computed")
    common.begin_without_torch()
    check_out(out, own_page=False)
    from bertkit.insight.run_evaluation import confusion as confusion_of

    show(confusion_of(run, split), out, common)
