"""Asks over stdout and times until the answer is on stdin, typed and in trio.

Usage: trio_asker.py TEXT_BYTES CONTROL_IN CONTROL_OUT

With ``trio_answerer.py`` at the other end both ends pay what an SDK in trio pays.
"""

import sys
from itertools import count
from time import perf_counter_ns

import msgspec
import trio
from control import Control
from trio_answerer import READ_BYTES, Read, ToolRequest, ToolResponse


async def main() -> None:
    size = int(sys.argv[1])
    control = Control()
    numbers = count()
    encode = msgspec.json.Encoder().encode
    decode = msgspec.json.Decoder(ToolResponse).decode
    async with trio.lowlevel.FdStream(0) as stdin, trio.lowlevel.FdStream(1) as stdout:

        async def ask() -> int:
            start = perf_counter_ns()
            request = ToolRequest(
                1, f"request-{next(numbers):07}", "read_file", Read("src/package/module.txt")
            )
            await stdout.send_all(encode(request) + b"\n")
            line = bytearray()
            while chunk := await stdin.receive_some(READ_BYTES):
                line += chunk
                if chunk.endswith(b"\n"):
                    break
            answer = decode(line)
            taken = perf_counter_ns() - start
            if len(answer.result.text) != size:
                sys.exit("trio_asker: unexpected answer")
            return taken

        for times in control.rounds():
            control.report([await ask() for _ in range(times)])


if __name__ == "__main__":
    trio.run(main)
