"""Every sentence of SECURITY.md has tests. A sentence that is added or changed fails here until its tests are named."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent

CLAIMS: dict[str, tuple[str, ...]] = {
    # other web pages that send requests to the daemon
    "it listens on the loopback address only unless a password is set": (
        "daemon/test_door.py::test_1_other_addresses_are_refused_without_a_password",
        "daemon/test_door.py::test_1_this_machine_needs_no_password",
    ),
    "every request needs a token, a key or the cookie of a browser that is signed in": (
        "daemon/test_door.py::test_2_every_route_of_the_table_needs_the_token",
        "daemon/test_users.py::test_each_role_reaches_its_routes_and_no_others",
    ),
    "Host and Origin are checked": (
        "daemon/test_guard.py::test_3_other_hosts_are_refused",
        "daemon/test_guard.py::test_4_other_origins_are_refused_even_with_the_token",
    ),
    "requests that change something need, besides the cookie, a header that other pages cannot send": (
        "daemon/test_door.py::test_5_a_cookie_alone_changes_nothing",
        "daemon/test_door.py::test_5_a_page_on_another_port_cannot_use_the_cookie",
    ),
    # malicious files
    "the type of a file is detected from its bytes": (
        "formats/test_sniff.py::test_the_bytes_decide_whatever_the_name_says",
    ),
    "the size of images, pages, audio and archives is checked before they are decoded": (
        "formats/test_image.py::test_a_bomb_is_refused_at_once_and_with_little_memory",
        "formats/test_office.py::test_a_file_over_the_limit_is_refused_before_it_is_opened",
        "formats/test_documents.py::test_bombs_in_archives_cost_no_more_than_their_limit",
    ),
    "every decoder runs in a worker process with a deadline and a memory limit, without keys and tokens": (
        "formats/test_worker.py::test_a_child_knows_no_keys_and_is_bounded_in_memory",
        "formats/test_hostile_images.py::test_a_picture_past_its_deadline_is_too_large_and_its_worker_is_ended",
        "formats/test_hostile_images.py::test_a_picture_beyond_the_memory_of_a_worker_is_too_large",
        "formats/test_hostile_images.py::test_many_hostile_pictures_at_once_cost_their_parent_neither_memory_nor_its_event_loop",
    ),
    # guessed and stolen credentials
    "tokens, keys and cookies are random": (
        "daemon/test_users.py::test_a_key_is_shown_once_replaced_and_removed",
        "daemon/test_sign_in.py::test_each_browser_has_a_login_of_its_own_that_is_listed_and_revoked_alone",
    ),
    "keys and cookies are stored as hashes, and the owner's token in a file that only the owner can read": (
        "daemon/test_sign_in.py::test_the_cookie_is_named_by_port_and_the_store_holds_no_secret",
        "daemon/test_sign_in.py::test_logging_in_writes_nothing_that_a_reader_of_the_store_could_use",
        "daemon/test_door.py::test_6_the_token_file_is_its_owners_alone",
        "daemon/test_door.py::test_7_another_user_of_this_machine_reads_nothing",
    ),
    "each browser is listed and can be signed out separately": (
        "daemon/test_sign_in.py::test_each_browser_has_a_login_of_its_own_that_is_listed_and_revoked_alone",
    ),
    "signing out ends the login on the server": (
        "daemon/test_sign_in.py::test_after_signing_out_a_copied_cookie_opens_nothing",
        "daemon/test_sign_in.py::test_a_login_that_the_command_signs_out_is_refused_by_the_running_daemon",
    ),
    "failed attempts are counted and delayed, with passwords longer each time, and never lock out the owner": (
        "daemon/test_sign_in.py::test_wrong_credentials_of_every_kind_wait_and_right_ones_never_do",
        "daemon/test_door.py::test_a_password_opens_the_door_and_wrong_ones_are_counted",
    ),
    "two settings turn on TLS and `Secure` cookies (`docs/deploy.md`)": (
        "daemon/test_sign_in.py::test_with_a_certificate_it_serves_https_and_own_clients_find_it",
        "daemon/test_sign_in.py::test_behind_a_trusted_proxy_the_client_and_the_scheme_are_those_that_it_names",
    ),
    # denial of service
    "request bodies are counted while they arrive and refused at the limit": (
        "daemon/test_upload_limits.py::test_500_megabytes_are_refused_at_the_limit_and_never_held",
        "daemon/test_upload_limits.py::test_a_form_of_500_megabytes_is_refused_at_the_limit_too",
    ),
    "connections that send no request are closed": (
        "daemon/test_connections.py::test_a_connection_without_a_request_is_closed_and_a_slow_answer_is_not",
    ),
    "clients that do not read their responses are disconnected": (
        "daemon/test_sockets_slow.py::test_a_client_that_stops_reading_is_dropped_and_goes_on_later",
        "daemon/test_unread_streams.py::test_fifty_readers_that_take_nothing_hold_up_no_other_and_do_not_fill_the_memory",
    ),
    "request rates are limited": (
        "daemon/test_gateway.py::test_keys_of_clients_are_limited_to_their_models_and_rates",
        "daemon/test_upload_limits.py::test_28_two_hundred_slow_uploads_do_not_slow_anybody_else",
    ),
    # scripts in media and answers
    "media are served with `nosniff` and a sandbox policy, and as downloads if they could contain scripts": (
        "daemon/test_media_routes.py::test_30_what_could_run_is_a_download_under_a_closed_policy",
    ),
    "the web client loads nothing from other servers": (
        "browser/test_safety.py::test_31_hostile_markdown_and_html_in_an_answer_do_nothing",
    ),
    # server-side request forgery
    "the address of every URL and redirect is resolved once, checked, and used for the connection": (
        "tools/test_egress.py::test_17_every_hop_of_a_redirect_is_judged_again",
        "tools/test_egress.py::test_18_a_name_that_changes_its_answer_is_connected_where_it_was_judged",
    ),
    "private networks are refused unless the user has listed the host": (
        "tools/test_fetch.py::test_private_addresses_are_refused_before_anybody_is_bothered",
        "tools/test_egress.py::test_what_is_allowed_by_name_port_or_network_is_asked",
        "daemon/test_fetching.py::test_16_private_addresses_are_not_asked",
    ),
    # prompt injection
    "tools that change something, read outside the workspace or read secrets need the user's approval, whatever a file,"
    " a page or the model says": (
        "tools/test_builtin.py::test_34_a_file_that_tells_the_model_to_read_a_key_leads_to_a_question_and_no_further",
        "tools/test_read_file.py::test_a_file_outside_the_workspace_needs_approval",
        "tools/test_read_file.py::test_a_file_that_may_hold_secrets_needs_approval_under_any_name",
        "flow/test_injection.py::test_a_letter_that_asks_for_a_key_leads_to_a_question_and_a_no_is_a_no",
    ),
    # dangerous commands
    "commands run in a sandbox (bubblewrap, else Landlock and seccomp)": (
        "tools/test_sandbox.py::test_this_machine_has_the_better_fence",
        "tools/test_sandbox.py::test_a_sandbox_that_is_required_and_impossible_runs_nothing",
    ),
    "they can write only to the workspace and temporary files": (
        "tools/test_sandbox.py::test_the_workspace_and_temporary_files_can_be_written_and_nothing_else",
    ),
    "they cannot read keys or Loom's folders": (
        "tools/test_sandbox.py::test_keys_tokens_and_looms_own_folders_cannot_be_read",
        "flow/test_fences.py::test_an_allowed_command_finds_no_key_no_token_and_nothing_of_its_parent",
    ),
    "they have no network access unless it is allowed": (
        "tools/test_sandbox.py::test_there_is_no_network_until_it_is_opened",
    ),
    "they cannot read other processes": ("tools/test_sandbox.py::test_nothing_of_this_process_is_in_proc",),
    "they end when Loom ends": (
        "tools/test_sandbox.py::test_no_command_outlives_its_killed_runner",
        "tools/test_sandbox.py::test_what_unsets_its_mark_and_leaves_its_group_is_ended_too",
    ),
    "a rule that denies a command denies every spelling of it": (
        "tools/test_command_subjects.py::test_no_spelling_of_a_denied_command_is_allowed",
        "tools/test_command_subjects.py::test_no_wrapper_that_is_allowed_carries_a_command_that_is_not",
    ),
    "if no sandbox is available, the approval says so": (
        "tools/test_sandbox.py::test_the_approval_says_what_the_sandbox_allows",
    ),
    # projects that change Loom's configuration
    "instructions and settings of an unknown folder are shown and ignored until the user trusts it, and again when they"
    " change": (
        "test_folder_trust.py::test_a_terminal_shows_the_files_and_asks_once_until_they_change",
        "runtime/test_library_protocol.py::test_what_a_folder_brings_is_shown_and_decided_about_once",
        "tui/test_work.py::test_what_a_folder_brings_is_asked_about_once",
        "browser/test_safety.py::test_what_a_folder_brings_is_shown_and_asked_about_once",
        "test_folder_trust.py::test_a_yes_counts_only_for_what_was_seen",
        "test_folder_trust.py::test_a_session_says_what_its_folder_brings_and_does_not_get",
    ),
    "a project file cannot add commands, servers, addresses or keys unless its folder is trusted": (
        "test_config_projects.py::test_a_protected_key_is_ignored_and_the_warning_says_how_to_trust_the_folder",
        "tools/test_mcp_specs.py::test_in_a_folder_that_is_not_trusted_nothing_is_started_and_the_user_is_told_how_to_allow_it",
    ),
    "writing such files needs approval, and hooks that a model writes do not run": (
        "tools/test_editing.py::test_secrets_and_what_starts_programs_need_a_second_word",
        "tools/test_sandbox.py::test_what_runs_outside_the_sandbox_later_cannot_be_planted",
        "agent/test_skills_and_hooks.py::test_a_model_cannot_plant_hooks_in_a_folder_that_is_always_trusted",
        "agent/test_skills_and_hooks.py::test_hooks_of_a_project_run_only_after_a_yes_to_exactly_them",
    ),
    "a project file never loosens the approval rules": (
        "test_config_projects.py::test_no_project_policy_makes_any_call_easier",
        "agent/test_approvals.py::test_a_project_can_make_the_rules_stricter_and_never_looser",
    ),
    "it raises no limit": (
        "test_config_projects.py::test_a_project_lowers_a_limit_but_raises_none_unless_it_is_trusted",
        "test_folder_trust.py::test_nothing_widens_a_limit_before_a_yes_and_nothing_counts_after_a_no",
    ),
    "files that belong to another user are ignored": (
        "test_config_projects.py::test_files_of_another_user_configure_and_instruct_nothing_unless_the_folder_is_trusted",
    ),
    # other users of a daemon
    "sessions with their events, media and sub-agents are visible only to the user who started them, to users that they"
    " are shared with, and to admins": (
        "daemon/test_users.py::test_a_session_of_another_user_does_not_exist_on_any_route",
        "daemon/test_users.py::test_events_of_another_user_reach_nobody_else",
        "daemon/test_users.py::test_a_session_of_a_sub_agent_belongs_to_the_owner_of_the_session_that_asked",
        "daemon/test_users.py::test_a_session_is_shared_by_invitation_to_view_or_to_edit",
    ),
    "the role of a key decides which routes it can use": (
        "daemon/test_users.py::test_each_role_reaches_its_routes_and_no_others",
    ),
    "a spent budget stops requests, through the gateway too": (
        "daemon/test_users.py::test_a_user_whose_budget_is_spent_asks_no_model_until_tomorrow",
    ),
    "webhooks are signed and sent only to public hosts and to hosts that the user has listed": (
        "daemon/test_webhooks.py::test_the_end_of_a_turn_is_told_with_a_signature_that_the_receiver_can_check",
        "daemon/test_webhooks.py::test_a_host_that_is_not_public_is_not_asked_unless_the_user_named_it",
    ),
    # damaged stores
    "a damaged database is never served": (
        "store/test_salvage.py::test_a_store_that_sqlite_calls_damaged_is_never_opened",
        "store/test_salvage.py::test_a_large_store_is_checked_in_the_background_and_then_not_written",
    ),
    "readable messages are saved and counted": ("store/test_salvage.py::test_every_message_that_was_not_hit_is_saved",),
    # leaked keys
    "keys are never printed, logged, stored in sessions, exported or passed to tools": (
        "test_config_secrets.py::test_no_secret_is_printed_by_any_way_of_printing",
        "providers/test_http.py::test_no_key_is_in_any_log_error_or_repr",
        "flow/test_fences.py::test_configured_secrets_are_in_no_result_event_export_or_stored_byte",
        "tools/test_commands.py::test_the_environment_holds_no_keys",
    ),
    "they are masked in tool results": (
        "tools/test_secret_mask.py::test_no_usual_spelling_of_a_secret_survives",
        "agent/test_masked_secrets.py::test_a_key_in_the_output_of_a_tool_is_masked",
    ),
    "other processes of the same user cannot read them from the daemon": (
        "daemon/test_door.py::test_another_process_of_the_same_user_reads_neither_memory_nor_environment_of_a_daemon",
    ),
    "they are sent only to the host that they are configured for": (
        "providers/test_discover.py::test_the_key_is_sent_to_the_models_own_address_only",
        "providers/test_http.py::test_a_redirect_is_not_followed_and_the_other_host_never_sees_the_key",
    ),
    # below the table
    "Loom sends data only to the providers that you configure; there is no telemetry.": (
        "flow/test_promises_quiet.py::test_46_a_first_run_calls_nobody",
        "daemon/test_promises_faults.py::test_46_a_daemon_that_starts_and_answers_calls_nobody",
    ),
}


def claims() -> list[str]:
    found: list[str] = []
    lines = (ROOT / "SECURITY.md").read_text("utf-8").splitlines()
    for line in lines:
        if line.startswith("| ") and not line.startswith("| threat"):
            found += line.strip("|").split("|")[1].strip().split("; ")
    return [*found, re.split(r"(?<=\.) ", lines[-1], maxsplit=1)[1]]


@cache
def functions_in(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text("utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(function.name for function in functions)


def test_every_sentence_of_the_page_names_its_tests() -> None:
    assert claims() == list(CLAIMS), "in the order of the page"
    assert [claim for claim, tests in CLAIMS.items() if not tests] == []


def test_every_test_that_is_named_exists() -> None:
    named = [pointer.partition("::") for tests in CLAIMS.values() for pointer in tests]
    assert [f"{file}::{name}" for file, _, name in named if name not in functions_in(ROOT / "tests" / file)] == []
