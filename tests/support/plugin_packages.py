"""Packages with plug-ins, installed for one test: their modules and their metadata in a folder of `sys.path`."""

import sys
import tomllib
from collections.abc import Mapping
from importlib import invalidate_caches
from pathlib import Path
from typing import NamedTuple

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugins"


class PluginPackage(NamedTuple):
    """What a package registers, and its module, which has its name."""

    name: str
    entry_points: Mapping[str, Mapping[str, str]]
    """By group and name, each as `module:factory`."""
    source: str = ""


def install_package(folder: Path, monkeypatch: pytest.MonkeyPatch, package: PluginPackage) -> None:
    """Put it where Python finds it until the test ends."""
    place = folder / package.name
    metadata = place / f"{package.name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package.name}\nVersion: 1.0\n")
    lines = [
        line
        for group, entries in package.entry_points.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    (place / f"{package.name}.py").write_text(package.source)
    prepend_to_path(place, monkeypatch)
    monkeypatch.delitem(sys.modules, package.name, raising=False)


def install_examples(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of `examples/plugins`, with the entry points that its pyproject.toml has."""
    project = tomllib.loads((EXAMPLES / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    install_package(folder, monkeypatch, PluginPackage("waystation_examples_metadata", project["entry-points"]))
    prepend_to_path(EXAMPLES, monkeypatch)


def prepend_to_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    invalidate_caches()
