"""Posts JSON to an address of the team's, and keeps that to itself: who knows its path may post, too."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2
from pydantic import SecretStr


class PrivateAddress:
    """An http or https URL. Redirects are not followed, and what is posted is posted once."""

    def __init__(self, address: SecretStr, patience_s: float) -> None:
        """`patience_s`: from the first packet to the status of the answer."""
        self._url = httpx2.URL(address.get_secret_value())
        self._patience_s = patience_s
        self._client = httpx2.AsyncClient(timeout=None, follow_redirects=False)
        logging.getLogger("httpx2").addFilter(self._keeps_the_secret)

    @property
    def host(self) -> str:
        """For messages."""
        return self._url.host

    @asynccontextmanager
    async def post(self, body: str) -> AsyncGenerator[httpx2.Response]:
        """Post one JSON value, and have its answer's status and headers; the rest of it is not read.

        Raises TimeoutError, httpx2.HTTPError.
        """
        headers = {"Content-Type": "application/json"}
        async with (
            asyncio.timeout(self._patience_s),
            self._client.stream("POST", self._url, content=body, headers=headers) as response,
        ):
            yield response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()
        logging.getLogger("httpx2").removeFilter(self._keeps_the_secret)

    def _keeps_the_secret(self, record: logging.LogRecord) -> bool:
        """At level INFO the HTTP client logs the whole URL of every request."""
        return str(self._url) not in record.getMessage()
