"""Settings of pages whose Temporal server does not answer: they show what is in the store."""

from pathlib import Path

import pytest

from waystation.config.settings import Settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The offline model, an empty home folder, and a port at which nothing listens."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:9")
    return Settings(home=tmp_path / "home", offline=True)
