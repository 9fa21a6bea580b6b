"""The demo project fails its own tests for one reason, and ships as it is meant to be staged."""

import json
import os
import shutil
import subprocess
from pathlib import Path

DEMO = Path(__file__).parents[2] / "containers" / "demo"


def test_its_recipe_fails_for_the_seeded_bug_alone(tmp_path: Path) -> None:
    shutil.copytree(DEMO, tmp_path / "demo")
    catalog = json.loads((DEMO / "airlock.recipes.json").read_text())
    (recipe,) = catalog["recipes"]
    done = subprocess.run(
        recipe["command"], cwd=tmp_path / "demo", capture_output=True, check=False
    )
    said = done.stderr.decode()

    assert catalog["version"] == 1
    assert set(recipe) == {"id", "command", "timeoutMs"}
    assert recipe["command"][0] == "/usr/bin/python3"
    assert done.returncode == 1
    assert "Ran 9 tests" in said
    assert "errors=" not in said
    assert "no_cent_is_lost" in said


def test_it_has_a_binary_file_an_executable_and_no_git_folder() -> None:
    names = {str(path.relative_to(DEMO)) for path in DEMO.rglob("*")}

    assert b"\0" in (DEMO / "assets" / "logo.png").read_bytes()
    assert os.access(DEMO / "scripts" / "tally", os.X_OK)
    assert not [name for name in names if name.startswith(".git")]
    assert not [path for path in DEMO.rglob("*") if path.is_symlink()]
