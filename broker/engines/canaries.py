"""Things of the host that a sandbox must not reach, planted for as long as a test lasts."""

import os
import secrets
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import trio

from broker.engines.hostfacts import NAMESPACES

#: What a sandbox's environment may hold. ``container`` and ``TERM`` are an engine's own
#: marks; the others in the last line are of the shell that starts bubblewrap.
ALLOWED_ENVIRONMENT: Final = (
    *("PATH", "HOME", "LANG", "PWD", "HOSTNAME", "TERM", "container"),
    *("OLDPWD", "LC_ALL", "SHLVL", "_"),
)


@asynccontextmanager
async def plant_canaries() -> AsyncIterator[dict[str, object]]:
    """Things of the host that a sandbox must not reach, and what to tell the probe."""
    token = secrets.token_hex(8)
    with tempfile.TemporaryDirectory(prefix="airlock-canary-") as name:
        folder = Path(name)
        await trio.to_thread.run_sync((folder / "file").write_text, token)
        with _listeners(folder / "socket", token) as port, _leaky_descriptor():
            yield {
                "port": port,
                "abstract": token,
                "socket": str(folder / "socket"),
                "file": str(folder / "file"),
                "hostPaths": [name],
                "pid": os.getpid(),
                "namespaces": _namespaces(),
                "environment": ALLOWED_ENVIRONMENT,
                "hostname": os.uname().nodename,
            }


@contextmanager
def _listeners(path: Path, token: str) -> Iterator[int]:
    """A TCP, an abstract and a path socket that listen; yields the TCP port."""
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as named,
    ):
        abstract.bind("\0" + token)
        named.bind(str(path))
        abstract.listen()
        named.listen()
        yield tcp.getsockname()[1]


@contextmanager
def _leaky_descriptor() -> Iterator[None]:
    """A descriptor that a careless start would hand on."""
    read, write = os.pipe()
    try:
        os.set_inheritable(write, True)
        yield
    finally:
        os.close(read)
        os.close(write)


def _namespaces() -> dict[str, int]:
    return {kind: os.stat(f"/proc/self/ns/{kind}").st_ino for kind in NAMESPACES}
