"""Temporal anywhere: another namespace, by variables and by a profile, and servers that refuse what they are asked."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from temporalio.client import Client as TemporalClient
from temporalio.testing import WorkflowEnvironment

from tests.client.test_temporal_client import make_task_request, run_stub_worker
from tests.support.refusing_temporal_server import API_KEY, RefusingTemporalServer, run_refusing_temporal_server
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.kernel.errors import BadInput, Unreachable
from waystation.runtime.temporal.connect import (
    TemporalTarget,
    connect,
    ensure_search_attributes,
    list_unusable_search_attributes,
    resolve_temporal_target,
)
from waystation.runtime.temporal.dev_server import find_temporal_executable

UI = "http://ui.example"


@pytest.fixture
async def harbour() -> AsyncGenerator[str]:
    """The address of a server that has the namespace `harbour`, too."""
    async with await WorkflowEnvironment.start_local(  # pyright: ignore[reportUnknownMemberType]: a bare generic
        dev_server_existing_path=find_temporal_executable(),
        dev_server_extra_args=["--namespace", "harbour"],
        dev_server_log_level="error",
    ) as environment:
        yield environment.client.service_client.config.target_host


async def assert_a_task_is_taken_in_namespace_harbour(tmp_path: Path) -> None:
    target = resolve_temporal_target(Settings(home=tmp_path))
    temporal = await connect(target)
    assert temporal.namespace == "harbour"
    assert await ensure_search_attributes(temporal)
    async with run_stub_worker(temporal), await Client.connect(Settings(home=tmp_path, temporal_ui=UI)) as client:
        submitted = await client.submit(make_task_request(), ())
    assert submitted.run_id
    assert submitted.ui_url == f"{UI}/namespaces/harbour/workflows/{submitted.task_id}"


async def test_variables_name_another_namespace(harbour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", harbour)
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "harbour")
    await assert_a_task_is_taken_in_namespace_harbour(tmp_path)
    elsewhere = await TemporalClient.connect(harbour)
    assert len(await list_unusable_search_attributes(elsewhere)) == 6


async def test_a_profile_names_another_namespace(harbour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "temporal.toml"
    file.write_text(f'[profile.sea]\naddress = "{harbour}"\nnamespace = "harbour"\n')
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(file))
    monkeypatch.setenv("TEMPORAL_PROFILE", "sea")
    await assert_a_task_is_taken_in_namespace_harbour(tmp_path)


async def test_a_namespace_that_does_not_exist_is_told_with_the_next_step(
    temporal_server: TemporalTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_server.address)
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "nowhere")
    async with await Client.connect(Settings(home=tmp_path)) as client:
        with pytest.raises(Unreachable, match=r"has no namespace nowhere: set TEMPORAL_NAMESPACE .*namespace create"):
            await client.submit(make_task_request(), ())


def test_a_key_switches_tls_on_unless_the_profile_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "cloud.example:7233")
    assert not resolve_temporal_target(Settings(home=tmp_path)).uses_tls
    monkeypatch.setenv("TEMPORAL_API_KEY", API_KEY)
    keyed = resolve_temporal_target(Settings(home=tmp_path))
    assert (keyed.uses_tls, keyed.has_api_key) == (True, True)
    monkeypatch.setenv("TEMPORAL_TLS", "false")
    assert not resolve_temporal_target(Settings(home=tmp_path)).uses_tls


@pytest.mark.parametrize(
    "toml", [f'[profile.sea]\napi_key = "{API_KEY}" stray\n', f'[profile.bay]\napi_key = "{API_KEY}"']
)
def test_a_profile_that_cannot_be_read_is_told_without_quoting_its_file(
    toml: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporal.toml").write_text(toml)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "temporal.toml"))
    monkeypatch.setenv("TEMPORAL_PROFILE", "sea")
    with pytest.raises(BadInput, match=r"TOML and has the profile 'sea' \(TEMPORAL_PROFILE\)") as told:
        resolve_temporal_target(Settings(home=tmp_path))
    assert API_KEY not in str(told.value)
    assert told.value.__cause__ is None


async def test_a_certificate_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "cloud.example:7233")
    monkeypatch.setenv("TEMPORAL_TLS_CLIENT_CERT_PATH", str(tmp_path / "absent.pem"))
    with pytest.raises(BadInput, match=r"absent.pem cannot be read \(No such file or directory\): .*TEMPORAL_TLS_"):
        await connect(resolve_temporal_target(Settings(home=tmp_path)))


# ---------------------------------------------------------------------------------------------- servers that refuse


async def grudged(server: RefusingTemporalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TemporalClient:
    """A connection to it, with its key and without TLS."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    monkeypatch.setenv("TEMPORAL_API_KEY", API_KEY)
    monkeypatch.setenv("TEMPORAL_TLS", "false")
    return await connect(resolve_temporal_target(Settings(home=tmp_path)))


@pytest.mark.parametrize("refused", [("GetSystemInfo", "DescribeNamespace"), ("DescribeNamespace",)])
@pytest.mark.parametrize("code", ["PERMISSION_DENIED", "UNAUTHENTICATED"])
async def test_a_wrong_key_is_told_and_not_shown(
    refused: tuple[str, ...], code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        run_refusing_temporal_server(refused, code) as server,
        pytest.raises(Unreachable, match="denies access to namespace default: check TEMPORAL_API_KEY") as told,
    ):
        await grudged(server, tmp_path, monkeypatch)
    assert API_KEY not in str(told.value)


@pytest.mark.parametrize("code", ["PERMISSION_DENIED", "UNIMPLEMENTED", "UNAUTHENTICATED"])
async def test_attributes_are_known_by_the_namespace_where_the_operators_calls_are_refused(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_refusing_temporal_server(("ListSearchAttributes", "AddSearchAttributes"), code) as server:
        server.aliases = {
            "Keyword01": "WaystationSession",
            "Keyword02": "WaystationTenant",
            "Keyword12": "WaystationPhase",
            "Int01": "WaystationTokens",
            "Double01": "WaystationCostUsd",
        }
        client = await grudged(server, tmp_path, monkeypatch)
        assert await list_unusable_search_attributes(client) == ("WaystationPendingApprovals",)
        assert not await ensure_search_attributes(client)
        server.aliases |= {"Double02": "WaystationPendingApprovals"}
        assert not await ensure_search_attributes(client)
        del server.aliases["Double02"]  # a name belongs to one field
        server.aliases |= {"Int02": "WaystationPendingApprovals"}
        assert await ensure_search_attributes(client)


async def test_a_server_that_does_not_tell_its_attributes_is_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_refusing_temporal_server(("ListSearchAttributes",), "UNAVAILABLE") as server:
        client = await grudged(server, tmp_path, monkeypatch)
        with pytest.raises(Unreachable, match=r"does not list its search attributes \(UNAVAILABLE\)"):
            await ensure_search_attributes(client)
