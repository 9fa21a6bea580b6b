"""The fields of a request as the agent sent them, checked for their type and size only.

They are still Unsafe: each goes through a conversion, or stays a payload, where it is used.
"""

from broker.policy.conversions import ConversionRejected
from broker.policy.labels import Safe
from protocol.decision_codes import DecisionReason


def agent_text(given: object, maximum: int, otherwise: DecisionReason) -> str:
    """``given`` as text of at most ``maximum`` characters; rejected as ``otherwise`` if longer."""
    if type(given) is not str:
        raise ConversionRejected("argument_schema_invalid")
    if len(given) > maximum:
        raise ConversionRejected(otherwise)
    return given


def registered_ids(value: Safe) -> tuple[str, ...]:
    """The registered ids of a converted value or of a list of them."""
    found = value.value
    if type(found) is str:
        return (found,)
    return tuple(item for item in found if type(item) is str) if type(found) is tuple else ()
