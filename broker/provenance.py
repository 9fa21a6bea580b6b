"""Refuses to run on modules that are not airlock's own.

``broker`` and ``protocol`` are common names: a checkout, an environment variable or
another distribution can put a module of that name in front of ours.
"""

import sys
from pathlib import Path
from typing import Final

from protocol.errors import Refusal

OWN_PACKAGES: Final = ("broker", "protocol")


def check_modules() -> None:
    """``Refusal("foreign_module")`` unless every loaded module of ours lies beside this one."""
    home = Path(__file__).resolve().parent.parent
    folders = {package: home / package for package in OWN_PACKAGES}
    for name, module in list(sys.modules.items()):
        package, _, rest = name.partition(".")
        file = getattr(module, "__file__", None)
        if package not in folders or file is None or rest.startswith(("bundled", "schemas")):
            continue
        if not Path(file).resolve().is_relative_to(folders[package]):
            raise Refusal("foreign_module")
