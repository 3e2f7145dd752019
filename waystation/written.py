"""Settings as people write them: text of the environment or the config file, and what it is read as."""

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, HttpUrl, SecretStr
from pydantic_settings import NoDecode

from waystation.domain.amount import WRITTEN, read_limit, read_tokens
from waystation.domain.task import TaskBudget

ADDRESS = re.compile(r"https?://([^/?#@\s]*@)?[^/?#@:\s]", re.IGNORECASE)
"""Up to the first sign of the host."""


def _read_limit(written: object) -> object:
    match written:
        case str():
            return read_limit(written)
        case bool() | float() | list() | dict():
            raise ValueError(f"write {WRITTEN}")
        case _:
            return written


def _read_tokens(written: object) -> object:
    return read_tokens(written) if isinstance(written, str) else written


def _read_address(written: SecretStr | None) -> SecretStr | None:
    """Refused without being shown: who knows a webhook's path may post to it."""
    if written is None:
        return None
    address = written.get_secret_value().strip()
    try:
        # The library takes the path for the host where there is none, and encodes what it should not.
        if not ADDRESS.match(address) or len(address.split()) != 1:
            raise ValueError
        return SecretStr(str(HttpUrl(address)))
    except ValueError:
        raise ValueError(
            "it must be an http or https address with a host and without spaces, like that of a Slack incoming "
            "webhook; what was given is not shown, since it may hold a secret"
        ) from None


WrittenBudget = Annotated[TaskBudget, NoDecode, BeforeValidator(_read_limit)]
"""`600k`, `$2.00` or `600k+$2.00`; the environment's text is not JSON."""
WrittenTokens = Annotated[int | None, BeforeValidator(_read_tokens)]
"""`50k`, `1.5M` or a number."""
SecretAddress = Annotated[SecretStr | None, AfterValidator(_read_address)]
"""An http or https URL, normalised."""
