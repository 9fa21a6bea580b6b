"""From a typed request of a read to the labelled input that the policy decides on. Pure."""

from broker.attempts.effects import folder_of
from broker.policy.conversions import ConversionRejected
from broker.policy.decision import RequestRef
from broker.policy.mint import AttemptMint
from broker.policy.paths import PathRegistry
from broker.policy.policy_input import PolicyInput
from broker.policy.read_inputs import list_input, read_input, search_input
from protocol.tools import ListFilesInput, ReadFileInput, SearchFilesInput, ToolInput


def of_read(
    mint: AttemptMint, registry: PathRegistry, ref: RequestRef, given: ToolInput
) -> PolicyInput:
    """The input of a read, a listing or a search; raises ``ConversionRejected``."""
    match given:
        case ReadFileInput():
            return read_input(
                mint, registry, ref, path=given.path, offset=given.offset, limit=given.count
            )
        case ListFilesInput():
            return list_input(
                mint,
                registry,
                ref,
                prefix=folder_of(given.prefix),
                cursor=given.cursor,
                limit=given.limit,
            )
        case SearchFilesInput():
            return search_input(
                mint,
                registry,
                ref,
                query=given.query,
                regex=given.regex,
                prefix=folder_of(given.prefix),
                limit=given.max_matches,
            )
        case _:
            raise ConversionRejected("argument_schema_invalid")
