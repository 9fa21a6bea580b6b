"""Runs as a process of its own, to be killed: a whole attempt, or a conversation on its stdio.

``attempt JSON`` plays the steps of a puppet as the JSON says; ``converse FOLDER`` serves
whoever is at the other end of standard input and output.
"""

import json
import sys
from pathlib import Path

import trio
import trio.testing

from broker.attempts.pipe import Pipe
from tests.attempts.bench import Setting, make_bench
from tests.attempts.puppetry import play


async def attempt(text: str) -> None:
    given = json.loads(text)
    paths = {name: Path(given.pop(name)) for name in ("repo", "state", "out")}
    given["agent_arguments"] = tuple(given["agent_arguments"])
    await play(given.pop("steps"), **paths, **given)


async def converse(folder: str) -> None:
    stderr = trio.testing.MemoryReceiveStream()
    stderr.put_eof()
    pipe = Pipe(stdin=trio.lowlevel.FdStream(1), stdout=trio.lowlevel.FdStream(0), stderr=stderr)
    bench = await make_bench(Path(folder), pipe, Setting())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.recorder.keep_synced)
        await bench.serve(trio.Event())
        nursery.cancel_scope.cancel()


trio.run({"attempt": attempt, "converse": converse}[sys.argv[1]], sys.argv[2])
