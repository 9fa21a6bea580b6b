"""What is particular to bubblewrap: its roots, and a uid of the host for each sandbox."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import trio

from broker.engines.process import Exit
from broker.engines.spec import FolderRoot, HostRoot
from broker.engines.uids import FIRST_UID, UID_COUNT, lease_uid
from protocol.ids import Digest

NOTHING = Digest("sha256:" + "0" * 64)


async def test_the_root_holds_nothing_of_the_host_but_its_programs(bubblewrap: Any) -> None:
    listing = await bubblewrap.run(
        bubblewrap.python(
            "import os\n"
            "for top in ('/', '/etc', '/home', '/usr/local', '/tmp', '/adapter'):\n"
            "    print(top, *sorted(os.listdir(top)))\n"
        )
    )
    seen = dict(line.split(" ", 1) for line in listing.out.decode().splitlines() if " " in line)

    assert set(seen["/"].split()) <= {
        *("adapter", "bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32"),
        *("proc", "sbin", "tmp", "usr"),
    }
    assert set(seen["/etc"].split()) <= {
        *("alternatives", "group", "hosts", "ld.so.cache", "nsswitch.conf", "passwd"),
    }
    assert seen["/adapter"] == "README.md exhaust.py probe.py"
    assert "/home" not in seen
    assert "/usr/local" not in seen


async def test_the_checkout_cannot_be_named(bubblewrap: Any) -> None:
    checkout = Path(__file__).parents[2]
    code = (
        "import os, sys\n"
        "text = ''.join(open(f'/proc/{pid}/{name}').read() for pid in ('1', 'self')"
        " for name in ('mountinfo', 'environ'))\n"
        "print(sys.argv[1] in text, os.path.exists(sys.argv[1]))\n"
    )
    spec = bubblewrap.spec("/usr/bin/python3", "-c", code, str(checkout))
    ran = await bubblewrap.run(spec)

    assert ran.out == b"False False\n"


async def test_a_folder_is_a_root_although_it_has_no_mount_points(
    bubblewrap: Any, state: Path
) -> None:
    folder = state / "rootfs"
    (folder / "etc").mkdir(parents=True)
    (folder / "etc" / "marker").write_text("of the folder")
    for name in ("lib", "lib64", "bin", "usr"):
        if os.path.islink(f"/{name}"):
            (folder / name).symlink_to(os.readlink(f"/{name}"))
    for path in ("/usr/bin/dash", "/usr/bin/cat", *libraries("/usr/bin/cat")):
        target = folder / os.path.realpath(path).removeprefix("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(path), target)
        named = folder / "usr" / path.removeprefix("/usr").removeprefix("/")
        if not named.exists():
            named.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(os.path.realpath(path), named)
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    root = FolderRoot(folder, NOTHING)
    read = await bubblewrap.run(bubblewrap.spec("/usr/bin/cat", "/etc/marker", root=root))
    write = await bubblewrap.run(
        bubblewrap.spec("/usr/bin/dash", "-c", "echo x > /etc/marker || exit 9", root=root)
    )

    assert read.out == b"of the folder", read.err
    assert write.exit in (Exit("exit", 2), Exit("exit", 9))
    assert (folder / "etc" / "marker").read_text() == "of the folder"


def libraries(program: str) -> list[str]:
    """What the dynamic loader needs for ``program``."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return [word for word in listed.split() if word.startswith("/")]


async def test_two_sandboxes_never_share_a_uid(bubblewrap: Any) -> None:
    waiting = bubblewrap.python("print('up', flush=True); input()")
    sandboxes = [await bubblewrap.spawn(waiting) for _ in range(3)]
    for sandbox in sandboxes:
        await sandbox.stdout.receive_some(10)
    uids = [(await sandbox.facts()).kernel_uid for sandbox in sandboxes]

    if os.geteuid() == 0:
        assert len(set(uids)) == 3
        assert all(FIRST_UID <= uid < FIRST_UID + UID_COUNT for uid in uids)
    else:
        assert set(uids) == {os.geteuid()}


def test_a_uid_is_free_again_when_its_lease_ends(tmp_path: Path) -> None:
    first, second = lease_uid(tmp_path), lease_uid(tmp_path)
    first.close()
    third = lease_uid(tmp_path)

    assert first.uid == third.uid != second.uid


async def test_many_starts_leave_no_descriptor_behind(bubblewrap: Any) -> None:
    spec = bubblewrap.spec("/usr/bin/true", root=HostRoot(None, NOTHING))
    await bubblewrap.run(spec)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        await bubblewrap.run(spec)

    assert len(os.listdir("/proc/self/fd")) <= before


async def test_starts_side_by_side_do_not_mix(bubblewrap: Any) -> None:
    seen: dict[int, bytes] = {}

    async def one(number: int) -> None:
        seen[number] = (await bubblewrap.run(bubblewrap.python(f"print({number})"))).out

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(one, number)

    assert seen == {number: f"{number}\n".encode() for number in range(8)}


async def test_it_was_dropped_before_bubblewrap_and_not_inside(bubblewrap: Any) -> None:
    """As root of the host a sandbox could open the kernel's own settings for writing."""
    sandbox = await bubblewrap.spawn(bubblewrap.python("print('up', flush=True); input()"))
    await sandbox.stdout.receive_some(10)
    uid_line = Path(f"/proc/{sandbox._child.pid}/status").read_text()

    assert "Uid:\t0" not in uid_line
    assert "CapEff:\t0000000000000000" in uid_line
