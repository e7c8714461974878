"""``bertkit predict-status``: how far a folder of parts is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Common


def predict_status(
    folder: Annotated[Path, Parameter(help="Folder that 'bertkit predict' or 'bertkit embed' writes parts to.")],
    /,
    *,
    common: Common = Common(),
) -> None:
    """Show what is done, under way and failed in a folder of parts.

    Also which blocks were computed with another variant of the encoder than the
    run's. Reads the manifests only, so it may be called at any time, anywhere.

    For example:

        bertkit predict-status labels
        bertkit predict-status labels --json
    """
    common.refuse_device("nothing is computed")
    from bertkit.bulk.status import status_of

    common.report(status_of(folder))
