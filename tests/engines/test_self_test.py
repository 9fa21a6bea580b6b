"""What the engines promise holds in all four ways to run them, and each probe can fail."""

import os
from pathlib import Path
from typing import Any

import pytest

from broker.engines.engine import SelfTest
from broker.engines.probe_rules import ProbeBounds, holds, judge, probe_rules
from broker.engines.selection import EngineUnavailable, open_engine, select_engine, verify_engine
from broker.engines.spec import HostRoot, ImageRoot
from broker.engines.survey import survey
from protocol.ids import Digest

BOUNDS = ProbeBounds(pids=8, cpu_percent=50, tmp_bytes=4096, file_bytes=4096, open_files=64)
NOTHING = Digest("sha256:" + "0" * 64)


async def self_test(name: str, state: str) -> SelfTest:
    return await verify_engine(await open_engine(name, state=Path(state)))  # type: ignore[arg-type]


def assert_isolated(found: SelfTest) -> None:
    assert [result for result in found.probes if result.must and not result.ok] == []
    assert found.guarantees.missing() == ()
    assert len(found.probes) > 80


async def test_every_probe_that_must_hold_does(bench: Any, state: Path) -> None:
    found = await self_test(bench.engine.name, str(state))

    assert_isolated(found)
    if os.geteuid() == 0:
        enforced = found.guarantees.enforced()
        assert {enforced["memory"], enforced["pids"], enforced["cpu"]} == {"cgroup"}
        assert enforced["uid_separation"] == "kernel"


@pytest.mark.parametrize("name", ["bubblewrap", "podman"])
def test_every_probe_that_must_hold_does_for_a_user_without_rights(
    name: str, user_state: Path, run_as_user: Any, bench_programs: None
) -> None:
    found = run_as_user(self_test, name, str(user_state))

    assert_isolated(found)
    assert found.guarantees.user_namespace == "kernel"
    if name == "podman":
        assert found.guarantees.uid_separation == "kernel"


async def test_an_engine_is_chosen_for_its_kind_of_root(state: Path, bubblewrap: Any) -> None:
    engine = await select_engine("auto", HostRoot(None, NOTHING), state=state)
    assert engine.name == "bubblewrap"
    for name, root in (
        ("podman", HostRoot(None, NOTHING)),
        ("bubblewrap", ImageRoot(NOTHING)),
        ("docker", ImageRoot(NOTHING)),
        ("apple", ImageRoot(NOTHING)),
    ):
        with pytest.raises(EngineUnavailable) as refused:
            await select_engine(name, root, state=state)  # type: ignore[arg-type]
        expected = "not_supported" if name in ("docker", "apple") else "root_not_supported"
        assert refused.value.reasons == ((name, expected),)


async def test_the_survey_names_every_engine_and_says_why_not(state: Path, bench: Any) -> None:
    reports = {report.name: report for report in await survey(state)}

    assert set(reports) == {"podman", "docker", "bubblewrap", "apple"}
    mine = reports[bench.engine.name]
    assert mine.usable
    assert mine.version == bench.engine.version
    assert mine.enforces["network"] == "kernel"
    assert all(report.usable or report.text for report in reports.values())


@pytest.mark.parametrize("rule", probe_rules(BOUNDS), ids=lambda rule: rule.id)
def test_a_probe_that_saw_something_else_fails_its_control(rule: Any) -> None:
    rules = probe_rules(BOUNDS)
    good = {rule.id: rule.expected.split("|")[0].removeprefix("<=") for rule in rules}
    assert all(result.ok for result in judge(rules, good))
    for bad in ("done", "99999999999", "INJECTED\n<b>text</b>"):
        results = judge(rules, good | {rule.id: bad})
        failed = [result for result in results if not result.ok]
        if bad in rule.expected.split("|"):
            continue
        assert [result.id for result in failed] == [rule.id]
        assert "<b>" not in failed[0].seen
        if rule.control is not None and rule.must:
            assert not holds(rule.control, rules, results)
            assert holds("uid_separation", rules, results)


def test_a_probe_that_said_nothing_has_failed() -> None:
    rules = probe_rules(BOUNDS)
    silent = [result.id for result in judge(rules, {}) if result.ok]

    assert silent == ["sys.x32", "sys.i386"]  # these exist on one architecture only
