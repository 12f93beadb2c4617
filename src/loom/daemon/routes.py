"""The table of all routes of the daemon. The router and the OpenAPI document are made from it."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from starlette.responses import Response

from loom import api_types as s
from loom import message_types as m
from loom import work_types as w
from loom.daemon import (
    admin_routes,
    asyncapi,
    docs_page,
    exchange_routes,
    login_routes,
    media_routes,
    member_routes,
    messages_routes,
    openapi,
    plan_routes,
    prompt_routes,
    sessions_routes,
    settings_routes,
    web_client,
    work_routes,
)
from loom.daemon import admin_types as a
from loom.daemon.dispatch import Call, Handle, Route, json_response
from loom.daemon.gateway import routes as gateway

_BINARY: Final = {"*/*": {"type": "string", "format": "binary"}}
_EXPORTS: Final = {
    "text/markdown": {"type": "string"},
    "text/html": {"type": "string"},
    "application/json": {"type": "object"},
    "application/zip": {"type": "string", "format": "binary"},
}
_ANY_JSON: Final = {"application/json": {"type": "object"}}
_FILE: Final = {
    "multipart/form-data": {
        "type": "object",
        "required": ["file"],
        "properties": {"file": {"type": "string", "format": "binary"}},
    },
    "application/octet-stream": {"type": "string", "format": "binary"},
}
_MESSAGE_FORM: Final = {
    "multipart/form-data": {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "model": {"type": "string"},
            "images[]": {"type": "array", "items": {"type": "string", "format": "binary"}},
            "files[]": {"type": "array", "items": {"type": "string", "format": "binary"}},
        },
    }
}


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document of this table."""
    return openapi.openapi_document(ROUTES)


async def openapi_json(_: Call[None, None]) -> Response:
    return json_response(document())


async def asyncapi_json(_: Call[None, None]) -> Response:
    return json_response(asyncapi.asyncapi_document())


async def docs(_: Call[None, None]) -> Response:
    return docs_page.page(document())


def _row(method: str, path: str, handle: Handle, summary: str, **more: Any) -> Route:
    return Route(method=method, path=path, handle=handle, summary=summary, **more)


SESSION: Final = "/v1/sessions/{session}"


def _gateway_route(method: str, path: str, handle: Handle, summary: str) -> Route:
    """Return a route of another API, which checks the key and writes errors in that API's format."""
    return Route(method=method, path=path, handle=handle, summary=summary, is_open=True, is_listed=False)


ROUTES: Final[tuple[Route, ...]] = (
    # health
    _row("GET", "/healthz", settings_routes.health, "Whether the process responds.", answer=s.Status, is_open=True),
    _row("GET", "/readyz", settings_routes.get_readiness, "Whether it accepts work.", answer=s.Status, is_open=True),
    _row("GET", "/v1/health", settings_routes.health, "The same as /healthz.", answer=s.Status, is_open=True),
    _row("GET", "/v1/ready", settings_routes.get_readiness, "The same as /readyz.", answer=s.Status, is_open=True),
    _row("GET", "/v1/version", settings_routes.version, "The version of Loom and of this API.", answer=s.Version),
    _row(
        "GET",
        "/v1/metrics",
        settings_routes.get_metrics,
        "Metrics for Prometheus.",
        answer_types={"text/plain": {"type": "string"}},
    ),
    # sign-in
    _row(
        "GET",
        "/v1/login",
        login_routes.auth_info,
        "Whether a password is configured.",
        answer=s.AuthMethods,
        is_open=True,
    ),
    _row(
        "POST",
        "/v1/login",
        login_routes.login,
        "Sign in with the password or a user's key; sets a cookie.",
        body=s.Login,
        answer=s.AuthMethods,
        is_open=True,
    ),
    _row("POST", "/v1/logout", login_routes.logout, "Sign this browser out.", status=204, needs="viewer"),
    _row("GET", "/v1/me", login_routes.get_me, "Who is signed in.", answer=s.UserView),
    _row("GET", "/v1/logins", login_routes.list_logins, "Browsers that are signed in.", answer=s.LoginList),
    _row("DELETE", "/v1/logins/{login}", login_routes.close_login, "Sign a browser out.", status=204, needs="viewer"),
    _row(
        "POST",
        "/v1/links",
        login_routes.link,
        "A link that opens the web client once.",
        answer=s.LoginLink,
        needs="viewer",
    ),
    _row(
        "POST",
        "/v1/token/rotate",
        login_routes.rotate_token,
        "A new token; the old one is refused at once.",
        answer=s.Token,
        needs="admin",
    ),
    # settings
    _row("GET", "/v1/config", settings_routes.config, "Limits and defaults.", answer=s.ConfigView),
    _row("GET", "/v1/models", settings_routes.models, "Models, and what each accepts.", answer=s.ModelList),
    _row("GET", "/v1/tools", settings_routes.tools, "Tools that sessions may call.", answer=s.ToolList),
    _row(
        "GET",
        "/v1/agents",
        settings_routes.agents,
        "Agents of the configuration and of the user, and of a workspace if it is trusted.",
        query=s.AgentQuery,
        answer=s.AgentList,
    ),
    _row(
        "GET",
        "/v1/commands",
        settings_routes.commands,
        "Slash commands of the user, and of a workspace if it is trusted.",
        query=s.CommandQuery,
        answer=s.CommandList,
    ),
    _row(
        "GET",
        "/v1/trust",
        settings_routes.get_trust,
        "Files of a folder that instruct the model or configure Loom, and whether it is trusted.",
        query=s.TrustQuery,
        answer=s.FolderTrustView,
        needs="admin",
    ),
    _row(
        "PUT",
        "/v1/trust",
        settings_routes.decide_trust,
        "Trust or ignore these files until they change.",
        body=s.TrustDecisionBody,
        answer=s.FolderTrustView,
        needs="admin",
    ),
    _row(
        "GET",
        "/v1/usage",
        settings_routes.usage,
        "Tokens and price of answers, by day, model and session, and the use of tools.",
        query=s.UsageQuery,
        answer=s.UsageReport,
    ),
    _row("GET", "/v1/settings", admin_routes.list_settings, "Settings that can be changed here.", answer=a.SettingList),
    _row(
        "PUT",
        "/v1/settings/{key}",
        admin_routes.change_setting,
        "Change a setting; it applies at once, or after a restart.",
        body=a.SettingChange,
        answer=a.SettingList,
        needs="admin",
    ),
    _row("GET", "/v1/servers", admin_routes.list_servers, "Models at servers of your choice.", answer=a.ServerList),
    _row(
        "POST",
        "/v1/servers/test",
        admin_routes.test_server,
        "Ask a server for its models; nothing is stored.",
        body=a.ServerBody,
        answer=a.ServerCheck,
        needs="admin",
    ),
    _row(
        "PUT",
        "/v1/servers/{server}",
        admin_routes.set_server,
        "Add or replace a model at a server.",
        body=a.ServerBody,
        answer=a.ServerList,
        needs="admin",
    ),
    _row(
        "DELETE",
        "/v1/servers/{server}",
        admin_routes.remove_server,
        "Remove a model at a server.",
        answer=a.ServerList,
        needs="admin",
    ),
    _row("GET", "/v1/users", admin_routes.list_users, "Users of this daemon.", answer=a.UserList, needs="admin"),
    _row(
        "POST",
        "/v1/users",
        admin_routes.add_user,
        "Add a user; the key is returned once.",
        body=a.NewUser,
        answer=a.UserKey,
        status=201,
        needs="admin",
    ),
    _row(
        "PATCH",
        "/v1/users/{user}",
        admin_routes.change_user,
        "Change the role or the daily budget of a user.",
        body=a.UserChange,
        answer=a.UserList,
        needs="admin",
    ),
    _row(
        "POST",
        "/v1/users/{user}/key",
        admin_routes.replace_user_key,
        "A new key for a user; the old one is refused at once.",
        answer=a.UserKey,
        needs="admin",
    ),
    _row("DELETE", "/v1/users/{user}", admin_routes.remove_user, "Remove a user.", status=204, needs="admin"),
    _row("GET", "/v1/samples", settings_routes.samples, "Three sample files.", answer=s.SampleList),
    _row("GET", "/v1/keys", settings_routes.keys, "Which services have a key.", answer=s.KeyList),
    _row(
        "PUT",
        "/v1/keys/{provider}",
        settings_routes.set_key,
        "Store a key.",
        body=s.NewKey,
        answer=s.KeyList,
        needs="admin",
    ),
    _row("DELETE", "/v1/keys/{provider}", settings_routes.remove_key, "Remove a key.", answer=s.KeyList, needs="admin"),
    # gateway: the APIs of other providers, described in docs/gateway.md
    _gateway_route("POST", "/v1/messages", gateway.messages, "Anthropic Messages, for any model."),
    _gateway_route(
        "POST", "/v1/messages/count_tokens", gateway.count_tokens, "Estimate the tokens of an Anthropic request."
    ),
    _gateway_route("POST", "/v1/chat/completions", gateway.chat_completions, "OpenAI Chat Completions, for any model."),
    _gateway_route("POST", "/v1/responses", gateway.responses, "OpenAI Responses, for any model."),
    _gateway_route("GET", "/v1/responses/{response}", gateway.get_response, "A stored response."),
    _gateway_route("DELETE", "/v1/responses/{response}", gateway.delete_response, "Delete a stored response."),
    _gateway_route("GET", "/v1/receipts/{answer}", gateway.receipt, "What was reduced for an answer, and why."),
    _gateway_route("POST", "/v1/files", gateway.upload_file, "Upload a file that requests can refer to by id."),
    _gateway_route("GET", "/v1/files", gateway.list_files, "The uploaded files, newest first."),
    _gateway_route("GET", "/v1/files/{file}", gateway.get_file, "Metadata of an uploaded file."),
    _gateway_route("GET", "/v1/files/{file}/content", gateway.file_content, "The bytes of an uploaded file."),
    _gateway_route("DELETE", "/v1/files/{file}", gateway.delete_file, "Delete an uploaded file."),
    _gateway_route("GET", "/v1/models/{model:path}", gateway.get_model, "A model."),
    # sessions
    _row(
        "POST",
        "/v1/sessions",
        sessions_routes.create,
        "Create a session.",
        body=s.NewSession,
        answer=s.SessionView,
        status=201,
    ),
    _row(
        "GET",
        "/v1/sessions",
        sessions_routes.list_,
        "Sessions, newest first.",
        query=s.SessionQuery,
        answer=s.SessionPage,
    ),
    _row("GET", SESSION, sessions_routes.get, "One session.", answer=s.SessionView),
    _row(
        "PATCH",
        SESSION,
        sessions_routes.change,
        "Change title, model, options, agent, system prompt or tools; archive it.",
        body=s.SessionChangeBody,
        answer=s.SessionView,
        headers=("If-Match",),
    ),
    _row(
        "DELETE",
        SESSION,
        sessions_routes.delete,
        "Delete it and the media that only it used.",
        status=204,
        headers=("If-Match",),
    ),
    _row(
        "POST",
        SESSION + "/fork",
        sessions_routes.fork,
        "A new session from a node of this one.",
        body=s.NewFork,
        answer=s.SessionView,
        status=201,
    ),
    _row(
        "POST",
        SESSION + "/head",
        sessions_routes.move_head,
        "Move the head to another node.",
        body=s.NewHead,
        answer=s.SessionView,
        headers=("If-Match",),
    ),
    _row("GET", SESSION + "/tree", sessions_routes.tree, "All branches.", query=s.TreeQuery, answer=s.TreeView),
    _row(
        "GET", SESSION + "/nodes/{node}/children", sessions_routes.children, "The answers to a node.", answer=m.Children
    ),
    _row(
        "PATCH",
        SESSION + "/nodes/{node}",
        sessions_routes.change_node,
        "Name or tag a node.",
        body=s.NodeChange,
        status=204,
    ),
    _row(
        "GET",
        SESSION + "/files",
        sessions_routes.files,
        "Files of the workspace.",
        query=s.FileQuery,
        answer=s.FileList,
    ),
    _row("GET", SESSION + "/todos", work_routes.list_todos, "The agent's todo list.", answer=w.TodoList),
    _row("GET", SESSION + "/processes", work_routes.list_processes, "Its background processes.", answer=w.ProcessList),
    _row(
        "DELETE",
        SESSION + "/processes/{process}",
        work_routes.stop_process,
        "Stop a background process.",
        status=204,
    ),
    _row(
        "GET",
        "/v1/processes",
        work_routes.list_all_processes,
        "Background processes of all sessions.",
        answer=w.ProcessList,
    ),
    _row("GET", SESSION + "/changes", work_routes.list_changes, "Steps that changed files.", answer=w.ChangeList),
    _row(
        "POST",
        SESSION + "/undo",
        work_routes.undo,
        "Undo the file changes of the last step, or of a step and all later ones.",
        body=w.UndoBody,
        answer=w.UndoReport,
    ),
    _row(
        "GET",
        SESSION + "/export",
        sessions_routes.export,
        "The conversation as a file.",
        query=s.ExportQuery,
        answer_types=_EXPORTS,
    ),
    _row(
        "GET",
        "/v1/search",
        sessions_routes.search,
        "Search messages and media.",
        query=s.SearchQuery,
        answer=s.SearchResults,
    ),
    _row(
        "POST",
        "/v1/import",
        sessions_routes.import_conversation,
        "Store a conversation of another program as a session.",
        body=m.NewImport,
        answer=m.ImportView,
    ),
    _row("GET", SESSION + "/members", member_routes.list_members, "Users of a session.", answer=s.MemberList),
    _row(
        "PUT",
        SESSION + "/members/{user}",
        member_routes.set_member,
        "Share a session with a user, or with `everyone`.",
        body=s.MemberChange,
        answer=s.MemberList,
    ),
    _row("DELETE", SESSION + "/members/{user}", member_routes.remove_member, "End sharing with a user.", status=204),
    _row(
        "POST",
        "/v1/import/file",
        exchange_routes.import_file,
        "Store the conversations of a file (Loom, ChatGPT, claude.ai, Open WebUI, LibreChat, JSONL) as sessions.",
        query=s.MediaName,
        body_types=_FILE,
        answer=m.ImportReport,
    ),
    _row("GET", "/v1/folders", exchange_routes.list_folders, "Folders and tags of sessions.", answer=s.FolderList),
    _row("GET", SESSION + "/shares", exchange_routes.list_shares, "Links to it.", answer=s.ShareList),
    _row(
        "POST",
        SESSION + "/shares",
        exchange_routes.create_share,
        "Create a link to a read-only copy that needs no sign-in.",
        body=s.NewShare,
        answer=s.ShareView,
        status=201,
    ),
    _row("DELETE", SESSION + "/shares/{share}", exchange_routes.delete_share, "Delete a link.", status=204),
    _row("GET", SESSION + "/usage", sessions_routes.usage, "Tokens and price of the answers.", answer=s.SessionUsage),
    _row(
        "GET",
        "/v1/approvals",
        sessions_routes.list_all_approvals,
        "Sessions with pending approvals.",
        answer=m.ApprovalOverview,
    ),
    # messages
    _row(
        "GET",
        "/v1/messages/{node}",
        sessions_routes.find_message,
        "A message by the beginning of its id, and the newest session that contains it.",
        answer=s.MessagePlace,
    ),
    _row(
        "GET",
        SESSION + "/messages",
        messages_routes.read,
        "The conversation and the state of the running turn.",
        query=m.MessageQuery,
        answer=m.History,
    ),
    _row(
        "POST",
        SESSION + "/messages",
        messages_routes.post_message,
        "Send a message.",
        body_types={"application/json": m.MessageBody, **_MESSAGE_FORM},
        answer=m.PostedMessage,
        status=202,
        headers=("Idempotency-Key",),
    ),
    _row("GET", SESSION + "/queue", messages_routes.list_queued, "The queued messages.", answer=m.QueueView),
    _row(
        "PATCH",
        SESSION + "/queue",
        messages_routes.change_queue,
        "Pause or resume queued messages.",
        body=m.QueueChange,
        answer=m.QueueView,
    ),
    _row("DELETE", SESSION + "/queue/{message}", messages_routes.remove_queued, "Remove a queued message.", status=204),
    _row(
        "POST",
        SESSION + "/cancel",
        messages_routes.cancel_turn,
        "Stop the running turn.",
        body=m.Cancel,
        answer_types=_ANY_JSON,
        status=202,
    ),
    _row(
        "POST",
        SESSION + "/abort",
        messages_routes.cancel_turn,
        "The same as cancel.",
        body=m.Cancel,
        answer_types=_ANY_JSON,
        status=202,
        is_listed=False,
    ),
    _row(
        "POST",
        SESSION + "/regenerate",
        messages_routes.regenerate,
        "Regenerate an answer.",
        body=m.RegenerateBody,
        answer=m.PostedMessage,
        status=202,
        headers=("Idempotency-Key",),
    ),
    _row(
        "POST",
        SESSION + "/compact",
        messages_routes.compact,
        "Replace a long conversation by a summary; the original stays as a branch.",
        body=m.CompactBody,
        answer=m.PostedMessage,
        status=202,
        headers=("Idempotency-Key",),
    ),
    _row("GET", SESSION + "/approvals", messages_routes.list_approvals, "Pending approvals.", answer=m.ApprovalList),
    _row(
        "POST",
        SESSION + "/approvals/{approval}",
        messages_routes.answer_approval,
        "Allow or deny it.",
        body=m.ApprovalAnswer,
        status=204,
    ),
    _row(
        "GET",
        SESSION + "/events",
        messages_routes.events,
        "Events as they happen (SSE); see /asyncapi.json.",
        query=m.EventQuery,
        answer_types={"text/event-stream": {"type": "string"}},
        headers=("Last-Event-ID",),
    ),
    # plans
    _row(
        "POST",
        SESSION + "/plan",
        plan_routes.get_plan,
        "What the next request would contain, for several models.",
        body=m.PlanRequest,
        answer=m.PlanView,
        only_reads=True,
    ),
    _row(
        "GET", SESSION + "/wire", plan_routes.wire, "The exact body for a model.", query=m.WireQuery, answer=m.WireView
    ),
    _row(
        "GET",
        SESSION + "/overrides",
        sessions_routes.get_overrides,
        "The renditions that the user chose.",
        answer=dict[str, s.OverrideChoice],
    ),
    _row(
        "PUT",
        SESSION + "/overrides",
        sessions_routes.set_overrides,
        "Pin, hide or restore blocks.",
        body=dict[str, s.OverrideChoice],
        answer=s.SessionView,
        headers=("If-Match",),
    ),
    _row(
        "PUT",
        SESSION + "/alts",
        sessions_routes.set_captions,
        "Your own description of media, for models that do not support them.",
        body=dict[str, str],
        answer=s.SessionView,
        headers=("If-Match",),
    ),
    # media
    _row(
        "POST",
        "/v1/media",
        media_routes.upload,
        "Upload a file.",
        query=s.MediaName,
        body_types={**_FILE, "application/json": s.NewMedia},
        answer=s.MediaView,
        status=201,
        also={200: "Already stored."},
        headers=(media_routes.UNLOCK_HEADER,),
    ),
    _row("HEAD", "/v1/media/{digest}", media_routes.head_media, "Whether the store has it.", query=s.MediaForm),
    _row(
        "GET",
        "/v1/media/{digest}",
        media_routes.get_media,
        "Its bytes, in the requested form.",
        query=s.MediaForm,
        answer_types=_BINARY,
        also={206: "A part.", 304: "Not modified.", 416: "Range not satisfiable."},
        headers=("If-None-Match", "Range"),
    ),
    _row("GET", "/v1/media/{digest}/text", media_routes.text, "Its text.", query=s.MediaPage, answer=s.MediaText),
    _row(
        "POST",
        "/v1/media/{digest}/description",
        media_routes.describe_media,
        "Describe an image with a model.",
        body=s.NewDescription,
        answer=s.DescriptionView,
    ),
    _row(
        "GET",
        SESSION + "/media/{digest}",
        media_routes.image_of_session,
        "The same, for media of this session.",
        query=s.MediaForm,
        answer_types=_BINARY,
        also={206: "A part.", 304: "Not modified.", 416: "Range not satisfiable."},
        headers=("If-None-Match", "Range"),
    ),
    _row(
        "GET",
        SESSION + "/media/{digest}/text",
        media_routes.text_of_session,
        "The text of a medium of this session.",
        query=s.MediaPage,
        answer=s.MediaText,
    ),
    _row(
        "GET",
        SESSION + "/images/{digest}",
        media_routes.image_of_session,
        "The same, for media of this session.",
        query=s.MediaForm,
        is_listed=False,
        answer_types=_BINARY,
        also={206: "A part.", 304: "Not modified.", 416: "Range not satisfiable."},
        headers=("If-None-Match", "Range"),
    ),
    _row(
        "GET",
        SESSION + "/images/{digest}/text",
        media_routes.text_of_session,
        "The text of a medium of this session.",
        query=s.MediaPage,
        is_listed=False,
        answer=s.MediaText,
    ),
    # this document
    _row("GET", "/openapi.json", openapi_json, "This document.", answer_types=_ANY_JSON),
    _row("GET", "/asyncapi.json", asyncapi_json, "The events.", answer_types=_ANY_JSON),
    _row(
        "GET",
        "/docs",
        docs,
        "This document as a page.",
        answer_types={"text/html": {"type": "string"}},
        is_listed=False,
    ),
    # prompts
    _row("GET", "/v1/prompts", prompt_routes.list_prompts, "The prompt library.", answer=s.PromptList),
    _row(
        "PUT",
        "/v1/prompts/{prompt}",
        prompt_routes.save_prompt,
        "Save a prompt or template.",
        body=s.PromptBody,
        answer=s.PromptView,
    ),
    _row("DELETE", "/v1/prompts/{prompt}", prompt_routes.delete_prompt, "Delete a prompt.", status=204),
    # shared conversations
    _row(
        "GET",
        "/share/{secret}",
        exchange_routes.get_shared_page,
        "A shared conversation as a page.",
        is_open=True,
        is_listed=False,
    ),
    # the web client
    _row("GET", "/", web_client.get_index, "The web client.", is_open=True, is_listed=False),
    _row("GET", "/assets/{name}", web_client.asset, "Its assets.", is_open=True, is_listed=False),
    _row("GET", "/manifest.webmanifest", web_client.get_static_file, "Its manifest.", is_open=True, is_listed=False),
    _row("GET", "/icon.svg", web_client.get_static_file, "Its icon.", is_open=True, is_listed=False),
)
