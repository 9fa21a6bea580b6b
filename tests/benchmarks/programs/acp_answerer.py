"""The client side of the ACP SDK: answers ``fs/read_text_file`` with a fixed text.

Usage: acp_answerer.py TEXT_BYTES
"""

import asyncio
import sys
from typing import Any

import acp
from acp.core import DEFAULT_STDIO_BUFFER_LIMIT_BYTES
from texts import text_of


class Files:
    """Only what this benchmark asks for."""

    def __init__(self, text: str) -> None:
        self._text = text

    def on_connect(self, conn: acp.Agent) -> None:
        """Nothing is asked of the agent."""

    async def read_text_file(self, session_id: str, path: str, **_: Any) -> Any:
        return acp.ReadTextFileResponse(content=self._text)


async def main() -> None:
    reader, writer = await acp.stdio_streams(limit=DEFAULT_STDIO_BUFFER_LIMIT_BYTES)
    acp.connect_to_agent(Files(text_of(int(sys.argv[1]))), writer, reader)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
