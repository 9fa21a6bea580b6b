"""Asks over stdout and times until the answer is on stdin, with blocking calls only.

Usage: asker.py REQUEST WINDOW HELLO EXPECTED CONTROL_IN CONTROL_OUT

REQUEST is a line with ``%d`` where its number goes. With WINDOW 1 each sample is one
round trip; with more, that many requests are kept in flight and there is one sample for
all requests of the round. With a HELLO that is not empty, one line is read and HELLO is
sent before the first request. An answer that does not hold EXPECTED ends the program.
"""

import os
import sys
from itertools import count
from time import perf_counter_ns

from control import Control

#: A pipe holds no more; a larger buffer would be mapped and unmapped for each read.
READ_BYTES = 64 * 1024


def main() -> None:
    request, window, hello, expected = sys.argv[1:5]
    control = Control()
    numbers = count()
    if hello:
        read_line()
        os.write(1, hello.encode() + b"\n")
    for times in control.rounds():
        lines = [(request % next(numbers)).encode() + b"\n" for _ in range(times)]
        if int(window) == 1:
            control.report([round_trip(line, expected.encode()) for line in lines])
        else:
            control.report([in_flight(lines, int(window), expected.encode())])


def round_trip(line: bytes, expected: bytes) -> int:
    """Nanoseconds from before the write until the last byte of the answer was read."""
    start = perf_counter_ns()
    os.write(1, line)
    answer = read()
    while answer[-1:] != b"\n":
        answer += read()
    taken = perf_counter_ns() - start
    check(expected in answer, answer)
    return taken


def in_flight(lines: list[bytes], window: int, expected: bytes) -> int:
    """Nanoseconds for all ``lines``; as many are sent as answers arrived."""
    asked = answered = 0
    chunks = []
    start = perf_counter_ns()
    while answered < len(lines):
        free = answered + window - asked
        if free > 0 and asked < len(lines):
            os.write(1, b"".join(lines[asked : asked + free]))
            asked += free
        chunk = read()
        answered += chunk.count(b"\n")
        chunks.append(chunk)
    taken = perf_counter_ns() - start
    answers = b"".join(chunks).splitlines()
    check(len(answers) == len(lines) and all(expected in each for each in answers), answers[-1])
    return taken


def read() -> bytes:
    """What has arrived; the end of the other side is an end of this one."""
    chunk = os.read(0, READ_BYTES)
    if not chunk:
        sys.exit("asker: the other end closed")
    return chunk


def read_line() -> None:
    line = read()
    while line[-1:] != b"\n":
        line += read()


def check(right: bool, answer: bytes) -> None:
    if not right:
        sys.exit(f"asker: unexpected answer {answer[:300]!r}")


if __name__ == "__main__":
    main()
