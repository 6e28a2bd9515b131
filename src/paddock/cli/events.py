"""`paddock events`: what happened, and what happens."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

import typer

from paddock.cli.commands import command
from paddock.cli.context import Cli
from paddock.cli.failure import ConnectionLost, NoServer
from paddock.cli.output import moment, pairs

_RECONNECT_SECONDS = 60.0


def register(app: typer.Typer) -> None:
    command(
        app,
        "events",
        server=True,
        examples="paddock events\npaddock events --follow --json\npaddock events --stream sandbox/sb-0123456789abcdef",
    )(events)


async def events(
    cli: Cli,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as things happen.")] = False,
    after: Annotated[int, typer.Option(help="Only those after this sequence number.", min=0)] = 0,
    stream: Annotated[str | None, typer.Option(help="Only of this stream, such as sandbox/ID.")] = None,
) -> None:
    """Show what has happened to sandboxes, snapshots and pools."""
    reader = _Reader(cli, after, stream)
    async with cli.client() as client:
        last_seen = time.monotonic()
        while True:
            try:
                async for documents in reader.read(client, follow):
                    last_seen = time.monotonic()
                    for document in documents:
                        reader.show(document)
                if not follow:
                    return
                raise ConnectionLost("the server ended the stream")
            except (ConnectionLost, NoServer):
                if not follow or time.monotonic() - last_seen > _RECONNECT_SECONDS:
                    raise
                await asyncio.sleep(0.25)
