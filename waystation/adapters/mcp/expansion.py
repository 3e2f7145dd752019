"""Variables in a config file, `${NAME}`, `${env:NAME}` or `${NAME:-default}` as for other clients, and its secrets."""

import re
from collections.abc import Iterable, Mapping

from waystation.domain.errors import BadInput
from waystation.patterns import proven

SHORTEST_SECRET = 6
"""Characters; what is shorter stands in too many texts by chance."""
_VARIABLE = proven(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*+)(?::-([^}]{0,8000}+))?\}")
_SECRET_NAME = proven(r"key|token|secret|pass|auth|credential|cookie|bearer|(^|[_-])pat($|[_-])", re.IGNORECASE)


class Expansion:
    """Puts variables in, and remembers which values are secrets: those whose name says so."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.secrets: set[str] = set()

    def text(self, written: str) -> str:
        """With every variable in its place. Raises BadInput: one is not set, and has no default."""
        return _VARIABLE.sub(self._value, written)

    def named(self, written: Mapping[str, str]) -> dict[str, str]:
        """Variables or headers by their names."""
        found = {name: self.text(value) for name, value in written.items()}
        for name, value in found.items():
            self._remember(name, value)
        return found

    def _value(self, found: re.Match[str]) -> str:
        name, default = found.groups()
        value = self._environment.get(name)
        if not value and default is not None:
            value = default
        if value is None:
            raise BadInput(f"the variable {name} is not set: set it, or write ${{{name}:-a default}}")
        self._remember(name, value)
        return value

    def _remember(self, name: str, value: str) -> None:
        if _SECRET_NAME.search(name):
            bare = value.rpartition(" ")[2]  # of a header, what stands behind the scheme
            self.secrets.update(one for one in (value, bare) if len(one) >= SHORTEST_SECRET)


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """The text without values of the config file that a server repeats. Longest first: one may be part of another."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "[secret]")
    return text
