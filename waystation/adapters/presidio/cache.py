"""Results of earlier redactions: agents send the same results and messages again and again."""

import hashlib
from collections import OrderedDict

from waystation.domain.privacy import Treatment
from waystation.domain.redaction import Redacted

_Key = tuple[bytes, Treatment, str]


class RedactionCache:
    """The results used last, up to a number of characters in all."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._characters = 0
        self._results: OrderedDict[_Key, Redacted] = OrderedDict()

    def get(self, text: str, wanted: Treatment, tenant: str) -> Redacted | None:
        """The result for this text, if it is still known."""
        key = _key(text, wanted, tenant)
        if key in self._results:
            self._results.move_to_end(key)
        return self._results.get(key)

    def put(self, text: str, wanted: Treatment, tenant: str, result: Redacted) -> None:
        """Keep the result, and that redacting it again changes nothing: a placeholder can make a recogniser see a name
        beside it that it did not see before.
        """
        self._keep(_key(text, wanted, tenant), result)
        if result.spans:
            self._keep(_key(result.text, wanted, tenant), Redacted(text=result.text))

    def _keep(self, key: _Key, result: Redacted) -> None:
        if key in self._results:
            return
        self._results[key] = result
        self._characters += len(result.text)
        while self._characters > self._capacity:
            _, oldest = self._results.popitem(last=False)
            self._characters -= len(oldest.text)


def _key(text: str, wanted: Treatment, tenant: str) -> _Key:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest(), wanted, tenant
