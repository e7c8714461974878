"""Settings of a server: of the command line, the environment, or a TOML file. Every limit has a default and a bound."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from bertkit.errors import ConfigError
from bertkit.server.calls import Limits
from bertkit.system.settings_files import read_settings_file, settings_of_table
from bertkit.system.validated_settings import Field, Settings

#: Before the name of a setting in the environment.
PREFIX = "BERTKIT_"
#: Names of text-embeddings-inference in the environment -> our settings.
OTHER_NAMES: Mapping[str, str] = {
    "MODEL_ID": "models",
    "HOSTNAME": "host",
    "PORT": "port",
    "MAX_BATCH_TOKENS": "max_batch_tokens",
    "MAX_CONCURRENT_REQUESTS": "max_requests",
    "MAX_CLIENT_BATCH_SIZE": "max_items",
    "PAYLOAD_LIMIT": "max_body_bytes",
    "API_KEY": "api_key",
    "OTLP_ENDPOINT": "otlp_endpoint",
    "CORS_ALLOW_ORIGIN": "allowed_origins",
    "JSON_OUTPUT": "log",
    "DTYPE": "precision",
}
#: Their values that are called otherwise here.
_OTHER_VALUES: Mapping[str, Mapping[str, str]] = {
    "JSON_OUTPUT": {"true": "json", "1": "json", "false": "text", "0": "text"},
    "DTYPE": {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"},
}
#: Names that other programs use, too, and which are read only where ``MODEL_ID`` says whom they are for: shells and
#: containers have a HOSTNAME, which would open the server to the network.
_BESIDE_A_MODEL = frozenset({"HOSTNAME", "OTLP_ENDPOINT", "CORS_ALLOW_ORIGIN", "JSON_OUTPUT", "DTYPE"})


class ServerOptions(Settings):
    """What can be said on the command line."""

    host: str = Field("127.0.0.1", description="address to listen on; the default is this machine only")
    port: int = Field(8080, ge=0, le=65535, description="0 takes any that is free")
    precision: Literal["auto", "fp32", "fp16", "bf16", "int8"] = Field("auto", description="arithmetic of the models")
    engine: Literal["auto", "native", "torch", "onnx"] = Field(
        "auto", description="what must compute the models: one that something else computes is not served"
    )
    threads: int | None = Field(None, ge=1, le=1024, description="CPU threads per computation; default: one per core")
    workers: int = Field(1, ge=1, le=1024, description="processes, which share the weights")
    api_key: str | None = Field(None, min_length=1, description="key that clients must send")
    api_keys_file: Path | None = Field(
        None,
        description="file of accepted keys, one per line, each perhaps with limits: "
        "KEY requests_per_minute=60 tokens_per_minute=100000",
    )
    admin_key: str | None = Field(
        None, min_length=8, description="key for /admin/reload and /admin/models, which are off without one"
    )
    allowed_hosts: tuple[str, ...] = Field((), description="further Host names by which clients may reach the server")
    allowed_origins: tuple[str, ...] = Field(
        (), description="web pages whose scripts may send requests, as https://NAME"
    )
    playground: bool = Field(False, description="serve a page at /playground for trying the models")
    mcp: bool = Field(False, description="also offer the tools of 'bertkit mcp' at /mcp; needs bertkit[mcp]")
    max_batch_tokens: int = Field(4096, ge=16, le=1 << 22, description="tokens computed together")
    max_queue_tokens: int = Field(
        65_536,
        ge=16,
        le=1 << 30,
        description="tokens that may wait for a model, and of one text; a larger request counts as half of them",
    )
    max_requests: int = Field(1024, ge=1, le=1 << 20, description="requests that may wait for a model")
    max_items: int = Field(2048, ge=1, le=1 << 20, description="texts per request, as many as OpenAI takes")
    max_bulk_lines: int = Field(512, ge=1, le=1 << 20, description="lines of a bulk request read ahead")
    max_body_bytes: int = Field(4_000_000, ge=1024, le=1 << 30, description="bytes of a request body")
    max_connections: int = Field(20_000, ge=1, le=1 << 20, description="connections open at once")
    timeout: float = Field(60.0, gt=0, le=86_400, description="seconds that a request may take")
    max_batch_seconds: float = Field(
        60.0, gt=0, le=86_400, description="seconds after which a batch counts as hanging, and /health says 503"
    )
    body_timeout: float = Field(20.0, gt=0, le=3600, description="seconds that a client may take to send a request")
    grace: float = Field(20.0, ge=0, le=3600, description="seconds to finish accepted requests when the server stops")
    lazy: bool = Field(False, description="load a model at its first request")
    memory: int | None = Field(None, ge=1, description="megabytes of models; the least recently used are unloaded")
    keep_alive: float | None = Field(None, gt=0, description="seconds without requests until a model is unloaded")
    thresholds: tuple[str, ...] = Field(
        (), description="as LABEL=0.8 or MODEL:LABEL=0.8: below it a classifier abstains"
    )
    cache_bytes: int = Field(0, ge=0, le=1 << 40, description="bytes of exact answers cached per model; 0: none")
    otlp_endpoint: str | None = Field(
        None, description="collector of OpenTelemetry for spans, as http://HOST:4318; needs bertkit[otel]"
    )
    log: Literal["text", "json", "none"] = Field("text", description="log failures as text, or all requests as JSON")
    log_texts: bool = Field(
        False,
        description="texts of clients in the log: of requests as JSON (not of bulk lines and tools), and of faults",
    )
    log_requests: bool = Field(False, description="in a text log, also list successful requests")


class ServeSettings(ServerOptions):
    """What ``bertkit serve`` does."""

    models: tuple[str, ...] = Field((), description="as NAME=MODEL or MODEL")
    indexes: tuple[str, ...] = Field((), description="search indexes, as NAME=FOLDER or FOLDER")
    device: str | None = Field(None, description="cpu, cuda ...; None: a GPU where there is one")

    @property
    def on_demand(self) -> bool:
        """Whether a model that is not in memory is loaded when somebody asks for it."""
        return self.lazy or self.memory is not None or self.keep_alive is not None

    @property
    def limits(self) -> Limits:
        """Those that clients are told of."""
        return Limits(
            max_items=self.max_items,
            max_body_bytes=self.max_body_bytes,
            max_batch_tokens=self.max_batch_tokens,
            max_queue_tokens=self.max_queue_tokens,
            max_requests=self.max_requests,
        )


def read_serve_settings(
    given: Mapping[str, Any], file: Path | None = None, environment: Mapping[str, str] = os.environ
) -> ServeSettings:
    """Settings as ``given``, else as in the environment, else as in a TOML file.

    Raises:
        ConfigError: an unknown setting or a wrong value; names where it stands.
    """
    found: dict[str, Any] = {}
    if file is not None:
        found, _ = read_settings_file(file)
        settings_of_table(ServeSettings, found, str(file))
    others = {other for other in OTHER_NAMES if other in environment}
    if "MODEL_ID" not in others:
        others -= _BESIDE_A_MODEL
    variables = {other: name for other, name in OTHER_NAMES.items() if other in others}
    variables |= {
        PREFIX + name.upper(): name for name in ServeSettings.model_fields if PREFIX + name.upper() in environment
    }
    for variable, name in variables.items():
        text = environment[variable]
        value = {name: _value_of(name, _OTHER_VALUES.get(variable, {}).get(text.lower(), text))}
        settings_of_table(ServeSettings, value, f"the environment variable {variable}")
        found |= value
    if (
        variables.get("MODEL_ID")
        and PREFIX + "MODELS" not in variables
        and (served := environment.get("SERVED_MODEL_NAME"))
    ):
        if "/" in served or "=" in served:
            raise ConfigError(f"SERVED_MODEL_NAME: a model's name has neither '/' nor '=', got {served!r}")
        found["models"] = tuple(f"{served}={named(model)[1]}" for model in found["models"][:1])
    return ServeSettings(**{**found, **given})


def thresholds_of(settings: ServeSettings, name: str) -> dict[str, float]:
    """The thresholds that are set for a model, by label.

    Raises:
        ConfigError: one is not of the form LABEL=0.8, or does not say which of several models it is for.
    """
    names, found = [named(given)[0] for given in settings.models], {}
    for given in settings.thresholds:
        place, _, share = given.rpartition("=")
        model, _, label = place.partition(":")
        if model not in names:
            model, label = names[0], place
            if len(names) > 1:
                raise ConfigError(f"thresholds: say which model {given!r} is for: {names[0]}:{given}")
        try:
            least = float(share)
        except ValueError:
            least = -1.0
        if not label or not 0 <= least <= 1:
            raise ConfigError(f"thresholds: {given!r} is not of the form LABEL=SHARE, with a share from 0 to 1")
        if model == name:
            found[label] = least
    return found


def _value_of(name: str, text: str) -> Any:
    """The value of a setting that the environment has as text."""
    kind = ServeSettings.model_fields[name].annotation
    if kind == tuple[str, ...]:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    kinds = {kind, *get_args(kind)}
    if bool in kinds and text.lower() in ("true", "1", "false", "0"):
        return text.lower() in ("true", "1")
    for number in (int, float):
        if number in kinds:
            try:
                return number(text)
            except ValueError:
                return text
    return text


def named(given: str) -> tuple[str, str]:
    """A name and a source, of ``NAME=SOURCE`` or ``SOURCE``."""
    name, sign, source = given.partition("=")
    if sign and name and source and "/" not in name:
        return name, source
    path = Path(given)
    return (path.resolve().name if path.exists() else given.removesuffix("/")), given
