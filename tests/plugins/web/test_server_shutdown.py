"""What is answered to requests at work when the server is stopping: what is known of them, and how to go on."""

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from waystation.plugins.web.access import AccessGuard, AccessPolicy

ACCESS = AccessPolicy(token="t" * 43, port=8520)


async def stopped(method: str, path: str, *headers: tuple[bytes, bytes]) -> tuple[int, str, MutableMapping[str, Any]]:
    """Status, media type and problem of the answer to a request that is at work when the server stops."""
    at_work, sent = asyncio.Event(), list[Message]()

    async def works(_scope: Scope, _receive: Receive, _send: Send) -> None:
        at_work.set()
        await asyncio.Event().wait()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    asked = [(b"host", b"127.0.0.1:8520"), (b"authorization", b"Bearer " + ACCESS.token.encode()), *headers]
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": asked}
    answering = asyncio.create_task(AccessGuard(works, ACCESS)(scope, receive, send))
    await at_work.wait()
    answering.cancel()
    await answering
    head = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], head["content-type"], json.loads(sent[1]["body"])


@pytest.mark.parametrize(
    ("method", "path", "key", "told"),
    [
        (
            "POST",
            "/v1/tasks",
            True,
            "unknown whether the request was carried out: repeat the request with the same Idempotency-Key",
        ),
        ("POST", "/v1/tasks/task-1/fork", True, "repeat the request with the same Idempotency-Key"),
        ("POST", "/v1/tasks", False, "look at the tasks before you repeat the request"),
        (
            "POST",
            "/v1/tasks/task-1/approve",
            False,
            "unknown whether the request was carried out: it is safe to repeat the request",
        ),
        ("PUT", "/v1/sessions/S/limit", False, "it is safe to repeat the request"),
        ("POST", "/v1/tasks/task-1/message", False, "look at the tasks before you repeat the request"),
        ("GET", "/v1/tasks", False, "the server is stopping; repeat the request when the server runs again"),
    ],
)
async def test_a_request_at_work_is_told_what_is_unknown_when_the_server_stops(
    method: str, path: str, key: bool, told: str
) -> None:
    status, media_type, problem = await stopped(method, path, *([(b"idempotency-key", b"k")] if key else []))
    assert (status, media_type, problem["status"]) == (503, "application/problem+json", 503)
    assert told in problem["detail"]
    assert ("unknown" in problem["detail"]) is (method != "GET")
