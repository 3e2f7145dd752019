"""A tool server for tests that keeps what it was told to send: `python letter_server.py FILE`."""

import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("letters")


@server.tool()
def send(to: str) -> str:
    """Send a letter."""
    with Path(sys.argv[1]).open("a", encoding="utf-8") as sent:
        sent.write(f"{to}\n")
    return f"sent to {to}"


if __name__ == "__main__":
    server.run()
