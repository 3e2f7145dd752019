"""Registering the search attributes of a task.

Upserting an attribute that the server does not know hangs a workflow until somebody registers it, so workers ask here
first and do without where they may not register.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from string import digits

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from waystation.adapters.temporal.connect import REFUSED, RPC_TIMEOUT
from waystation.domain.errors import Unreachable
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
FIELDS: Mapping[str, IndexedValueType.ValueType] = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "Int": IndexedValueType.INDEXED_VALUE_TYPE_INT,
    "Double": IndexedValueType.INDEXED_VALUE_TYPE_DOUBLE,
}
"""The types of ours, as the fields are named that a namespace gives to its attributes: `Keyword01`, `Int02`."""
NOT_OFFERED = REFUSED | {RPCStatusCode.UNIMPLEMENTED}
"""Temporal Cloud, for one, keeps the operator's calls to itself."""


async def unusable_search_attributes(client: Client) -> tuple[str, ...]:
    """Names that are not registered, with another type than ours, or not to be seen. Raises Unreachable."""
    with _answering():
        found = await _registered(client)
    return tuple(name for name, wanted in TYPES.items() if found.get(name) != wanted)


async def ensure_search_attributes(client: Client) -> bool:
    """Register what is missing. False: the server does not let us, or has one of the names with another type.

    Raises Unreachable.
    """
    missing = await unusable_search_attributes(client)
    if not missing:
        return True
    request = AddSearchAttributesRequest(
        namespace=client.namespace, search_attributes={name: TYPES[name] for name in missing}
    )
    with _answering():
        try:
            await client.operator_service.add_search_attributes(request, timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status in NOT_OFFERED:
                return False
            raise
    # Adding a name that exists with another type is answered with success: only listing again tells.
    return not await unusable_search_attributes(client)


async def _registered(client: Client) -> Mapping[str, IndexedValueType.ValueType]:
    request = ListSearchAttributesRequest(namespace=client.namespace)
    try:
        return (await client.operator_service.list_search_attributes(request, timeout=RPC_TIMEOUT)).custom_attributes
    except RPCError as error:
        if error.status not in NOT_OFFERED:
            raise
        return await _aliases(client)


async def _aliases(client: Client) -> Mapping[str, IndexedValueType.ValueType]:
    """What every client may see of a namespace: which name stands for which of its numbered fields."""
    described = await client.workflow_service.describe_namespace(
        DescribeNamespaceRequest(namespace=client.namespace), timeout=RPC_TIMEOUT
    )
    kinds = {name: field.rstrip(digits) for field, name in described.config.custom_search_attribute_aliases.items()}
    return {name: FIELDS[kind] for name, kind in kinds.items() if kind in FIELDS}


@contextmanager
def _answering() -> Generator[None]:
    try:
        yield
    except RPCError as error:
        raise Unreachable(f"the Temporal server does not tell its search attributes ({error.status.name})") from error
