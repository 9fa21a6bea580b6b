"""Uses up what a sandbox is given, to find out whether that ends; run by the self-test.

Reads one JSON line (which section, and how much is too much), writes one JSON line per
finding: ``{"id", "seen"}``. Decides nothing: the host judges. Never run it outside of a
sandbox: it takes all the memory, processes and disk that it is allowed. Standard library
only.
"""

import json
import os
import signal
import sys
import time


def use_limits(emit, given):
    """Processes, processor time, /tmp, and one long file."""
    emit("limit.processes", count_forks(given["tooMany"]))
    emit("limit.cpu_percent", measure_cpu())
    emit("limit.tmp_bytes", fill("/tmp/fill", given["tmpBytes"] * 2))
    emit("limit.file_bytes", grow("/tmp/grow", given["fileBytes"] * 2))


def count_forks(most):
    """How many children can live at once, at most ``most``."""
    children = []
    try:
        while len(children) < most:
            child = os.fork()
            if child == 0:
                signal.pause()
                os._exit(0)
            children.append(child)
    except OSError:
        pass
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return len(children)


def measure_cpu():
    """Processor time of two busy children in percent of wall time."""
    seconds = 0.6
    begin = time.monotonic()
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            while time.monotonic() - begin < seconds:
                pass
            os._exit(0)
        children.append(child)
    used = 0.0
    for child in children:
        usage = os.wait4(child, 0)[2]
        used += usage.ru_utime + usage.ru_stime
    return round(100 * used / (time.monotonic() - begin))


def fill(path, most):
    """How many bytes go into files of 256 KiB in one folder, at most ``most``."""
    written = 0
    block = b"\0" * (256 * 1024)
    number = 0
    try:
        while written < most:
            with open(f"{path}{number}", "wb", buffering=0) as file:
                written += file.write(block)
            number += 1
    except OSError:
        pass
    for index in range(number + 1):
        if os.path.exists(f"{path}{index}"):
            os.unlink(f"{path}{index}")
    return written


def grow(path, most):
    """How long one file gets; the signal that says "too long" is off."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    size = 0
    try:
        with open(path, "wb", buffering=0) as file:
            while size < most:
                size += file.write(b"\0" * 65536)
    except OSError:
        pass
    os.unlink(path)
    return size


def use_memory(emit, given):
    """Last, alone: touches twice the memory that is allowed and tells how far it came."""
    held = []
    try:
        while len(held) * 4 < given["memoryBytes"] * 2 // (1024 * 1024):
            held.append(bytearray(b"\1") * (4 * 1024 * 1024))
            emit("limit.memory_mib", len(held) * 4)
    except MemoryError:
        emit("limit.memory_error", "yes")


def linger(emit, given):
    """Leaves a child that holds the output, has its own session and ignores TERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        emit("linger", "done")
        while True:
            signal.pause()
    while True:
        signal.pause()


SECTIONS = {"limits": use_limits, "memory": use_memory, "linger": linger}


def main():
    given = json.loads(sys.stdin.readline())

    def emit(name, seen):
        sys.stdout.write(json.dumps({"id": name, "seen": str(seen)}) + "\n")
        sys.stdout.flush()

    SECTIONS[given["section"]](emit, given)
    emit("end", "done")
    sys.stdin.read()


if __name__ == "__main__":
    main()
