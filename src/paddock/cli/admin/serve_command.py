"""`paddock serve`: starts the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext

if TYPE_CHECKING:
    from paddock.config import Config
    from paddock.config.llm import LlmConfig

_MAX_BANNER_MODELS = 3
DEFAULT_GRPC_ADDRESS = "127.0.0.1:8430"
"""Number of models per provider shown in the banner."""


def register_commands(app: typer.Typer) -> None:
    register_command(
        app,
        "serve",
        examples="""
            paddock serve
            paddock serve --port 9000 --data /srv/paddock
            paddock serve --config paddock.yaml --log-level debug
        """,
    )(serve)


def serve(
    cli: CliContext,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address to listen on.  [default: 127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Port to listen on; 0 chooses a free one.  [default: 8420]")
    ] = None,
    grpc: Annotated[
        bool, typer.Option("--grpc", help="Serve MCP over gRPC too, at mcp.grpc.listen or on 127.0.0.1:8430.")
    ] = False,
    image: Annotated[
        str | None, typer.Option(metavar="IMAGE", help="Default image of sandboxes.  [default: code]")
    ] = None,
    log_level: Annotated[str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option(metavar="FORMAT", help="auto, json or console.")] = None,
    with_stdin: Annotated[
        bool, typer.Option("--with-stdin", help="Stop when standard input is closed.", hidden=True)
    ] = False,
) -> None:
    """Start the server.

    The server runs until Ctrl-C or SIGTERM. Sandboxes keep running; the next server on the same data directory finds
    them again.
    """
    config = cli.load_config(
        {
            "server.host": host,
            "server.port": port,
            "sandboxes.default_image": image,
            "log.level": log_level,
            "log.format": log_format,
        }
    ).config
    if grpc and config.mcp.grpc.listen is None:
        listening = config.mcp.grpc.model_copy(update={"listen": DEFAULT_GRPC_ADDRESS})
        mcp = config.mcp.model_copy(update={"grpc": listening})
        config = config.model_copy(update={"mcp": mcp})
    from paddock.app.serving import serve as serve_until_signal
    from paddock.errors import AlreadyRunning

    missing = [] if cli.as_json else _missing_requirements(config)

    def ready(url: str) -> None:
        if cli.as_json:
            cli.out.print_json_line(
                {
                    "event": "ready",
                    "url": url,
                    "console": f"{url}/",
                    "data": str(config.data),
                    "key": str(config.data / "local.key"),
                }
            )
            return
        cli.out.print_line("\n".join([_ready_banner(config, url), *missing]))

    from paddock.cli.connection.child_server_reuse import ReadActivity, stop_kept_server, stop_server_when_unused

    def started(use: ReadActivity) -> None:
        if with_stdin:
            stop_server_when_unused(config, use)

    if not with_stdin:
        stop_kept_server(config.data)
    try:
        serve_until_signal(config, on_ready=ready, on_start=started)
    except AlreadyRunning:
        from paddock.cli.connection.server_finder import find_parent_command

        if (command := find_parent_command(config.data)) is None:
            raise
        raise AlreadyRunning(
            f"{command} uses {config.data} with a temporary server; stop the command or wait until it ends"
        ) from None


def _ready_banner(config: Config, url: str) -> str:
    from paddock import __version__

    key = config.data / "local.key"
    rows = [
        f"Paddock {__version__} is ready: {url}",
        f"  console        {url}    open it signed in with: paddock console",
        f"  API reference  {url}/docs",
        f"  data           {config.data}",
        f"  key            {key if key.exists() else 'the keys you created; see: paddock key list'}",
        f"  models         {_models_text(config.llm)}",
        *_ignored_keys_rows(config.llm),
        "  try            paddock chat                           an agent",
        "                 paddock sandbox create --image host    a shell",
        f"                 paddock sandbox create --kind linux    {_desktop_text(config)}",
    ]
    return "\n".join(rows)


def _desktop_text(config: Config) -> str:
    from paddock.app.components import create_image_store
    from paddock.errors import PaddockError
    from paddock.fleet.kinds import SandboxKinds

    try:
        create_image_store(config).resolve(SandboxKinds.load_installed(config).get("linux").image)
    except (PaddockError, OSError):
        return "a desktop; its image is built first"
    return "a desktop"


def _ignored_keys_rows(settings: LlmConfig) -> list[str]:
    from paddock.cli.llm.model_commands import ignored_keys_text

    variables = settings.ignored_key_variables
    return [f"                 {ignored_keys_text(variables)}"] if variables else []


def _models_text(settings: LlmConfig) -> str:
    """Name the configured models with their origin, without asking providers."""
    from paddock.llm.demo import add_demo_model, has_only_demo_model

    if has_only_demo_model(settings):
        demo = add_demo_model(settings).models
        return "none; the demo answers" if demo else "none; set a provider's key, such as ANTHROPIC_API_KEY"
    names: dict[str, list[str]] = {}
    for name, model in settings.models.items():
        address = settings.providers[model.provider].base_url
        names.setdefault(model.provider, []).append(f"all of {address}" if name == "*" and address else name)
    lines = []
    for provider, found in names.items():
        shown = ", ".join([*found[:_MAX_BANNER_MODELS], *(["…"] if len(found) > _MAX_BANNER_MODELS else [])])
        lines.append(f"{shown} ({settings.discovered_providers.get(provider, provider)})")
    return "; ".join(lines) or f"none; configure some in llm.models for {', '.join(settings.providers)}"


def _missing_requirements(config: Config) -> list[str]:
    """Return a line for each missing requirement; empty if a server already uses the data directory."""
    import asyncio

    from paddock.cli.admin.sandbox_self_test import check_sandbox_backend
    from paddock.cli.connection.data_directory import create_data_directory
    from paddock.cli.connection.server_address import has_running_server
    from paddock.errors import PaddockError

    if has_running_server(config.data):
        return []
    try:
        create_data_directory(config.data)
        found = asyncio.run(check_sandbox_backend(config))
    except (PaddockError, OSError):
        return []  # the server will report the same error
    return [f"  missing        {item.check}: {item.detail}" for item in found if not item.ok]
