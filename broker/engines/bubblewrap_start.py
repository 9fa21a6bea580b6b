"""One start of bubblewrap: from the first process to the moment the program may run.

bubblewrap sets the sandbox up, tells the pid of its first process, and reads the system
call filter last of all, from a pipe of ours. In that pause the process is put under its
limits; then it gets the filter. If we end before that, it reads none and ends as well:
nothing of the program has run. (``--block-fd`` would let it go when we end.)
"""

import json
import os
import resource
from contextlib import ExitStack
from typing import Final, final

import trio

from broker.engines.cgroups import Cgroup
from broker.engines.hostfacts import processes_with_argument
from broker.engines.process import Child, end_process, kill_pidfd, wait_pidfd
from broker.engines.spec import SandboxLimits
from protocol.errors import Fault

#: bubblewrap needs 10 ms to set up; a machine this slow would not run an agent.
_START_SECONDS: Final = 20.0
#: bubblewrap reaps and ends within a millisecond of its child's end.
_REAP_SECONDS: Final = 2.0
#: The status documents are two short lines.
_STATUS_BYTES: Final = 64 * 1024


@final
class Started:
    """A bubblewrap that we started: its own process and the first one inside."""

    def __init__(
        self, name: str, child: Child, *, status: int, gate: int, cgroup: Cgroup | None
    ) -> None:
        self._name: Final = name
        self.child: Final = child
        self._status: Final = status
        self._gate = gate
        self._cgroup: Final = cgroup
        self._received = b""
        self._inner_pidfd: int | None = None
        self.inner_pid: int | None = None

    async def open_gate(self, limits: SandboxLimits, *, seccomp: bytes) -> None:
        """Wait until it is set up, limit it, and let it start the program."""
        with trio.move_on_after(_START_SECONDS):
            await self._receive(until=b"\n")
        document = self._documents()[:1]
        if not document or "child-pid" not in document[0]:
            raise Fault("sandbox_never_ran")
        self.inner_pid = document[0]["child-pid"]
        self._inner_pidfd = os.pidfd_open(self.inner_pid)
        if self._cgroup is not None:
            self._cgroup.add(self.inner_pid)
        if os.geteuid() != 0:
            _limit_processes(self.inner_pid, limits)
        # Less than a pipe holds, and written at once: it gets all of it or nothing.
        os.write(self._gate, seccomp)
        self._close_gate()

    async def end(self) -> None:
        """Kill everything and wait. The first process inside ends after all the others.

        Its parent is left to reap it and end by itself: killed together they would leave
        a zombie to the host's first process, which may take its time.
        """
        if self._inner_pidfd is not None:
            kill_pidfd(self._inner_pidfd)
            await wait_pidfd(self._inner_pidfd)
            with trio.move_on_after(_REAP_SECONDS):
                await self.child.wait()
        self.child.kill()
        await self.child.wait()
        if self._inner_pidfd is None:
            # Stopped while it was set up: the first process inside may not have asked for
            # the parent-death signal yet. It still carries our name.
            while left := processes_with_argument(self._name.encode()):
                for pid in left:
                    await end_process(pid)

    async def ran(self) -> bool:
        """Whether the program was started. Ask when bubblewrap has ended."""
        await self._receive(until=None)
        return any("exit-code" in document for document in self._documents())

    def close(self) -> None:
        """Close every descriptor of ours. Both have ended."""
        self._close_gate()
        if self._inner_pidfd is not None:
            os.close(self._inner_pidfd)
            self._inner_pidfd = None
        os.close(self._status)

    async def _receive(self, *, until: bytes | None) -> None:
        """Read status documents up to ``until`` or the end."""
        while until is None or until not in self._received:
            await trio.lowlevel.wait_readable(self._status)
            chunk = os.read(self._status, 4096)
            self._received += chunk
            if not chunk or len(self._received) > _STATUS_BYTES:
                return

    def _close_gate(self) -> None:
        gate, self._gate = self._gate, -1
        if gate >= 0:
            os.close(gate)

    def _documents(self) -> list[dict[str, int]]:
        whole, _, _ = self._received.rpartition(b"\n")
        return [json.loads(line) for line in whole.splitlines() if line.strip()]


def as_file(stack: ExitStack, content: bytes) -> int:
    """A descriptor from which ``content`` can be read once."""
    descriptor = os.memfd_create("airlock", os.MFD_CLOEXEC)
    stack.callback(os.close, descriptor)
    with open(os.dup(descriptor), "wb") as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _limit_processes(pid: int, limits: SandboxLimits) -> None:
    """Bound the processes of a sandbox whose uid is the daemon's own.

    Set on the first process inside, not before: the kernel counts per user namespace
    as well, and before there was one the number would count all that the user runs.
    """
    _, hard = resource.prlimit(pid, resource.RLIMIT_NPROC)
    bound = limits.pids if hard == resource.RLIM_INFINITY else min(limits.pids, hard)
    resource.prlimit(pid, resource.RLIMIT_NPROC, (bound, bound))
