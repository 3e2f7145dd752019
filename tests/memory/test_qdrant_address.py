import pytest
from pydantic import SecretStr

from tests.memory.memory_values import DIMENSION
from tests.support.qdrant_grpc import run_qdrant_grpc
from tests.support.qdrant_server import run_qdrant_server
from waystation.kernel.errors import BadInput, MemoryUnavailable
from waystation.memory.qdrant.collection import QdrantServerConfig
from waystation.memory.qdrant.server import QdrantRetryPolicy, QdrantServerMemory


@pytest.mark.parametrize(
    ("server", "rest", "grpc_port"),
    [
        (QdrantServerConfig(url="http://localhost"), "http://localhost:6333", 0),
        (QdrantServerConfig(url="http://127.0.0.1:7000/"), "http://127.0.0.1:7000/", 0),
        (QdrantServerConfig(url="https://q.example.com", grpc_port=6334), "https://q.example.com:6333", 6334),
        (
            QdrantServerConfig(url="https://q.example.com:443/qdrant", grpc_port=443),
            "https://q.example.com:443/qdrant",
            443,
        ),
    ],
)
async def test_the_client_goes_where_the_settings_say(server: QdrantServerConfig, rest: str, grpc_port: int) -> None:
    client = server.create_client(timeout_s=2.5)
    assert client.http.client.host == rest
    options = client.init_options
    assert (options["grpc_port"], options["prefer_grpc"]) == (grpc_port, grpc_port != 0)
    assert options["timeout"] == 3
    assert options["check_compatibility"] is False
    await client.close()


async def test_https_means_tls_on_both_ports() -> None:
    once = QdrantRetryPolicy(pauses_s=())
    with run_qdrant_server() as rest:
        url = rest.url.replace("http", "https")
        memory = QdrantServerMemory.open(QdrantServerConfig(url=url), "compass", DIMENSION, once)
        with pytest.raises(MemoryUnavailable, match=f"{url} does not answer"):
            await memory.count("t1")
        assert rest.requests == []
        await memory.aclose()
    async with run_qdrant_grpc() as grpc:
        secure = QdrantServerConfig(url="https://127.0.0.1", grpc_port=grpc.port)
        memory = QdrantServerMemory.open(secure, "compass", DIMENSION, once)
        with pytest.raises(MemoryUnavailable, match="does not answer"):
            await memory.count("t1")
        await memory.aclose()


@pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection:UserWarning")
async def test_the_key_goes_along_over_grpc() -> None:
    async with run_qdrant_grpc() as qdrant:
        server = QdrantServerConfig(url="http://127.0.0.1", grpc_port=qdrant.port, api_key=SecretStr("open-sesame"))
        memory = QdrantServerMemory.open(server, "compass", DIMENSION)
        await memory.count("t1")
        assert qdrant.keys == {"open-sesame"}
        await memory.aclose()


@pytest.mark.parametrize(
    "url", ["", "localhost:6333", "ftp://q.example.com", "http://", "http://q:port", "http://[::1"]
)
def test_what_is_no_address_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(BadInput, match="QDRANT_URL is not the address of a server: it must look like https://"):
        QdrantServerMemory.open(QdrantServerConfig(url=url), "compass", DIMENSION)


def test_neither_the_key_nor_a_password_is_in_what_people_read() -> None:
    server = QdrantServerConfig(url="https://user:hush@q.example.com/x", api_key=SecretStr("hush"), grpc_port=6334)
    assert server.name == "the Qdrant server at q.example.com, gRPC port 6334,"
    assert QdrantServerConfig(url=server.url).name == "the Qdrant server at https://q.example.com:6333"
