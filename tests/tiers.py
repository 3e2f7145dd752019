"""Which tests wait for `make test-all`: whole platforms, hundreds of whole tasks, every kind of file times every fault.

`make test` is run before every commit. What it leaves out is run by `make check` and by CI.
"""

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


def waits(path: Path) -> bool:
    """Whether a module's tests run in `make test-all` alone."""
    quick = QUICK.get(path.parent.name)
    return path.stem in LONG if quick is None else path.stem not in quick
