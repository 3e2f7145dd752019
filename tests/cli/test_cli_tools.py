import json
from pathlib import Path

import pytest

from tests.support.mcp_tool_servers import make_sample_server_entry
from waystation.cli.main import run


def file(folder: Path) -> str:
    path = folder / "mcp.json"
    servers = {
        "shop": make_sample_server_entry(allow=["echo", "keep", "put"], ask="writes"),
        "gone": {"command": "no-such-program"},
    }
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return str(path)


def test_tools_are_listed_by_server_with_what_asks_and_what_is_hidden(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tools", "--servers", file(tmp_path)]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[:5] == [
        "shop",
        "  shop__echo  no approval; reads; for research",
        "  shop__keep  needs approval; writes; for research",
        "  shop__put  needs approval; writes, may be repeated; for research",
        "hidden",
    ]
    assert "  shop fail: the config file does not allow this tool" in lines
    assert lines[-1] == "  gone: the program of the tool server gone does not exist or is not executable"


def test_programs_get_the_same_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tools", "--servers", file(tmp_path), "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert [(tool["name"], tool["requires_approval"]) for tool in found["tools"]] == [
        ("shop__echo", False),
        ("shop__keep", True),
        ("shop__put", True),
    ]
    assert {"server": "gone", "tool": ""}.items() <= found["hidden"][-1].items()


def test_servers_that_all_tell_their_tools_are_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"shop": make_sample_server_entry(allow=["echo"])}}), encoding="utf-8")
    assert run(["tools", "--servers", str(path)]) == 0
    assert "hidden" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("servers", [{}, {"shop": {"command": "x", "disabled": True}}])
def test_a_file_that_names_no_server_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], servers: dict[str, object]
) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    assert run(["tools", "--servers", str(path)]) == 0
    assert capsys.readouterr().out == "No tools: the file has no enabled tool server, or its servers have no tools.\n"
