"""The installed wheel does the whole job, far from this checkout. It needs the package index: `make wheel` runs it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEIGHBOURS = ("activities", "workers", "workflows")
"""Top-level packages that other distributions install, or a user has: none of them is ours."""

pytestmark = [pytest.mark.installed, pytest.mark.timeout(600)]


def uv(*arguments: str | Path, **environment: str) -> str:
    program = shutil.which("uv") or ROOT / ".uv" / "bin" / "uv"
    there = {**os.environ, **environment}
    done = subprocess.run([program, *arguments], cwd=ROOT, env=there, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    uv("build", "--quiet", "--out-dir", folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel and its locked dependencies."""
    folder = tmp_path_factory.mktemp("installed")
    uv("venv", "--quiet", "--python", sys.executable, folder / "venv")
    python = folder / "venv" / "bin" / "python"
    uv("pip", "install", "--quiet", "--python", python, "--constraints", "requirements.lock", wheel)
    (packages,) = (folder / "venv" / "lib").glob("python3*/site-packages")
    for name in NEIGHBOURS:
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text(f"raise RuntimeError('{name} is another distribution')\n")
    return python.parent


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def run_in(folder: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command in this folder with standard input closed, and nothing in the environment but a home."""
    home = folder.with_name("home")
    environment = {"PATH": os.defpath, "HOME": str(home), "WAYSTATION_HOME": str(home / "waystation")}
    closed = ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *command]
    return subprocess.run(closed, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_nothing_comes_from_this_checkout(programs: Path, empty: Path) -> None:
    asked = "import sys, waystation.workers.wiring; print(*sys.path, waystation.__file__, sep='\\n')"
    found = run_in(empty, programs / "python", "-c", asked)
    assert found.returncode == 0, found.stderr
    assert [line for line in found.stdout.splitlines() if Path(line).is_relative_to(ROOT)] == []


def test_the_demo_runs_in_an_empty_folder_to_a_report(programs: Path, empty: Path) -> None:
    done = run_in(empty, programs / "waystation", "demo")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^Task task-\w+: done$", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"\(the limit includes [1-9][\d,]+ tokens granted in a pause\)", done.stdout), done.stdout
    report = re.search(r"^Report: (.+\.md)$", done.stdout, re.MULTILINE)
    assert report is not None, done.stdout
    assert Path(report[1]).is_relative_to(empty.with_name("home"))
    assert re.search(r"^# \w", Path(report[1]).read_text(encoding="utf-8"), re.MULTILINE)
    assert list(empty.iterdir()) == []


def test_the_wheel_runs_without_being_installed_and_is_installed_by_pipx(wheel: Path, tmp_path: Path) -> None:
    """As README has it: `uvx --from WHEEL waystation` and `pipx install WHEEL`, with what the index has today."""
    assert uv("tool", "run", "--from", wheel, "waystation", "--version").startswith("waystation ")
    programs = tmp_path / "bin"
    uv("tool", "run", "pipx", "install", wheel, PIPX_HOME=str(tmp_path / "pipx"), PIPX_BIN_DIR=str(programs))
    told = run_in(tmp_path, programs / "waystation", "--version")
    assert told.stdout.startswith("waystation "), told.stderr
