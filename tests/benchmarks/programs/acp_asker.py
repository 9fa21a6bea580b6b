"""The agent side of the ACP SDK: times typed ``fs/read_text_file`` calls.

Usage: acp_asker.py TEXT_BYTES WINDOW CONTROL_IN CONTROL_OUT
"""

import asyncio
import sys
from itertools import count
from time import perf_counter_ns

import acp
from acp.core import DEFAULT_STDIO_BUFFER_LIMIT_BYTES
from control import Control


class Agent:
    """Only what this benchmark needs."""

    def on_connect(self, conn: acp.Client) -> None:
        """The connection is used from outside."""


async def main() -> None:
    size, window = int(sys.argv[1]), int(sys.argv[2])
    control = Control()
    reader, writer = await acp.stdio_streams(limit=DEFAULT_STDIO_BUFFER_LIMIT_BYTES)
    client = acp.AgentSideConnection(Agent(), writer, reader)

    async def ask() -> int:
        start = perf_counter_ns()
        answer = await client.read_text_file(session_id="session-1", path="/src/module.py")
        taken = perf_counter_ns() - start
        if len(answer.content) != size:
            sys.exit("acp_asker: unexpected answer")
        return taken

    async def ask_many(numbers: "count[int]", last: int) -> None:
        while next(numbers) < last:
            await ask()

    for times in control.rounds():
        if window == 1:
            control.report([await ask() for _ in range(times)])
        else:
            numbers = count()
            start = perf_counter_ns()
            await asyncio.gather(*(ask_many(numbers, times) for _ in range(window)))
            control.report([perf_counter_ns() - start])


if __name__ == "__main__":
    asyncio.run(main())
