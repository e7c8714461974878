"""``bertkit mcp``: models as tools of a language model."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated, Literal

from cyclopts import Parameter

from bertkit.cli.common_options import Common
from bertkit.cli.serve import load_all
from bertkit.errors import ConfigError, require


def mcp(
    *models: Annotated[str, Parameter(help="Models, as MODEL or NAME=MODEL: folders, Hub names, run folders.")],
    index: Annotated[
        list[str] | None,
        Parameter(negative=(), help="Search index, as FOLDER or NAME=FOLDER, of 'bertkit search build'."),
    ] = None,
    precision: Annotated[
        Literal["auto", "fp32", "fp16", "bf16", "int8"], Parameter(help="Arithmetic of the models.")
    ] = "auto",
    threads: Annotated[int | None, Parameter(help="CPU threads of a computation; default: one per core.")] = None,
    common: Common = Common(),
) -> None:
    """Offer models as tools to a language model (Model Context Protocol).

    The program that runs the language model starts this command and talks to it over
    standard input and output. Each model brings the tools of its head: classify or
    zero-shot, tag and redact, answer, fill-mask; any encoder brings similarity, and an
    index of its vectors search. Texts stay on this machine. The same tools are at /mcp
    of 'bertkit serve --mcp'.

    For example:

        bertkit mcp bertkit-tiny-en
        bertkit mcp ner=RUN reviews=OTHER_RUN
        bertkit mcp MODEL --index manuals=INDEX

    Most programs want the command in a file of settings, with the whole path of a
    folder, because they start it elsewhere:

        {"mcpServers": {"bertkit": {
            "command": "bertkit", "args": ["mcp", "ner=/models/RUN"]}}}
    """
    for package in ("mcp", "orjson"):
        require(package, extra="mcp", needed_for="bertkit mcp")
    from bertkit.server.mcp import serve_stdio
    from bertkit.server.service import Service
    from bertkit.server.settings import ServeSettings
    from bertkit.system.console import set_quiet

    set_quiet(common.quiet)
    if not models:
        raise ConfigError("name a model, for example: bertkit mcp bertkit-tiny-en")
    computing = {"device": common.device, "precision": precision, "threads": threads}
    service = Service(ServeSettings(models=models, indexes=tuple(index or ()), **computing))
    load_all(service)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a thread that waits for standard input would not hear of it
    asyncio.run(serve_stdio(service))
