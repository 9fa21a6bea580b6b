"""Where airlock keeps what it makes, and where its bundled files lie. Makes nothing by itself.

The state folder must be passable for the unprivileged uid that a sandbox runs as, so
as root it is not below a home folder.
"""

import os
import re
from importlib import resources
from pathlib import Path
from typing import Final

import platformdirs

from protocol.errors import Fault, Refusal

#: Root's own state; a home folder (0700) could not be passed by a dropped uid.
ROOT_STATE: Final = Path("/var/lib/airlock")

_BUNDLED_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,63}\Z")


def state_folder() -> Path:
    """The folder for scratch stores, adapters, engine state and attempts."""
    if os.geteuid() == 0:
        return ROOT_STATE
    return platformdirs.user_state_path("airlock")


def config_file() -> Path:
    """The user's configuration file; it need not exist."""
    return platformdirs.user_config_path("airlock") / "airlock.toml"


def bundled(name: str) -> Path:
    """The bundled folder ``name`` (``fixture``, ``demo``), or ``Refusal("agent_unknown")``."""
    if _BUNDLED_NAME.match(name) is None:
        raise Refusal("agent_unknown")
    path = Path(str(resources.files("broker.bundled"))) / name
    if not path.is_dir():
        raise Refusal("agent_unknown")
    return path


def make_state(folder: Path) -> Path:
    """``folder`` made if it was absent, passable but not listable for others.

    Raises ``Fault("store_unwritable")``.
    """
    try:
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(0o711)
    except OSError as error:
        raise Fault("store_unwritable") from error
    return folder
