"""A hook that is an address: told by a POST, it answers by its status alone."""

import httpx2
from pydantic import SecretStr

from waystation.adapters.webhook.address import PrivateAddress
from waystation.domain.compaction.hook import CompactionEvent
from waystation.domain.errors import HookFailed

PATIENCE_S = 30.0


class PostedHook:
    """A `CompactionHook`. It is told once: nothing of an answer but a success is one."""

    def __init__(self, setting: str, address: SecretStr, patience_s: float = PATIENCE_S) -> None:
        """`setting`: its name, for messages; `address`: an http or https URL."""
        self._address = PrivateAddress(address, patience_s)
        self._patience_s = patience_s
        self._name = f"{setting} ({self._address.host})"

    async def call(self, event: CompactionEvent) -> None:
        """See `CompactionHook`."""
        try:
            async with self._address.post(event.body) as response:
                if not response.is_success:
                    why = ", a redirect, which is not followed" if response.is_redirect else ""
                    raise HookFailed(f"{self._name} answered {response.status_code}{why}")
        except TimeoutError:
            raise HookFailed(f"{self._name} did not answer within {self._patience_s:g} s") from None
        except httpx2.HTTPError as error:
            raise HookFailed(f"the connection to {self._name} failed ({type(error).__name__})") from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._address.aclose()
