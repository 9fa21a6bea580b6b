"""The command as its user starts it: a process of its own, a state folder of its own."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

#: The command in-process starts in the state folder that it is given here.
RUNNER = """
import sys
from pathlib import Path
import broker.locations
broker.locations.ROOT_STATE = Path(sys.argv.pop(1))
from broker.cli.main import main
sys.exit(main())
"""


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Airlock = Callable[..., Done]


@pytest.fixture(scope="session")
def state() -> Iterator[Path]:
    # Below /tmp and not below pytest's own folder, which an unprivileged uid cannot pass.
    folder = Path(tempfile.mkdtemp(prefix="airlock-cli-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def airlock(state: Path) -> Airlock:
    def run(*arguments: str | Path, cwd: Path | None = None, data: str = "") -> Done:
        environment = {"PATH": os.environ["PATH"], "HOME": str(state), "LANG": "C.UTF-8"}
        environment["XDG_STATE_HOME"] = str(state)
        done = subprocess.run(
            [sys.executable, "-c", RUNNER, str(state), *map(str, arguments)],
            cwd=cwd, env=environment, input=data, capture_output=True, text=True, check=False,
            timeout=120,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    return run
