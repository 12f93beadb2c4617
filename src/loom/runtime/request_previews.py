"""The requests of a session as previews show them: the next one, that of a summary, and the last one that was sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from loom.agent import compact
from loom.agent.message_composer import MessageComposer
from loom.agent.ports import SessionRecord
from loom.agent.services import Services
from loom.compile.policy import Override, overrides_of
from loom.compile.request import NextRequest, SettleMode, next_request, request_input
from loom.content.inputs import Content
from loom.content.messages import Message
from loom.errors import NotFound
from loom.sampling import Sampling
from loom.struct_types import decode_json


class RequestPreviews:
    """Compiles requests of a session whose messages may call `tools` (None: all). Nothing is sent."""

    def __init__(self, record: SessionRecord, services: Services, tools: Sequence[str] | None) -> None:
        self._record = record
        self._services = services
        self._tools = tools

    async def draft(self, content: Sequence[Content], model: str = "") -> tuple[Message, ...]:
        """Return the message for `content`; no shell command of a slash command runs."""
        return await MessageComposer(self._record, self._services, self._tools).draft(content, model)

    async def next_request(
        self,
        model: str = "",
        *,
        content: Sequence[Content] = (),
        draft: Sequence[Message] = (),
        overrides: Mapping[str, Override] | None = None,
        max_tokens: int | None = None,
        at: str = "",
        mode: SettleMode = "preview",
        sampling: Sampling | None = None,
        system: str | None = None,
        services: Services | None = None,
    ) -> NextRequest:
        """Compile the next request for a model (the session's, if empty).

        `content` or the messages of a `draft` come next, with the options `sampling`; `at` is another node to continue
        from; `overrides`, `max_tokens` (of the whole request), the `system` prompt and the tools of `services` replace
        those of the session and the settings.
        """
        draft = (*draft, *await self.draft(content, model))
        await self._services.wait_tools()
        snapshot = await self._record.snapshot(at)
        if system is not None:
            snapshot = msgspec.structs.replace(snapshot, system=system)
        resolved = await self._services.resolve_model(model or snapshot.model)
        tools = await (services or self._services).offered_tools(snapshot, self._tools)
        options = self._services.request_options(resolved, tools)
        if max_tokens is not None:
            policy = msgspec.structs.replace(options.policy, max_tokens=max_tokens)
            options = msgspec.structs.replace(options, policy=policy)
        return await next_request(
            snapshot,
            resolved,
            options,
            self._services.settle,
            mode=mode,
            draft=draft,
            overrides=overrides,
            sampling=sampling,
            awaits_message=True,
        )

    async def summary_request(self, model: str = "", *, mode: SettleMode = "preview") -> NextRequest:
        """Compile the request that compaction would send, which has no tools. Raise `ContentError` if there is no
        message."""
        snapshot = await self._record.snapshot()
        compact.check(snapshot.path)
        resolved = await self._services.resolve_model(model or snapshot.model)
        options = self._services.request_options(resolved, {})
        found = compact.summary_request(request_input(snapshot, resolved, options))
        return NextRequest(input=found, prepared=await self._services.settle(found, mode))

    async def last_request(self, model: str = "", *, mode: SettleMode = "preview") -> NextRequest | None:
        """Compile the last request that was sent to a model again, from the same inputs. Return None if nothing was
        sent to the model yet, or if the messages are gone."""
        snapshot = await self._record.snapshot()
        resolved = await self._services.resolve_model(model or snapshot.model)
        mark = snapshot.watermarks.get(resolved.reference)
        if mark is None or not mark.sent_node:
            return None
        end = next((at for at, placed in enumerate(snapshot.path, 1) if placed.id == mark.sent_node), 0)
        try:
            path = snapshot.path[:end] if end else (await self._record.snapshot(mark.sent_node)).path
        except NotFound:
            return None
        overrides, alts = overrides_of(decode_json(mark.sent_wishes or "{}", dict[str, str]))
        sent = msgspec.structs.replace(
            snapshot,
            path=path,
            overrides=overrides,
            alts=alts,
            settings={**snapshot.settings, "options": msgspec.json.decode(mark.sent_options or "{}")},
        )
        tools = await self._services.offered_tools(snapshot, self._tools)
        options = self._services.request_options(resolved, tools)
        return await next_request(sent, resolved, options, self._services.settle, mode=mode)
