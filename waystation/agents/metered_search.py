"""Searches of the web that are held under a budget, announced before and charged after, as calls of models are."""

from collections.abc import Sequence
from dataclasses import dataclass

from waystation.agents.metered import Books, CallKey, PricedCall, TooDear
from waystation.domain.allowance import Bound
from waystation.domain.amount import Amount, Limit
from waystation.domain.errors import BadInput
from waystation.domain.pricing import Price, price_of
from waystation.domain.turn import Fence
from waystation.domain.web import SEARCH_INPUT_TOKENS, SEARCH_OUTPUT_TOKENS, Searched
from waystation.ports import Clock, Meter, TranscriptStore, WebSearch


@dataclass(frozen=True)
class MeteredSearch:
    """A search whose every call leaves a trace, and is charged once."""

    web: WebSearch
    transcripts: TranscriptStore
    clock: Clock
    meter: Meter
    prices: Sequence[Price]

    async def search(self, fence: Fence, call_id: str, query: str, most: int, limit: Limit) -> Searched | TooDear:
        """Search once for at most so many pages, within the run's limit.

        A search is reckoned with what it costs at most, and its charge is committed here: it may turn out higher only
        where the provider reads more than any search does. Raises ModelError, BadInput, StoreError.
        """
        spent = (await self.transcripts.totals(fence.run_id)).spent
        call = self._priced(limit)
        if not limit.after(spent).covers(call.worst_case):
            return TooDear(limit.after(spent).excess(call.worst_case))
        books = Books(self.transcripts, self.clock, self.meter)
        found, charge = await books.charged(
            fence, CallKey("search", call_id), call, lambda: self.web.search(query, most)
        )
        await self.transcripts.commit_charge(fence, charge)
        return found

    def _priced(self, limit: Limit) -> PricedCall:
        day, model = self.clock().date(), self.web.model
        price = price_of(model, day, self.prices)
        if price is None and limit.micro_usd is not None:
            raise BadInput(f"{model} has no known price, so no search by it can be held under a limit in dollars")
        rates = None if price is None else price.worst_for(SEARCH_INPUT_TOKENS)
        searching = Amount() if price is None else Amount(micro_usd=int(price.cost_of_searches(1)))
        worst = Bound(input_tokens=SEARCH_INPUT_TOKENS, rates=rates).worst_case(SEARCH_OUTPUT_TOKENS) + searching
        return PricedCall(model, worst, self.prices, day)
