"""What a self-test found, kept for as long as it can be true: one boot, one version."""

import os
import secrets
from pathlib import Path

import msgspec

from broker.engines.engine import Engine, SelfTest
from broker.engines.probes import run_self_test
from broker.engines.spec import Root
from protocol.digest import DIGEST_PREFIX, digest_value


async def cached_self_test(engine: Engine, root: Root, *, folder: Path, key: object) -> SelfTest:
    """``run_self_test``, or what it found before in this boot for the same ``key``.

    A result is kept in ``folder``, which only this user may write. One that cannot be
    read is found again.
    """
    path = folder / _name(root, key)
    found = _read(path)
    if found is None:
        found = await run_self_test(engine, root)
        _write(path, found)
    return found


def _name(root: Root, key: object) -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    digest = digest_value([key, boot, os.uname().release, os.geteuid(), str(root)])
    return f"{digest.removeprefix(DIGEST_PREFIX)}.json"


def _read(path: Path) -> SelfTest | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=SelfTest)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def _write(path: Path, found: SelfTest) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f".{secrets.token_hex(8)}")
    fresh.write_bytes(msgspec.json.encode(found))
    fresh.rename(path)
