"""``bertkit serve``: models behind HTTP."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from bertkit.cli.common_options import Common
from bertkit.errors import CheckpointError, ConfigError, counted, require
from bertkit.system.console import say

if TYPE_CHECKING:
    from bertkit.server.service import Service
    from bertkit.server.settings import ServeSettings


@Parameter(name="*", group=Group("Server", sort_key=1))
@dataclass(frozen=True)
class Serving:
    """Settings of a server; None: as the environment or a file says, else the default of the settings."""

    index: Annotated[
        list[str] | None,
        Parameter(negative=(), help="Search index, as FOLDER or NAME=FOLDER, of 'bertkit search build'."),
    ] = None
    host: Annotated[str | None, Parameter(help="Address to listen on; default: 127.0.0.1, this machine only.")] = None
    port: Annotated[int | None, Parameter(help="Port to listen on; default 8080, 0 takes any that is free.")] = None
    precision: Annotated[
        Literal["auto", "fp32", "fp16", "bf16", "int8"] | None, Parameter(help="Arithmetic of the models.")
    ] = None
    threads: Annotated[int | None, Parameter(help="CPU threads of a computation; default: one per core.")] = None
    workers: Annotated[int | None, Parameter(help="Processes, which share the weights; default 1.")] = None
    api_key: Annotated[str | None, Parameter(help="Clients must send this key.")] = None
    api_keys_file: Annotated[Path | None, Parameter(help="Clients must send one of these keys, one per line.")] = None
    admin_key: Annotated[str | None, Parameter(help="Allow /admin/reload with this key.")] = None
    allowed_hosts: Annotated[
        list[str] | None, Parameter(negative=(), help="Further names by which clients reach it.")
    ] = None
    allowed_origins: Annotated[
        list[str] | None, Parameter(negative=(), help="Web pages that may ask, as https://NAME.")
    ] = None
    max_batch_tokens: Annotated[int | None, Parameter(help="Tokens computed together; default 4096.")] = None
    max_queue_tokens: Annotated[int | None, Parameter(help="Tokens that may wait for a model; more are refused.")] = (
        None
    )
    max_requests: Annotated[int | None, Parameter(help="Requests that may wait for a model; more are refused.")] = None
    max_items: Annotated[int | None, Parameter(help="Texts of one request; default 256.")] = None
    timeout: Annotated[float | None, Parameter(help="Longest that a request may take, in seconds.")] = None
    grace: Annotated[float | None, Parameter(help="Seconds to finish what was taken when it is stopped.")] = None
    lazy: Annotated[bool | None, Parameter(negative=(), help="Load a model when it is first asked for.")] = None
    memory: Annotated[int | None, Parameter(help="Megabytes of models; the least recently used are unloaded.")] = None
    keep_alive: Annotated[float | None, Parameter(help="Unload a model after so many seconds without a request.")] = (
        None
    )
    log: Annotated[Literal["text", "json", "none"] | None, Parameter(help="Log failures, or each request as JSON.")] = (
        None
    )
    mcp: Annotated[
        bool | None, Parameter(negative=(), help="Also offer the tools of 'bertkit mcp', at /mcp; needs bertkit[mcp].")
    ] = None


def serve(
    *models: Annotated[str, Parameter(help="Models, as MODEL or NAME=MODEL: folders, Hub names, run folders.")],
    serving: Serving = Serving(),
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
    from bertkit.server.settings import read_serve_settings
    from bertkit.system.console import set_quiet

    set_quiet(common.quiet)
    given: dict[str, Any] = {**asdict(serving), "models": models or None, "device": common.device}
    given["indexes"] = given.pop("index")
    settings = read_serve_settings({name: value for name, value in given.items() if value is not None}, config)
    if settings.mcp:
        require("mcp", extra="mcp", needed_for="bertkit serve --mcp")
    if not settings.models:
        raise ConfigError("name a model to serve, for example: bertkit serve bertkit-tiny-en")
    if check:
        _check(settings, common)
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
    for slot in service.models.slots.values():
        if not service.models.load(slot):
            raise CheckpointError(f"the model {slot.name} cannot be served: {slot.facts.error}")
    for index in service.indexes.facts():
        if index.model is None and index.by != "words":
            raise CheckpointError(service.indexes.index(index.name).lacks_its_model().message)


def _run(settings: ServeSettings) -> None:
    from bertkit.server.app import ServerApp
    from bertkit.server.running import address, curl, listen, run

    app = ServerApp(settings)
    listening = listen(settings.host, settings.port)
    say(f"listening on {address(listening)}; Ctrl-C stops")

    def ready(app: ServerApp = app) -> None:
        for facts in app.service.models.facts():
            if facts.state == "ready":
                say(f"\n{_line(facts)}\n  {curl(address(listening), facts)}")
        for index in app.service.indexes.facts():
            say(f"\n{_index_line(index)}")

    if settings.workers > 1:
        from bertkit.server.workers import Supervisor

        Supervisor(lambda: ServerApp(settings), listening).run(ready)
    else:
        run(app, listening, ready)


def _line(facts: Any) -> str:
    return f"{facts.name}: {', '.join(facts.tasks)}; {facts.model_class} by {facts.engine}, {facts.precision}"


def _index_line(index: Any) -> str:
    of = f"vectors of {index.model}" if index.model else f"words only: it was built with {index.built_with}"
    return f"{index.name}: search, {counted(index.num_texts, 'text')}; {of}"
