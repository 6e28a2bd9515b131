"""A chat from its first message to its end: sends, shows, asks, stops."""

from __future__ import annotations

import asyncio
import base64
import mimetypes
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from paddock.cli.chat_input import Keyboard, decide
from paddock.cli.chat_view import JsonView, PlainView, TerminalView, View
from paddock.cli.client import Client
from paddock.cli.context import Cli
from paddock.cli.failure import FAILED, INTERRUPTED, CliError, Refused
from paddock.cli.run_follow import Reach, events_at
from paddock.cli.run_server import Servers
from paddock.cli.session import SESSIONS, find_session, path_of

WAITS = 3
"""Exit code when somebody has to decide first."""
_LARGEST = 20 * 2**20
_HELP = """\
Write what you want. While it works, a line you type is read before its next step, and ctrl-c stops it.
  /continue   let it go on where it was stopped
  /title TEXT give the session a title
  /quit       leave (or ctrl-d); come back with: paddock chat --resume last"""


async def converse(
    cli: Cli,
    message: str | None,
    settings: Mapping[str, Any],
    *,
    resume: str | None,
    attach: Sequence[str],
    once: bool,
    people: bool,
) -> int:
    """Talk until the person leaves, or for one answer."""
    content = _content(message, attach) if message else None
    async with Servers(cli) as servers:
        client = await servers.find()
        reach = Reach(client, servers.find)
        session = await _session(client, settings, resume)
        with tempfile.TemporaryDirectory(prefix="paddock-chat-", delete=False) if people else _nowhere() as folder:
            view = _view(cli, people)
            talk = Talk(reach, session, view, folder)
            async with talk.listening(replay=bool(resume) and people):
                if once:
                    return await _once(talk, content)
                return await _many(talk, content, cli.data)


def _view(cli: Cli, people: bool) -> View:
    raise NotImplementedError
