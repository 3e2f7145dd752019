"""What a server that is away, slow, busy or strict means to memory: a clear word, and nothing lost."""

import socket
from collections.abc import AsyncIterator, Iterator

import pytest
from grpc import StatusCode
from pydantic import SecretStr

from tests.memory.memory_values import DIMENSION, EAST, make_passage, make_query
from tests.support.qdrant_grpc import run_qdrant_grpc
from tests.support.qdrant_server import QdrantStub, run_qdrant_server
from waystation.kernel.errors import MemoryUnavailable
from waystation.memory.qdrant.collection import QdrantServerConfig
from waystation.memory.qdrant.server import QdrantRetryPolicy, QdrantServerMemory

AT_ONCE = QdrantRetryPolicy(pauses_s=(0.0, 0.0))
KEY = "key-that-nobody-may-see"
# Said by the client of a key that goes over plain HTTP, which it does on loopback alone here.
UNENCRYPTED = pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection:UserWarning")


@pytest.fixture
def qdrant() -> Iterator[QdrantStub]:
    with run_qdrant_server() as running:
        yield running


@pytest.fixture
async def memory(qdrant: QdrantStub) -> AsyncIterator[QdrantServerMemory]:
    memory = opened(QdrantServerConfig(url=qdrant.url))
    yield memory
    await memory.aclose()


def opened(server: QdrantServerConfig, patience: QdrantRetryPolicy = AT_ONCE) -> QdrantServerMemory:
    return QdrantServerMemory.open(server, "compass", DIMENSION, patience)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.mark.parametrize("over_grpc", [False, True])
async def test_a_server_that_is_not_there_stops_no_worker_and_is_named_at_each_use(over_grpc: bool) -> None:
    port, grpc_port = free_port(), free_port() if over_grpc else 0
    memory = opened(QdrantServerConfig(url=f"http://user:{KEY}@127.0.0.1:{port}", grpc_port=grpc_port))
    where = rf"127\.0\.0\.1, gRPC port {grpc_port}," if grpc_port else rf"http://127\.0\.0\.1:{port}"
    for _ in range(2):
        with pytest.raises(MemoryUnavailable, match=f"cannot store 1 passages: the Qdrant server at {where} does not"):
            await memory.upsert([make_passage("wheel")])
    await memory.aclose()


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
async def test_a_failure_that_passes_is_waited_for(qdrant: QdrantStub, memory: QdrantServerMemory, status: int) -> None:
    qdrant.fail_next(2, status)
    await memory.upsert([make_passage("wheel", dense=EAST)])
    qdrant.fail_next(2, status)
    assert await memory.count("t1") == 1


async def test_after_three_tries_the_use_fails_and_a_later_one_works(
    qdrant: QdrantStub, memory: QdrantServerMemory
) -> None:
    qdrant.fail_next(3, 503)
    with pytest.raises(MemoryUnavailable, match=r"cannot store 1 passages: .* failed \(HTTP 503\)"):
        await memory.upsert([make_passage("wheel", dense=EAST)])
    assert qdrant.requests == []
    await memory.upsert([make_passage("wheel", dense=EAST)])
    assert await memory.count("t1") == 1


@pytest.mark.parametrize(("asked", "tries"), [("0", 3), ("60", 1), ("tomorrow", 3)])
async def test_a_busy_server_that_asks_for_a_long_wait_is_given_up(
    qdrant: QdrantStub, memory: QdrantServerMemory, asked: str, tries: int
) -> None:
    qdrant.fail_next(3, 429, retry_after=asked)
    with pytest.raises(MemoryUnavailable, match="accepts no more requests for now"):
        await memory.count("t1")
    assert qdrant.faults_left == 3 - tries


async def test_a_late_answer_is_given_up_and_its_work_is_not_done_twice(qdrant: QdrantStub) -> None:
    memory = opened(QdrantServerConfig(url=qdrant.url), QdrantRetryPolicy(timeout_s=1.0, pauses_s=()))
    await memory.count("t1")
    qdrant.delay = 30
    with pytest.raises(MemoryUnavailable, match=r"cannot store 1 passages: .* did not answer in time \(TimeoutError\)"):
        await memory.upsert([make_passage("wheel", dense=EAST)])
    qdrant.delay = 0
    assert await memory.count("t1") == 1
    await memory.upsert([make_passage("wheel", dense=EAST)])
    assert await memory.count("t1") == 1
    await memory.aclose()


async def test_an_answer_that_breaks_off_is_asked_for_again(qdrant: QdrantStub, memory: QdrantServerMemory) -> None:
    await memory.count("t1")
    qdrant.disconnect_next(2)
    await memory.upsert([make_passage("wheel", dense=EAST)])
    qdrant.disconnect_next(1)
    assert await memory.count("t1") == 1
    qdrant.disconnect_next(3)
    with pytest.raises(MemoryUnavailable, match=r"does not answer \(the connection was closed"):
        await memory.search(make_query("wheel"))


@UNENCRYPTED
@pytest.mark.parametrize("given", [None, SecretStr(KEY)])
async def test_a_wrong_key_is_said_at_once_and_never_shown(given: SecretStr | None) -> None:
    with run_qdrant_server(api_key="another") as qdrant:
        qdrant.fail_next(1, 401)
        memory = opened(QdrantServerConfig(url=qdrant.url, api_key=given))
        with pytest.raises(
            MemoryUnavailable, match=r"does not accept the key: set QDRANT_API_KEY .* \(HTTP 401\)"
        ) as one:
            await memory.search(make_query("wheel"))
        assert qdrant.faults_left == 0
        assert KEY not in f"{one.value!r}"
        await memory.aclose()


async def test_a_key_that_may_not_write_is_said_at_once(qdrant: QdrantStub, memory: QdrantServerMemory) -> None:
    qdrant.fail_next(2, 403)
    with pytest.raises(MemoryUnavailable, match="set QDRANT_API_KEY to a key that can read and write"):
        await memory.upsert([make_passage("wheel", dense=EAST)])
    assert qdrant.faults_left == 1


@UNENCRYPTED
async def test_the_right_key_opens_the_server() -> None:
    with run_qdrant_server(api_key=KEY) as qdrant:
        memory = opened(QdrantServerConfig(url=qdrant.url, api_key=SecretStr(KEY)))
        assert await memory.count("t1") == 0
        await memory.aclose()


async def test_what_the_server_quotes_of_a_refused_request_goes_nowhere(
    qdrant: QdrantStub, memory: QdrantServerMemory
) -> None:
    await memory.count("t1")
    qdrant.fail_next(1, 422)
    with pytest.raises(MemoryUnavailable, match=r"rejects the data in the request \(HTTP 422\)") as caught:
        await memory.upsert([make_passage("sensitive", dense=EAST)])
    assert "sensitive" not in f"{caught.value!r}"
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


async def test_a_closed_memory_is_unavailable(memory: QdrantServerMemory) -> None:
    await memory.count("t1")
    await memory.aclose()
    with pytest.raises(MemoryUnavailable, match="cannot count the passages in memory"):
        await memory.count("t1")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (StatusCode.UNAVAILABLE, "does not answer"),
        (StatusCode.DEADLINE_EXCEEDED, "did not answer in time"),
        (StatusCode.RESOURCE_EXHAUSTED, "accepts no more requests for now"),
        (StatusCode.INTERNAL, "failed"),
        (StatusCode.UNAUTHENTICATED, "does not accept the key"),
        (StatusCode.PERMISSION_DENIED, "does not accept the key"),
        (StatusCode.INVALID_ARGUMENT, "rejects the data in the request"),
    ],
)
async def test_failures_over_grpc_mean_the_same(code: StatusCode, words: str) -> None:
    async with run_qdrant_grpc() as qdrant:
        memory = opened(QdrantServerConfig(url="http://127.0.0.1", grpc_port=qdrant.port))
        await memory.count("t1")
        qdrant.faults = [code] * 3
        with pytest.raises(
            MemoryUnavailable, match=f"gRPC port {qdrant.port}, {words}.* \\(gRPC {code.name}\\)"
        ) as one:
            await memory.search(make_query("sensitive"))
        assert "sensitive" not in f"{one.value!r}"
        qdrant.faults = []
        assert await memory.count("t1") == 0
        await memory.aclose()
        with pytest.raises(MemoryUnavailable):
            await memory.count("t1")


async def test_the_loser_of_a_race_waits_until_the_new_collection_can_be_read() -> None:
    async with run_qdrant_grpc() as qdrant:
        memory = opened(QdrantServerConfig(url="http://127.0.0.1", grpc_port=qdrant.port))
        qdrant.faults = [None, StatusCode.ALREADY_EXISTS, StatusCode.INTERNAL]
        assert await memory.count("t1") == 0
        await memory.aclose()
