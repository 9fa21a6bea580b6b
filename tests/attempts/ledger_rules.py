"""What must hold in every prefix of every ledger (policy.md, P5)."""

from collections.abc import Sequence

from protocol import records


def assert_effects_follow_their_decisions(
    ledger: Sequence[records.Record], *, killed: bool = False
) -> None:
    """Each effect has exactly one earlier, unused yes for exactly its action and its tree.

    ``killed``: the writer was; what it had begun has no end.
    """
    allowed: dict[str, records.Decision] = {}
    asked: dict[str, records.Decision] = {}
    granted: set[str] = set()
    consumed: set[str] = set()
    open_effects: dict[int, records.EffectStarted] = {}
    for record in ledger:
        match record:
            case records.Decision(outcome="allow"):
                assert record.action_digest not in allowed
                allowed[record.action_digest] = record
            case records.Decision(outcome="require_approval"):
                asked[record.action_digest] = record
            case records.ApprovalGranted():
                assert record.action_digest in asked
                assert record.action_digest not in granted
                granted.add(record.action_digest)
            case records.ApprovalConsumed():
                granted.remove(record.action_digest)
                consumed.add(record.action_digest)
            case records.EffectStarted():
                action = record.action_digest
                if action in consumed:
                    consumed.remove(action)
                    decision = asked.pop(action)
                else:
                    decision = allowed.pop(action)
                assert decision.request == record.request
                assert decision.decision_id == record.decision_id
                assert decision.source_digest == record.source_digest
                assert record.request not in open_effects
                open_effects[record.request] = record
            case records.EffectFinished():
                started = open_effects.pop(record.request)
                assert started.effect_key == record.effect_key
                assert started.source_digest == record.before_digest
                if record.status != "done":
                    assert record.after_digest == record.before_digest
            case records.InferenceStarted():
                # Its action digest is its decision's, the last of the request.
                last = [each for each in asked.values() if each.request == record.request]
                assert len(last) == 1
                assert last[0].action_digest in consumed
                consumed.remove(last[0].action_digest)
            case _:
                pass
    assert killed or open_effects == {}


def assert_ends(ledger: Sequence[records.Record]) -> None:
    """Every prompt that left has an end too."""
    started = [each.request for each in ledger if isinstance(each, records.InferenceStarted)]
    finished = [each.request for each in ledger if isinstance(each, records.InferenceFinished)]
    assert sorted(started) == sorted(finished)
