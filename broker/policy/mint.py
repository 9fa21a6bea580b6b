"""The labelled constants of one attempt, minted once and held by the broker alone.

Whoever holds an ``AttemptMint`` can make control-owned values, so the attempt makes one
and hands it to the gate; nothing else gets it and nothing finds it by import. The task
is a control dependency of everything that the agent asks, by its digest.
"""

from dataclasses import dataclass
from typing import Final, final

from broker.policy.canonical import LabelError, Value
from broker.policy.conversions import ConversionRejected
from broker.policy.decision import RequestRef
from broker.policy.evaluator import Facts
from broker.policy.ingress import Ingress
from broker.policy.labels import Safe, Unsafe
from broker.policy.policy_input import Argument, Context, plan_id
from broker.policy.readers import PUBLIC, Readers
from broker.policy.registry import DestinationRegistry
from broker.policy.tool_table import TOOLS
from protocol.ids import Digest, Id

_DIGEST_PREFIX: Final = len("sha256:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Principals:
    """Who there is besides the agent and the broker.

    ``owner`` (as in ``owner:u_1``) started the attempt; ``providers`` (see
    ``RouteRegistry.providers``) read whatever the agent puts into a prompt, so what they
    may not read, the agent may not read either.
    """

    owner: str
    providers: tuple[str, ...] = ()


@final
class AttemptMint:
    """The constants of one attempt, as arguments and labels ready for a policy input."""

    def __init__(
        self,
        attempt_id: Id,
        *,
        task_digest: Digest,
        bundle_digest: Digest,
        principals: Principals,
        task_id: str = "task",
    ) -> None:
        agent = f"agent:{attempt_id}"
        self._ingress: Final = Ingress()
        self.attempt_id: Final = attempt_id
        self.bundle_digest: Final = bundle_digest
        self._plan_id: Final = plan_id(attempt_id)
        #: Who may read what the agent asked for.
        self.request_readers: Final = Readers(
            (agent, "broker", "control-plane", principals.owner, *principals.providers)
        )
        #: Who may read a file that nothing restricts.
        self.file_readers: Final = Readers(
            (agent, "broker", principals.owner, *principals.providers)
        )
        task = self._ingress.user_instruction(
            task_digest, identity=task_id, readers=self.request_readers
        )
        self._control: Final = (task,)
        readers = {
            principal: self.constant(principal, identity=f"reader.{name}", readers=PUBLIC)
            for principal, name in (
                (agent, "agent"),
                *((provider, provider) for provider in principals.providers),
            )
        }
        #: Of everything whose answer the agent sees, and with it whoever reads its prompts.
        self.answers: Final = Context(self._plan_id, self._control, tuple(readers.values()))
        self._prompts: Final = {
            provider: Context(self._plan_id, self._control, (readers[provider],))
            for provider in principals.providers
        }
        self.attempt: Final = Argument(
            "attempt", "authority", self.constant(attempt_id, identity="attempt", readers=PUBLIC)
        )
        self._defaults: Final[dict[tuple[str, int], Argument]] = {}
        self._source: tuple[Digest, Argument] | None = None

    def facts(self, *destinations: DestinationRegistry) -> Facts:
        """What the evaluator must know of this attempt; an agent asks, always."""
        return Facts(
            attempt_id=self.attempt_id,
            bundle_digest=self.bundle_digest,
            tools=TOOLS,
            destinations=destinations,
            untrusted_control=True,
        )

    def constant(self, value: Value, *, identity: str, readers: Readers) -> Safe:
        """A control-owned constant of this attempt."""
        return self._ingress.constant(value, identity=identity, readers=readers)

    def source(self, tree_digest: Digest) -> Argument:
        """The tree that is acted on. The last one is kept: it rarely changes."""
        kept = self._source
        if kept is None or kept[0] != tree_digest:
            value = self.constant(tree_digest, identity="staged.tree", readers=PUBLIC)
            kept = self._source = (tree_digest, Argument("source", "authority", value))
        return kept[1]

    def agent_wrote(
        self, value: Value, *, request: RequestRef, field: str, readers: Readers | None = None
    ) -> Unsafe:
        """What the agent put into ``field`` of a request. Unsafe.

        ``readers`` narrows who may read it; by default who may read the request. A value
        that no label can carry (a number or a text outside of JSON) is rejected.
        """
        try:
            return self._ingress.quarantined_output(
                value,
                run_id=f"{self.attempt_id}/{request.request_id}/{field}",
                digest=request.frame_digest[_DIGEST_PREFIX:],
                readers=self.request_readers if readers is None else readers,
            )
        except LabelError:
            raise ConversionRejected("argument_schema_invalid") from None

    def payload(
        self, value: Value, *, request: RequestRef, field: str, readers: Readers | None = None
    ) -> Unsafe:
        """What the agent wrote and nothing converts: its text is made here, or rejected."""
        wrote = self.agent_wrote(value, request=request, field=field, readers=readers)
        try:
            wrote.body  # noqa: B018 - making it is the check
        except LabelError:
            raise ConversionRejected("argument_schema_invalid") from None
        return wrote

    def default(self, name: str, value: int) -> Argument:
        """Our own number for a selector that the agent did not give; kept, they are few."""
        found = self._defaults.get((name, value))
        if found is None:
            constant = self.constant(value, identity=f"default.{name}", readers=PUBLIC)
            found = self._defaults[name, value] = Argument(name, "selector", constant)
        return found

    def file_handle(self, file_id: str, *, digest: str, size: int, readers: Readers) -> Argument:
        """The content of one file, with the readers that it has."""
        value = self._ingress.file_handle(file_id, digest=digest, size=size, readers=readers)
        return Argument("handle", "authority", value)

    def prompt(self, provider: str) -> Context:
        """Of a prompt to one provider; with nobody to read it when it was not named."""
        found = self._prompts.get(provider)
        return Context(self._plan_id, self._control, ()) if found is None else found
