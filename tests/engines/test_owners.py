"""A sandbox belongs to a daemon, and a daemon lives as long as its lock."""

import os
import shutil
from pathlib import Path

import pytest

from broker.engines.owners import claim_owner, owner_of_name
from broker.engines.podman_host import prepare_podman_host


def test_a_living_owner_is_not_dead_and_a_dead_one_is_not_forgotten(tmp_path: Path) -> None:
    mine, other = claim_owner(tmp_path), claim_owner(tmp_path)
    assert mine.is_live(other.id)
    assert mine.dead_owners() == ()
    os.close(other._descriptor)

    assert not mine.is_live(other.id)
    assert mine.dead_owners() == (other.id,)
    mine.forget(other.id)
    assert mine.dead_owners() == ()


def test_an_owner_that_this_state_folder_does_not_know_is_neither(tmp_path: Path) -> None:
    """It may be alive in another state folder."""
    mine = claim_owner(tmp_path)

    assert not mine.is_dead("deadbeef")
    assert not mine.is_live("deadbeef")
    assert not mine.is_live(None)


@pytest.mark.parametrize("name", ["airlock-", "airlock-a", "airlock-a-b-c", "other-a-b", ""])
def test_a_name_that_is_not_ours_has_no_owner(name: str) -> None:
    assert owner_of_name(name) is None


def test_a_name_tells_its_owner(tmp_path: Path) -> None:
    owner = claim_owner(tmp_path)
    names = {owner.new_name() for _ in range(50)}

    assert len(names) == 50
    assert {owner_of_name(name) for name in names} == {owner.id}


def test_what_ran_before_a_reboot_is_not_taken_for_running(tmp_path: Path) -> None:
    host = prepare_podman_host("/usr/bin/podman", state=tmp_path)
    left = host.temporary / "alive"
    left.write_text("")
    prepare_podman_host("/usr/bin/podman", state=tmp_path)
    assert left.exists()
    (host.temporary.parent / "boot").write_text("another boot")
    again = prepare_podman_host("/usr/bin/podman", state=tmp_path)

    shutil.rmtree(again.temporary.parent)
    assert again.command == host.command
    assert not left.exists()
    assert all(len(part) <= 50 for part in host.command if part.endswith("/run"))
