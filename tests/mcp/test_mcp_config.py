import json
from pathlib import Path

import pytest
from pydantic import JsonValue

from waystation.kernel.errors import BadInput
from waystation.mcp.config import (
    HttpTransportConfig,
    McpServerConfig,
    StdioTransportConfig,
    list_secret_names,
    load_servers,
)

SECRET = "ghp_0123456789"


def written(
    folder: Path, *, environment: dict[str, str] | None = None, **servers: JsonValue
) -> tuple[McpServerConfig, ...]:
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers, "theme": "dark"}), encoding="utf-8")
    return load_servers(path, environment or {})


def test_a_file_of_another_client_is_read_as_it_is(tmp_path: Path) -> None:
    git, web = written(
        tmp_path,
        git={"command": "uvx", "args": ["mcp-server-git"], "env": {"LEVEL": "2"}, "cwd": "/srv"},
        web={"type": "http", "url": "https://example.org/mcp", "headers": {"X-Team": "blue"}},
        old={"command": "old", "disabled": True},
    )
    assert git.transport == StdioTransportConfig(
        command="uvx", arguments=("mcp-server-git",), environment={"LEVEL": "2"}, folder=Path("/srv")
    )
    assert web.transport == HttpTransportConfig(url="https://example.org/mcp", headers={"X-Team": "blue"})
    assert (git.allow, git.ask, git.timeout_s, git.roles) == (("*",), "all", 60, ("research",))


def test_what_is_ours_stands_beside_it(tmp_path: Path) -> None:
    entry: JsonValue = {"command": "x", "allow": ["git_*"], "ask": ["git_push"], "timeout": 5, "roles": ["writing"]}
    (git,) = written(tmp_path, git=entry)
    assert (git.allow, git.ask, git.timeout_s, git.roles) == (("git_*",), ("git_push",), 5, ("writing",))


def test_variables_are_put_in_where_other_clients_put_them_in(tmp_path: Path) -> None:
    (one,) = written(
        tmp_path,
        environment={"BIN": "/opt", "WHO": "ada"},
        one={
            "command": "${BIN}/run",
            "args": ["--as=${env:WHO}", "${LEVEL:-2}"],
            "env": {"WHO": "${WHO}"},
            "cwd": "${BIN}",
        },
    )
    assert one.transport == StdioTransportConfig(
        command="/opt/run", arguments=("--as=ada", "2"), environment={"WHO": "ada"}, folder=Path("/opt")
    )


def test_values_whose_name_says_so_are_secrets_and_are_shown_nowhere(tmp_path: Path) -> None:
    (one, two) = written(
        tmp_path,
        environment={"GITHUB_TOKEN": SECRET},
        one={"command": "x", "args": ["--key", "${GITHUB_TOKEN}"], "env": {"TZ": "Europe/Berlin", "PASSWORD": "abc"}},
        two={"url": "http://localhost/mcp", "headers": {"Authorization": f"Bearer {SECRET}", "Accept": "text/plain"}},
    )
    assert one.secrets == {SECRET}
    assert two.secrets == {f"Bearer {SECRET}", SECRET}
    assert SECRET not in repr((one, two))


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ({}, "mcpServers.web: it needs either command or url, not both"),
        ({"command": "x", "url": "http://h"}, "mcpServers.web: it needs either command or url, not both"),
        (
            {"type": "sse", "url": "http://h"},
            "mcpServers.web: its type must be one of: stdio, http, streamable-http, streamableHttp; older transports "
            "are not supported",
        ),
        ({"type": "stdio", "url": "http://h"}, "mcpServers.web: a server of type stdio needs command"),
        ({"command": "x", "alow": []}, "mcpServers.web.alow: there is no such field"),
        (
            {"command": "x", "env": {"KEY": {"is": "s3cret-value"}}},
            "mcpServers.web.env.KEY: it should be text",
        ),
        ({"command": "x", "timeout": 0}, "mcpServers.web.timeout: it should be more than 0"),
        ({"command": "x", "start_timeout": 601}, "mcpServers.web.start_timeout: it should be at most 600"),
        ({"command": "x", "args": "--port 1"}, "mcpServers.web.args: it should be a list"),
        (
            {"command": "${HERE}/x"},
            "mcpServers.web: the variable HERE is not set: set it, or write ${HERE:-a default}",
        ),
    ],
)
def test_what_cannot_be_used_is_named_by_its_place(tmp_path: Path, entry: JsonValue, fault: str) -> None:
    with pytest.raises(BadInput) as refused:
        written(tmp_path, web=entry)
    assert str(refused.value) == f"the tool server file {tmp_path / 'mcp.json'} cannot be used: {fault}"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"mcpServers":\n{,}}', "is not JSON (line 2, column 2"),
        ('{"servers": {}}', "cannot be used: mcpServers: it is missing"),
        ("[]", "cannot be used: the file: "),
        (
            '{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}',
            "the key a is defined twice in the same object",
        ),
        ("\udcff", "is not UTF-8"),
        ("[" * 100_000, "is nested too deep"),
    ],
)
def test_a_file_that_is_none_is_refused_with_the_place(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(BadInput) as refused:
        load_servers(path, {})
    assert fault in str(refused.value)


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot be read: No such file or directory$"):
        load_servers(tmp_path / "none.json", {})


def test_secrets_of_the_vault_are_put_in_whatever_they_are_called_and_nothing_of_the_environment_is(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mcp.json"
    entry = {"url": "https://example.org/${secret:PATH_}", "headers": {"X-Team": "Bearer ${secret:TEAM}"}}
    file = {"mcpServers": {"one": entry, "off": {"command": "${secret:OFF}", "disabled": True}}}
    path.write_text(json.dumps(file), encoding="utf-8")
    assert list_secret_names(path) == {"PATH_", "TEAM"}
    (one,) = load_servers(path, {"TEAM": "from elsewhere"}, {"PATH_": "hidden-place", "TEAM": "blue-and-green"})
    assert one.transport == HttpTransportConfig(
        url="https://example.org/hidden-place", headers={"X-Team": "Bearer blue-and-green"}
    )
    assert {"hidden-place", "blue-and-green"} <= one.secrets
    path.write_text(json.dumps({"mcpServers": {"one": {"command": "x", "args": ["${secret:TEAM}"]}}}), encoding="utf-8")
    with pytest.raises(BadInput, match=r"one: \$\{secret:TEAM\} must not be in command or args.*: put it into env"):
        load_servers(path, {}, {"TEAM": "blue-and-green"})
    path.write_text(json.dumps(file), encoding="utf-8")
    with pytest.raises(BadInput, match=r"one: the vault has no secret PATH_: add it with `waystation secrets"):
        load_servers(path, {"PATH_": "from elsewhere", "TEAM": "from elsewhere"})
