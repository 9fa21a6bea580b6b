"""Start the programs that a row times, alone or joined by two pipes, on one CPU.

A program that is timed takes its orders on a control pipe of its own: it reads how often
to do its work (8 bytes), does it, and writes durations in nanoseconds (8 bytes each): one
for each time, or one for all. Its stdin and stdout carry nothing but what is measured.
"""

import array
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final

from tests.benchmarks.model import Broken, Measure, Unavailable

ROOT: Final = Path(__file__).parents[2]
PROGRAMS: Final = Path(__file__).parent / "programs"

#: Where the set-up puts the packages that airlock is compared with and does not use.
PEERS: Final = Path(os.environ.get("AIRLOCK_BENCH_PEERS", ROOT / ".venv-bench"))
PEER_PYTHON: Final = PEERS / "bin" / "python"

Command = Sequence[str]

#: A program that did not answer by then hangs, and so would the whole run.
_EXIT_SECONDS: Final = 10


def own_python(program: str, *arguments: object) -> list[str]:
    """The command of one of our programs with the interpreter and packages of the project."""
    return [sys.executable, str(PROGRAMS / program), *map(str, arguments)]


def peer_python(program: str, *arguments: object, needs: str) -> list[str]:
    """The same with the packages of the peers; ``Unavailable`` when ``needs`` is not there."""
    if not has_peer_package(needs):
        raise Unavailable(f"{needs} is not installed (make bench installs it)")
    return [str(PEER_PYTHON), "-W", "ignore", str(PROGRAMS / program), *map(str, arguments)]


@cache
def has_peer_package(distribution: str) -> bool:
    """True if the peers' environment holds ``distribution``."""
    return peer_version(distribution) != ""


@cache
def peer_version(distribution: str) -> str:
    """The installed version of a peer, or an empty string."""
    if not PEER_PYTHON.exists():
        return ""
    program = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"
    asked = subprocess.run(
        [PEER_PYTHON, "-I", "-c", program, distribution], capture_output=True, text=True
    )
    return asked.stdout.strip() if asked.returncode == 0 else ""


@contextmanager
def compiled(*programs: str) -> Iterator[list[str]]:
    """The paths of C programs of ours, compiled; ``Unavailable`` without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise Unavailable("no C compiler")
    with tempfile.TemporaryDirectory(prefix="airlock-bench-") as folder:
        targets = [str(Path(folder) / Path(program).stem) for program in programs]
        for program, target in zip(programs, targets, strict=True):
            subprocess.run([compiler, "-O2", "-o", target, PROGRAMS / program], check=True)
        yield targets


@contextmanager
def pair(asker: Command, answerer: Command, *, times: int, samples: int) -> Iterator[Measure]:
    """``asker`` and ``answerer`` joined by pipes on one CPU, for rounds of ``times`` requests.

    ``samples`` is how many durations the asker answers a round with: ``times`` or 1.
    """
    with ExitStack() as stack:
        control = _Control(stack)
        there_read, there_write = os.pipe()
        back_read, back_write = os.pipe()
        with one_cpu():
            stack.enter_context(_started(answerer, stdin=there_read, stdout=back_write))
            stack.enter_context(
                _started(
                    [*asker, *control.arguments],
                    stdin=back_read,
                    stdout=there_write,
                    pass_fds=control.theirs,
                )
            )
        for descriptor in (there_read, there_write, back_read, back_write):
            os.close(descriptor)
        control.started()
        yield lambda: control.round(times, samples)


@contextmanager
def single(command: Command, *, times: int, samples: int) -> Iterator[Measure]:
    """One program on one CPU, else like ``pair``; it may start its other end itself."""
    with ExitStack() as stack:
        control = _Control(stack)
        with one_cpu():
            stack.enter_context(
                _started(
                    [*command, *control.arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=control.theirs,
                )
            )
        control.started()
        yield lambda: control.round(times, samples)


@contextmanager
def one_cpu() -> Iterator[None]:
    """What is started inside runs on one CPU, where the machine permits that."""
    try:
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(before)})
    except (AttributeError, OSError):
        yield
        return
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def may_pin() -> bool:
    """True if ``one_cpu`` has an effect here."""
    try:
        with one_cpu():
            return len(os.sched_getaffinity(0)) == 1
    except (AttributeError, OSError):
        return False


class _Control:
    """Both ends of a control pipe until the program has its own."""

    def __init__(self, stack: ExitStack) -> None:
        orders_read, self._orders = os.pipe()
        self._durations, durations_write = os.pipe()
        self.theirs = (orders_read, durations_write)
        self.arguments = [str(orders_read), str(durations_write)]
        stack.callback(os.close, self._durations)
        stack.callback(os.close, self._orders)

    def started(self) -> None:
        """The program has its ends now; with ours closed, its death is an end of file."""
        for descriptor in self.theirs:
            os.close(descriptor)

    def round(self, times: int, samples: int) -> list[float]:
        """Order the work and wait for its durations, in seconds."""
        with suppress(BrokenPipeError):
            os.write(self._orders, times.to_bytes(8, "little"))
        data = b""
        while len(data) < 8 * samples:
            more = os.read(self._durations, 8 * samples - len(data))
            if not more:
                raise Broken("the program died, see its stderr")
            data += more
        return [nanoseconds / 1e9 for nanoseconds in array.array("q", data)]


@contextmanager
def _started(
    command: Command, *, stdin: int, stdout: int, pass_fds: tuple[int, ...] = ()
) -> Iterator[None]:
    process = subprocess.Popen(command, stdin=stdin, stdout=stdout, pass_fds=pass_fds, cwd=ROOT)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
