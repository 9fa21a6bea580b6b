"""The question at the terminal: only a yes that was typed after it stood there is a yes."""

import os
import pty
import select
import subprocess
import sys
import time

import pytest

PROGRAM = """
import sys, time, trio
from rich.console import Console
from broker.cli.approving import TerminalApprover
from broker.cli.watching import TerminalWatcher
action = {"tool": "recipe.run", "effect": "code_execution", "targets": ["recipe:test"],
          "sourceDigest": "sha256:aa", "actionDigest": "sha256:bb", "occurrence": 1,
          "recipe": {"id": "test", "argv": ["/bin/\\x1b[31mtest", "a b"], "timeoutMs": 1,
                     "imageDigest": "sha256:cc", "maxOutputBytes": 2}}
async def main():
    approver = TerminalApprover(TerminalWatcher(Console(stderr=True)))
    if sys.argv[1] == "cancel":
        with trio.move_on_after(0.5):
            await approver.ask(action)
        print("answer: cancelled", flush=True)
        return
    if sys.argv[1] == "late":
        print("typing", flush=True)
        time.sleep(0.7)
    for _ in range(int(sys.argv[2])):
        print("answer:", await approver.ask(action), flush=True)
trio.run(main)
"""


class Terminal:
    """The program on a terminal of its own; ``typed`` is what a person types."""

    def __init__(self, kind: str, questions: int = 1) -> None:
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.execv(sys.executable, [sys.executable, "-c", PROGRAM, kind, str(questions)])
        self.shown = b""

    def wait_for(self, text: bytes, count: int = 1) -> None:
        end = time.monotonic() + 20
        while self.shown.count(text) < count:
            assert time.monotonic() < end, self.shown
            if select.select([self.descriptor], [], [], 0.1)[0]:
                try:
                    self.shown += os.read(self.descriptor, 65536)
                except OSError:
                    break
        assert self.shown.count(text) >= count, self.shown

    def type(self, text: bytes) -> None:
        os.write(self.descriptor, text)

    def wait_for_answers(self, count: int = 1) -> None:
        self.wait_for(b"answer: ", count)
        end = time.monotonic() + 20
        while not self.shown.rstrip(b" ").endswith((b"True\r\n", b"False\r\n", b"allow:")):
            assert time.monotonic() < end, self.shown
            if select.select([self.descriptor], [], [], 0.1)[0]:
                self.shown += os.read(self.descriptor, 65536)

    def end(self) -> bytes:
        os.close(self.descriptor)
        os.waitpid(self.pid, 0)
        return self.shown


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (b"yes\n", b"answer: True"),
        (b"no\n", b"answer: False"),
        (b"y\n", b"answer: False"),
        (b"\n", b"answer: False"),
        (b"yes please\n", b"answer: False"),
        (b"yes\nyes\n", b"answer: True"),
        (b"x" * 80 + b"yes\n", b"answer: False"),
        (b"\x04", b"answer: False"),
    ],
)
def test_only_yes_is_yes(typed: bytes, answer: bytes) -> None:
    terminal = Terminal("ask")
    terminal.wait_for(b"to allow: ")
    terminal.type(typed)
    terminal.wait_for_answers()

    assert answer in terminal.end()


def test_what_was_typed_before_the_question_answers_nothing() -> None:
    terminal = Terminal("late")
    terminal.wait_for(b"typing")
    terminal.type(b"yes\nyes\n")
    terminal.wait_for(b"to allow: ")
    time.sleep(0.3)
    assert b"answer" not in terminal.shown

    terminal.type(b"no\n")
    terminal.wait_for_answers()
    assert b"answer: False" in terminal.end()


def test_a_second_line_is_no_answer_to_the_next_question() -> None:
    terminal = Terminal("ask", 2)
    terminal.wait_for(b"to allow: ")
    terminal.type(b"yes\nyes\n")
    terminal.wait_for(b"to allow: ", 2)
    time.sleep(0.3)
    assert terminal.shown.count(b"answer:") == 1

    terminal.type(b"no\n")
    terminal.wait_for_answers(2)
    assert b"answer: False" in terminal.end()


def test_a_long_line_is_no_answer_to_the_next_question() -> None:
    terminal = Terminal("ask", 2)
    terminal.wait_for(b"to allow: ")
    terminal.type(b"x" * 64 + b"yes\n")
    terminal.wait_for(b"to allow: ", 2)
    time.sleep(0.3)
    assert terminal.shown.count(b"answer:") == 1

    terminal.type(b"yes\n")
    terminal.wait_for_answers(2)
    shown = terminal.end()
    assert shown.index(b"answer: False") < shown.index(b"answer: True")


def test_a_question_that_is_taken_back_ends(tmp_path: object) -> None:
    terminal = Terminal("cancel")
    terminal.wait_for(b"answer: cancelled")
    terminal.end()


def test_the_document_cannot_steer_the_terminal() -> None:
    terminal = Terminal("ask")
    terminal.wait_for(b"to allow: ")
    terminal.type(b"no\n")
    terminal.wait_for_answers()

    assert b"\x1b[31m" not in terminal.end()


def test_without_a_terminal_nobody_is_asked_and_the_answer_is_no() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "ask", "1"],
        input=b"yes\n", capture_output=True, start_new_session=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.stdout == b"answer: False\n"
