"""Scratch folders end with their process, however it ended."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from broker.attempts.scratch import scratch_folder, sweep

HOLDER = """
import sys, time
from pathlib import Path
from broker.attempts.scratch import scratch_folder
with scratch_folder(Path(sys.argv[1]), "held") as folder:
    (folder / "objects").mkdir()
    print("ready", flush=True)
    time.sleep(60)
"""


def holder(state: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(state)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_folder_is_there_inside_and_gone_after(tmp_path: Path) -> None:
    with scratch_folder(tmp_path, "mine") as folder:
        assert folder.is_dir()

    assert not folder.exists()


def test_what_a_killed_process_left_is_swept_by_the_next(tmp_path: Path) -> None:
    process = holder(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (tmp_path / "scratch/held/objects").is_dir()

    with scratch_folder(tmp_path, "next"):
        assert os.listdir(tmp_path / "scratch") == ["next"]


def test_what_a_live_process_holds_is_left_alone(tmp_path: Path) -> None:
    process = holder(tmp_path)
    try:
        assert sweep(tmp_path / "scratch") == 0
        assert (tmp_path / "scratch/held/objects").is_dir()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("age", "left"), [(0, True), (3600, False)])
def test_a_folder_without_a_lock_is_left_while_it_is_young(
    tmp_path: Path, age: int, left: bool
) -> None:
    young = tmp_path / "scratch" / "young"
    young.mkdir(parents=True)
    then = young.stat().st_mtime - age
    os.utime(young, (then, then))

    sweep(tmp_path / "scratch")

    assert young.exists() is left


def test_a_tree_deeper_than_python_walks_is_swept(tmp_path: Path) -> None:
    process = holder(tmp_path)
    process.kill()
    process.wait()
    handle = os.open(tmp_path / "scratch/held/objects", os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d", dir_fd=handle)
        deeper = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = deeper
    os.close(handle)
    (tmp_path / "scratch/held/shut").mkdir(mode=0)

    sweep(tmp_path / "scratch")

    assert not (tmp_path / "scratch/held").exists()


def test_a_sweep_beside_processes_that_start_takes_nothing_of_theirs(tmp_path: Path) -> None:
    loop = (
        "import sys\nfrom pathlib import Path\n"
        "from broker.attempts.scratch import scratch_folder\n"
        "for n in range(60):\n"
        "    with scratch_folder(Path(sys.argv[1]), f'{sys.argv[2]}-{n}') as folder:\n"
        "        (folder / 'x').mkdir()\n"
        "        assert (folder / 'x').is_dir()\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", loop, str(tmp_path), str(number)])
        for number in range(3)
    ]

    assert [process.wait() for process in processes] == [0, 0, 0]
    assert os.listdir(tmp_path / "scratch") == []
