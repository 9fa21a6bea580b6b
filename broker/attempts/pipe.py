"""The agent's standard streams: chunks in, frames out, errors drained. Knows no message.

Reading never waits on writing: frames wait in a queue that one writer empties, so that
no two tasks ever write and no frame is ever left half written.
"""

import os
from collections import deque
from typing import Final, final

import trio

#: One read from the agent's pipe: the kernel's pipe holds this much.
RECEIVE_BYTES: Final = 64 * 1024
#: Frames that are ready together leave in one write of about this size.
WRITE_BYTES: Final = 256 * 1024


@final
class Pipe:
    """Bytes to and from one agent over its standard streams."""

    def __init__(
        self,
        *,
        stdin: trio.abc.SendStream,
        stdout: trio.abc.ReceiveStream,
        stderr: trio.abc.ReceiveStream,
    ) -> None:
        self._stdin: Final = stdin
        self._stdout: Final = stdout
        self._stderr: Final = stderr
        self._outgoing: Final[deque[bytes]] = deque()
        self._wake = trio.Event()
        self._closing = False
        self._writing = False
        self._plain: Final = stdin if isinstance(stdin, trio.lowlevel.FdStream) else None
        self._unsent = 0
        #: Set when the agent did not take bytes for as long as ``write_all`` allows.
        self.stalled: Final = trio.Event()
        #: Set when standard error has ended.
        self.drained: Final = trio.Event()
        self.stderr_bytes = 0  #: everything written to standard error, kept or not
        self.stderr_kept: Final = bytearray()

    @property
    def unsent(self) -> int:
        """Bytes that wait to be written: what the agent has not read, less the kernel's part."""
        return self._unsent

    def queue(self, frame: bytes) -> None:
        """Writes ``frame``, or puts it behind those that wait to be written. Never blocks.

        Where nothing waits, what the kernel's pipe has room for goes out at once: waking
        the writer would cost more than the write.
        """
        if self._plain is not None and not self._outgoing and not self._writing:
            frame = self._write_now(self._plain.fileno(), frame)
        if frame:
            self._outgoing.append(frame)
            self._unsent += len(frame)
            self._wake.set()

    def _write_now(self, descriptor: int, frame: bytes) -> bytes:
        """What is left of ``frame``. The descriptor does not block: trio made it so."""
        if descriptor < 0:
            return b""  # closed by us: the conversation is over
        try:
            return frame[os.write(descriptor, frame) :]
        except BlockingIOError:
            return frame
        except OSError:
            return b""  # the agent's end is gone; reading will notice

    async def read(self) -> bytes:
        """What arrived next; ``b""`` at the end of the agent's output."""
        try:
            return bytes(await self._stdout.receive_some(RECEIVE_BYTES))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return b""

    async def write_all(self, *, stall_seconds: float) -> None:
        """Writes what is queued until ``finish`` was called and the queue is empty.

        When the agent does not take bytes for ``stall_seconds`` this sets ``stalled``
        and ends. When the agent's end is gone it ends too: reading will notice.
        """
        while True:
            if not self._outgoing:
                if self._closing:
                    break
                self._wake = trio.Event()
                await self._wake.wait()
                continue
            self._writing = True
            with trio.move_on_after(stall_seconds) as scope:
                try:
                    await self._stdin.send_all(self._next_write())
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return
            self._writing = False
            if scope.cancelled_caught:
                self.stalled.set()
                return
        await self._stdin.aclose()

    def _next_write(self) -> bytes:
        parts = [self._outgoing.popleft()]
        size = len(parts[0])
        while self._outgoing and size < WRITE_BYTES:
            parts.append(self._outgoing.popleft())
            size += len(parts[-1])
        self._unsent -= size
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def finish(self) -> None:
        """Lets the writer close the agent's standard input once all is written."""
        self._closing = True
        self._wake.set()

    async def drain_stderr(self, *, limit: int) -> None:
        """Reads standard error to its end; keeps ``limit`` bytes, counts the rest."""
        while True:
            try:
                chunk = await self._stderr.receive_some(RECEIVE_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                chunk = b""
            if not chunk:
                self.drained.set()
                return
            self.stderr_kept.extend(chunk[: max(0, limit - self.stderr_bytes)])
            self.stderr_bytes += len(chunk)
