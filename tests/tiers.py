"""Which tests run when.

- `make test`: the quick ones, before every commit.
- `make test-part COMMIT=…`: of the others those in `EVERY_LANDING`, and one part of `PARTS`, which the commit's hash
  chooses. CI runs both, so that a few landings in a row run everything.
- `make test-all`: everything: whole platforms, hundreds of whole tasks, every kind of file times every fault.
"""

from collections.abc import Iterable
from pathlib import Path

QUICK = {
    "end_to_end": {"test_killed_platform", "test_live_benchmark"},
    "workflows_live": {
        "test_live_approvals",
        "test_live_edits",
        "test_live_legs",
        "test_live_session",
        "test_live_task",
        "test_live_tell",
    },
}
"""Of these folders, the only modules that `make test` runs."""
LONG = {
    "test_attacks_children",
    "test_attacks_numbered",
    "test_attacks_patterns",
    "test_attacks_redaction_time",
    "test_attacks_tables",
    "test_bench_mutations",
    "test_bench_privacy",
    "test_cli_home_folder",
    "test_cli_memory",
    "test_compaction_hooks",
    "test_context_bad_input",
    "test_documents_broken",
    "test_documents_html",
    "test_documents_loading",
    "test_encrypted_client",
    "test_mcp_http",
    "test_mcp_stdio",
    "test_offline_work",
    "test_presidio_time",
    "test_qdrant_renewal",
    "test_reindexing",
    "test_store_transactions",
    "test_tables_engine",
    "test_temporal_dev_server",
    "test_tools_tables",
    "test_worker_metrics",
    "test_worker_queues",
}
"""Modules of other folders that it leaves out."""
EVERY_LANDING = {
    "test_chaos",
    "test_documented_commands",
    "test_encrypted_client",
    "test_erased_while_killed",
    "test_killed_with_a_question",
    "test_live_append_only",
    "test_live_encrypted",
    "test_live_lost",
    "test_live_modes",
    "test_live_session_busy",
    "test_live_subagent_budgets",
    "test_live_told_while_reopening",
    "test_same_report",
    "test_store_transactions",
    "test_told_while_killed",
}
"""Of the modules that wait: money, crashes, messages, privacy, and the commands of the docs."""
PARTS = 4
"""The other modules that wait, in turns."""


def waits(path: Path) -> bool:
    """Whether a module's tests run in `make test-all` alone."""
    quick = QUICK.get(path.parent.name)
    return path.stem in LONG if quick is None else path.stem not in quick


def part_of(commit: str, waiting: Iterable[str]) -> set[str]:
    """Of the modules that wait, by their names, those that run when this commit lands. `commit` is in hex."""
    others = sorted(set(waiting) - EVERY_LANDING)
    return EVERY_LANDING | set(others[int(commit[:8], 16) % PARTS :: PARTS])
