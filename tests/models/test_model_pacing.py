"""Calls through the real SDK keep to a provider's rate limits: its headers teach them, whichever endpoint answers."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime

import httpx2
import pytest

from waystation.config.settings import Settings
from waystation.context.transcript import Text, build_user_message
from waystation.kernel.errors import ModelUnavailable, SpendingLimitReached
from waystation.kernel.usage import Usage
from waystation.models.anthropic.model import create_anthropic_model
from waystation.models.endpoints import EndpointRegistry
from waystation.models.http_errors import VendorErrorResponse
from waystation.models.ports import LimitScope, ModelRequest, ReplyDelta
from waystation.models.profiles import OFFLINE_MODEL
from waystation.models.rate_limiter import LimiterContext, RateLimiter
from waystation.models.rate_limits import RateLimits
from waystation.testing.doubles import LocalLimitRepository, ScriptedModel, make_scripted_response
from waystation.testing.messages_server import build_error_response, build_message_body, build_stream_response
from waystation.workers.models import (
    LazyChatModel,
    ModelRouter,
    RouterLimits,
    create_limit_scopes,
    has_counted_cache_reads,
    hash_account,
)

MODEL = "claude-sonnet-5-5"
SCOPE = LimitScope("https://models.example", "account", MODEL)
REQUEST = ModelRequest(model=MODEL, system="", messages=(build_user_message("m1", "Why? " * 400),), max_output=500)


@dataclass
class Provider:
    """Answers with the next of these, and then with replies; each names 600 requests a minute."""

    errors: list[httpx2.Response] = field(default_factory=list[httpx2.Response])
    remaining: int = 600
    usage: Usage = field(default_factory=lambda: Usage(input=100, cache_read=5_000, output=40))
    now: float = 1_000.0

    def __post_init__(self) -> None:
        self.leases = LocalLimitRepository(lambda: self.now)
        context = LimiterContext(self.leases, "worker", lambda: self.now, lambda: 0.0, self._sleep)
        self.limiter = RateLimiter(context)
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer))
        model = create_anthropic_model("key", "https://models.example", http)
        pacing = RouterLimits(self.limiter, lambda model: SCOPE._replace(model=model))
        offline = ScriptedModel([make_scripted_response()])
        self.router = ModelRouter(offline, model, {}, EndpointRegistry(), pacing=pacing)
        self.waits: list[float] = []

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        del request
        if self.errors:
            return self.errors.pop(0)
        reply = make_scripted_response(Text(text="So."), usage=self.usage, model=MODEL)
        response = build_stream_response(build_message_body(reply))
        response.headers["anthropic-ratelimit-requests-limit"] = "600"
        response.headers["anthropic-ratelimit-requests-remaining"] = str(self.remaining)
        response.headers["anthropic-ratelimit-input-tokens-limit"] = "600000"
        response.headers["anthropic-ratelimit-input-tokens-remaining"] = "600000"
        return response

    def begin_wait(self) -> None:
        self.waits.append(0.0)

    def end_wait(self, seconds: float) -> None:
        self.waits[-1] = seconds

    async def call(self, request: ModelRequest = REQUEST) -> None:
        await self.router.complete_paced(request, "tenant", self)


async def test_a_reply_teaches_the_limits_of_its_model_and_cached_input_does_not_count() -> None:
    provider = Provider()
    for _ in range(200):
        await provider.call()
    limiter = provider.limiter.get_scope_limiter(SCOPE)
    assert limiter.limits == RateLimits(requests=600, input_tokens=600_000)
    # 200 calls of 5,100 tokens are more than a minute's quota; without what was cached they are a thirtieth of it.
    assert sum(provider.waits) < 30


async def test_when_the_provider_says_that_nothing_is_left_the_next_call_waits() -> None:
    provider = Provider(remaining=0)
    await provider.call()
    await provider.call()
    assert len(provider.waits) == 1
    assert provider.waits[0] > 0


@pytest.mark.parametrize(("status", "kind"), [(429, "rate_limit_error"), (529, "overloaded_error")])
async def test_a_refusal_is_raised_and_holds_back_the_calls_after_it(status: int, kind: str) -> None:
    provider = Provider([build_error_response(status, kind, headers={"retry-after": "20"})])
    with pytest.raises(ModelUnavailable):
        await provider.call()
    await provider.call()
    assert provider.waits[0] >= 20


class TextRecorder:
    """A `ReplyObserver` that records texts."""

    def __init__(self) -> None:
        self.text = ""

    def begin_reply(self) -> None:
        self.text = ""

    def receive_delta(self, delta: ReplyDelta) -> None:
        self.text += delta.text


async def test_an_observer_receives_the_reply_behind_router_and_rate_limit() -> None:
    provider, observer = Provider(), TextRecorder()
    await provider.router.complete_paced(REQUEST, "tenant", provider, observer)
    assert observer.text == "So."
    lazy = LazyChatModel(lambda: ScriptedModel([make_scripted_response(Text(text="Offline."))]))
    await lazy.complete_observed(REQUEST, observer)
    assert observer.text == "Offline."


async def test_the_offline_model_and_calls_outside_of_tasks_wait_for_nothing() -> None:
    provider = Provider()
    await provider.call(REQUEST.replace(model=OFFLINE_MODEL))
    await provider.router.complete(REQUEST)
    assert provider.limiter.scopes == ()


def test_an_account_is_known_by_a_keyed_hash_and_never_by_its_key() -> None:
    settings = Settings.model_validate({"anthropic_api_key": "sk-secret-0123456789"})
    scope = create_limit_scopes(settings, b"k" * 32)(MODEL)
    assert (scope.endpoint, scope.model) == ("https://api.anthropic.com", MODEL)
    assert scope.account == hash_account(b"k" * 32, "sk-secret-0123456789")
    assert "sk-secret" not in repr(scope)
    assert scope.account != hash_account(b"x" * 32, "sk-secret-0123456789")
    assert scope.account != hash_account(b"k" * 32, "sk-other")


def test_limits_of_the_settings_belong_to_the_endpoint_and_the_name_of_their_model() -> None:
    settings = Settings.model_validate({"model_limits": {MODEL: {"requests": 50, "output_tokens": 8_000}}})
    assert settings.fixed_limits == {("https://api.anthropic.com", MODEL): RateLimits(requests=50, output_tokens=8_000)}


def test_input_from_the_cache_counts_for_old_models_and_behind_chat_completions() -> None:
    assert not has_counted_cache_reads("anthropic", MODEL)
    assert has_counted_cache_reads("anthropic", "claude-3-5-haiku-latest")
    assert has_counted_cache_reads("openai", "gpt")


DATE = "Mon, 30 Nov 2026 12:00:00 GMT"
REGAINED = "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."


@pytest.mark.parametrize(
    ("status", "words", "headers", "resets_at"),
    [
        (400, REGAINED, {}, datetime(2026, 12, 1, tzinfo=UTC)),
        (402, "", {"retry-after": "60", "date": DATE}, datetime(2026, 11, 30, 12, 1, tzinfo=UTC)),
        (402, "", {"retry-after": "60"}, None),
        (400, REGAINED.replace("2026-12-01", "2026-99-01"), {}, None),
        (400, "Your credit balance is too low", {}, None),
    ],
)
def test_an_exhausted_account_says_when_it_is_reset_if_its_provider_does(
    status: int, words: str, headers: dict[str, str], resets_at: datetime | None
) -> None:
    error = VendorErrorResponse(status, "", words, "", headers).model_error
    assert isinstance(error, SpendingLimitReached)
    assert error.resets_at == resets_at
