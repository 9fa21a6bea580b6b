"""The wheel, installed in a fresh environment and started where everything is hostile."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HOSTILE = "raise SystemExit('a module of the checkout was imported')\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that the tree gets no build folder."""
    copy = tmp_path_factory.mktemp("source") / "airlock"
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True,
    ).stdout.decode()  # fmt: skip
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
            (copy / name).chmod((ROOT / name).stat().st_mode)
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation",
         "--disable-pip-version-check", "-w", str(folder), str(copy)],
        check=True, capture_output=True,
    )  # fmt: skip
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel; its dependencies are those of this one, by path."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(home / "bin/python"), "install", "-q",
         "--no-deps", "--no-index", "--disable-pip-version-check", str(wheel)],
        check=True, capture_output=True,
    )  # fmt: skip
    # Ours come first; the tree's own editable finder must not be started, so no site files.
    (packages / "dependencies.pth").write_text(
        f"import sys; sys.path.append({sysconfig.get_path('purelib')!r})\n"
    )
    return home / "bin"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    for name in ("protocol", "broker"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(HOSTILE)
    for name in ("typing", "pathlib", "argparse", "json", "trio"):
        (tmp_path / f"{name}.py").write_text(HOSTILE)
    return tmp_path


def test_the_wheel_holds_what_the_program_needs(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())

    assert {
        "protocol/adapter.py",
        "protocol/schemas/v1/agent.schema.json",
        "protocol/conformance/__init__.py",
        "broker/bundled/fixture/__main__.py",
        "broker/bundled/demo/tally/split.py",
        "broker/bundled/demo-inference.jsonl",
        "broker/bundled/probe/probe.py",
    } <= names
    assert not any(name.split("/")[0] in ("tests", "containers", "schemas") for name in names)


def test_the_command_starts_in_a_hostile_checkout(installed: Path, hostile: Path) -> None:
    done = subprocess.run(
        [installed / "airlock", "--help"], cwd=hostile, capture_output=True, text=True, check=False
    )

    where = subprocess.run(
        [installed / "python", "-c", "import broker; print(broker.__file__)"],
        cwd="/", capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert where.startswith(str(installed.parent)), "the test runs another airlock"
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: airlock")


def test_the_command_refuses_modules_that_are_not_its_own(installed: Path, hostile: Path) -> None:
    """Exit 78: somebody put another ``protocol`` in front of ours."""
    (hostile / "protocol/__init__.py").write_text("")
    real = subprocess.run(
        [installed / "python", "-c", "import protocol; print(protocol.__path__[0])"],
        cwd="/", capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    for file in Path(real).glob("*.py"):
        (hostile / "protocol" / file.name).write_text(file.read_text())

    done = subprocess.run(
        [installed / "airlock", "stage", "."], cwd=hostile, capture_output=True, text=True,
        check=False, env=os.environ | {"PYTHONPATH": str(hostile / "none")},
    )  # fmt: skip
    shadowed = hostile / "none"
    shadowed.mkdir()
    (hostile / "protocol").rename(shadowed / "protocol")
    foreign = subprocess.run(
        [installed / "airlock", "stage", "."], cwd="/", capture_output=True, text=True,
        check=False, env=os.environ | {"PYTHONPATH": str(shadowed)},
    )  # fmt: skip

    assert done.returncode == 65
    assert foreign.returncode == 78, foreign.stderr
    assert "[foreign_module]" in foreign.stderr
