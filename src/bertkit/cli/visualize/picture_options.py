"""What the actions of ``bertkit visualize`` share: where a picture goes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Output, check_format
from bertkit.errors import require
from bertkit.system.console import say

if TYPE_CHECKING:
    from bertkit.visualize.drawn import Drawn

Out = Annotated[
    Path | None, Parameter(alias="-o", help="Write the picture: .png, .svg, .pdf, .html or (the numbers) .json.")
]
MaxTokens = Annotated[
    int | None, Parameter(help="Maximum tokens per text; default: 512, or what the model can read if less.")
]


def check_out(out: Path | None, *, own_page: bool = True) -> None:
    """Find what prevents writing the picture before any work; without a page of its own, a page holds the image."""
    from bertkit.visualize.drawn import ENDINGS
    from bertkit.visualize.figures import IMAGE_ENDINGS, NEEDED_FOR

    if out is None:
        return
    check_format(out, ENDINGS)
    if out.suffix in IMAGE_ENDINGS or (out.suffix == ".html" and not own_page):
        require("matplotlib.figure", extra="plots", needed_for=NEEDED_FOR)


def show(drawn: Drawn, out: Path | None, common: Output) -> None:
    """Write the picture, if one is wanted, and report what was found."""
    if out is not None:
        drawn.save(out)
        say(f"wrote {out}")
    common.report(drawn)
