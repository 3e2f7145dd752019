"""Registering the search attributes of a task.

Upserting an attribute that the server does not know hangs a workflow until somebody registers it, so workers ask here
first and do without where they may not register.
"""

from collections.abc import Mapping

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from waystation.domain.names import (
    COST_ATTRIBUTE,
    PENDING_ATTRIBUTE,
    PHASE_ATTRIBUTE,
    SESSION_ATTRIBUTE,
    TOKENS_ATTRIBUTE,
)

TYPES: Mapping[str, IndexedValueType.ValueType] = {
    SESSION_ATTRIBUTE: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    PHASE_ATTRIBUTE: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    TOKENS_ATTRIBUTE: IndexedValueType.INDEXED_VALUE_TYPE_INT,
    COST_ATTRIBUTE: IndexedValueType.INDEXED_VALUE_TYPE_DOUBLE,
    PENDING_ATTRIBUTE: IndexedValueType.INDEXED_VALUE_TYPE_INT,
}
NOT_ALLOWED = frozenset({RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.UNAUTHENTICATED})


async def unusable_search_attributes(client: Client) -> tuple[str, ...]:
    """Names that are not registered, or with another type than ours."""
    listed = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace)
    )
    found = listed.custom_attributes
    return tuple(name for name, wanted in TYPES.items() if found.get(name) != wanted)


async def ensure_search_attributes(client: Client) -> bool:
    """Register what is missing. False: the server does not let us, or has one of the names with another type."""
    try:
        missing = await unusable_search_attributes(client)
        if missing:
            await client.operator_service.add_search_attributes(
                AddSearchAttributesRequest(
                    namespace=client.namespace, search_attributes={name: TYPES[name] for name in missing}
                )
            )
        # Adding a name that exists with another type is answered with success: only listing again tells.
        return not await unusable_search_attributes(client)
    except RPCError as error:
        if error.status in NOT_ALLOWED:
            return False
        raise
