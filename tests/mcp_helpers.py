"""The official client of the Model Context Protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from mcp import Client

T = TypeVar("T")


def talk(server: Any, conversation: Callable[[Client], Awaitable[T]], mode: Any = "auto") -> T:
    """What a conversation with a server, in this process, at a URL or of a command, comes to."""

    async def run() -> T:
        async with Client(server, mode=mode, read_timeout_seconds=60) as client:
            return await conversation(client)

    return asyncio.run(run())


async def tools_of(client: Client) -> dict[str, Any]:
    """The tools that a server offers, by name."""
    return {tool.name: tool for tool in (await client.list_tools()).tools}
