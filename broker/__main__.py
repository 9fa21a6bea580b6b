"""Starts ``airlock`` as ``python -m broker``, from a folder that may be hostile.

The current folder is dropped from the module path before anything else is imported:
a checkout can hold a ``protocol`` or a ``typing`` of its own.
"""

import os
import sys

if not sys.flags.safe_path:
    sys.path[:] = [entry for entry in sys.path if entry not in ("", os.getcwd())]

from broker.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
