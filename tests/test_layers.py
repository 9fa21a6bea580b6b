"""Who may import whom (design: layout), and the sizes that keep modules readable."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PURE_STDLIB_DENIED = {
    "os", "pathlib", "time", "random", "logging", "socket", "subprocess", "threading", "tempfile",
    "shutil", "sqlite3", "asyncio", "trio",
}  # fmt: skip

#: Folder -> what its modules must not import.
DENIED: dict[str, set[str]] = {
    "protocol": PURE_STDLIB_DENIED | {"broker", "conformance", "pygit2", "unidiff", "jsonschema"},
    "broker/policy": PURE_STDLIB_DENIED
    | {"pygit2", "unidiff", "broker.stage", "broker.engines", "broker.recipes"}
    | {"broker.evidence", "broker.attempts", "broker.cli"},
    "broker/stage": {"trio", "asyncio", "subprocess", "broker.engines", "broker.recipes"}
    | {"broker.evidence", "broker.attempts", "broker.cli", "broker.policy.evaluator"},
    "broker/engines": {"asyncio", "broker.policy", "broker.attempts", "broker.cli"}
    | {"broker.evidence", "broker.recipes"},
    "broker/recipes": {"asyncio", "broker.policy", "broker.attempts", "broker.cli"},
    "broker/evidence": {"asyncio", "trio", "broker.policy", "broker.attempts", "broker.cli"}
    | {"broker.engines"},
    "broker/attempts": {"asyncio", "broker.cli", "subprocess"},
    "broker/cli": {"asyncio", "broker.policy.evaluator", "broker.policy.labels"},
    "conformance": {"broker"},
    "containers": {"protocol", "broker", "conformance", "trio", "msgspec"},
}
#: The single-file SDK is stdlib-only and does I/O by purpose; it imports nothing of protocol.
STANDALONE = {"protocol/adapter.py"}
#: Modules of these layers may be coroutines; elsewhere ``async`` does not appear.
ASYNC_HOMES = ("broker/engines/", "broker/recipes/run.py", "broker/attempts/", "broker/cli/")
MAX_LINES = 400
MAX_FUNCTION_LINES = 60


def modules(folder: str) -> Iterator[Path]:
    yield from sorted((ROOT / folder).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_denied(name: str, denied: set[str]) -> bool:
    return any(name == entry or name.startswith(entry + ".") for entry in denied)


@pytest.mark.parametrize("folder", sorted(DENIED))
def test_a_layer_imports_only_what_it_may(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(folder)
        if str(path.relative_to(ROOT)) not in STANDALONE
        for name in imports(path)
        if is_denied(name, DENIED[folder])
    ]

    assert wrong == []


@pytest.mark.parametrize("folder", ["containers", "protocol/adapter.py"])
def test_what_an_image_copies_needs_only_the_standard_library(folder: str) -> None:
    import sys

    files = [ROOT / folder] if folder.endswith(".py") else list(modules(folder))
    local = {path.stem for path in files}
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files
        if "demo" not in path.parts
        for name in imports(path)
        if name.split(".")[0] not in sys.stdlib_module_names | local
    ]

    assert wrong == []


def test_async_has_its_homes() -> None:
    wrong = []
    for folder in ("protocol", "broker", "conformance"):
        for path in modules(folder):
            place = str(path.relative_to(ROOT))
            if place.startswith(ASYNC_HOMES):
                continue
            tree = ast.parse(path.read_text())
            if any(isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in ast.walk(tree)):
                wrong.append(place)

    assert wrong == []


def test_only_the_gate_evaluates() -> None:
    users = [
        str(path.relative_to(ROOT))
        for path in modules("broker")
        if not str(path.relative_to(ROOT)).startswith("broker/policy/")
        if any(is_denied(name, {"broker.policy.evaluator.evaluate"}) for name in imports(path))
    ]

    assert users == ["broker/attempts/gate.py"]


def test_files_and_functions_stay_readable() -> None:
    wrong = []
    for folder in ("protocol", "broker", "conformance", "containers"):
        for path in modules(folder):
            text = path.read_text()
            if text.count("\n") > MAX_LINES:
                wrong.append(f"{path.relative_to(ROOT)}: {text.count(chr(10))} lines")
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    size = (node.end_lineno or node.lineno) - node.lineno + 1
                    if size > MAX_FUNCTION_LINES:
                        wrong.append(f"{path.relative_to(ROOT)}: {node.name} has {size} lines")

    assert wrong == []


def test_no_module_runs_a_shell_or_trios_own_processes() -> None:
    """engines.md fact 1: trio forks in a thread that ends, and the death signal follows it."""
    wrong = [
        f"{path.relative_to(ROOT)}: {needle}"
        for path in modules("broker")
        for needle in ("shell=True", "open_process(", "run_process(", "os.system(")
        if needle in path.read_text()
    ]

    assert wrong == []
