"""The `/` commands in Textual's command palette."""

from __future__ import annotations

from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider

from loom.tui.slash_commands import COMMANDS


class TuiCommandProvider(Provider):
    """Finds commands by name, alias or help."""

    async def discover(self) -> Hits:
        for command in COMMANDS:
            yield DiscoveryHit(f"/{command.name}", partial(self._run, command.name), help=command.help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in COMMANDS:
            text = f"/{' /'.join((command.name, *command.aliases))}  {command.help}"
            score = matcher.match(text)
            if score > 0:
                yield Hit(score, matcher.highlight(text), partial(self._run, command.name), help=command.help)

    async def _run(self, name: str) -> None:
        """Run the command in the chat, even if another screen is in front of it."""
        from loom.tui.chat_screen import ChatScreen

        for screen in self.app.screen_stack:
            if isinstance(screen, ChatScreen):
                screen.action_run_command(name)
