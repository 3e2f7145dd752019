"""Completion in shells, although only the module of the command that is completed is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from waystation.cli.main import parse_command_name

ROOT = Path(__file__).parents[2]
PROGRAM = f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m waystation.cli.main "$@"\n'
TAB = """
source "$HOME/.bashrc"
tab() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _waystation_completion waystation; echo "${COMPREPLY[*]}"; }
tab waystation approv
tab waystation list --st
tab waystation list --state pa
tab waystation memory se
tab waystation approve
"""


def environment(home: Path) -> dict[str, str]:
    program = home / "bin" / "waystation"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    return {"HOME": str(home), "PATH": f"{program.parent}:{os.environ['PATH']}"}


def test_bash_completes_commands_options_and_values_once_it_is_installed(tmp_path: Path) -> None:
    there = environment(tmp_path)
    installed = subprocess.run(
        ["bash", "-c", "waystation --install-completion; exit $?"],
        env=there,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"bash completion installed in {tmp_path}" in installed.stdout
    told = subprocess.run(["bash", "-c", TAB], env=there, capture_output=True, text=True, check=True)
    assert (told.stderr, told.stdout.splitlines()) == (
        "",
        ["approvals approve", "--state", "paused partial", "search", "approve"],
    )


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_told_the_options_of_the_command_that_stands_in_the_line(shell: str, tmp_path: Path) -> None:
    asked = {"_WAYSTATION_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    for line, offered in (("waystation list --st", "--state"), ("waystation approv", "approvals")):
        told = subprocess.run(
            [sys.executable, "-m", "waystation.cli.main"],
            env={**os.environ, **asked, "HOME": str(tmp_path), "_TYPER_COMPLETE_ARGS": line},
            capture_output=True,
            text=True,
            check=True,
        )
        assert offered in told.stdout
        assert told.stderr == ""


BASH, OTHERS = {"_WAYSTATION_COMPLETE": "complete_bash"}, {"_WAYSTATION_COMPLETE": "complete_zsh"}


@pytest.mark.parametrize(
    ("environment", "command"),
    [
        ({**BASH, "COMP_WORDS": "waystation\nlist\n--st", "COMP_CWORD": "2"}, "list"),
        ({**BASH, "COMP_WORDS": "waystation\nlist", "COMP_CWORD": "1"}, None),
        ({**BASH, "COMP_WORDS": "waystation", "COMP_CWORD": "x"}, None),
        ({**OTHERS, "_TYPER_COMPLETE_ARGS": "waystation list --st"}, "list"),
        ({**OTHERS, "_TYPER_COMPLETE_ARGS": "waystation list "}, "list"),
        ({**OTHERS, "_TYPER_COMPLETE_ARGS": "waystation list"}, None),
        ({**OTHERS, "_TYPER_COMPLETE_ARGS": ""}, None),
    ],
)
def test_a_line_that_is_completed_names_the_command_behind_which_it_goes_on(
    environment: dict[str, str], command: str | None
) -> None:
    assert parse_command_name([], environment) == command


def test_where_nothing_is_completed_the_first_argument_names_the_command() -> None:
    assert parse_command_name(["list", "--json"], {"COMP_WORDS": "waystation\nshow\n", "COMP_CWORD": "2"}) == "list"
    assert parse_command_name([], {}) is None


def test_which_server_is_meant_stands_before_the_command() -> None:
    for server in (["--server", "https://a.example"], ["--server=https://a.example"]):
        assert parse_command_name([*server, "list"], {}) == "list"
        assert parse_command_name(server, {}) is None
