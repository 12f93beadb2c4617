"""SessionProcesses: the background processes of all sessions. They end with their session, or with the runtime."""

from __future__ import annotations

from loom.tools.background import BackgroundProcess, BackgroundProcesses


class SessionProcesses:
    def __init__(self) -> None:
        self._by_session: dict[str, BackgroundProcesses] = {}

    def of(self, session_id: str) -> BackgroundProcesses:
        """Return the processes of a session."""
        return self._by_session.setdefault(session_id, BackgroundProcesses())

    def list_all(self) -> dict[str, tuple[BackgroundProcess, ...]]:
        """Return the processes of every session, by session id."""
        return {session_id: found.list_processes() for session_id, found in self._by_session.items()}

    async def end(self, session_id: str) -> None:
        """End the processes of a session that is deleted."""
        if (found := self._by_session.pop(session_id, None)) is not None:
            await found.close()

    async def close(self) -> None:
        for session_id in list(self._by_session):
            await self.end(session_id)
