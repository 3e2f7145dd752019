import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REGISTRY_HOSTS = [
    ".".join(labels)
    for labels in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
        ("repo", "maven", "apache", "org"),
        ("repo1", "maven", "org"),
        ("deb", "debian", "org"),
    )
]
INDEX_OPTION = re.compile(r"--(?:extra-)?index-url|--find-links|^index-url\s*=", re.MULTILINE)
HOME_PATH = re.compile(r"(?<![\w.~/-])/(?:home|Users|root)/\w")


def repository_files() -> Iterator[tuple[str, str]]:
    """Path and text of every file that is tracked or would be."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("this copy of the project is no git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        # A file may be deleted and not yet committed as such.
        if name != Path(__file__).relative_to(ROOT).as_posix() and (ROOT / name).is_file():
            yield name, (ROOT / name).read_text(encoding="utf-8", errors="replace")


def test_no_file_names_a_package_registry() -> None:
    named = [
        f"{name}: {found}"
        for name, text in repository_files()
        for found in [*(host for host in REGISTRY_HOSTS if host in text), *INDEX_OPTION.findall(text)]
    ]
    assert named == []


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    named = [
        f"{name}: {found}"
        for name, text in repository_files()
        for found in [*HOME_PATH.findall(text), *([str(ROOT)] if f"{ROOT}/" in text else [])]
    ]
    assert named == []


def test_the_licence_is_the_whole_apache_licence() -> None:
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License\n                           Version 2.0" in licence
    assert "END OF TERMS AND CONDITIONS" in licence


def test_every_recipe_is_one_line_and_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    rules = re.findall(r"^([\w-]+):.*\n((?:\t.*\n)*)", makefile, re.MULTILINE)
    assert [target for target, recipe in rules if recipe.count("\n") > 1] == []
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert [line.split()[0] for line in shown.splitlines()] == [target for target, _ in rules]


def test_every_locked_requirement_carries_its_hashes() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    requirements = re.findall(r"^[a-z0-9].*$", lock, re.MULTILINE)
    assert len(requirements) > 60
    assert [line for line in requirements if not re.search(r"==.* \\$", line)] == []
