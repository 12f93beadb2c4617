"""The options that `ask` and `chat` share, once: where a message goes, whom it asks, and what that one may do."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

import click
import msgspec

from loom.cli.approving import Permission
from loom.cli.choosing import LATEST, Place
from loom.cli.completing import complete_models, complete_sessions, complete_templates
from loom.cli.preparing import Wishes
from loom.cli.templates import Template, read_template
from loom.cli.terminal import PLAIN, is_plain

F = TypeVar("F", bound=Callable[..., Any])
Option: TypeAlias = Callable[[Any], Any]

_SAFE: Final = "A tool that the model may call; also all, safe (the default: those that only read) or none."
_ALL: Final = "A tool that the model may call; all (the default), safe or none."


class Speaking(msgspec.Struct, frozen=True, kw_only=True):
    """The shared options, understood: what a template says stands where nothing else was said."""

    model: str = ""
    queries: tuple[str, ...] = ()
    place: Place = Place()
    system: str = ""
    tools: tuple[str, ...] = ()
    permission: Permission = "ask"
    plain: bool = False
    shows_reasoning: bool = True
    key: str = ""
    describer: str = ""
    template: Template = Template()
    params: tuple[tuple[str, str], ...] = ()
    wishes: Wishes = Wishes()
    uses_daemon: bool = True

    @property
    def flags(self) -> dict[str, Any]:
        """Settings for this run alone."""
        settings = self.template.settings
        if self.describer:
            settings["context"] = {**settings.get("context", {}), "describer": self.describer}
        return settings


def speaking_options(*, tools: str) -> Callable[[F], F]:
    """Add the shared options to a command. `tools` is what the model may call where nothing is said: safe or all."""
    options = [*_whom(), *_where(), *_how(_SAFE if tools == "safe" else _ALL), *_media()]

    def added(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return added


def _whom() -> list[Option]:
    return [
        click.option(
            "-m", "--model", default="", shell_complete=complete_models, help="platform/name, or a configured name."
        ),
        click.option(
            "-q",
            "--query",
            "queries",
            multiple=True,
            metavar="WORD",
            help="Instead of -m: the first model whose name holds all these words.",
        ),
        click.option("--key", default="", metavar="NAME", help="A stored key by its name, instead of the service's."),
        click.option(
            "--describe-with",
            "describer",
            default="",
            metavar="MODEL",
            shell_complete=complete_models,
            help="Let this model describe pictures for one that cannot see.",
        ),
    ]


def _where() -> list[Option]:
    return [
        click.option("-c", "--continue", "last_here", is_flag=True, help="Go on with the last session of this folder."),
        click.option(
            "-r",
            "--resume",
            is_flag=False,
            flag_value=LATEST,
            default="",
            metavar="[ID|N|latest]",
            shell_complete=complete_sessions,
            help="Go on with a session: its id, its number in `loom sessions`, its title.",
        ),
        click.option("--cid", default="", hidden=True),
        click.option(
            "--from", "node", default="", metavar="NODE", help="Go on from this message; nothing is overwritten."
        ),
        click.option("--fork", is_flag=True, help="Go on in a new session and leave the old one as it is."),
        click.option("-s", "--system", default="", help="The system prompt of a new session."),
        click.option(
            "-t",
            "--template",
            default="",
            metavar="NAME",
            shell_complete=complete_templates,
            help="Begin with a template: a name kept with --save, or a TOML file.",
        ),
        click.option(
            "--param",
            "params",
            nargs=2,
            multiple=True,
            metavar="NAME VALUE",
            help="A value for $NAME in the template.",
        ),
    ]


def _how(tools: str) -> list[Option]:
    return [
        click.option("-T", "--tool", "tools", multiple=True, metavar="NAME", help=tools),
        click.option(
            "--permission",
            type=click.Choice(["ask", "auto", "plan", "deny"]),
            default="ask",
            show_default=True,
            help="What happens when a tool needs your word; with plan the model says what it would do instead."
            " Without a terminal, ask means deny.",
        ),
        click.option("--plain", is_flag=True, help="No colours, boxes or pictures (also LOOM_PLAIN=1)."),
        click.option("-R", "--hide-reasoning", is_flag=True, help="Do not show the model's reasoning on stderr."),
        click.option("--no-daemon", is_flag=True, help="Answer in this process, also where `loom serve` runs."),
    ]


def _media() -> list[Option]:
    return [
        click.option(
            "--no-resize", is_flag=True, help="Refuse a picture over the size limit instead of using a smaller copy."
        ),
        click.option(
            "--pdf-password-file",
            default="",
            metavar="FILE",
            help="A file that holds the password of locked PDFs.",
        ),
    ]


def speaking_of(given: dict[str, Any]) -> dict[str, Any]:
    """The fields of `Speaking` from what click found. If plain was asked for, whatever is written from now on is."""
    if given["plain"]:
        os.environ[PLAIN] = "1"
    template = read_template(given["template"]) if given["template"] else Template()
    place = Place(
        last_here=given["last_here"],
        resume=given["resume"] or given["cid"],
        node=given["node"],
        fork=given["fork"],
    )
    return {
        "model": given["model"] or ("" if given["queries"] else template.model),
        "queries": given["queries"],
        "place": place,
        "system": given["system"],
        "tools": given["tools"] or template.tools,
        "permission": given["permission"],
        "plain": is_plain(),
        "shows_reasoning": not given["hide_reasoning"],
        "key": given["key"],
        "describer": given["describer"],
        "template": template,
        "params": given["params"],
        "wishes": Wishes(resizes=not given["no_resize"], pdf_password_file=given["pdf_password_file"]),
        "uses_daemon": not given["no_daemon"],
    }
