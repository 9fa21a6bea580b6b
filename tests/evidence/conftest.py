"""What the evidence tests share: a clock, an attempt, and bodies of every kind of size."""

from collections.abc import Callable
from itertools import count

import pytest

from protocol.digest import digest_bytes
from protocol.ids import Digest, Id
from protocol.records import Diagnostic, EventSeen, Record


@pytest.fixture
def clock() -> Callable[[], int]:
    ticks = count(1_764_000_000_000)
    return lambda: next(ticks)


@pytest.fixture
def attempt() -> Id:
    return Id("attempt-1")


@pytest.fixture
def body() -> Callable[[int], Record]:
    """Body number ``n``: no two are equal, and both kinds of field are there."""

    def make(n: int) -> Record:
        digest: Digest = digest_bytes(str(n).encode())
        if n % 3:
            return EventSeen(kind="agent.log", digest=digest, bytes=n)
        return Diagnostic(code="agent_stderr", count=n, bytes=n, digest=digest)

    return make
