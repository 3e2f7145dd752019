"""`waystation context`: the context engine on a request body from a file, and audits of a task's agents."""

import typer

from waystation.cli.context import compact, request

app = typer.Typer()
context = typer.Typer(name="context", no_args_is_help=True)
app.add_typer(context)
for part in (compact, request):
    context.add_typer(part.app)


@context.callback()
def _context() -> None:
    """Compact, mask, check or measure a conversation in a file; audit a task's compactions.

    FILE is a request body of the Messages API, {"model": …, "system": …, "tools": […], "messages": […]}, or an array of
    messages; - reads stdin. FILE is never changed. Messages are named by their index in FILE. No server is needed.
    """
