"""The part of Qdrant's gRPC API that memory uses, on loopback, over the client's in-memory engine and conversions."""

# The client's generated messages and services are only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from grpc import StatusCode
from grpc.aio import ServicerContext, server
from qdrant_client import AsyncQdrantClient, models
from qdrant_client import grpc as messages
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc

_Answer = TypeVar("_Answer")
_Context = ServicerContext[object, object]


class QdrantGrpcStub(messages.CollectionsServicer, messages.PointsServicer):
    """Both services."""

    def __init__(self) -> None:
        self.port = 0
        self.faults: list[StatusCode | None] = []
        """Failures of the next calls; None: the call works. The details of a failure quote the request."""
        self.keys: set[object] = set()
        """Every API key received."""
        self.indexes: dict[str, messages.PayloadIndexParams] = {}
        self.engine = AsyncQdrantClient(":memory:")

    async def CollectionExists(self, request: messages.CollectionExistsRequest, context: _Context):
        exists = await self._answer(request, context, lambda: self.engine.collection_exists(request.collection_name))
        return messages.CollectionExistsResponse(result=messages.CollectionExists(exists=exists))

    async def Create(self, request: messages.CreateCollection, context: _Context):
        made = await self._answer(
            request,
            context,
            lambda: self.engine.create_collection(
                request.collection_name,
                vectors_config=GrpcToRest.convert_vectors_config(request.vectors_config),
                sparse_vectors_config=GrpcToRest.convert_sparse_vector_config(request.sparse_vectors_config),
                metadata=GrpcToRest.convert_payload(request.metadata),
            ),
        )
        return messages.CollectionOperationResponse(result=made)

    async def Get(self, request: messages.GetCollectionInfoRequest | messages.GetPoints, context: _Context):
        """Get a collection or points: both services have this method."""
        if isinstance(request, messages.GetPoints):
            return await self._points(request, context)
        found = await self._answer(request, context, lambda: self.engine.get_collection(request.collection_name))
        found.payload_schema = {
            field: models.PayloadIndexInfo(data_type=models.PayloadSchemaType.KEYWORD, points=0)
            for field in self.indexes
        }
        return messages.GetCollectionInfoResponse(result=RestToGrpc.convert_collection_info(found))

    async def _points(self, request: messages.GetPoints, context: _Context):
        wanted = [point.uuid for point in request.ids]
        records = await self._answer(request, context, lambda: self.engine.retrieve(request.collection_name, wanted))
        return messages.GetResponse(result=[RestToGrpc.convert_record(record) for record in records])

    async def CreateFieldIndex(self, request: messages.CreateFieldIndexCollection, context: _Context):
        self.indexes[request.field_name] = request.field_index_params
        return messages.PointsOperationResponse(result=messages.UpdateResult(status=messages.UpdateStatus.Completed))

    async def Upsert(self, request: messages.UpsertPoints, context: _Context):
        points = [GrpcToRest.convert_point_struct(point) for point in request.points]
        await self._answer(request, context, lambda: self.engine.upsert(request.collection_name, points))
        return messages.PointsOperationResponse(result=messages.UpdateResult(status=messages.UpdateStatus.Completed))

    async def Delete(self, request: messages.DeletePoints, context: _Context):
        gone = GrpcToRest.convert_points_selector(request.points)
        await self._answer(request, context, lambda: self.engine.delete(request.collection_name, gone))
        return messages.PointsOperationResponse(result=messages.UpdateResult(status=messages.UpdateStatus.Completed))

    async def QueryBatch(self, request: messages.QueryBatchPoints, context: _Context):
        asked = [GrpcToRest.convert_query_points(one) for one in request.query_points]
        answers = await self._answer(
            request, context, lambda: self.engine.query_batch_points(request.collection_name, asked)
        )
        found = [
            messages.BatchResult(result=[RestToGrpc.convert_scored_point(point) for point in answer.points])
            for answer in answers
        ]
        return messages.QueryBatchResponse(result=found)

    async def Count(self, request: messages.CountPoints, context: _Context):
        where = GrpcToRest.convert_filter(request.filter)
        found = await self._answer(request, context, lambda: self.engine.count(request.collection_name, where))
        return messages.CountResponse(result=messages.CountResult(count=found.count))

    async def _answer(self, request: object, context: _Context, work: Callable[[], Awaitable[_Answer]]) -> _Answer:
        self.keys |= {value for name, value in context.invocation_metadata() or () if name == "api-key"}
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            await context.abort(fault, f"told to fail at {request}")
        try:
            return await work()
        except ValueError as error:
            code = StatusCode.ALREADY_EXISTS if "already exists" in str(error) else StatusCode.INVALID_ARGUMENT
            await context.abort(code, f"{error} in {request}")
            raise


@asynccontextmanager
async def run_qdrant_grpc() -> AsyncGenerator[QdrantGrpcStub]:
    """Run a server on a free port of loopback, in this event loop."""
    stub, listener = QdrantGrpcStub(), server()
    messages.add_CollectionsServicer_to_server(stub, listener)
    messages.add_PointsServicer_to_server(stub, listener)
    stub.port = listener.add_insecure_port("127.0.0.1:0")
    await listener.start()
    try:
        yield stub
    finally:
        await listener.stop(grace=1)
        await stub.engine.close()
