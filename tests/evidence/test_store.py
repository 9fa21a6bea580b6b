"""A blob is there whole, under its digest, before anybody names it, or it is not there."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import get_args

import pytest

from broker.evidence.store import MAX_ARTIFACT_BYTES, MAX_ARTIFACTS, ArtifactStore
from protocol.digest import digest_bytes
from protocol.errors import Fault, Refusal
from protocol.ids import Digest
from protocol.records import ArtifactLabel


def test_what_is_put_is_got_and_is_named_by_its_digest(tmp_path: Path) -> None:
    store = ArtifactStore.open(tmp_path / "deep" / "artifacts")
    for label in get_args(ArtifactLabel):
        digest = store.put(b"content \x00\xff", label)

        assert digest == digest_bytes(b"content \x00\xff")
        assert store.get(digest, label) == b"content \x00\xff"
        file = tmp_path / "deep" / "artifacts" / label / digest.removeprefix("sha256:")
        assert file.read_bytes() == b"content \x00\xff"
        assert file.stat().st_mode & 0o777 == 0o600


def test_the_same_bytes_are_kept_once(tmp_path: Path) -> None:
    store = ArtifactStore.open(tmp_path)
    first = store.put(b"x", "patch")
    inode = (tmp_path / "patch" / first[7:]).stat().st_ino

    assert store.put(b"x", "patch") == first
    assert (tmp_path / "patch" / first[7:]).stat().st_ino == inode


def test_a_damaged_or_missing_artifact_is_said_so_and_can_be_put_again(tmp_path: Path) -> None:
    store = ArtifactStore.open(tmp_path)
    digest = store.put(b"original", "patch")
    (tmp_path / "patch" / digest[7:]).write_bytes(b"0riginal")
    for name, label in ((digest, "patch"), (digest, "task"), (digest_bytes(b"other"), "patch")):
        with pytest.raises(Fault) as caught:
            store.get(name, label)  # type: ignore[arg-type]
        assert caught.value.code == "artifact_damaged"

    assert store.get(store.put(b"original", "patch"), "patch") == b"original"


def test_an_artifact_is_never_read_or_written_through_a_link(tmp_path: Path) -> None:
    store = ArtifactStore.open(tmp_path / "artifacts")
    outside = tmp_path / "outside"
    outside.write_bytes(b"linked")
    (tmp_path / "artifacts" / "patch").mkdir()
    link = tmp_path / "artifacts" / "patch" / digest_bytes(b"linked")[7:]
    link.symlink_to(outside)

    with pytest.raises(Fault) as caught:
        store.get(digest_bytes(b"linked"), "patch")
    assert caught.value.code == "artifact_damaged"
    with pytest.raises(Fault) as caught:
        store.put(b"linked", "patch")
    assert caught.value.code == "artifact_unwritable"
    assert outside.read_bytes() == b"linked"


@pytest.mark.parametrize("name", ["../../etc/passwd", "sha256:" + "A" * 64, "", "sha256:.."])
def test_a_name_that_is_no_digest_is_refused(tmp_path: Path, name: str) -> None:
    store = ArtifactStore.open(tmp_path)

    with pytest.raises(Refusal):
        store.get(Digest(name), "patch")


def test_bounds_hold_before_anything_is_written_and_over_a_reopening(tmp_path: Path) -> None:
    store = ArtifactStore.open(tmp_path)
    with pytest.raises(Fault) as caught:
        store.put(bytes(MAX_ARTIFACT_BYTES + 1), "patch")
    assert caught.value.code == "artifacts_full"
    assert not any(tmp_path.iterdir())

    (tmp_path / "task").mkdir()
    for n in range(MAX_ARTIFACTS - 1):
        (tmp_path / "task" / f"{n:064x}").touch()
    store = ArtifactStore.open(tmp_path)
    store.put(b"the last one", "patch")
    with pytest.raises(Fault) as caught:
        store.put(b"one more", "patch")
    assert caught.value.code == "artifacts_full"
    store.put(b"the last one", "patch")


def test_what_a_crash_left_unfinished_is_removed_and_not_counted(tmp_path: Path) -> None:
    store = ArtifactStore.open(tmp_path)
    digest = store.put(b"x", "patch")
    (tmp_path / "patch" / ".unfinished").write_bytes(b"half")

    store = ArtifactStore.open(tmp_path)

    assert [path.name for path in (tmp_path / "patch").iterdir()] == [digest[7:]]
    assert store.put(b"y", "patch") == digest_bytes(b"y")


FULL = """
import resource, sys
from pathlib import Path
from broker.evidence.store import ArtifactStore
from protocol.errors import Fault

store = ArtifactStore.open(Path(sys.argv[1]))
store.put(b"x" * 1000, "patch")
resource.setrlimit(resource.RLIMIT_FSIZE, (1500, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    store.put(b"y" * 2000, "patch")
except Fault as fault:
    print(fault.code)
"""


def test_a_full_disk_leaves_no_name(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True
    )

    assert said.stdout == "artifact_unwritable\n"
    assert {path.name for path in (tmp_path / "patch").iterdir()} == {
        digest_bytes(b"x" * 1000)[7:],
        ".unfinished",
    }
    ArtifactStore.open(tmp_path)
    assert len(list((tmp_path / "patch").iterdir())) == 1


def test_many_threads_may_put_at_once(tmp_path: Path) -> None:
    store = ArtifactStore.open(tmp_path)
    blobs = [bytes([n]) * 1000 for n in range(40)]
    threads = [threading.Thread(target=store.put, args=(blob, "patch")) for blob in blobs * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(store.get(digest_bytes(blob), "patch") == blob for blob in blobs)
    assert len(list((tmp_path / "patch").iterdir())) == 40
