"""The entry point `waystation`: finds the command, runs it, and turns errors into one line and an exit code.

Only the module of the called command is imported, so that help appears at once.
"""

import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, NamedTuple, NoReturn

import typer
from typer.core import TyperGroup

from waystation import __version__
from waystation.cli.console import OK, WORK_FAILED, format_error, get_error_exit_code
from waystation.kernel.imports import pause_gc_for_imports
from waystation.kernel.value import VALUE_ERROR_PREFIX
from waystation.security.untrusted import replace_control_characters
from waystation.workers.shutdown import INTERRUPTED


class CommandInfo(NamedTuple):
    """A command as the top-level help lists it."""

    module: str
    """Module of `waystation.cli`, imported only if the command is called."""
    summary: str


GROUPS = {
    "On this machine": {
        "demo": CommandInfo("demo", "Run a complete task on real documents, from question to report."),
        "up": CommandInfo("platform", "Start the Temporal server and workers in the background."),
        "down": CommandInfo("platform", "Stop the Temporal server and workers."),
        "status": CommandInfo("platform", "Show what runs on this machine."),
        "doctor": CommandInfo("doctor", "Check the installation, and say how to fix what is missing."),
        "dev": CommandInfo("platform", "Run a Temporal dev server with its UI and the workers until Ctrl-C."),
    },
    "Tasks": {
        "submit": CommandInfo("submit", "Submit a question with documents."),
        "read": CommandInfo("read", "Print files as agents will see them, and list what is skipped."),
        "list": CommandInfo("task_lists", "List the newest tasks."),
        "show": CommandInfo("show", "Show a task."),
        "watch": CommandInfo("show", "Follow a task until it ends."),
        "message": CommandInfo("tasks", "Send a message to the agents of a running task."),
        "documents": CommandInfo("tasks", "List a task's documents, or send changed documents to a running task."),
        "plan": CommandInfo("plans", "Print a task's plan, or change it before it is approved."),
        "fork": CommandInfo("tasks", "Start a new task from the finished steps of another task."),
        "cancel": CommandInfo("tasks", "Stop a task."),
        "schedule": CommandInfo(
            "schedules", "Ask a question on a schedule, with the documents as they are at each run."
        ),
        "session": CommandInfo("task_lists", "List sessions, or set the budget of a session."),
    },
    "Approvals": {
        "approvals": CommandInfo("approvals", "List the requests that wait for an answer."),
        "approve": CommandInfo("approvals", "Approve a request for more budget, for a tool call or for a plan."),
        "deny": CommandInfo("approvals", "Deny a request for more budget, for a tool call or for a plan."),
        "deliver": CommandInfo("approvals", "End a task now, with a report of its results so far."),
    },
    "Results and costs": {
        "report": CommandInfo("show", "Print a task's report."),
        "diff": CommandInfo("show", "Compare the reports of two tasks."),
        "cost": CommandInfo("show", "Show what a task has cost."),
        "spending": CommandInfo("task_lists", "Show what all tasks have spent, by model, agent or task."),
        "prices": CommandInfo("show", "List the known model prices, and the configured models without a price."),
        "transcript": CommandInfo("show", "Print the transcript of an agent."),
        "eval": CommandInfo("evaluation", "Evaluate reports on questions with known answers."),
    },
    "Agent context": {
        "context": CommandInfo(
            "context",
            "Compact, mask, check or measure a conversation in a file; audit a task's compactions.",
        ),
        "compact": CommandInfo("edits", "Compact the context of a running agent."),
        "pin": CommandInfo("edits", "Exclude a message of a running agent from compactions."),
        "restore": CommandInfo("edits", "Undo one compaction of a running agent."),
        "rewind": CommandInfo("edits", "Rewind an agent to a message, in a running or a finished task."),
    },
    "Privacy and memory": {
        "privacy": CommandInfo("privacy", "Redact a text; find or erase a person."),
        "forget": CommandInfo("memory", "Delete finished tasks from memory (same as `memory forget`)."),
        "memory": CommandInfo("memory", "Search, evaluate, delete or rebuild the memory of agents."),
    },
    "Servers and integrations": {
        "serve": CommandInfo("serve", "Serve the web pages, the HTTP API and MCP."),
        "keys": CommandInfo("serve", "Create, list and revoke API keys for `serve`."),
        "mcp": CommandInfo("serve", "Serve the Model Context Protocol to an assistant on standard input and output."),
        "tools": CommandInfo("tools", "List the tools of tool servers, with their approvals and restrictions."),
        "secrets": CommandInfo("serve", "Store, list and delete the encrypted secrets of tool servers."),
        "worker": CommandInfo("platform", "Run workers for an existing Temporal server."),
        "deploy": CommandInfo(
            "deploy", "Choose the build of workers that new tasks go to, or roll back to the previous build."
        ),
        "store": CommandInfo("store", "Inspect and upgrade the store's database."),
        "codec-server": CommandInfo("codec_server", "Decrypt payloads for the Temporal UI."),
    },
}
"""Commands by name, by heading of the help."""
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}

DEBUG, SERVER = "--debug", "--server"
COMPLETING = "_WAYSTATION_COMPLETE"
"""Variable that shells set for completion: the arguments are in the environment then."""


class _Commands(TyperGroup):
    """The group of all commands: reports invalid values without the wording of the library that found them."""

    def invoke(self, ctx: typer.Context) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]: its own is private
        """See base class."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix(VALUE_ERROR_PREFIX)
            raise


def build_command_line_app(command: str | None) -> typer.Typer:
    """Build the command line with the one real command, or with all of them as far as their help needs."""
    app = typer.Typer(
        cls=_Commands,
        help="Long-running research, analysis and writing agents on Temporal.",
        epilog=f"Add {DEBUG} to any command to print the traceback of an error.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        # Other modes keep the line breaks of a docstring, which do not fit the width of the terminal.
        rich_markup_mode="markdown",
    )
    app.callback()(_before_any_command)
    if command in COMMANDS:
        with pause_gc_for_imports():
            module = import_module(f"waystation.cli.{COMMANDS[command].module}")
        app.add_typer(module.app)
        return app
    for heading, group in GROUPS.items():
        for name, known in group.items():
            app.command(name, help=known.summary, rich_help_panel=heading)(_waystation)
    return app


def parse_command_name(arguments: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """Return the first word, which names the command; for shell completion, that of the line to complete.

    None if the line to complete ends within its first word: any command may be meant.
    """
    if COMPLETING not in environment:
        before = 2 if arguments[:1] == [SERVER] else sum(one.startswith(f"{SERVER}=") for one in arguments[:1])
        return next(iter(arguments[before:]), None)
    line, cursor = environment.get("_TYPER_COMPLETE_ARGS"), environment.get("COMP_CWORD", "")
    if line is None:  # bash
        words = environment.get("COMP_WORDS", "").split()
        return words[1] if cursor.isdecimal() and int(cursor) > 1 and len(words) > 1 else None
    words = line.split()
    return words[1] if len(words) > 2 or (len(words) == 2 and line[-1].isspace()) else None


def _waystation() -> None:
    """Stand in for a command whose module is not imported."""


def _show_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"waystation {__version__}\n")
        raise typer.Exit


def _before_any_command(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
    server: Annotated[
        str | None,
        typer.Option(
            SERVER,
            metavar="URL",
            help="Address of the `waystation serve` to use; the token is read from WAYSTATION_TOKEN.",
        ),
    ] = None,
) -> None:
    """Handle options that belong to no command."""
    if server is not None:
        os.environ["WAYSTATION_SERVER"] = server


def run(arguments: Sequence[str]) -> int:
    """Run one command line. Returns its exit code."""
    given = [argument for argument in arguments if argument != DEBUG]
    try:
        app = build_command_line_app(parse_command_name(given, os.environ))
        app(given, prog_name="waystation")
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else WORK_FAILED
    except KeyboardInterrupt:  # while modules are imported; later, commands and their library take it
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  the entry point: every error becomes a sentence
        if DEBUG in arguments:
            sys.stderr.write(replace_control_characters("".join(traceback.format_exception(error))))
        sys.stderr.write(f"waystation: {replace_control_characters(format_error(error))}\n")
        return get_error_exit_code(error)
    return OK


def _open_closed_streams() -> None:
    """Open the null device for a closed standard stream (`>&-`), so that no file of ours gets its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  open to the end


def main() -> NoReturn:
    """Run the command line and end the process."""
    # The home folder has documents and transcripts, which no one else on this machine may read.
    os.umask(0o077)
    _open_closed_streams()
    code = run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    # A process that used temporalio can crash while the interpreter shuts down, and its exit code would be lost.
    os._exit(code)


if __name__ == "__main__":
    main()
