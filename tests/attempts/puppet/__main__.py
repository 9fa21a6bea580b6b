"""An agent that does what its task says: the steps are a JSON list in ``task.instruction``.

Every line that it gets is repeated on standard error after ``< ``, so that a test can
read what the agent saw; what it says about itself stands after ``# ``. Standard library
only, and no good manners: it sends whatever bytes it is told to.
"""

import json
import os
import signal
import socket
import sys
import time

READ_BYTES = 65536
LONG_LINE = 20_000


def shortened(value):
    """The same with every long text cut to its first 2000 characters."""
    if isinstance(value, dict):
        return {key: shortened(each) for key, each in value.items()}
    return value[:2000] if isinstance(value, str) else value


class Puppet:
    """The pipe, and the lines that have come."""

    def __init__(self):
        self.buffer = b""
        self.frames = []
        self.seen = 0
        self.ended = False

    def say(self, text):
        os.write(2, b"# " + text.encode() + b"\n")

    def read(self):
        """One more chunk; False at the end of the input."""
        chunk = os.read(0, READ_BYTES)
        if not chunk:
            self.ended = True
            return False
        *lines, self.buffer = (self.buffer + chunk).split(b"\n")
        for line in lines:
            frame = json.loads(line)
            if len(line) > LONG_LINE:
                line = json.dumps(shortened(frame)).encode()
            self.do_stderr("< " + line.decode() + "\n")
            self.frames.append(frame)
        return True

    def until(self, found):
        """Reads until ``found(frame)`` holds for a frame, or the input ends."""
        while True:
            for frame in self.frames:
                if found(frame):
                    return frame
            if self.ended or not self.read():
                return None

    def write(self, data):
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]

    # Steps: each is {"do": name, ...}.

    def do_send(self, frame):
        self.write(json.dumps({"v": 1, **frame}).encode() + b"\n")

    def do_raw(self, hex):
        self.write(bytes.fromhex(hex))

    def do_pattern(self, hex, times):
        """The same bytes many times, in large writes."""
        data = bytes.fromhex(hex)
        left = times
        while left:
            now = min(left, max(1, READ_BYTES // len(data)))
            self.write(data * now)
            left -= now

    def do_flood(self, kind, times):
        """Events as fast as the pipe takes them."""
        frame = {"v": 1, "type": "event", "kind": kind, "data": {"a": 1}}
        self.do_pattern((json.dumps(frame).encode() + b"\n").hex(), times)

    def do_requests(self, times):
        """So many reads of a file that is not there, with nobody waiting for an answer."""
        frame = {"v": 1, "type": "tool.request", "tool": "read_file", "input": {"path": "no"}}
        for start in range(0, times, 500):
            names = [f"many{number}" for number in range(start, start + 500)]
            lines = [json.dumps({**frame, "requestId": name}) for name in names]
            self.write(("\n".join(lines) + "\n").encode())

    def do_answer(self, id):
        """Waits for the final answer to a request."""
        self.until(lambda frame: frame.get("requestId") == id and frame.get("final"))

    def do_cancel(self):
        """Waits for ``attempt.cancel``."""
        self.until(lambda frame: frame["type"] == "attempt.cancel")

    def do_end(self):
        """Waits for the end of standard input."""
        while not self.ended and self.read():
            pass
        self.say("end of input")

    def do_sleep(self, seconds):
        time.sleep(seconds)

    def do_forever(self):
        while True:
            time.sleep(60)

    def do_stderr(self, text, times=1):
        data = text.encode() * times
        while data:
            data = data[os.write(2, data) :]

    def do_exit(self, code):
        os._exit(code)

    def do_die(self, signal_number):
        os.kill(os.getpid(), signal_number)

    def do_ignore_signals(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)

    def do_grandchild(self):
        """A process of its own session that keeps the pipes open and resists."""
        if os.fork() == 0:
            os.setsid()
            self.do_ignore_signals()
            self.do_forever()

    def do_probe(self):
        """What a sandbox must deny, tried from inside."""
        found = {"uid": os.getuid(), "cwd": os.listdir("."), "env": sorted(os.environ)}
        with open("/proc/self/mountinfo") as file:
            found["mounts"] = file.read()
        with open("/proc/net/dev") as file:
            found["interfaces"] = [line.split(":")[0].strip() for line in file if ":" in line]
        try:
            socket.create_connection(("192.0.2.1", 80), 0.5)
            found["network"] = "connected"
        except OSError as error:
            found["network"] = str(error.errno)
        for name, path in (("root", "/probe"), ("adapter", "/adapter/probe"), ("tmp", "/tmp/p")):
            try:
                with open(path, "w") as file:
                    file.write("x")
                found[name] = "written"
            except OSError:
                found[name] = "refused"
        self.say("probe " + json.dumps(found))


def main():
    puppet = Puppet()
    start = puppet.until(lambda frame: frame["type"] == "task.start")
    if start is None:
        return 65
    for step in json.loads(start["task"]["instruction"]):
        getattr(puppet, "do_" + step.pop("do"))(**step)
    return 0


sys.exit(main())
