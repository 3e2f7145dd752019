"""Which tests run when.

- `make test`: the modules in `QUICK`, before every commit. A module that is in no list waits.
- `make test-part COMMIT=…`: of the modules that wait, those in `EVERY_LANDING` and one of `PARTS` parts, which the
  commit's hash chooses. CI runs both, so that a few landings in a row run everything.
- `make test-all`: everything: whole platforms, hundreds of whole tasks, every kind of file times every fault.
"""

from collections.abc import Iterable
from pathlib import Path


def _modules(names: str) -> set[str]:
    return {f"test_{name}" for name in names.split()}


QUICK = {
    "activities": _modules("""
        failures sending_notices
    """),
    "adapters": _modules("""
        anthropic_errors anthropic_model cli_memory_eval cli_report_versions documents_passages documents_pdf_notes
        documents_search documents_search_parts documents_sheets documents_slides documents_word embedders_http
        embedders_settings embeddings_static keys mcp_config mcp_keeper mcp_offered messages network
        offline_overseeing offline_transport presidio_credentials presidio_extensions presidio_full_names
        presidio_hostile presidio_key presidio_own_rules presidio_pairs presidio_parts presidio_people
        presidio_redactor presidio_references presidio_secrets qdrant_address qdrant_edge qdrant_tenants recall_facts
        session_command store_conflicts store_plans store_postgresql store_sessions store_spending store_sqlite
        store_transcripts store_updates store_work stores tables_grid tables_queries temporal_busy temporal_codec
        temporal_codec_server temporal_run_file temporal_ui_proxy vault web_fetch web_private_addresses web_robots
        webhook worker_health
    """),
    "agents": _modules("""
        agent_loop archive archive_refusals archive_rewriting cli_tools_shown client_context condenser_check
        condenser_hooks condensing contract contract_room delegating document_news draining editor first_turn
        foreign_tool handed_over hearing kept_replies key_rotation metered pin_message possibly_billed projecting
        publisher publisher_web recalled_names redacted_documents reviewer reviser rewinder servers_of_task skills
        store_away titling toolbox tools_reading tools_results tools_web tools_writing unfinished
    """),
    "architecture": _modules("""
        architecture_code architecture_columns architecture_deployment architecture_repository architecture_values
    """),
    "attacks": _modules("""
        attacks_browser_pages attacks_changes attacks_digits attacks_endpoints attacks_exports attacks_files
        attacks_forms attacks_instructions attacks_json attacks_lookalikes attacks_nul attacks_payloads
        attacks_sessions attacks_sign_in attacks_spending attacks_terminal attacks_web
    """),
    "end_to_end": _modules("""
        killed_platform
    """),
    "packaging": _modules("""
        packaging_distributions packaging_image packaging_installed
    """),
    "replay": _modules("""
        replay
    """),
    "unit": _modules("""
        action_requests action_text actions agent_run allowance amount approvals approvals_amounts backpressure
        bench_context bench_live bill bounded_progress changed changes charts citations cli_amounts cli_answers
        cli_ended_task cli_evaluation cli_pages cli_plan cli_report_restore cli_submit_files cli_submit_terms
        compaction_audit compaction_gate compaction_gate_properties compaction_ladder compaction_mask
        compaction_offload compaction_parts compaction_properties compaction_restored compaction_strategies
        compaction_strategy_properties context_blocks context_files_on_disk context_meaning context_round_trip
        context_size context_structure core_logs cut_titles delegation demands details document_changes documents
        drawing edits evaluation excerpts exports failed_summaries fallbacks foreign_tools fusion history identifiers
        layers ledger ledger_crashes ledger_levels legality listeners loading models nearing notices
        offline_condensing offline_dividing offline_quotes offline_replies open_work outlook oversight page_bill
        parameters passages patterns persons pictures pieces plain_baseline plan plan_change platform_words presets
        price_file pricing privacy_places privacy_seen procedures profiles projection relevance remembering reminder
        render_bill render_message render_requests render_task reopening report report_check said said_above schedules
        sent serve_requests session_room session_scope session_state settings settings_context settings_file
        settings_hooks settings_models settings_terms settings_tools shown signals spending step_progress stopping
        stopping_server task_asking task_budgets task_expiry task_ids task_json task_list task_state thinking tiers
        tokens tokens_counted tool_phase traces truncation_demands unattended usage view_records view_repair web
    """),
    "wire": _modules("""
        anthropic_search bad_endpoints chat_model_contract partial_replies prefix_cache scripted_model sse_events
        strict_server turn_numbers wire_capabilities wire_requests wire_round_trip wire_thinking
    """),
    "workflows_live": _modules("""
        live_legs
    """),
}
"""By folder: modules that took less than five seconds when they were measured, and a few of each real component."""
EVERY_LANDING = _modules("""
    agent_loop_attempts agent_loop_budget anthropic_silence append_only attacks_ownership attacks_placeholders chaos
    cli_persons documented_commands encrypted_client erased_while_killed killed_with_a_question live_append_only
    live_approvals live_encrypted live_lost live_modes live_session live_session_busy live_subagent_budgets live_task
    live_tell live_told_while_reopening other_tenants presidio_file_names presidio_spellings same_report
    store_forgetting store_persons store_races store_transactions told_while_killed wire_assistant_tasks
    wire_assistants
""")
"""Of the modules that wait: money, tenants, crashes, messages, privacy, the wire, and the commands of the docs."""
PARTS = 8
"""The other modules that wait, in turns."""


def waits(path: Path) -> bool:
    """Whether `make test` leaves out the tests of this module."""
    return path.stem not in QUICK.get(path.parent.name, ())


def part_of(commit: str, waiting: Iterable[str]) -> set[str]:
    """Of the modules that wait, by their names, those that run when this commit lands. `commit` is in hex."""
    others = sorted(set(waiting) - EVERY_LANDING)
    return EVERY_LANDING | set(others[int(commit[:8], 16) % PARTS :: PARTS])
