"""A digest that names this machine's toolchain, for sandboxes whose root is the host's ``/usr``.

It covers what the package database says, the release, the architecture and the bytes of
the interpreter and the shell. It promises that two receipts with the same digest were
made with the same installed package versions. It does not promise that the files under
``/usr`` are the packages' own: a file that was changed behind the package manager's back,
or that no package owns, is not seen. An image digest promises that; this does not.
"""

import hashlib
import os
from pathlib import Path
from typing import Final

from protocol.digest import digest_value
from protocol.errors import Fault
from protocol.ids import Digest

#: Release and package databases of the common distributions; an absent one is named absent.
_FACTS: Final = (
    "/etc/os-release",
    "/var/lib/dpkg/status",
    "/var/lib/rpm/rpmdb.sqlite",
    "/usr/lib/sysimage/rpm/rpmdb.sqlite",
    "/lib/apk/db/installed",
)
_PROGRAMS: Final = ("/usr/bin/python3", "/bin/sh")


def host_root_digest() -> Digest:
    """The digest of this machine's toolchain, or ``Fault("engine_unavailable")``.

    The order of installation does not count: records of the dpkg database are sorted.
    """
    facts: list[list[str]] = [["machine", os.uname().machine]]
    try:
        for name in (*_FACTS, *_PROGRAMS):
            path = Path(name)
            facts.append([name, _digest(path) if path.is_file() else "absent"])
    except OSError as error:
        raise Fault("engine_unavailable") from error
    return digest_value(["airlock.host-root.v1", facts])


def _digest(path: Path) -> str:
    """sha256 of a file; the dpkg database is read as a set of records."""
    data = path.read_bytes()
    if path.name == "status":
        data = b"\n\n".join(sorted(record for record in data.split(b"\n\n") if record.strip()))
    return hashlib.sha256(data).hexdigest()
