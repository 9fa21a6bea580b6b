"""Bad input on the command line of ``run``: its documented exit code, and nothing was written."""

import json
from pathlib import Path
from typing import Any

import pytest

import broker.locations
from broker.cli.main import main
from tests.attempts.checkouts import checkout, survey
from tests.attempts.puppetry import PUPPET
from tests.cli.conftest import Airlock, Done
from tests.stage.repositories import git, repository

DIGEST = "sha256:" + "0" * 64
TASK = json.dumps([{"do": "send", "frame": {"type": "attempt.complete", "status": "succeeded"}}])


def host(image: str, **changes: Any) -> str:
    recipe = {
        "id": "a",
        "image": image,
        "command": ["true"],
        "timeoutMs": 1000,
        "maxOutputBytes": 1000,
    }
    return json.dumps(
        {"recipeAuthorization": "registered_recipe", "recipes": [{**recipe, **changes}]}
    )


#: Options that replace those of a good command, with ``{tmp}`` for a folder; the exit code
#: and the code on standard error.
CASES: dict[str, tuple[list[str], int, str]] = {
    "no task": (["--task", ""], 64, "usage"),
    "a blank task": (["--task", " \n\t"], 64, "usage"),
    "two tasks": (["--task-file", "{tmp}/good-task"], 64, "usage"),
    "an unknown option": (["--nonsense"], 64, "usage"),
    "an abbreviated option": (["--dead", "5"], 64, "usage"),
    "an unknown engine": (["--engine", "chroot"], 64, "usage"),
    "a deadline of nothing": (["--deadline", "0"], 64, "usage"),
    "a deadline that is no number": (["--deadline", "soon"], 64, "usage"),
    "a checkout that is not there": (["--repo", "{tmp}/absent"], 65, "not_a_directory"),
    "a folder that is no checkout": (["--repo", "{tmp}/plain"], 65, "not_a_checkout"),
    "a file as checkout": (["--repo", "{tmp}/good-task"], 65, "not_a_directory"),
    "an unknown ref": (["--ref", "no-such-branch"], 65, "ref_not_found"),
    "a ref that is an option": (["--ref=--all"], 65, "ref_not_found"),
    "results in the checkout": (["--out", "{tmp}/repo/out"], 65, "out_inside_checkout"),
    "results in .git": (["--out", "{tmp}/repo/.git/out"], 65, "out_inside_checkout"),
    "results by a way around": (
        ["--out", "{tmp}/plain/../repo/out"],
        65,
        "out_inside_checkout",
    ),
    "results by a link into it": (["--out", "{tmp}/link/out"], 65, "out_inside_checkout"),
    "results in a checkout named by a link": (
        ["--repo", "{tmp}/link", "--out", "{tmp}/repo/out"],
        65,
        "out_inside_checkout",
    ),
    "a folder inside a checkout": (["--repo", "{tmp}/repo/tools"], 65, "not_a_checkout"),
    "results where something is": (["--out", "{tmp}/plain"], 65, "out_not_empty"),
    "results in a file": (["--out", "{tmp}/good-task"], 65, "out_not_empty"),
    "an unknown agent": (["--agent", "nobody"], 65, "agent_unknown"),
    "an agent folder that is not there": (["--agent", "{tmp}/absent"], 77, "image_unpinned"),
    "an image by its tag": (["--agent", "example/agent:latest"], 77, "image_unpinned"),
    "an adapter that is not there": (["--agent", "adapter:{tmp}/absent"], 65, "not_a_directory"),
    "an adapter with a link": (["--agent", "adapter:{tmp}/linked"], 65, "path_not_confined"),
    "an image for bubblewrap": (
        ["--agent", DIGEST, "--engine", "bubblewrap"],
        69,
        "engine_unavailable",
    ),
    "an engine that we cannot drive": (["--engine", "apple"], 69, "engine_unavailable"),
    "no catalog file": (["--recipes", "{tmp}/absent"], 65, "file_not_found"),
    "a catalog that is a folder": (["--recipes", "{tmp}/plain"], 65, "file_not_found"),
    "a catalog that is no JSON": (["--recipes", "{tmp}/good-task"], 65, "catalog_malformed"),
    "a catalog with a key twice": (["--recipes", "{tmp}/twice"], 65, "catalog_malformed"),
    "a catalog with another field": (["--recipes", "{tmp}/extra"], 65, "catalog_malformed"),
    "a catalog with an image by tag": (["--recipes", "{tmp}/tag"], 77, "catalog_unpinned_image"),
    "unpinned with half of the permission": (
        ["--recipes", "{tmp}/tag", "--unsafe-testing"],
        77,
        "catalog_unpinned_image",
    ),
    "an image of another machine": (["--recipes", "{tmp}/other-host"], 65, "image_unknown"),
    "no task file": (["--task-file", "{tmp}/absent"], 65, "file_not_found"),
    "a task file that is no text": (["--task-file", "{tmp}/bytes"], 65, "file_malformed"),
    "a task file of 300 KiB": (["--task-file", "{tmp}/large"], 65, "file_too_large"),
    "no approvals file": (["--approve", "{tmp}/absent"], 65, "file_not_found"),
    "approvals that are no JSON": (["--approve", "{tmp}/good-task"], 65, "approvals_malformed"),
    "approvals with another field": (["--approve", "{tmp}/extra"], 65, "approvals_malformed"),
    "an inference that is no spec": (["--inference", "magic"], 65, "inference_malformed"),
    "an inference without a file": (["--inference", "scripted:{tmp}/absent"], 65, "file_not_found"),
    "an inference script that is none": (
        ["--inference", "scripted:{tmp}/good-task"],
        65,
        "inference_malformed",
    ),
}


@pytest.fixture
def airlock(
    state: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Airlock:
    """The command in this process: there are many cases, and an import takes longest."""
    monkeypatch.setattr(broker.locations, "ROOT_STATE", state)
    monkeypatch.setenv("XDG_STATE_HOME", str(state))

    def run(*arguments: str | Path) -> Done:
        code = main([str(argument) for argument in arguments])
        said = capfd.readouterr()
        return Done(code, said.out, said.err)

    return run


def written(folder: Path) -> dict[str, Any]:
    """A survey, without the moment in which a result folder was made and removed again."""
    found = survey(folder)
    del found["."]
    return found


def prepare(tmp: Path) -> Path:
    """A checkout and the files that the cases name."""
    repo = checkout(tmp / "repo")
    (tmp / "link").symlink_to(repo)
    (tmp / "plain").mkdir()
    (tmp / "plain/file").write_text("x")
    (tmp / "linked").mkdir()
    (tmp / "linked/__main__.py").symlink_to("/etc/passwd")
    (tmp / "good-task").write_text("Do it.")
    (tmp / "bytes").write_bytes(b"\xff\xfe")
    (tmp / "large").write_text("x" * 300 * 1024)
    (tmp / "twice").write_text(host("x@" + DIGEST).replace('"id"', '"id":"b","id"'))
    (tmp / "extra").write_text(host("x@" + DIGEST, env={"A": "B"}))
    (tmp / "tag").write_text(host("example/image:latest"))
    (tmp / "other-host").write_text(host("host@" + DIGEST))
    return repo


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused_with_its_code_and_writes_nothing(
    airlock: Airlock, tmp_path: Path, name: str
) -> None:
    options, code, said = CASES[name]
    repo = prepare(tmp_path)
    before = written(tmp_path)
    given = {"--repo": str(repo), "--agent": f"adapter:{PUPPET}", "--out": str(tmp_path / "out")}
    if not any(option.startswith("--task") for option in options) or name == "two tasks":
        given["--task"] = TASK
    options = [option.format(tmp=tmp_path) for option in options]
    for option in [option for option in options if option in given]:
        if name != "two tasks":
            del given[option]
    words = [word for pair in given.items() for word in pair]

    done = airlock("run", *words, *options, "--json")

    assert (done.code, done.out) == (code, "")
    told = [line for line in done.err.splitlines() if line.startswith("airlock: ")]
    assert told[-1].endswith(f"[{said}]")
    assert "Traceback" not in done.err
    assert written(tmp_path) == before


@pytest.mark.parametrize(
    ("catalog", "code", "said"),
    [
        (b"not json", 65, "catalog_malformed"),
        (b'{"version":1,"recipes":[]}', 65, "catalog_malformed"),
        (b'{"version":2,"recipes":[{"id":"a","command":["true"]}]}', 65, "catalog_malformed"),
        (b'{"version":1,"recipes":[{"id":"a","command":["./run"]}]}', 65, "catalog_malformed"),
        (
            b'{"version":1,"recipes":[{"id":"a","command":["true"],"image":"x"}]}',
            65,
            "catalog_malformed",
        ),
        (
            b'{"version":1,"recipes":[{"id":"a","command":["true"],"timeoutMs":900001}]}',
            65,
            "catalog_malformed",
        ),
    ],
)
def test_a_bad_catalog_in_the_trusted_base_fails_the_start(
    airlock: Airlock, tmp_path: Path, catalog: bytes, code: int, said: str
) -> None:
    repo = repository(tmp_path / "repo", {"a": b"a", "airlock.recipes.json": catalog})
    before = written(tmp_path)

    done = airlock(
        *("run", "--repo", repo, "--agent", f"adapter:{PUPPET}", "--task", TASK),
        *("--out", tmp_path / "out"),
    )

    assert (done.code, done.out) == (code, "")
    assert f"[{said}]" in done.err
    assert written(tmp_path) == before


def test_two_catalogs_in_the_trusted_base_are_ambiguous(airlock: Airlock, tmp_path: Path) -> None:
    good = b'{"version":1,"recipes":[{"id":"a","command":["true"]}]}'
    repo = repository(tmp_path / "repo", {"airlock.recipes.json": good, "odla.recipes.json": good})
    before = written(tmp_path)

    done = airlock("run", "--repo", repo, "--agent", f"adapter:{PUPPET}", "--task", TASK)

    assert done.code == 65
    assert "[catalog_ambiguous]" in done.err
    assert written(tmp_path) == before


def test_a_good_command_says_its_result_once_and_leaves_the_checkout(
    airlock: Airlock, tmp_path: Path
) -> None:
    repo = prepare(tmp_path)
    before, status = survey(repo), git(repo, "--no-optional-locks", "status", "--porcelain")

    done = airlock(
        *("run", "--repo", repo, "--agent", f"adapter:{PUPPET}", "--task", TASK),
        *("--out", tmp_path / "out", "--json"),
    )

    assert done.code == 0
    assert done.document == json.loads((tmp_path / "out/attempt.json").read_text())
    assert done.document["outcome"] == "succeeded"
    assert survey(repo) == before
    assert git(repo, "--no-optional-locks", "status", "--porcelain") == status
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "artifacts",
        "attempt.json",
        "events.jsonl",
        "ledger",
    }
