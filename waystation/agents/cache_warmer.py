"""Reads the cached prefix of an agent that waits, so that the provider keeps it."""

from dataclasses import dataclass

from waystation.agents.cache_refresh import MAX_REFRESH_DELAY, CacheRefreshOutcome, CacheRefreshRequest
from waystation.agents.call_ledger import CallKey, CountedPrompt, MeteredModel
from waystation.agents.leg import AgentConfig
from waystation.agents.leg_attempt import build_request_view
from waystation.agents.roles import AgentDeps
from waystation.context.history import find_prompt_prefix
from waystation.context.transcript import Transcript
from waystation.kernel.clock import Clock
from waystation.kernel.errors import BadInput, ModelError
from waystation.models.ports import ModelRequest


@dataclass(frozen=True)
class CacheWarmer:
    """Refreshes agents' cached prefixes."""

    model: MeteredModel
    deps: AgentDeps
    clock: Clock

    async def warm_cache(self, request: CacheRefreshRequest) -> CacheRefreshOutcome:
        """Repeat the agent's last request without asking for a reply, and charge it.

        If the call fails, the cached prefix may expire: the outcome is not alive.

        Raises StoreError, StaleFenceError.
        """
        store, run_id = self.deps.store, request.run.run_id
        transcript = await store.load_transcript(run_id, request.run.scope)
        totals, alive = await store.get_run_usage(run_id), False
        if (sent := _build_last_request(request.config, transcript)) and self.clock() < request.due + MAX_REFRESH_DELAY:
            fence = await store.acquire_fence(run_id)
            key = CallKey("warm", f"{transcript.turn_count}-{request.number}")
            counted = CountedPrompt(totals.last_prompt_tokens, len(sent.messages), same_head=True)
            try:
                charge = await self.model.warm_cache(
                    fence, key, sent, request.limit.remaining_after(totals.spent), request.config.prices, counted
                )
            except (ModelError, BadInput):
                charge = None
            if charge is not None:
                await store.commit_charge(fence, charge)
                alive = charge.usage.cache_read > charge.usage.cache_write
            totals = await store.get_run_usage(run_id)
        return CacheRefreshOutcome(totals=totals, alive=alive)


def _build_last_request(config: AgentConfig, transcript: Transcript) -> ModelRequest | None:
    """Return the request whose reply was the agent's last one; None if the conversation has changed since."""
    if (prefix := find_prompt_prefix(transcript)) is None:
        return None
    view = build_request_view(transcript, config.model)
    while view and view[-1].role == "assistant":
        view = view[:-1]
    if not view:
        return None
    return ModelRequest(
        model=config.model,
        system=prefix.system,
        messages=view,
        tools=prefix.tools,
        max_output=0,
        effort=config.effort,
        thinking=config.thinking,
    )
