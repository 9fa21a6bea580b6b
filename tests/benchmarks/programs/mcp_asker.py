"""The client of the MCP SDK: times ``call_tool`` on a server that it starts.

Usage: mcp_asker.py TEXT_BYTES WINDOW CONTROL_IN CONTROL_OUT
"""

import sys
from itertools import count
from pathlib import Path
from time import perf_counter_ns

import anyio
from control import Control
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main() -> None:
    size, window = int(sys.argv[1]), int(sys.argv[2])
    control = Control()
    answerer = Path(__file__).with_name("mcp_answerer.py")
    server = StdioServerParameters(command=sys.executable, args=[str(answerer), str(size)])
    async with Client(stdio_client(server)) as client:

        async def ask() -> int:
            start = perf_counter_ns()
            answer = await client.call_tool("read_file", {"path": "src/module.py"})
            taken = perf_counter_ns() - start
            if len(answer.content[0].text) != size:
                sys.exit("mcp_asker: unexpected answer")
            return taken

        async def ask_many(numbers: "count[int]", last: int) -> None:
            while next(numbers) < last:
                await ask()

        for times in control.rounds():
            if window == 1:
                control.report([await ask() for _ in range(times)])
                continue
            numbers = count()
            start = perf_counter_ns()
            async with anyio.create_task_group() as tasks:
                for _ in range(window):
                    tasks.start_soon(ask_many, numbers, times)
            control.report([perf_counter_ns() - start])


if __name__ == "__main__":
    anyio.run(main)
