"""Answers each line on stdin with one fixed line on stdout; blocking calls, no parsing.

Usage: blocking_answerer.py ANSWER_BYTES
"""

import os
import sys

#: A pipe holds no more; a larger buffer would be mapped and unmapped for each read.
READ_BYTES = 64 * 1024


def main() -> None:
    answer = b"x" * (int(sys.argv[1]) - 1) + b"\n"
    while request := os.read(0, READ_BYTES):
        view = memoryview(answer * request.count(b"\n"))
        while view:
            view = view[os.write(1, view) :]


if __name__ == "__main__":
    main()
