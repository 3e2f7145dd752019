"""Plug-ins of this process: those that the settings enable, found by their entry points.

Entry points are read from the metadata of installed packages. The code behind one is imported when the settings enable
it and something needs it; being installed does nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import sha256
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from waystation.agents.roles import list_built_in_tool_names
from waystation.agents.tools.plugin_tool import PluginToolBase, validate_plugin_tool
from waystation.config.settings import Settings
from waystation.kernel.errors import BadInput
from waystation.models.ports import ChatModel
from waystation.plugins.api import ChatModelContext, PluginGroup, RedactorContext
from waystation.privacy.ports import ConfiguredRedactor
from waystation.privacy.redactor_chain import RedactorChain

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class InstalledPlugin:
    """An entry point of one of our groups."""

    name: str
    group: PluginGroup
    package: str
    """Of the index, with its version: `acme-tools 1.2`."""
    entry_point: EntryPoint

    @property
    def description(self) -> str:
        """For people: what it is, and where it comes from."""
        return f"{self.name} ({self.group.noun}, from {self.package})"

    @property
    def source_digest(self) -> str:
        """Of its module, whose change is then not forgotten in what depends on it; empty where it has no file."""
        spec = find_spec(self.entry_point.module)
        source = Path(spec.origin) if spec is not None and spec.origin is not None else None
        return sha256(source.read_bytes()).hexdigest() if source is not None and source.is_file() else ""

    def load(self) -> Callable[..., object]:
        """The factory, imported. Raises BadInput."""
        place = self.entry_point.value
        try:
            factory: object = self.entry_point.load()
        except (ImportError, AttributeError) as error:
            raise BadInput(f"the plug-in {self.description} cannot be imported from {place}: {error}") from error
        if not callable(factory):
            raise BadInput(f"the plug-in {self.description}: {place} is not a factory, because it cannot be called")
        return factory

    def make(self, kind: type[_Made], *given: object) -> _Made:
        """What the factory makes of this. Raises BadInput where that is of another kind, and as the factory does."""
        made = self.load()(*given)
        if not isinstance(made, kind):
            raise BadInput(
                f"the plug-in {self.description}: {self.entry_point.value} makes a {type(made).__name__}, "
                f"which is not a {kind.__name__} (docs/how-to/write-a-plugin.md)"
            )
        return made


@dataclass(frozen=True)
class PluginRegistry:
    """The plug-ins that are enabled, in the order of the settings, and those that are installed and are not."""

    enabled: Sequence[InstalledPlugin]
    disabled: Sequence[InstalledPlugin]

    def list_group(self, group: PluginGroup) -> list[InstalledPlugin]:
        """The enabled ones of a group."""
        return [plugin for plugin in self.enabled if plugin.group is group]

    def validate(self) -> None:
        """Import all that are enabled, and make their tools, so that what is wrong is said now. Raises BadInput."""
        for plugin in self.enabled:
            plugin.load()
        self.create_tools()

    def create_tools(self) -> tuple[PluginToolBase, ...]:
        """All tools. Raises BadInput."""
        reserved = list_built_in_tool_names()
        tools = [(one, one.make(PluginToolBase)) for one in self.list_group(PluginGroup.TOOLS)]
        for plugin, tool in tools:
            try:
                validate_plugin_tool(tool, plugin.name, reserved)
            except BadInput as fault:
                raise BadInput(f"the plug-in {plugin.description}: {fault}") from None
        return tuple(tool for _, tool in tools)

    def create_chat_model(self, context: ChatModelContext) -> ChatModel:
        """The models of an endpoint, by its kind. Raises BadInput."""
        wanted = context.endpoint.kind
        plugin = next((one for one in self.list_group(PluginGroup.CHAT_MODELS) if one.name == wanted), None)
        if plugin is None:
            raise BadInput(
                f"no enabled plug-in has models of the kind {wanted!r}: add one to WAYSTATION_PLUGINS"
                + "".join(f"; {one.description} is installed" for one in self.disabled if one.name == wanted)
            )
        return plugin.make(ChatModel, context)

    def create_redactor(self, context: RedactorContext) -> RedactorChain:
        """All redactors, as one. Raises BadInput, also where there is none: no text goes anywhere without."""
        plugins = self.list_group(PluginGroup.REDACTORS)
        if not plugins:
            raise BadInput("no redactor is enabled: remove -redaction from WAYSTATION_PLUGINS, or add another redactor")
        redactors = [(one, one.make(ConfiguredRedactor, context)) for one in plugins]
        sources = [one.source_digest for one in plugins]
        return RedactorChain([(one.name, redactor) for one, redactor in redactors], context.policy, sources)


def build_plugin_registry(settings: Settings) -> PluginRegistry:
    """The plug-ins of these settings. None of them is imported.

    Raises:
        BadInput: one that is enabled is not installed, or several packages have one of its name.
    """
    installed = find_installed_plugins()
    by_name: dict[str, list[InstalledPlugin]] = {}
    for plugin in installed:
        by_name.setdefault(plugin.name, []).append(plugin)
    enabled = [one for name in settings.enabled_plugins for one in _enabled(name, by_name)]
    return PluginRegistry(enabled, [one for one in installed if one not in enabled])


def find_installed_plugins() -> list[InstalledPlugin]:
    """Those of all packages that are installed here, enabled or not. None of them is imported."""
    return [
        InstalledPlugin(
            one.name,
            group,
            f"{one.dist.name} {one.dist.version}" if one.dist is not None else "no known package",
            one,
        )
        for group in PluginGroup
        for one in sorted(entry_points(group=group), key=lambda one: (one.name, one.value))
    ]


def _enabled(name: str, by_name: Mapping[str, Sequence[InstalledPlugin]]) -> Sequence[InstalledPlugin]:
    """All of this name, of one package: one may be of several groups. Raises BadInput."""
    found = by_name.get(name, ())
    packages = _distinct(one.package for one in found)
    if not found:
        close = get_close_matches(name, by_name, n=1)
        meant = f"did you mean {by_name[close[0]][0].description}? If not, " if close else ""
        raise BadInput(
            f"the plug-in {name} is enabled but not installed: {meant}install the package that has an entry "
            f"point {name} in the group {_either(PluginGroup)}, or remove {name} from WAYSTATION_PLUGINS. If {name} is "
            "one of Waystation's own plug-ins, install Waystation again. `waystation doctor` lists the installed "
            "plug-ins"
        )
    if len(packages) > 1 or len(found) > len(_distinct(one.group for one in found)):
        places = ", ".join(f"{one.package} ({one.entry_point.value})" for one in found)
        remedy = (
            "Uninstall all but one of these packages"
            if len(packages) > 1
            else f"Remove {name} from WAYSTATION_PLUGINS, or uninstall the package"
        )
        raise BadInput(f"there is more than one plug-in {name}: {places}. {remedy}")
    return found


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _either(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}"
