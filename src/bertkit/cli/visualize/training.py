"""``bertkit visualize training``: curves of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Common
from bertkit.cli.visualize.picture_options import Out, check_out, show


def training(
    *run: Annotated[Path, Parameter(help="Run folders of finetune, pretrain, adapt or distill.")],
    out: Out = None,
    common: Common = Common(),
) -> None:
    """Show the curves of one or more training runs.

    Loss, scores on dev, learning rate, gradient norm and speed, as far as the log of
    a run has them. A run may still be training.

    For example:

        bertkit visualize training run --out curves.png
        bertkit visualize training run-a run-b --out curves.html
    """
    common.refuse_device("a log needs no model")
    common.begin_without_torch()
    check_out(out, own_page=False)
    from bertkit.insight.run_curves import training as curves_of

    show(curves_of(*run), out, common)
