"""mcp, the official SDK: every tool of the server at /mcp, by its newest protocol and by the one before."""

import asyncio
from typing import Any

from client_helpers import DOCUMENTS, arguments, shown
from mcp import Client

given = arguments()
CALLS: dict[str, dict[str, Any]] = {
    "classify": {"input": DOCUMENTS, "model": given.labels},
    "zero-shot": {"input": DOCUMENTS[0], "labels": ["film", "bank"], "model": given.nli},
    "tag": {"input": DOCUMENTS[0], "model": given.tags},
    "redact": {"input": DOCUMENTS[0], "model": given.tags},
    "similarity": {"source": DOCUMENTS[0], "sentences": DOCUMENTS[1:], "model": given.vectors},
    "answer": {"input": {"question": "what", "context": DOCUMENTS[0]}, "model": given.answers},
    "fill-mask": {"input": "a [MASK] film", "model": given.masks},
}


async def converse(mode: Any) -> None:
    """List the tools, call each, and call one wrongly."""
    async with Client(f"{given.url}/mcp", mode=mode, read_timeout_seconds=60) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        assert set(CALLS) <= set(tools), tools
        for name, body in CALLS.items():
            result = await client.call_tool(name, body)
            assert not result.is_error, f"{name}: {result.content}"
            assert result.structured_content["results"], name
            shown(f"{name} ({mode})", result.structured_content["results"])
        result = await client.call_tool("tag", {"text": DOCUMENTS[0]})
        assert result.is_error
        shown("a wrong field", result.content)


for mode in ("auto", "legacy"):
    asyncio.run(converse(mode))
