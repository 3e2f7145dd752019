"""Thirty tasks that stand in every phase while a build with other commands is rolled out and back."""

from pathlib import Path

from temporalio.client import Client

from tests.support.builds import PHASES
from tests.support.rollout import check_rollout, roll_out_and_back
from waystation.privacy.ports import Redactor


async def test_all_tasks_end_and_none_is_patched(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    result = await roll_out_and_back(server, tmp_path, redactor, tuple(PHASES))
    check_rollout(result)
    assert len(result.ends) == 30
