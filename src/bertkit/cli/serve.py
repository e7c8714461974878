"""``bertkit serve``: models behind HTTP."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from bertkit.cli.common_options import Common
from bertkit.errors import BertkitError, CheckpointError, ConfigError, counted, require
from bertkit.server import log
from bertkit.server.settings import ServerOptions, ServeSettings, read_serve_settings
from bertkit.system.console import set_quiet

if TYPE_CHECKING:
    from bertkit.server.service import Service


def serve(
    *models: Annotated[str, Parameter(help="Models, as MODEL or NAME=MODEL: folders, Hub names, run folders.")],
    options: Annotated[
        ServerOptions, Parameter(name="*", negative=(), group=Group("Server", sort_key=2))
    ] = ServerOptions(),
    index: Annotated[
        list[str] | None,
        Parameter(negative=(), help="Search index, as FOLDER or NAME=FOLDER, of 'bertkit search build'."),
    ] = None,
    config: Annotated[Path | None, Parameter(help="Read settings from this TOML file, too.")] = None,
    check: Annotated[bool, Parameter(negative=(), help="Ask every model one question, and stop.")] = False,
    common: Common = Common(),
) -> None:
    """Serve models over HTTP.

    A model answers the task of its head, and any encoder embeds. Requests of all
    clients are computed together, never padded. Clients of OpenAI, Hugging Face,
    text-embeddings-inference, Cohere, Jina and Ollama work as they are; /openapi.json
    lists all routes. Settings also come from the environment, as BERTKIT_PORT=8000,
    and from --config.

    For example:

        bertkit serve bertkit-tiny-en
        bertkit serve mini=MODEL ner=RUN --port 8000
        bertkit serve MODEL --index manuals=INDEX
        bertkit serve MODEL --check
    """
    for package in ("uvicorn", "orjson", "prometheus_client"):
        require(package, extra="serve", needed_for="bertkit serve")
    set_quiet(common.quiet)
    given = {name: getattr(options, name) for name in options.model_fields_set}
    beside = {"models": models, "indexes": tuple(index or ()), "device": common.device}
    settings = read_serve_settings({**given, **{name: value for name, value in beside.items() if value}}, config)
    if settings.mcp:
        require("mcp", extra="mcp", needed_for="bertkit serve --mcp")
    if not settings.models:
        raise ConfigError("name a model to serve, for example: bertkit serve bertkit-tiny-en")
    if check:
        _check(settings, common)
    elif settings.log == "json":
        log.begin(settings)
        try:
            _run(settings)
        except BertkitError as error:
            log.write(settings, "error", str(error))
            sys.exit(error.exit_code)
    else:
        _run(settings)


def _check(settings: ServeSettings, common: Common) -> None:
    from bertkit.server.service import Service

    service = Service(settings)
    load_all(service)
    for facts in service.models.facts():
        common.show(asdict(facts), _line(facts))
    for index in service.indexes.facts():
        common.show(asdict(index), _index_line(index))


def load_all(service: Service) -> None:
    """Load all models of a service in this thread.

    Raises:
        CheckpointError: one does not answer, or an index was built with none of them.
    """
    service.models.load_all()
    for slot in service.models.slots.values():
        if slot.facts.state == "failed":
            raise CheckpointError(f"the model {slot.name} cannot be served: {slot.facts.error}")
    for index in service.indexes.facts():
        if index.model is None and index.by != "words":
            raise CheckpointError(service.indexes.index(index.name).lacks_its_model().message)


def _run(settings: ServeSettings) -> None:
    from bertkit.server.app import ServerApp
    from bertkit.server.running import address, curl, listen_apart, run

    def tell(message: str) -> None:
        log.write(settings, "info", message)

    app = ServerApp(settings)
    if hasattr(signal, "SIGHUP"):  # a reload that is asked for before the models are read changes nothing
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    listening = listen_apart(settings.host, settings.port, settings.workers)
    place = address(listening[0])
    tell(f"listening on {place}; Ctrl-C stops")

    def ready(app: ServerApp = app) -> None:
        for facts in app.service.models.facts():
            if facts.state == "ready":
                tell(f"\n{_line(facts)}\n  {curl(place, facts)}")
        for index in app.service.indexes.facts():
            tell(f"\n{_index_line(index)}")
        if settings.playground:
            tell(f"\nto try them in a browser: {place}/playground")

    if settings.workers > 1:
        from bertkit.server.workers import Supervisor

        settled = Supervisor(app, lambda: ServerApp(settings), listening).run(ready)
    else:
        run(app, listening, ready)
        settled = app.service.models.settled
    if not settled:
        # A thread may be loading a model. It would run on in C while the interpreter is taken apart, which can crash.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(0)


def _line(facts: Any) -> str:
    return f"{facts.name}: {', '.join(facts.tasks)}; {facts.model_class} by {facts.engine}, {facts.precision}"


def _index_line(index: Any) -> str:
    of = f"vectors of {index.model}" if index.model else f"words only: it was built with {index.built_with}"
    return f"{index.name}: search, {counted(index.num_texts, 'text')}; {of}"
