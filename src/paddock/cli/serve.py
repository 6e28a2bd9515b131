"""`paddock serve`: starts the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.commands import command
from paddock.cli.context import Cli

if TYPE_CHECKING:
    from paddock.config import Config
    from paddock.config.llm import LlmConfig

_SHOWN = 3
"""Models of one provider that the banner names."""


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
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address to listen on.  [default: 127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Port to listen on; 0 takes a free one.  [default: 8420]")
    ] = None,
    image: Annotated[
        str | None, typer.Option(metavar="IMAGE", help="Image of sandboxes that name none.  [default: code]")
    ] = None,
    log_level: Annotated[str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option(metavar="FORMAT", help="auto, json or console.")] = None,
    with_stdin: Annotated[
        bool, typer.Option("--with-stdin", help="End when standard input ends, with whoever holds it.", hidden=True)
    ] = False,
) -> None:
    """Start the server.

    It runs until Ctrl-C or SIGTERM. Sandboxes go on, and the next server on the same data directory finds them again.
    """
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
    from paddock.errors import AlreadyRunning

    missing = [] if cli.as_json else _missing(config)

    def ready(url: str) -> None:
        if cli.as_json:
            cli.out.event(
                {
                    "event": "ready",
                    "url": url,
                    "console": f"{url}/",
                    "data": str(config.data),
                    "key": str(config.data / "local.key"),
                }
            )
            return
        cli.out.line("\n".join([_banner(config, url), *missing]))

    from paddock.cli.warm import Use, end_kept_server, serve_while_wanted

    def started(use: Use) -> None:
        if with_stdin:
            serve_while_wanted(config, use)

    if not with_stdin:
        end_kept_server(config.data)
    try:
        app.serve(config, on_ready=ready, on_start=started)
    except AlreadyRunning:
        from paddock.cli.run_server import helped_by

        if (command := helped_by(config.data)) is None:
            raise
        raise AlreadyRunning(
            f"{command} uses {config.data} with a server of its own until it ends; try again then, or stop it"
        ) from None


def _banner(config: Config, url: str) -> str:
    from paddock import __version__

    key = config.data / "local.key"
    rows = [
        f"Paddock {__version__} is ready: {url}",
        f"  console        {url}    paddock console opens it, signed in",
        f"  API reference  {url}/docs",
        f"  data           {config.data}",
        f"  key            {key if key.exists() else 'the ones you made; see: paddock key list'}",
        f"  models         {_models(config.llm)}",
        "  try            paddock chat                           an agent",
        "                 paddock sandbox create --image host    a shell",
        "                 paddock sandbox create --kind linux    a desktop; the first time, its image is built",
    ]
    return "\n".join(rows)


def _models(settings: LlmConfig) -> str:
    """Name the configured models with their origin; providers are not asked."""
    from paddock.llm.demo import only_demo, with_demo

    if only_demo(settings):
        demo = with_demo(settings).models
        return "none; the demo answers" if demo else "none; set a provider's key, such as ANTHROPIC_API_KEY"
    names: dict[str, list[str]] = {}
    for name, model in settings.models.items():
        address = settings.providers[model.provider].base_url
        names.setdefault(model.provider, []).append(f"all of {address}" if name == "*" and address else name)
    lines = []
    for provider, found in names.items():
        shown = ", ".join([*found[:_SHOWN], *(["…"] if len(found) > _SHOWN else [])])
        lines.append(f"{shown} ({settings.found.get(provider, provider)})")
    return "; ".join(lines) or f"none; name some in llm.models for {', '.join(settings.providers)}"


def _missing(config: Config) -> list[str]:
    """What this machine lacks, one line each. A server that is there already says so better itself."""
    import asyncio

    from paddock.cli.context import is_served
    from paddock.cli.trial import examine
    from paddock.errors import PaddockError

    if is_served(config.data):
        return []
    try:
        config.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = asyncio.run(examine(config))
    except (PaddockError, OSError):
        return []  # the server meets the same and explains it
    return [f"  missing        {item.check}: {item.detail}" for item in found if not item.ok]
