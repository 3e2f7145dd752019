"""`waystation context`: the context engine on a request body from a file, and audits of a task's agents."""

import typer

from waystation.cli.context import compact, request

app = typer.Typer()
context = typer.Typer(
    name="context",
    help="Compact, mask, check and measure a conversation in a file; audit those of a task. No server needed.",
    no_args_is_help=True,
)
app.add_typer(context)
for part in (compact, request):
    context.add_typer(part.app)


@context.callback()
def _context() -> None:
    """Compact, mask, check and measure a conversation in a file; audit those of a task. No server needed.

    FILE is a request body of the Messages API, {"model": …, "system": …, "tools": […], "messages": […]}, or an array of
    messages; - reads it from stdin. It is never changed. Messages are named by their index in it.
    """
