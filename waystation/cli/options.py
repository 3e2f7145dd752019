"""Arguments and options that several commands share."""

from typing import Annotated

import typer

TaskArgument = Annotated[str, typer.Argument(metavar="TASK", help="Id of the task; its beginning is enough.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON with stable keys; everything else to stderr.")]
AgentOption = Annotated[str, typer.Option("--agent", help="The agent: the id of its step, like research-1.")]
RequestsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--request", help="Which request is meant, several by several of it; not needed when only one waits, for money."
    ),
]
AllOption = Annotated[
    bool, typer.Option("--all", help="All open requests for money, one after the other; never calls of tools.")
]
NoteOption = Annotated[
    str, typer.Option("--note", help="A note for the audit, and for the agent whose call you refuse.")
]
ByOption = Annotated[str | None, typer.Option("--by", help="Who says so; by default the name of the user.")]
