"""Plug-ins: found by entry points, enabled by a setting, checked, and nothing of them imported before that."""

import json
import sys
import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.support.plugin_packages import EXAMPLES, PluginPackage, install_examples, install_package
from waystation.cli.main import run
from waystation.config.settings import Settings, format_setting_errors
from waystation.context.transcript import build_user_message
from waystation.kernel.errors import BadInput, ModelRejected
from waystation.models.endpoints import ModelEndpoint, NamedEndpoint
from waystation.models.ports import ModelRequest
from waystation.models.profiles import OFFLINE_MODEL
from waystation.plugins.api import ChatModelContext, PluginGroup
from waystation.privacy.policy import TextDestination
from waystation.runtime.plugins import build_plugin_registry
from waystation.runtime.redaction_setup import build_redaction_config, create_redactor, list_placeholder_types
from waystation.workers.models import create_model_router

KEY = bytes(32)
HOSTILE = PluginPackage(
    "hostile",
    {group: {"hostile": "hostile:create"} for group in PluginGroup},
    "raise SystemExit('imported although nothing enabled it')",
)
TOOL = """
from waystation.plugins.api import PluginTool, ToolInput

class Input(ToolInput):
    text: str

class Tool(PluginTool[Input]):
    name = "acme"
    description = "Does it."
    input_model = Input
    {more}

    async def run(self, arguments, at):
        return arguments.text
"""


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path / "home"))
    return tmp_path


def with_plugins(*names: str, **given: object) -> Settings:
    return Settings.model_validate({"plugins": names, **given})


def acme(group: PluginGroup, source: str, value: str = "acme:Tool") -> PluginPackage:
    return PluginPackage("acme", {group: {"acme": value}}, source)


async def test_nothing_is_imported_of_a_plugin_that_is_installed_and_not_enabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_package(tmp_path, monkeypatch, HOSTILE)
    settings = Settings()
    plugins = build_plugin_registry(settings)
    plugins.validate()
    create_redactor(settings, KEY).close()
    router = create_model_router(settings)
    await router.count_tokens(
        ModelRequest(model=OFFLINE_MODEL, system="", messages=(build_user_message("m1", "Hi."),), max_output=100)
    )
    await router.aclose()
    assert [one.name for one in plugins.disabled] == ["hostile"] * 3
    assert {one.package for one in plugins.disabled} == {"hostile 1.0"}
    assert "hostile" not in sys.modules
    with pytest.raises(SystemExit):
        build_plugin_registry(with_plugins("hostile")).validate()


def test_our_own_are_enabled_by_the_same_setting_unless_it_disables_them() -> None:
    assert [one.name for one in build_plugin_registry(Settings()).enabled] == ["redaction", "offline"]
    assert [one.name for one in build_plugin_registry(with_plugins("-offline")).enabled] == ["redaction"]
    assert Settings.model_validate({"plugins": "b, a,-redaction"}).enabled_plugins == ("offline", "b", "a")


def test_without_any_redactor_no_text_goes_anywhere() -> None:
    with pytest.raises(BadInput, match="no redactor is enabled: remove -redaction from WAYSTATION_PLUGINS"):
        create_redactor(with_plugins("-redaction"), KEY)


async def test_the_offline_model_says_when_its_plugin_is_disabled() -> None:
    router = create_model_router(with_plugins("-offline"))
    request = ModelRequest(model=OFFLINE_MODEL, system="", messages=(build_user_message("m1", "Hi."),), max_output=100)
    with pytest.raises(ModelRejected, match="'offline': add one to WAYSTATION_PLUGINS; offline"):
        await router.complete(request)


def test_a_plugin_that_is_named_and_not_installed_is_told_of_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_examples(tmp_path, monkeypatch)
    with pytest.raises(BadInput) as refused:
        build_plugin_registry(with_plugins("unit-convert"))
    said = str(refused.value)
    assert "the plug-in unit-convert is enabled but not installed" in said
    assert "did you mean unit_convert (a tool, from waystation_examples_metadata 1.0)?" in said
    assert all(group in said for group in PluginGroup)
    assert "`waystation doctor` lists the installed plug-ins" in said


def test_a_name_that_two_packages_have_is_refused_also_in_other_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, group in (("first", PluginGroup.TOOLS), ("second", PluginGroup.REDACTORS)):
        install_package(tmp_path, monkeypatch, PluginPackage(name, {group: {"acme": f"{name}:create"}}))
    build_plugin_registry(Settings())
    with pytest.raises(BadInput, match=r"more than one plug-in acme: first 1\.0 \(first:create\), second 1\.0"):
        build_plugin_registry(with_plugins("acme"))


@pytest.mark.parametrize(
    ("group", "source", "value", "fault"),
    [
        (PluginGroup.TOOLS, "create = 5", "acme:create", "acme:create is not a factory"),
        (PluginGroup.TOOLS, "def create(): return 5", "acme:create", "makes a int, which is not a PluginToolBase"),
        (PluginGroup.TOOLS, "import nothing_of_that_name", "acme:create", "cannot be imported from acme:create"),
        (PluginGroup.TOOLS, "", "acme:create", "cannot be imported from acme:create"),
        (PluginGroup.TOOLS, TOOL.format(more='name = "other"'), "acme:Tool", "the name of its entry point"),
        (PluginGroup.TOOLS, TOOL.format(more='permission = "submit"'), "acme:Tool", "its permission is 'submit'"),
        (PluginGroup.TOOLS, TOOL.format(more="ends_run = True"), "acme:Tool", "it ends agent runs"),
        (PluginGroup.TOOLS, TOOL.format(more='roles = ("cooking",)'), "acme:Tool", "research, analysis, writing"),
    ],
)
def test_a_tool_that_cannot_be_used_is_refused_before_any_agent_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: PluginGroup, source: str, value: str, fault: str
) -> None:
    install_package(tmp_path, monkeypatch, acme(group, source, value))
    with pytest.raises(BadInput) as refused:
        build_plugin_registry(with_plugins("acme")).validate()
    assert fault in str(refused.value)
    assert "from acme 1.0" in str(refused.value)


@pytest.mark.parametrize(
    "taken", ["read_document", "web_search", "submit_plan", "revise_plan", "review_report", "judge_sentences"]
)
def test_no_tool_of_a_plugin_has_the_name_of_one_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    source = TOOL.format(more=f'name = "{taken}"')
    install_package(tmp_path, monkeypatch, PluginPackage("acme", {PluginGroup.TOOLS: {taken: "acme:Tool"}}, source))
    with pytest.raises(BadInput, match="a tool of Waystation has that name"):
        build_plugin_registry(with_plugins(taken)).create_tools()


def test_what_a_factory_makes_keeps_to_the_port_of_its_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = {str(group): {"acme": "acme:create"} for group in (PluginGroup.CHAT_MODELS, PluginGroup.REDACTORS)}
    install_package(tmp_path, monkeypatch, PluginPackage("acme", groups, "def create(context): return context"))
    plugins = build_plugin_registry(with_plugins("acme"))
    endpoint = NamedEndpoint(kind="acme")
    with pytest.raises(BadInput, match="makes a ChatModelContext, which is not a ChatModel"):
        plugins.create_chat_model(ChatModelContext(endpoint, ModelEndpoint(url=endpoint.url, kind="acme")))
    with pytest.raises(BadInput, match="makes a RedactorContext, which is not a ConfiguredRedactor"):
        create_redactor(with_plugins("acme"), KEY)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ("redaction", "redaction is enabled by default"),
        ("acme,acme", "acme is listed twice"),
        ("-acme", "only redaction and offline can be disabled"),
        ("../acme", "is not the name of a plug-in"),
    ],
)
def test_a_setting_that_says_nothing_of_use_is_refused(monkeypatch: pytest.MonkeyPatch, given: str, fault: str) -> None:
    monkeypatch.setenv("WAYSTATION_PLUGINS", given)
    with pytest.raises(ValidationError) as refused:
        Settings()
    said = format_setting_errors(refused.value)
    assert said.startswith("WAYSTATION_PLUGINS: ")
    assert fault in said


def test_an_endpoint_has_a_kind_of_ours_or_of_a_plugin_that_is_enabled() -> None:
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate({"endpoints": {"mine": {"kind": "echo"}}})
    assert "mine has the unknown kind 'echo': use one of anthropic" in format_setting_errors(refused.value)
    settings = with_plugins("echo", endpoints={"mine": {"kind": "echo"}})
    place = settings.endpoint_registry.get_endpoint("mine::any")
    assert (place.url, place.is_provider) == ("plugin://echo", False), "the provider's prices are not its own"


async def test_a_model_of_a_plugin_answers_at_an_endpoint_of_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_examples(tmp_path, monkeypatch)
    settings = with_plugins("echo", endpoints={"mine": {"kind": "echo"}}, agent_model="mine::any")
    assert not settings.uses_offline_model
    router = create_model_router(settings)
    request = ModelRequest(
        model="mine::any", system="Say it.", messages=(build_user_message("m1", "Ahoy."),), max_output=100
    )
    reply = await router.complete(request)
    assert (reply.blocks[0].model_dump()["text"], reply.model) == ("Ahoy.", "any")
    assert await router.count_tokens(request) == reply.usage.input
    with pytest.raises(ModelRejected, match=r"mine::any.*it calls no tools"):
        await router.complete(request.replace(require_tool="submit_findings"))
    await router.aclose()


async def test_a_key_that_an_endpoint_of_a_plugin_names_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_examples(tmp_path, monkeypatch)
    tables = {"mine": {"kind": "echo", "key_from": "ECHO_KEY"}}
    with pytest.raises(BadInput, match="set ECHO_KEY"):
        create_model_router(with_plugins("echo", endpoints=tables, endpoint="mine", agent_model="any"))


async def test_a_redactor_of_a_plugin_sees_what_ours_left_and_adds_its_placeholders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_examples(tmp_path, monkeypatch)
    settings = with_plugins("tickets")
    text = "See ACME-4711, from bob@example.com about ACME-0815."
    redactor, ours = create_redactor(settings, KEY), create_redactor(Settings(), KEY)
    (both,) = await redactor.redact([text], TextDestination.TOOL_RESULT, "t")
    (again,) = await redactor.redact([both.text], TextDestination.TOOL_RESULT, "t")
    (alone,) = await ours.redact([text], TextDestination.TOOL_RESULT, "t")
    versions = [build_redaction_config(one, KEY).version for one in (redactor, ours)]
    redactor.close()
    ours.close()
    assert [(span.type, text[span.start : span.end]) for span in both.spans] == [
        ("TICKET", "ACME-4711"),
        ("EMAIL", "bob@example.com"),
        ("TICKET", "ACME-0815"),
    ]
    assert both.text.startswith("See <TICKET_")
    assert again.text == both.text
    assert [span.type for span in alone.spans] == ["EMAIL"]
    assert versions[0] != versions[1], "what was kept under other redactors is redacted again"
    types = list_placeholder_types(settings)
    assert {"TICKET", "EMAIL", "PERSON"} <= {*types}
    assert set(types) - set(list_placeholder_types(Settings())) == {"TICKET"}


def checks(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[bool, str]]:
    """What `waystation doctor` finds, by name."""
    run(["doctor", "--json"])
    return {check["name"]: (check["ok"], check["finding"]) for check in json.loads(capsys.readouterr().out)}


def test_doctor_shows_plugins_that_are_enabled_and_those_that_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], without_server: Settings
) -> None:
    install_examples(tmp_path, monkeypatch)
    install_package(tmp_path, monkeypatch, HOSTILE)
    monkeypatch.setenv("WAYSTATION_PLUGINS", "unit_convert,tickets")
    found = checks(capsys)
    ok, finding = found["plug-ins"]
    enabled, _, others = finding.partition("; installed but not enabled by WAYSTATION_PLUGINS: ")
    assert ok
    assert enabled.startswith("enabled: redaction (a redactor, from waystation ")
    assert "unit_convert (a tool, from waystation_examples_metadata 1.0)" in enabled
    assert "hostile (a tool, from hostile 1.0)" in others
    assert "echo (a kind of model endpoint" in others
    assert found["redaction"][1].endswith("; then numbers of tickets")


def test_doctor_says_what_is_wrong_with_plugins_and_which_there_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], without_server: Settings
) -> None:
    monkeypatch.setenv("WAYSTATION_PLUGINS", "nothing")
    ok, finding = checks(capsys)["plug-ins"]
    assert not ok
    assert "the plug-in nothing is enabled but not installed" in finding
    assert "Installed: " in finding
    assert "offline (a kind of model endpoint" in finding


def test_doctor_warns_where_only_redactors_of_others_are_enabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], without_server: Settings
) -> None:
    install_examples(tmp_path, monkeypatch)
    monkeypatch.setenv("WAYSTATION_PLUGINS", "tickets,-redaction")
    finding = "built-in redaction is off, so only other plug-ins redact (numbers of tickets)"
    assert checks(capsys)["redaction"] == (False, finding)


def test_the_page_on_plugins_has_the_groups_and_the_entry_points_of_the_examples() -> None:
    root = EXAMPLES.parents[1]
    page = (root / "docs" / "how-to" / "write-a-plugin.md").read_text(encoding="utf-8")
    block = page.partition("```toml\n")[2].partition("```")[0]
    written = tomllib.loads(block)["project"]["entry-points"]
    assert (
        written == tomllib.loads((EXAMPLES / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    )
    assert {*written} == {*PluginGroup}
    ours = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    assert {*ours} <= {*PluginGroup}
    assert all(f"`{group}`" in page for group in PluginGroup)
