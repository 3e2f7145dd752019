"""`waystation tools`: what tool servers offer to agents, what asks a person first, and what is hidden and why."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import aclosing
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from waystation.cli.console import print_json, print_text
from waystation.cli.failures import OK, UNREACHABLE
from waystation.cli.options import JsonOption
from waystation.domain.foreign_tools import ForeignTools, ForeignToolSpec, HiddenTool

app = typer.Typer()


@app.command()
def tools(
    file: Annotated[Path, typer.Option("--servers", help="Config file of the tool servers, as other clients have it.")],
    as_json: JsonOption = False,
) -> None:
    """Start or reach the tool servers of a config file, and list what they offer.

    What a server says of its tools, also that one only reads, nobody has checked. Exit code 3 if one tells nothing.
    """
    found = asyncio.run(_found(file))
    if as_json:
        print_json(found)
    else:
        for line in lines(found):
            print_text(line)
    raise typer.Exit(UNREACHABLE if _silent(found) else OK)


def lines(found: ForeignTools) -> Iterator[str]:
    """A block for each server, in the file's order, and what is hidden behind it."""
    for server, specs in groupby(found.tools, key=lambda spec: spec.server):
        yield server
        yield from (f"  {spec.name}  {_notes(spec)}" for spec in specs)
    if found.hidden:
        yield "hidden"
        yield from (f"  {_hidden(one)}" for one in found.hidden)
    if not found.tools and not found.hidden:
        yield "nothing: the file has no tool server that is not disabled"


def _silent(found: ForeignTools) -> set[str]:
    """The servers that told nothing of their tools."""
    told = {spec.server for spec in found.tools} | {one.server for one in found.hidden if one.tool}
    return {one.server for one in found.hidden} - told


async def _found(file: Path) -> ForeignTools:
    # The protocol's library takes half a second to load.
    from waystation.adapters.mcp.config import load_servers  # noqa: PLC0415
    from waystation.adapters.mcp.servers import McpServers  # noqa: PLC0415

    async with aclosing(McpServers(load_servers(file, os.environ))) as servers:
        return await servers.tools()


def _notes(spec: ForeignToolSpec) -> str:
    effect = "reads" if spec.read_only else "writes, may be repeated" if spec.idempotent else "writes"
    return f"{'asks' if spec.asks else 'does not ask'}; {effect}; for {', '.join(spec.roles)}"


def _hidden(one: HiddenTool) -> str:
    return f"{one.server} {one.tool}: {one.reason}" if one.tool else f"{one.server}: {one.reason}"
