"""An adapter folder is what its digest says, whatever happened to it since."""

import os
import stat
from pathlib import Path

import pytest

from broker.engines.bundle import build_bundle, describe_folder, digest_files
from protocol.errors import Refusal


def make_adapter(folder: Path) -> Path:
    (folder / "lib").mkdir(parents=True)
    (folder / "__main__.py").write_text("print('ready')\n")
    (folder / "lib" / "data.bin").write_bytes(bytes(range(256)))
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o700)
    return folder


def test_same_files_same_digest_whatever_their_times_modes_and_order(tmp_path: Path) -> None:
    one = make_adapter(tmp_path / "one")
    other = make_adapter(tmp_path / "other")
    os.utime(other / "__main__.py", (1, 1))
    (other / "__main__.py").chmod(0o600)
    (other / "__pycache__").mkdir()
    (other / "__pycache__" / "x.pyc").write_bytes(b"x")

    first = build_bundle("a", source=one, state=tmp_path / "state")
    second = build_bundle("b", source=other, state=tmp_path / "elsewhere")

    assert first.digest == second.digest
    assert first.folder.name == second.folder.name == first.digest.removeprefix("sha256:")


@pytest.mark.parametrize("change", ["byte", "mode", "name", "extra"])
def test_any_difference_is_another_digest(tmp_path: Path, change: str) -> None:
    source = make_adapter(tmp_path / "source")
    before = digest_files(describe_folder(source))
    match change:
        case "byte":
            (source / "lib" / "data.bin").write_bytes(bytes(255))
        case "mode":
            (source / "__main__.py").chmod(0o755)
        case "name":
            (source / "run.sh").rename(source / "go.sh")
        case _:
            (source / "lib" / "empty").touch()

    assert digest_files(describe_folder(source)) != before


def test_another_user_can_read_and_nobody_else_can_write(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        source = make_adapter(tmp_path / "source")
        bundle = build_bundle("a", source=source, state=tmp_path / "state")
    finally:
        os.umask(old)

    modes = {
        str(path.relative_to(bundle.folder)): stat.S_IMODE(path.stat().st_mode)
        for path in [bundle.folder, *bundle.folder.rglob("*")]
    }

    assert modes == {
        ".": 0o755,
        "__main__.py": 0o644,
        "lib": 0o755,
        "lib/data.bin": 0o644,
        "run.sh": 0o755,
    }
    assert stat.S_IMODE(bundle.folder.parent.stat().st_mode) == 0o755


@pytest.mark.parametrize("damage", ["byte", "mode", "extra", "missing", "link"])
def test_a_damaged_folder_is_never_handed_out(tmp_path: Path, damage: str) -> None:
    source = make_adapter(tmp_path / "source")
    state = tmp_path / "state"
    bundle = build_bundle("a", source=source, state=state)
    victim = bundle.folder / "__main__.py"
    match damage:
        case "byte":
            victim.write_text("print('other')\n")
        case "mode":
            victim.chmod(0o666)
        case "extra":
            (bundle.folder / "json.py").write_text("")
        case "missing":
            victim.unlink()
        case _:
            victim.unlink()
            victim.symlink_to("/etc/passwd")

    again = build_bundle("a", source=source, state=state)

    assert again == bundle
    assert victim.read_text() == "print('ready')\n"
    assert digest_files(describe_folder(again.folder)) == bundle.digest
    assert [path.name for path in (state / "adapters").iterdir()] == [bundle.folder.name]


def test_an_intact_folder_is_not_written_again(tmp_path: Path) -> None:
    source = make_adapter(tmp_path / "source")
    bundle = build_bundle("a", source=source, state=tmp_path / "state")
    before = bundle.folder.stat().st_ino

    build_bundle("a", source=source, state=tmp_path / "state")

    assert bundle.folder.stat().st_ino == before


def test_links_and_special_files_are_refused(tmp_path: Path) -> None:
    source = make_adapter(tmp_path / "source")
    (source / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(Refusal) as link:
        build_bundle("a", source=source, state=tmp_path / "state")
    (source / "passwd").unlink()
    os.mkfifo(source / "pipe")
    with pytest.raises(Refusal) as pipe:
        build_bundle("a", source=source, state=tmp_path / "state")

    assert link.value.code == pipe.value.code == "path_not_confined"
    assert not (tmp_path / "state").exists()


def test_a_name_that_is_not_an_id_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal):
        build_bundle("../up", source=make_adapter(tmp_path / "source"), state=tmp_path)
    with pytest.raises(Refusal) as missing:
        build_bundle("a", source=tmp_path / "nothing", state=tmp_path)

    assert missing.value.code == "not_a_directory"
