"""`paddock serve`: starts the server."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.commands import command
from paddock.cli.context import Cli

if TYPE_CHECKING:
    from paddock.config import Config
    from paddock.sandbox.base import Finding


def register(app: typer.Typer) -> None:
    command(
        app,
        "serve",
        examples="""
            paddock serve
            paddock serve --port 9000 --data /srv/paddock
            paddock serve --config paddock.yaml --log-level debug
        """,
    )(serve)


def serve(
    cli: Cli,
    host: Annotated[str | None, typer.Option(help="Address to listen on.  [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.  [default: 8420]")] = None,
    image: Annotated[str | None, typer.Option(help="Image of sandboxes that name none.  [default: code]")] = None,
    log_level: Annotated[str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option(metavar="FORMAT", help="auto, json or console.")] = None,
) -> None:
    """Start the server, until Ctrl-C or SIGTERM. Sandboxes go on, and the next server finds them again."""
    config = cli.load(
        {
            "server.host": host,
            "server.port": port,
            "sandboxes.default_image": image,
            "log.level": log_level,
            "log.format": log_format,
        }
    ).config
    from paddock import app

    def ready(url: str) -> None:
        if cli.as_json:
            cli.out.event(
                {"event": "ready", "url": url, "data": str(config.data), "key": str(config.data / "local.key")}
            )
            return
        cli.out.line(_banner(config, url))
        for line in _missing(config):
            cli.out.line(line)
        sys.stdout.flush()

    app.serve(config, on_ready=ready)


def _banner(config: Config, url: str) -> str:
    from paddock import __version__

    key = config.data / "local.key"
    rows = [
        f"Paddock {__version__} is ready: {url}",
        f"  API reference  {url}/docs",
        f"  data           {config.data}",
        f"  key            {key if key.exists() else 'the ones you made; see: paddock key list'}",
        "  next           paddock sandbox create --image host",
    ]
    return "\n".join(rows)


def _missing(config: Config) -> list[str]:
    """What this machine cannot do, in one line each."""
    from paddock.sandbox.local import cgroups, examine

    if config.sandboxes.default_backend != "local":
        return []
    found: list[Finding] = examine.quick(cgroups) if hasattr(examine, "quick") else []
    return [f"  missing        {finding.check}: {finding.detail}" for finding in found if not finding.ok]
