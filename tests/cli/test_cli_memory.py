"""`waystation memory`, and what `doctor` and `show` say of passages that memory does not have."""

import asyncio
import json
import os
import re
import shutil
import sys
import uuid
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.support.embeddings_server import run_embeddings_server
from tests.support.fastembed_model import STATIC, write_static_model
from tests.support.qdrant_server import run_qdrant_server
from waystation.cli.main import run
from waystation.config.settings import Settings
from waystation.context.transcript import SummaryRecord, build_user_message
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import MemoryInUse, MemoryUnavailable, OtherEmbedder
from waystation.kernel.refs import RunRef
from waystation.memory.indexing import EMBEDDING_BATCH, OutboxDrainer
from waystation.memory.passages import Passage
from waystation.runtime.redaction_setup import open_embedder
from waystation.runtime.store_setup import open_store
from waystation.tasks.task import tenant_hash
from waystation.testing.doubles import PlainRedactor
from waystation.workers.memory import describe_embedded_memory_problem, open_memory, open_memory_draft

ROOT = Path(__file__).parents[2]
TASK, COUNT = "task-1", 300
REINDEX = (sys.executable, "-m", "waystation.cli.main", "memory", "reindex")
EMBEDDED_NOW = f"Memory has {COUNT} passages; {COUNT} of them were embedded now with"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("WAYSTATION_HOME", str(home))
    monkeypatch.setenv("WAYSTATION_KEY", bytes(range(32)).hex())
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    home.mkdir()
    return home


def passage(number: int, tenant: str) -> Passage:
    return Passage(
        id=str(uuid.uuid5(uuid.NAMESPACE_OID, f"{tenant} {number}")),
        tenant=tenant_hash(tenant),
        session="session",
        task_id=f"{TASK}{tenant}",
        run_id=f"{TASK}{tenant}/research-1",
        step_id="research-1",
        first_message="m2",
        last_message="m3",
        text=f"the wheel audit number {number}",
        content_hash="",
        created=utc_now(),
    )


async def commit(count: int, tenant: str = "local") -> None:
    """Let this many passages wait."""
    async with aclosing(await open_store(Settings())) as store:
        ref = RunRef(
            store_id=await store.get_store_id(),
            tenant=tenant_hash(tenant),
            session="session",
            task_id=f"{TASK}{tenant}",
            step_id="research-1",
            role="research",
        )
        await store.open_run(ref)
        fence = await store.acquire_fence(ref.run_id)
        record = SummaryRecord(
            id="c-1", strategy="window", covered=("m2",), summary=build_user_message("s-1", "So far.")
        )
        await store.commit_compaction(fence, 0, record, [passage(number, tenant) for number in range(count)], None)


async def bring_in() -> None:
    """As a worker does."""
    settings = Settings()
    async with (
        aclosing(await open_store(settings)) as store,
        open_embedder(settings) as embedder,
        open_memory(settings, embedder) as memory,
    ):
        await OutboxDrainer(store, embedder, memory, PlainRedactor({}, {})).drain()


async def put_aside(count: int) -> tuple[str, ...]:
    async with aclosing(await open_store(Settings())) as store:
        ids = tuple(one.id for one in (await store.load_outbox_batch(count)).pending)
        await store.mark_passages_rejected(ids)
        return ids


def printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    capsys.readouterr()
    code = run(arguments)
    said = capsys.readouterr()
    return code, said.out, said.err


def passages_check(capsys: pytest.CaptureFixture[str]) -> tuple[bool, str]:
    checks = json.loads(printed(["doctor", "--json"], capsys)[1])
    (check,) = [one for one in checks if one["name"] == "passages"]
    return check["ok"], check["finding"]


def test_doctor_counts_what_waits_and_names_what_memory_does_not_take(capsys: pytest.CaptureFixture[str]) -> None:
    assert passages_check(capsys) == (True, "waiting in the store to be added to memory: 0 passages")
    asyncio.run(commit(3))
    ok, finding = passages_check(capsys)
    assert not ok
    since = r"the oldest since \d{4}-\d\d-\d\d \d\d:\d\d \S+; workers add them when memory is available"
    assert re.fullmatch(f"waiting in the store to be added to memory: 3 passages, {since}", finding)
    (refused,) = asyncio.run(put_aside(1))
    ok, finding = passages_check(capsys)
    assert not ok
    assert re.fullmatch(
        f"waiting in the store to be added to memory: 2 passages, {since}; memory rejected 1 passage: {refused}",
        finding,
    )


def test_a_change_of_the_embedder_is_refused_until_memory_is_made_anew(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asyncio.run(commit(COUNT))
    asyncio.run(bring_in())
    write_static_model(tmp_path)
    for name, value in {"EMBEDDER": "fastembed", "EMBEDDER_MODEL": STATIC, "EMBEDDER_FOLDER": str(tmp_path)}.items():
        monkeypatch.setenv(f"WAYSTATION_{name}", value)
    code, out, _ = printed(["memory", "status"], capsys)
    assert code == 0
    assert out.splitlines()[-1].endswith(
        "with `waystation memory reindex`, or set WAYSTATION_EMBEDDER and WAYSTATION_EMBEDDER_MODEL "
        "to their earlier values"
    )
    code, out, err = printed(["memory", "reindex"], capsys)
    assert (code, out) == (0, f"{EMBEDDED_NOW} fastembed/{STATIC}.\n")
    assert err.splitlines()[-1] == f"{COUNT} of {COUNT} passages"
    status = json.loads(printed(["memory", "status", "--json"], capsys)[1])
    assert status == {
        "place": str(Settings().memory_folder),
        "embedder": f"fastembed/{STATIC}",
        "dimension": 256,
        "points": COUNT,
        "passages": COUNT,
        "waiting": 0,
        "refused": [],
        "retention_days": None,
        "finding": "",
    }
    again = json.loads(printed(["memory", "reindex", "--json"], capsys)[1])
    assert (again["passages"], again["embedded"], again["refused"]) == (COUNT, 0, [])


DAMAGES: dict[str, Callable[[Path], object]] = {
    "embedder.json": lambda record: record.write_text('{"embedder"'),
    "page_0.dat": lambda payloads: payloads.write_bytes(b""),
    "chunk_0.mmap": lambda vectors: vectors.unlink(),
    "segment.json": lambda segment: segment.write_text("{}"),
    "embedder.json ": lambda record: record.write_text(elsewhere(record, "../../etc")),
    "embedder.json  ": lambda record: record.write_text(elsewhere(record, "..")),
}


def elsewhere(record: Path, place: str) -> str:
    return json.dumps({**json.loads(record.read_text()), "storage_location": place})


@pytest.mark.parametrize("file", DAMAGES)
def test_a_damaged_memory_is_seen_and_made_again(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(commit(COUNT))
    asyncio.run(bring_in())
    damaged = next(Settings().memory_folder.rglob(file.strip()))
    DAMAGES[file](damaged)
    way_out = "if the memory's files are damaged, `waystation memory reindex --rebuild` restores them from the store"
    for command in (["memory", "search", "wheel audit"], ["memory", "reindex"]):
        code, _, err = printed(command, capsys)
        assert (code, way_out in " ".join(err.split())) == (3, True), command
    assert printed(["memory", "status"], capsys)[1].endswith(f"{way_out}\n")
    assert asyncio.run(describe_embedded_memory_problem(Settings())).endswith(way_out)
    for _ in range(2):  # the second takes the place of the first
        code, out, _ = printed(["memory", "reindex", "--rebuild"], capsys)
        assert (code, EMBEDDED_NOW in out) == (0, True)
        assert json.loads(printed(["memory", "status", "--json"], capsys)[1])["points"] == COUNT
        assert "the wheel audit number" in printed(["memory", "search", "wheel audit"], capsys)[1]


def test_a_passage_that_cannot_be_read_is_named_as_damage(capsys: pytest.CaptureFixture[str]) -> None:
    async def purge() -> None:
        settings = Settings()
        async with open_embedder(settings) as embedder, open_memory(settings, embedder) as memory:
            await memory.erase_deleted_points()

    asyncio.run(commit(COUNT))
    asyncio.run(bring_in())
    asyncio.run(purge())
    for tracker in Settings().memory_folder.rglob("payload_storage/tracker.dat"):
        tracker.write_bytes(bytes(tracker.stat().st_size))
    code, _, err = printed(["memory", "search", "wheel audit"], capsys)
    said = " ".join(err.split())
    assert (code, "ValidationError" in said) == (3, False)
    cause = "a stored passage cannot be read; if the memory's files are damaged, `waystation memory reindex --rebuild`"
    assert cause in said


def remove_segments(memory: Path) -> None:
    for segment in memory.glob("*/segments/*"):
        shutil.rmtree(segment)


def cut_mappings(memory: Path) -> None:
    for mappings in memory.rglob("mutable_id_tracker.mappings"):
        os.truncate(mappings, mappings.stat().st_size // 2)


def zero_index(memory: Path) -> None:
    for index in memory.glob("*/segments/*/payload_index/**/*.dat"):
        index.write_bytes(bytes(index.stat().st_size))


LOSSES: dict[str, tuple[Callable[[Path], None], str]] = {
    "the folder": (shutil.rmtree, "0"),
    "its segments": (remove_segments, r"\d+"),
    "half of the ids": (cut_mappings, r"\d+"),
    "the index": (zero_index, "0"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_memory_that_has_lost_passages_says_so_and_gets_them_back(
    loss: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(commit(COUNT))
    assert (
        json.loads(printed(["memory", "status", "--json"], capsys)[1])["finding"]
        == "memory does not exist yet (the first worker creates it)"
    )
    asyncio.run(bring_in())
    assert memory_finding(capsys) == ("", True)
    lose, points = LOSSES[loss]
    lose(Settings().memory_folder)
    said = f"memory has {points} of the {COUNT} passages that were written to it: `waystation memory reindex` restores"
    finding, healthy = memory_finding(capsys)
    assert (bool(re.match(said, finding)), healthy) == (True, False)
    code, _, err = printed(["memory", "search", "wheel audit"], capsys)
    assert (code, re.search(said, " ".join(err.split())) is not None) == (0, True)
    if loss == "the index":  # its points are all there, by their ids
        assert re.search(said, " ".join(printed(["memory", "reindex"], capsys)[2].split()))
    assert printed(["memory", "reindex", *["--rebuild"] * (loss == "the index")], capsys)[0] == 0
    assert memory_finding(capsys) == ("", True)
    assert printed(["memory", "search", "wheel audit"], capsys)[2] == ""


def memory_finding(capsys: pytest.CaptureFixture[str]) -> tuple[str, bool]:
    """What `memory status` finds, and whether `doctor` finds the same."""
    finding = json.loads(printed(["memory", "status", "--json"], capsys)[1])["finding"]
    (check,) = [one for one in json.loads(printed(["doctor", "--json"], capsys)[1]) if one["name"] == "memory"]
    assert finding in {"", check["finding"]}
    return finding, check["ok"]


def test_what_waits_was_put_aside_or_is_of_another_tenant_is_not_missed(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(commit(9))
    asyncio.run(put_aside(2))
    asyncio.run(bring_in())
    asyncio.run(commit(COUNT, "other"))
    assert memory_finding(capsys) == ("", True)
    asyncio.run(bring_in())
    assert memory_finding(capsys) == ("", True)
    status = json.loads(printed(["memory", "status", "--json"], capsys)[1])
    assert (status["points"], status["passages"], len(status["refused"])) == (7, COUNT + 9, 2)


def test_points_that_a_server_has_lost_are_missed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose() -> None:
        settings = Settings()
        async with open_embedder(settings) as embedder, open_memory(settings, embedder) as memory:
            await memory.delete([passage(number, "local").id for number in range(4)])

    with run_qdrant_server() as qdrant:
        monkeypatch.setenv("QDRANT_URL", qdrant.url)
        monkeypatch.setenv("WAYSTATION_QDRANT_GRPC_PORT", "0")
        for count, tenant in ((9, "local"), (5, "other")):
            asyncio.run(commit(count, tenant))
        asyncio.run(bring_in())
        assert memory_finding(capsys) == ("", True)
        asyncio.run(lose())
        finding, healthy = memory_finding(capsys)
        assert (finding.startswith("memory has 5 of the 9 passages"), healthy) == (True, False)
        assert "memory has 5 of the 9" in " ".join(printed(["memory", "search", "wheel audit"], capsys)[2].split())
        assert printed(["memory", "reindex"], capsys)[0] == 0
        assert memory_finding(capsys) == ("", True)


def test_doctor_looks_into_the_embedded_memory(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(bring_in())
    (Settings().memory_folder / "embedder.json").write_text("")
    checks = json.loads(printed(["doctor", "--json"], capsys)[1])
    (check,) = [one for one in checks if one["name"] == "memory"]
    assert (check["ok"], "embedder.json cannot be read" in check["finding"]) == (False, True)


def test_a_look_at_memory_makes_none(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    code, out, _ = printed(["memory", "status"], capsys)
    assert (code, out.splitlines()[-1]) == (0, "memory does not exist yet (the first worker creates it)")
    assert not (home / "memory").exists()


def test_while_a_worker_has_the_embedded_memory_it_is_not_made_anew(capsys: pytest.CaptureFixture[str]) -> None:
    async def with_a_worker() -> tuple[int, str, str]:
        settings = Settings()
        async with open_embedder(settings) as embedder, open_memory(settings, embedder):
            return await asyncio.to_thread(printed, ["memory", "reindex"], capsys)

    code, _, err = asyncio.run(with_a_worker())
    assert code == 2
    assert "another process runs the workers of" in err


def test_while_memory_is_made_anew_another_one_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    async def beside_another() -> list[str]:
        settings, said = Settings(), list[str]()
        async with open_embedder(settings) as embedder, open_memory_draft(settings, embedder, rebuild=True):
            said.append((await asyncio.to_thread(printed, ["memory", "reindex", "--rebuild"], capsys))[2])
            with pytest.raises(MemoryInUse) as told:
                async with open_memory(settings, embedder):
                    pass
            return [*said, str(told.value)]

    for said in asyncio.run(beside_another()):
        assert "another process is rebuilding the memory of" in " ".join(said.split())
        assert "runs the workers" not in said
    asyncio.run(bring_in())


async def test_killed_in_the_middle_it_goes_on_where_it_was_and_the_old_memory_serves_until_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await commit(COUNT)
    await bring_in()
    async with run_embeddings_server() as server:
        server.silent_after = 2
        given = {"EMBEDDER": "openai", "EMBEDDER_URL": server.url, "EMBEDDER_MODEL": "small"}
        environment = {f"WAYSTATION_{name}": value for name, value in given.items()}
        environment["WAYSTATION_EMBEDDER_DIMENSION"] = str(server.dimension)
        child = await asyncio.create_subprocess_exec(
            *REINDEX,
            env={**os.environ, **environment},
            cwd=ROOT,
            stderr=asyncio.subprocess.DEVNULL,
        )
        while len(server.bodies) < 3 and child.returncode is None:
            await asyncio.sleep(0.02)
        assert child.returncode is None
        child.kill()
        await child.wait()
        settings = Settings()
        async with open_embedder(settings) as before, open_memory(settings, before) as memory:
            assert await memory.count(tenant_hash("local")) == COUNT
        server.silent_after = None
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        code, out, _ = await asyncio.to_thread(printed, ["memory", "reindex", "--json"], capsys)
    done = json.loads(out)
    assert (code, done["passages"], done["embedded"]) == (0, COUNT, COUNT - 2 * EMBEDDING_BATCH)


@pytest.mark.parametrize("where", ["embedded", "server"])
def test_a_worker_does_not_start_over_a_memory_of_another_embedder(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def start() -> None:
        settings = Settings()
        async with open_embedder(settings) as embedder, open_memory(settings, embedder):
            pass

    with run_qdrant_server() as qdrant:
        if where == "server":
            monkeypatch.setenv("QDRANT_URL", qdrant.url)
            monkeypatch.setenv("WAYSTATION_QDRANT_GRPC_PORT", "0")
        asyncio.run(start())
        monkeypatch.setenv("WAYSTATION_EMBEDDER", "none")
        with pytest.raises(OtherEmbedder, match=r"not with none \(no dimensions\): .*`waystation memory reindex`"):
            asyncio.run(start())


def test_a_qdrant_server_that_is_away_stops_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QDRANT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("WAYSTATION_QDRANT_GRPC_PORT", "0")

    async def start() -> None:
        settings = Settings()
        async with open_embedder(settings) as embedder, open_memory(settings, embedder) as memory:
            with pytest.raises(MemoryUnavailable, match="does not answer"):
                await memory.count(tenant_hash("local"))

    asyncio.run(start())
