"""One child process and its pipes, and the ladder on which a sandbox ends.

The child is started on the thread that runs trio: the parent-death signal belongs to
the thread that forked, and trio's own ``open_process`` forks in a worker that ends
after ten idle seconds. Never inherits a descriptor or a variable that is not named.
"""

import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final, final

import trio

from broker.engines.spec import Exit, Facts
from protocol.errors import Fault

__all__ = ["Child", "Exit", "Facts", "Sandbox", "start_child"]


@final
class Child:
    """A process that we started, its three streams and its end."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen: Final = popen
        self.pid: Final = popen.pid
        self._pidfd: Final = os.pidfd_open(popen.pid)
        self.stdin: Final = _take(popen.stdin)
        self.stdout: Final = _take(popen.stdout)
        self.stderr: Final = _take(popen.stderr)

    @property
    def returncode(self) -> int | None:
        """As ``Popen``'s; None while it runs. Reaps."""
        return self._popen.poll()

    async def wait(self) -> int:
        """Wait for the end. Any number of tasks may; being cancelled kills nothing."""
        while (code := self._popen.poll()) is None:
            await wait_pidfd(self._pidfd)
        return code

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        kill_pidfd(self._pidfd)

    async def close_streams(self) -> None:
        """Close every stream that is still open; readers get ``ClosedResourceError``."""
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                await trio.aclose_forcefully(stream)

    def close(self) -> None:
        """Let go of the process. It must have ended."""
        os.close(self._pidfd)


def start_child(
    argv: Sequence[str],
    *,
    stdin: bool,
    pass_fds: Sequence[int],
    env: Mapping[str, str],
) -> Child:
    """Start ``argv`` in a session of its own. Raises ``Fault("engine_failed")``.

    ``stdin`` False gives it an empty standard input. ``pass_fds`` are inherited under
    the same numbers and stay open here.
    """
    try:
        popen = subprocess.Popen(
            argv,
            bufsize=0,
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            close_fds=True,
            pass_fds=pass_fds,
            start_new_session=True,
            cwd="/",
            env=dict(env),
        )
    except OSError as error:
        raise Fault("engine_failed") from error
    return Child(popen)


async def wait_pidfd(pidfd: int) -> None:
    """Wait until the process of ``pidfd`` has ended."""
    # A copy for each waiter: trio lets only one task wait for a descriptor.
    copy = os.dup(pidfd)
    try:
        await trio.lowlevel.wait_readable(copy)
    finally:
        os.close(copy)


def kill_pidfd(pidfd: int) -> None:
    """SIGKILL to the process of ``pidfd``, if it still runs."""
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        return


async def end_process(pid: int) -> bool:
    """Kill process ``pid`` and wait for its end. False: it was gone."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        kill_pidfd(pidfd)
        await wait_pidfd(pidfd)
    finally:
        os.close(pidfd)
    return True


class Sandbox(ABC):
    """A running sandbox: three pipes, one end, and a way to be rid of it.

    Whoever has one must read ``stdout`` and ``stderr`` all the time or ``destroy`` it.
    """

    def __init__(self, name: str, child: Child, *, deadline_seconds: float) -> None:
        self.name: Final = name
        self.stdin: Final[trio.abc.SendStream | None] = child.stdin
        self.stdout: Final[trio.abc.ReceiveStream] = _open(child.stdout)
        self.stderr: Final[trio.abc.ReceiveStream] = _open(child.stderr)
        self._child: Final = child
        self._deadline: Final = trio.current_time() + deadline_seconds
        self._exit: Exit | None = None
        self._timed_out = False
        self._destroyed = False
        self._killed = False
        self._ending: Final = trio.Lock()
        self._judging: Final = trio.Lock()

    async def wait(self) -> Exit:
        """How it ended, once it has. At its deadline it is killed and ``timeout``.

        Being cancelled kills nothing. The streams stay readable.
        """
        if self._exit is None:
            with trio.move_on_at(self._deadline) as scope:
                await self._child.wait()
            if scope.cancelled_caught:
                self._timed_out = True
                with trio.CancelScope(shield=True):
                    await self._kill()
        return await self._conclude()

    async def destroy(self, grace_seconds: float = 0.0) -> None:
        """End it, and return only when no process, container or group of it is left.

        Closes standard input, waits up to ``grace_seconds`` for an end of its own, then
        closes our ends of its output (a blocked writer would make it undeletable) and
        kills. Cannot be cancelled; the second call returns when the first has done it.
        Raises ``Fault("engine_failed")`` when something is left all the same.
        """
        with trio.CancelScope(shield=True):
            async with self._ending:
                if self._destroyed:
                    return
                if self.stdin is not None:
                    await trio.aclose_forcefully(self.stdin)
                if grace_seconds > 0:
                    with trio.move_on_after(grace_seconds):
                        await self._child.wait()
                # From here on its end is our doing, also where a write that we cut off is what
                # ended it before the kill came.
                self._killed = self._killed or self._child.returncode is None
                await self._child.close_streams()
                await self._kill()
                await self._conclude()
                await self._release()
                self._child.close()
                self._destroyed = True

    async def terminate(self) -> None:
        """Ask the program to end: SIGTERM to it alone, if it still runs. Waits for nothing.

        What started it in there is not told, so whoever ignores this is ended by ``destroy``.
        """
        async with self._ending:
            if not self._destroyed and self._child.returncode is None:
                await self._terminate()

    @abstractmethod
    async def _terminate(self) -> None:
        """SIGTERM to the program; it may have ended already."""

    @abstractmethod
    async def facts(self) -> Facts:
        """What the host sees of it now. Ask when its first byte has come."""

    @abstractmethod
    async def _kill(self) -> None:
        """End every process of it, and return when they have ended."""

    @abstractmethod
    async def _judge(self, returncode: int) -> Exit:
        """What the end of our child means. Called once, before ``_release``."""

    @abstractmethod
    async def _release(self) -> None:
        """Give back what it held. Nothing of it runs any more."""

    async def _conclude(self) -> Exit:
        returncode = await self._child.wait()
        with trio.CancelScope(shield=True):
            async with self._judging:
                if self._exit is None:
                    judged = await self._judge(returncode)
                    self._exit = Exit("timeout", None) if self._timed_out else judged
        assert self._exit is not None
        return self._exit


def exit_of_code(code: int) -> Exit:
    """An engine's exit code as an ``Exit``: above 128 it stands for a signal."""
    return Exit("signal", code - 128) if code > 128 else Exit("exit", code)


def _take(pipe: object) -> trio.lowlevel.FdStream | None:
    """Popen's end of a pipe as a stream of ours."""
    if pipe is None:
        return None
    descriptor = os.dup(pipe.fileno())  # type: ignore[attr-defined]
    pipe.close()  # type: ignore[attr-defined]
    return trio.lowlevel.FdStream(descriptor)


def _open(stream: trio.lowlevel.FdStream | None) -> trio.lowlevel.FdStream:
    assert stream is not None
    return stream
