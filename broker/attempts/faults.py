"""Finds the one fault of ours in what came out of a nursery. Catches and hides nothing."""

from protocol.errors import Fault


def fault_of(error: BaseException) -> Fault | None:
    """The first ``Fault`` in ``error``, or None where there is anything but faults in it."""
    if isinstance(error, Fault):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    found = [fault_of(part) for part in error.exceptions]
    return found[0] if None not in found else None
