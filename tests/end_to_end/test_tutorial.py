"""The tutorial, as a reader works through it: its files are created, and its commands run in their order."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.end_to_end.shell import ROOT, Shell, is_paused
from waystation.cli.console import UNREACHABLE

PAGE = ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(r"(?:^`(?P<path>[\w./-]+)`:\n\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
INSTALL = "uv pip install --python .venv/bin/python ./harbour-tools"
DONE_ALREADY = (
    "make setup",
    'export PATH="$PWD/.venv/bin:$PATH:$PWD/.uv/bin"',
    ".venv/bin/python -m pytest tests/live/test_live_custom_role.py",
    "uv pip uninstall --python .venv/bin/python harbour-tools",
    "git restore waystation/kernel/roles.py",
    "rm waystation/agents/prompts/checking.md",
)
"""What the environment of the tests has anyway, the test of the role, which runs by itself, and undoing its edits."""
REPEATED = re.compile(r"--request-id \w+")
"""What `submit` says on a busy machine: the same command again with this finds the same task."""


class TutorialFile(NamedTuple):
    """A file that the reader creates."""

    path: str
    text: str


class TutorialReader:
    """Types the commands in a folder that has the examples of the repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shell = Shell(folder / "waystation-tutorial", {"WAYSTATION_OFFLINE": "true"})
        self.exports: list[str] = []
        self.packages = folder / "packages"
        shutil.copytree(ROOT / "examples" / "harbours", folder / "examples" / "harbours")
        program = folder / "bin" / "waystation"
        program.parent.mkdir()
        program.write_text(
            f'#!/bin/sh\nPYTHONPATH="{self.packages}:{ROOT}" exec "{sys.executable}" -m waystation.cli.main "$@"\n'
        )
        program.chmod(0o755)

    def create(self, file: TutorialFile) -> None:
        (self.folder / file.path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / file.path).write_text(file.text, encoding="utf-8")

    def install(self, project: Path) -> None:
        """Build the wheel and unpack it where this reader's Python finds it, without an index."""
        build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(self.folder)]
        subprocess.run(build, cwd=project, check=True, capture_output=True)
        (wheel,) = self.folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self.packages)

    def type_line(self, line: str) -> str:
        """Run one line; returns what it printed."""
        if line in DONE_ALREADY:
            return ""
        if line.startswith("export "):
            self.exports.append(line)
            return ""
        if line == INSTALL:
            self.install(self.folder / "harbour-tools")
            return ""
        if "TASK" in line:
            line = line.replace("TASK", self.find_newest_task())
        if line.startswith("waystation approvals task"):
            self.shell.wait_for_task(self.find_newest_task(), is_paused, 300, "the pause")
        done = subprocess.run(
            ["bash", "-c", "\n".join([*self.exports, line])],
            cwd=self.folder,
            env=self.shell.environment
            | {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "HOME": str(self.folder)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        repeated = REPEATED.search(done.stderr)
        if done.returncode == UNREACHABLE and repeated and repeated[0] not in line:
            return self.type_line(f"{line} {repeated[0]}")
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout

    def find_newest_task(self) -> str:
        return str(json.loads(self.shell.run("list", "--json").stdout)[0]["task_id"])


def read_steps() -> Iterator[TutorialFile | str]:
    """Files and commands, in the order of the page. `test_live_custom_role` runs the entry and the prompt of a role."""
    for block in BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        if block["path"]:
            yield TutorialFile(block["path"], block["text"])
        elif not block["kind"]:
            yield from block["text"].splitlines()


@pytest.mark.timeout(1500)
def test_a_reader_of_the_tutorial_reaches_its_end(tmp_path: Path) -> None:
    reader = TutorialReader(tmp_path)
    printed: dict[str, str] = {}
    try:
        for step in read_steps():
            if isinstance(step, TutorialFile):
                reader.create(step)
            else:
                printed[step] = reader.type_line(step)
    finally:
        reader.shell.run("down")
    assert "research-1 asks for" in printed["waystation approvals TASK"]
    assert "out of order" in printed["waystation report TASK"]
    assert "clearance" in printed["waystation doctor"]
    assert "clearance" in printed["waystation show TASK --tools"]
    assert not reader.shell.home.exists()
