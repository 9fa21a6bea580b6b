"""Which tools of the wire are offered, and what the policy knows each as: one closed table."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from broker.policy.descriptors import ToolDescriptor
from broker.policy.tool_table import LIST, PATCH, READ, RECIPE, SEARCH

__all__ = ["CHANGES", "DESCRIPTORS", "READS", "SLOW_READS"]

#: Wire tool -> what the policy knows it as. A name that is not here is not offered, and is
#: in no record, for a peer wrote it.
DESCRIPTORS: Final[Mapping[str, ToolDescriptor]] = MappingProxyType(
    {
        "read_file": READ,
        "list_files": LIST,
        "search_files": SEARCH,
        "apply_patch": PATCH,
        "edit_file": PATCH,
        "write_file": PATCH,
        "delete_file": PATCH,
        "run_recipe": RECIPE,
    }
)

#: Tools that only read the tree; a search can take seconds, the others are done at once.
READS: Final = frozenset({"read_file", "list_files", "search_files"})
SLOW_READS: Final = frozenset({"search_files"})

#: Tools that change the tree; what is asked behind one waits for it.
CHANGES: Final = frozenset(name for name, tool in DESCRIPTORS.items() if tool is PATCH)
