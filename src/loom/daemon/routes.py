"""Everything that the daemon answers, in one table. It is the router, and the OpenAPI document is made from it."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from starlette.responses import Response

from loom.daemon import (
    asyncapi,
    docs_page,
    door_routes,
    media_routes,
    messages_routes,
    openapi,
    pages,
    plan_routes,
    sessions_routes,
    settings_routes,
    words_routes,
)
from loom.daemon import message_shapes as m
from loom.daemon import shapes as s
from loom.daemon.calls import Call, Handle, Route, answered

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
    """The OpenAPI document of this table."""
    return openapi.document(ROUTES)


async def openapi_json(_: Call[None, None]) -> Response:
    return answered(document())


async def asyncapi_json(_: Call[None, None]) -> Response:
    return answered(asyncapi.document())


async def docs(_: Call[None, None]) -> Response:
    return docs_page.page(document())


def _row(method: str, path: str, handle: Handle, summary: str, **more: Any) -> Route:
    return Route(method=method, path=path, handle=handle, summary=summary, **more)


SESSION: Final = "/v1/sessions/{session}"

ROUTES: Final[tuple[Route, ...]] = (
    # health
    _row("GET", "/healthz", settings_routes.health, "Whether the process answers.", answer=s.Status, is_open=True),
    _row("GET", "/readyz", settings_routes.ready, "Whether it takes work.", answer=s.Status, is_open=True),
    _row("GET", "/v1/health", settings_routes.health, "The same as /healthz.", answer=s.Status, is_open=True),
    _row("GET", "/v1/ready", settings_routes.ready, "The same as /readyz.", answer=s.Status, is_open=True),
    _row("GET", "/v1/version", settings_routes.version, "The version of Loom and of this API.", answer=s.Version),
    _row(
        "GET",
        "/v1/metrics",
        settings_routes.numbers,
        "Numbers for Prometheus.",
        given={"text/plain": {"type": "string"}},
    ),
    # the way in
    _row("GET", "/v1/login", door_routes.doors, "Whether a password opens it.", answer=s.Doors, is_open=True),
    _row(
        "POST", "/v1/login", door_routes.login, "A cookie for the password.", body=s.Login, answer=s.Doors, is_open=True
    ),
    _row("POST", "/v1/logout", door_routes.logout, "Take the cookie away.", status=204),
    _row("POST", "/v1/links", door_routes.link, "A link that opens the web client once.", answer=s.Link),
    _row(
        "POST", "/v1/token/rotate", door_routes.rotated, "A new token; the old one is refused at once.", answer=s.Token
    ),
    # settings
    _row("GET", "/v1/config", settings_routes.config, "Limits and defaults.", answer=s.ConfigView),
    _row("GET", "/v1/models", settings_routes.models, "Models, and what each takes.", answer=s.Models),
    _row("GET", "/v1/samples", settings_routes.samples, "Three files to try.", answer=s.Samples),
    _row("GET", "/v1/keys", settings_routes.keys, "Which services have a key.", answer=s.Keys),
    _row("PUT", "/v1/keys/{provider}", settings_routes.key_set, "Keep a key.", body=s.NewKey, answer=s.Keys),
    _row("DELETE", "/v1/keys/{provider}", settings_routes.key_removed, "Forget a key.", answer=s.Keys),
    # sessions
    _row(
        "POST",
        "/v1/sessions",
        sessions_routes.create,
        "Begin a session.",
        body=s.NewSession,
        answer=s.SessionView,
        status=201,
    ),
    _row(
        "GET",
        "/v1/sessions",
        sessions_routes.listed,
        "Sessions, newest first.",
        query=s.SessionQuery,
        answer=s.SessionPage,
    ),
    _row("GET", SESSION, sessions_routes.shown, "One session.", answer=s.SessionView),
    _row(
        "PATCH",
        SESSION,
        sessions_routes.changed,
        "Rename it, change its model, archive it.",
        body=s.SessionChange,
        answer=s.SessionView,
        headers=("If-Match",),
    ),
    _row(
        "DELETE",
        SESSION,
        sessions_routes.deleted,
        "Delete it and the media that only it used.",
        status=204,
        headers=("If-Match",),
    ),
    _row(
        "POST",
        SESSION + "/fork",
        sessions_routes.forked,
        "A new session from a node of this one.",
        body=s.NewFork,
        answer=s.SessionView,
        status=201,
    ),
    _row(
        "POST",
        SESSION + "/head",
        sessions_routes.head_moved,
        "Go to another node.",
        body=s.NewHead,
        answer=s.SessionView,
        headers=("If-Match",),
    ),
    _row("GET", SESSION + "/tree", sessions_routes.tree, "All branches.", answer=s.Tree),
    _row(
        "GET", SESSION + "/nodes/{node}/children", sessions_routes.children, "The answers to a node.", answer=m.Children
    ),
    _row(
        "PATCH",
        SESSION + "/nodes/{node}",
        sessions_routes.node_changed,
        "Name or tag a node.",
        body=s.NodeChange,
        status=204,
    ),
    _row(
        "GET", SESSION + "/files", sessions_routes.files, "Files of the workspace.", query=s.FileQuery, answer=s.Files
    ),
    _row(
        "GET",
        SESSION + "/export",
        sessions_routes.exported,
        "The conversation as a file.",
        query=s.ExportQuery,
        given=_EXPORTS,
    ),
    _row(
        "GET",
        "/v1/search",
        sessions_routes.searched,
        "Words in messages and media.",
        query=s.SearchQuery,
        answer=s.SearchResults,
    ),
    # messages
    _row(
        "GET",
        SESSION + "/messages",
        messages_routes.read,
        "The conversation, and what runs.",
        query=m.MessageQuery,
        answer=m.History,
    ),
    _row(
        "POST",
        SESSION + "/messages",
        messages_routes.posted,
        "Say something.",
        sent={"application/json": m.NewMessage, **_MESSAGE_FORM},
        answer=m.Posted,
        status=202,
        headers=("Idempotency-Key",),
    ),
    _row("GET", SESSION + "/queue", messages_routes.waiting, "What waits to be said.", answer=m.Queue),
    _row("DELETE", SESSION + "/queue/{message}", messages_routes.unsaid, "Leave it unsaid.", status=204),
    _row(
        "POST",
        SESSION + "/cancel",
        messages_routes.cancelled,
        "Stop the running turn.",
        body=m.Cancel,
        given=_ANY_JSON,
        status=202,
    ),
    _row(
        "POST",
        SESSION + "/abort",
        messages_routes.cancelled,
        "The same as cancel.",
        body=m.Cancel,
        given=_ANY_JSON,
        status=202,
        is_listed=False,
    ),
    _row(
        "POST",
        SESSION + "/regenerate",
        messages_routes.again,
        "Another answer.",
        body=m.Regenerate,
        answer=m.Posted,
        status=202,
        headers=("Idempotency-Key",),
    ),
    _row("GET", SESSION + "/approvals", messages_routes.asked, "What waits for your word.", answer=m.Approvals),
    _row(
        "POST",
        SESSION + "/approvals/{approval}",
        messages_routes.decided,
        "Allow or deny it.",
        body=m.Answer,
        status=204,
    ),
    _row(
        "GET",
        SESSION + "/events",
        messages_routes.events,
        "Events as they happen (SSE); see /asyncapi.json.",
        query=m.EventQuery,
        given={"text/event-stream": {"type": "string"}},
        headers=("Last-Event-ID",),
    ),
    # plans
    _row(
        "POST",
        SESSION + "/plan",
        plan_routes.planned,
        "What the next request would carry, for several models.",
        body=m.PlanRequest,
        answer=m.Plan,
    ),
    _row(
        "GET", SESSION + "/wire", plan_routes.wire, "The exact body for a model.", query=m.WireQuery, answer=m.WireView
    ),
    _row(
        "PUT",
        SESSION + "/overrides",
        sessions_routes.overridden,
        "Pin, hide or restore blocks.",
        body=dict[str, s.Override],
        answer=s.SessionView,
        headers=("If-Match",),
    ),
    _row(
        "PUT",
        SESSION + "/alts",
        words_routes.worded,
        "Your own words for media, read by models that cannot take them.",
        body=dict[str, str],
        answer=s.SessionView,
        headers=("If-Match",),
    ),
    # media
    _row(
        "POST",
        "/v1/media",
        media_routes.uploaded,
        "Put a file into the store.",
        query=s.MediaName,
        sent={**_FILE, "application/json": s.NewMedia},
        answer=s.MediaView,
        status=201,
        also={200: "It was there already."},
    ),
    _row("HEAD", "/v1/media/{digest}", media_routes.known, "Whether the store has it.", query=s.MediaForm),
    _row(
        "GET",
        "/v1/media/{digest}",
        media_routes.served,
        "Its bytes, in the form asked for.",
        query=s.MediaForm,
        given=_BINARY,
        also={206: "A part.", 304: "You have it.", 416: "No such part."},
        headers=("If-None-Match", "Range"),
    ),
    _row("GET", "/v1/media/{digest}/text", media_routes.text, "Its words.", query=s.MediaPage, answer=s.MediaText),
    _row(
        "POST",
        "/v1/media/{digest}/description",
        words_routes.described,
        "What a picture shows, in a model's words.",
        body=s.NewDescription,
        answer=s.DescriptionView,
    ),
    _row(
        "GET",
        SESSION + "/images/{digest}",
        media_routes.image_of_session,
        "The same, for media of this session.",
        query=s.MediaForm,
        given=_BINARY,
        also={206: "A part.", 304: "You have it.", 416: "No such part."},
        headers=("If-None-Match", "Range"),
    ),
    # this document
    _row("GET", "/openapi.json", openapi_json, "This document.", given=_ANY_JSON),
    _row("GET", "/asyncapi.json", asyncapi_json, "The events.", given=_ANY_JSON),
    _row("GET", "/docs", docs, "This document as a page.", given={"text/html": {"type": "string"}}, is_listed=False),
    # the web client
    _row("GET", "/", pages.shell, "The web client.", is_open=True, is_listed=False),
    _row("GET", "/assets/{name}", pages.asset, "Its parts.", is_open=True, is_listed=False),
    _row("GET", "/manifest.webmanifest", pages.beside, "Its manifest.", is_open=True, is_listed=False),
    _row("GET", "/icon.svg", pages.beside, "Its icon.", is_open=True, is_listed=False),
)
