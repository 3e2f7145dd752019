"""What is in the wheel and in the source distribution, built here without an index."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from configparser import ConfigParser
from importlib.metadata import version
from pathlib import Path

import pytest

from waystation import __version__

ROOT = Path(__file__).parents[2]
NAME = f"waystation-{__version__}"


def build(source: Path, target: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(target)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> dict[str, bytes]:
    """The files of the wheel by name."""
    return contents_of(dist / f"{NAME}-py3-none-any.whl")


def contents_of(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def files_of_the_package() -> set[str]:
    """As an installation has them: workflows, activities and workers are in `waystation`, by links to their folders."""
    return {
        (Path(folder) / name).relative_to(ROOT).as_posix()
        for folder, _, names in os.walk(ROOT / "waystation", followlinks=True)
        for name in names
        if "__pycache__" not in Path(folder).parts
    }


def test_the_wheel_has_every_file_of_the_package_and_no_other_package(wheel: dict[str, bytes]) -> None:
    inside = {name for name in wheel if not name.startswith(f"{NAME}.dist-info/")}
    assert inside == files_of_the_package()
    assert {name.split("/")[0] for name in inside} == {"waystation"}
    assert {"waystation/py.typed", "waystation/workflows/task.py", "waystation/agents/prompts/research.md"} <= inside
    assert any(name.startswith("waystation/store/migrations/versions/0101") for name in inside)


def test_the_wheel_brings_the_command_and_its_licence(wheel: dict[str, bytes]) -> None:
    written = ConfigParser()
    written.read_string(wheel[f"{NAME}.dist-info/entry_points.txt"].decode())
    found = {(group, name) for group in written.sections() for name in written.options(group)}
    ours = {("waystation.chat_models", "offline"), ("waystation.redactors", "redaction")}
    assert found == {("console_scripts", "waystation"), *ours}
    assert b"Apache License" in wheel[f"{NAME}.dist-info/licenses/LICENSE"]


def test_the_version_is_the_same_everywhere(wheel: dict[str, bytes]) -> None:
    assert f"\nVersion: {__version__}\n".encode() in wheel[f"{NAME}.dist-info/METADATA"]
    assert version("waystation") == __version__


def test_the_source_distribution_has_what_the_wheel_is_built_from_and_no_other(dist: Path) -> None:
    with tarfile.open(dist / f"{NAME}.tar.gz") as archive:
        inside = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
    beside = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "requirements.lock", "PKG-INFO", ".gitignore"}
    assert inside == files_of_the_package() | beside


def test_the_source_distribution_builds_the_same_wheel(dist: Path, wheel: dict[str, bytes], tmp_path: Path) -> None:
    with tarfile.open(dist / f"{NAME}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    build(tmp_path / NAME, tmp_path)
    assert contents_of(tmp_path / f"{NAME}-py3-none-any.whl") == wheel


LOADED = """
from waystation.config.settings import Settings
from waystation.runtime.plugins import build_plugin_registry
plugins = build_plugin_registry(Settings())
plugins.validate()
print(*(plugin.name for plugin in plugins.enabled))
"""


def test_the_example_plugins_are_built_installed_and_enabled_as_packages_of_others_are(tmp_path: Path) -> None:
    source, installed = tmp_path / "source", tmp_path / "installed"
    shutil.copytree(ROOT / "examples" / "plugins", source, ignore=shutil.ignore_patterns("__pycache__"))
    build(source, tmp_path / "dist")
    (built,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(built) as archive:  # pure Python: unpacked is installed
        archive.extractall(installed)
    enabled = {"PYTHONPATH": str(installed), "WAYSTATION_PLUGINS": "unit_convert,echo,tickets"}
    given = {"WAYSTATION_HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"], **enabled}
    ran = subprocess.run([sys.executable, "-c", LOADED], env=given, capture_output=True, text=True, check=False)
    assert ran.stdout.split() == ["redaction", "offline", "unit_convert", "echo", "tickets"], ran.stderr
