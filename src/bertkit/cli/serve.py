"""``bertkit serve``: models behind HTTP."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from bertkit.cli.common_options import Common
from bertkit.errors import CheckpointError, ConfigError, require
from bertkit.system.console import say


def serve(
    *models: Annotated[str, Parameter(help="Models, as MODEL or NAME=MODEL: folders, Hub names, run folders.")],
    host: Annotated[str | None, Parameter(help="Address to listen on; default: 127.0.0.1, this machine only.")] = None,
    port: Annotated[int | None, Parameter(help="Port to listen on; default 8080, 0 takes any that is free.")] = None,
    config: Annotated[Path | None, Parameter(help="Read settings from this TOML file, too.")] = None,
    precision: Annotated[
        Literal["auto", "fp32", "fp16", "bf16", "int8"] | None, Parameter(help="Arithmetic of the models.")
    ] = None,
    threads: Annotated[int | None, Parameter(help="CPU threads of a computation; default: one per core.")] = None,
    workers: Annotated[int | None, Parameter(help="Processes, which share the weights; default 1.")] = None,
    api_key: Annotated[str | None, Parameter(help="Clients must send this key.")] = None,
    api_keys_file: Annotated[Path | None, Parameter(help="Clients must send one of these keys, one per line.")] = None,
    admin_key: Annotated[str | None, Parameter(help="Allow /admin/reload with this key.")] = None,
    allowed_hosts: Annotated[list[str] | None, Parameter(help="Further names by which clients reach it.")] = None,
    allowed_origins: Annotated[list[str] | None, Parameter(help="Web pages that may ask, as https://NAME.")] = None,
    max_batch_tokens: Annotated[int | None, Parameter(help="Tokens computed together; default 4096.")] = None,
    max_queue_tokens: Annotated[
        int | None, Parameter(help="Tokens that may wait for a model; more are refused.")
    ] = None,
    max_requests: Annotated[int | None, Parameter(help="Requests that may wait for a model; more are refused.")] = None,
    max_items: Annotated[int | None, Parameter(help="Texts of one request; default 256.")] = None,
    timeout: Annotated[float | None, Parameter(help="Longest that a request may take, in seconds.")] = None,
    grace: Annotated[float | None, Parameter(help="Seconds to finish what was taken when it is stopped.")] = None,
    lazy: Annotated[bool | None, Parameter(negative=(), help="Load a model when it is first asked for.")] = None,
    memory: Annotated[int | None, Parameter(help="Megabytes of models; the least recently used are unloaded.")] = None,
    keep_alive: Annotated[
        float | None, Parameter(help="Unload a model after so many seconds without a request.")
    ] = None,
    log: Annotated[
        Literal["text", "json", "none"] | None, Parameter(help="Log failures, or each request as JSON.")
    ] = None,
    playground: Annotated[
        bool | None, Parameter(negative=(), help="Also serve a page at /playground on which to try the models.")
    ] = None,
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
        bertkit serve MODEL --check
    """
    for package in ("uvicorn", "orjson", "prometheus_client"):
        require(package, extra="serve", needed_for="bertkit serve")
    from bertkit.server.app import ServerApp
    from bertkit.server.running import address, curl, listen, run
    from bertkit.server.settings import read_serve_settings
    from bertkit.system.console import set_quiet

    set_quiet(common.quiet)
    given: dict[str, Any] = {
        "host": host,
        "port": port,
        "precision": precision,
        "device": common.device,
        "threads": threads,
        "workers": workers,
        "api_key": api_key,
        "api_keys_file": api_keys_file,
        "admin_key": admin_key,
        "allowed_hosts": tuple(allowed_hosts) if allowed_hosts else None,
        "allowed_origins": tuple(allowed_origins) if allowed_origins else None,
        "max_batch_tokens": max_batch_tokens,
        "max_queue_tokens": max_queue_tokens,
        "max_requests": max_requests,
        "max_items": max_items,
        "timeout": timeout,
        "grace": grace,
        "lazy": lazy,
        "memory": memory,
        "keep_alive": keep_alive,
        "log": log,
        "playground": playground,
        "models": models or None,
    }
    settings = read_serve_settings({name: value for name, value in given.items() if value is not None}, config)
    if check:
        service = ServerApp(settings).service
        for slot in service.models.slots.values():
            if not service.models.load(slot):
                raise CheckpointError(f"the model {slot.name} cannot be served: {slot.facts.error}")
            common.show(asdict(slot.facts), _line(slot.facts))
        return
    if not settings.models:
        raise ConfigError("name a model to serve, for example: bertkit serve bertkit-tiny-en")
    app = ServerApp(settings)
    listening = listen(settings.host, settings.port)
    say(f"listening on {address(listening)}; Ctrl-C stops")

    def ready(app: ServerApp = app) -> None:
        for facts in app.service.models.facts():
            if facts.state == "ready":
                say(f"\n{_line(facts)}\n  {curl(address(listening), facts)}")
        if settings.playground:
            say(f"\nto try them in a browser: {address(listening)}/playground")

    if settings.workers > 1:
        from bertkit.server.workers import Supervisor

        Supervisor(lambda: ServerApp(settings), listening).run(ready)
    else:
        run(app, listening, ready)


def _line(facts: Any) -> str:
    return f"{facts.name}: {', '.join(facts.tasks)}; {facts.model_class} by {facts.engine}, {facts.precision}"
