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
        attempt_failures notification_delivery scheduled_task_status
    """),
    "agents": _modules("""
        agent_loop agent_run analysis_deliverables cache_warmer citation_feedback compactor_hooks compactor_open_work
        compactor_validation
        delegate_tool call_waits document_change_notices initial_prompt_size metering pin_message possibly_billed
        prompt_sections recall_name_restoration reply_redaction report_criteria run_repository status_messages
        stop_reasons
        store_outage
        plugin_tool summariser task_brief task_brief_space task_messages task_tool_servers title_redaction
        tool_call_questions own_tools tool_parameter_limits tool_phase tool_visibility tool_visibility_in_runs toolbox
        tools_reading tools_results tools_web tools_writing untrusted_tool report_outline writer_material
        person_questions prompts tool_descriptions watched_replies
    """),
    "architecture": _modules("""
        architecture_code architecture_columns architecture_deployment architecture_docs architecture_names
        architecture_reference architecture_reference_pages architecture_repository architecture_values tiers
    """),
    "attacks": _modules("""
        attacks_browser_pages attacks_confusables attacks_endpoints attacks_exports attacks_files
        attacks_form_submissions
        attacks_instructions attacks_json attacks_long_numbers attacks_nul attacks_payloads
        attacks_report_changes attacks_secret_formats attacks_sessions attacks_shared_reports attacks_sign_in
        attacks_spending
        attacks_terminal attacks_web
    """),
    "benchmarks": _modules("""
        bench_context bench_live bench_mutations bench_memory_baseline bench_search
    """),
    "budgets": _modules("""
        allowance backpressure budget_account run_usage
    """),
    "cli": _modules("""
        cli_amounts cli_approvals cli_context_files cli_context_size cli_context_structure
        cli_context_user_intent cli_entry cli_evaluation cli_finished_task cli_import_time cli_list cli_memory_eval
        cli_plan cli_reading cli_report_restore cli_report_versions cli_serve_pages cli_session cli_show_tools
        cli_spending
        cli_submit_files cli_submit_options console_wrapping progress_display render_costs render_message
        render_requests render_task
    """),
    "client": _modules("""
        client_context own_words session_size report_length running_tasks
    """),
    "config": _modules("""
        model_family_presets presets settings settings_context settings_file settings_hooks settings_models
        settings_task_config settings_tools
    """),
    "context": _modules("""
        compaction_audit compaction_masking compaction_offloading compaction_pipeline compaction_properties
        compaction_splitting compaction_strategies compaction_strategy_properties failed_summaries identifiers
        legality model_view_history model_view_records model_view_repair open_work platform_messages restoration
        restoration_changed_files summary_validator summary_validator_properties token_estimate_accuracy
        token_estimates transcript_view truncation_constraints user_constraints
    """),
    "documents": _modules("""
        citation_spelling citations cited_passages claim_support word_normalization document_changes document_dates
        document_markers
        document_update_store documents_passages previews documents_search_meaning documents_recognition page_layout
        documents_pdf_annotations documents_search documents_search_ranges documents_slides
        documents_spreadsheets documents_word headings procedures redacted_documents skills tables_grid tables_queries
        web_fetch web_private_addresses web_robots
    """),
    "end_to_end": _modules("""
        crash_recovery
    """),
    "erasure": _modules("""
        person_matching
    """),
    "evaluation": _modules("""
        evaluation_scores
    """),
    "kernel": _modules("""
        amount network_errors patterns payload_pieces
    """),
    "live": _modules("""
        live_legs
    """),
    "mcp": _modules("""
        mcp_config mcp_message_limits mcp_tool_listing
    """),
    "memory": _modules("""
        document_passages embedders_http embedders_settings embeddings_static excerpts heading_relevance
        outbox_drainer outbox_drainer_rejections outbox_drainer_updates passages qdrant_address qdrant_edge
        qdrant_tenants recall_facts relevance search_fusion
    """),
    "models": _modules("""
        anthropic_errors anthropic_model fallbacks limit_repository model_pacing model_profiles price_file pricing
        rate_limiter rate_limits thinking
    """),
    "offline": _modules("""
        offline_delegation offline_oversight offline_quotes offline_replies offline_summary offline_transport
    """),
    "packaging": _modules("""
        packaging_distributions packaging_image packaging_installed
    """),
    "planning": _modules("""
        plan plan_revision
    """),
    "privacy": _modules("""
        key_rotation keys redactor_chain placeholder_truncation privacy_destinations privacy_display vault
    """),
    "redaction": _modules("""
        presidio_chunks_and_cache presidio_credential_pairs presidio_custom_rules presidio_full_names
        presidio_key_file presidio_people presidio_phone_extensions presidio_private_keys presidio_redactor
        presidio_references presidio_secrets presidio_slow_patterns
    """),
    "replay": _modules("""
        replay
    """),
    "reports": _modules("""
        plan_reviser publisher publisher_web report report_changes report_check report_reviewer stored_report
    """),
    "request_files": _modules("""
        request_body_blocks request_body_round_trip
    """),
    "runtime": _modules("""
        apprise_notifications plugins store_selection temporal_codec temporal_codec_server temporal_core_logs
        temporal_overload temporal_run_file temporal_ui_proxy webhook_notifications
    """),
    "security": _modules("""
        security_normalization untrusted_tool_specs web_addresses
    """),
    "store": _modules("""
        store_conflicts store_postgresql store_sqlite store_texts_and_notes stored_tables
    """),
    "tasks": _modules("""
        activity approval_amounts approvals budget_crash_recovery budget_forecast budget_levels budget_reallocation
        budget_requests budget_warnings context_editor context_edits context_rewind cost_report notifications
        oversight_state plan_versions progress_size recorded_answers request_expiry schedules session_repository
        session_state spending_queries state_change_cost task_budgets task_delegation task_details task_ids
        task_reopening
        task_signals task_state task_view tool_approval_requests tool_approval_texts trace_spans
        unattended_approvals
    """),
    "web": _modules("""
        activity_pages charts event_listeners page_amounts page_costs page_requests partial_reply_stream
        request_models server_shutdown timeline_pictures upload_cache
    """),
    "wire": _modules("""
        anthropic_search bad_endpoints chat_model_contract partial_replies prefix_cache scripted_model
        sse_events strict_server turn_counter wire_capabilities wire_requests wire_round_trip
        wire_strict_tools wire_thinking
    """),
    "workers": _modules("""
        activity_session_scope outbox_draining_worker shutdown worker_health workflow_sandbox
    """),
}
"""By folder: modules that took less than five seconds when they were measured, and a few of each real component."""
EVERY_LANDING = _modules("""
    agent_loop_attempts agent_loop_budget anthropic_timeouts append_only_requests attacks_ownership
    attacks_placeholders chaos cli_privacy_erase crash_during_approval crash_during_erasure crash_during_message
    documented_commands encrypted_client live_append_only live_approvals live_budget_modes live_delivery
    live_deployments live_messages_while_reopening live_payload_encryption live_reset_workflows live_session
    live_session_concurrency live_subagent_budgets live_task live_task_messages person_repository
    presidio_file_names presidio_spellings removal_repository sqlite_postgresql_parity store_races
    store_transactions tenant_isolation wire_assistant_tasks wire_assistants
""")
"""Of the modules that wait: money, tenants, crashes, messages, privacy, the wire, and the commands of the docs."""
PARTS = 12
"""The other modules that wait, in turns."""


def waits(path: Path) -> bool:
    """Whether `make test` leaves out the tests of this module."""
    return path.stem not in QUICK.get(path.parent.name, ())


def part_of(commit: str, waiting: Iterable[str]) -> set[str]:
    """Of the modules that wait, by their names, those that run when this commit lands. `commit` is in hex."""
    others = sorted(set(waiting) - EVERY_LANDING)
    return EVERY_LANDING | set(others[int(commit[:8], 16) % PARTS :: PARTS])
