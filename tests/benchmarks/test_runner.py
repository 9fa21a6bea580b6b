"""The benchmarks run, say what they could not run, and give a document. Times no one."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_subject_is_measured_or_said_to_be_missing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", "--sizes", "tiny", "--rounds", "1", "--json"],
        cwd=ROOT,
        env=os.environ | {"AIRLOCK_BENCH_PEERS": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        check=True,
    )
    rows = json.loads(done.stdout)["rows"]
    missing = {
        subject["name"]
        for row in rows
        for subject in row["subjects"]
        if "is not installed" in (subject.get("missing") or "")
    }

    assert {"ACP SDK", "MCP SDK", "pydantic", "json + jsonschema"} <= missing
    for row in rows:
        measured = [subject for subject in row["subjects"] if not subject["missing"]]
        assert all(subject["samples"] > 0 and subject["median"] > 0 for subject in measured)
        assert any(subject["ours"] for subject in measured), row["name"]
