"""`paddock kind list`, and building the image of a kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from paddock.cli.framework.command_registration import command_group, register_command
from paddock.cli.framework.context import CliContext

if TYPE_CHECKING:
    from paddock.cli.connection.server_client import ServerClient


def register_commands(app: typer.Typer) -> None:
    kinds = command_group("List sandbox kinds.")
    app.add_typer(kinds, name="kind")
    register_command(kinds, "list", server=True, examples="paddock kind list\npaddock kind list --json")(list_kinds)


async def list_kinds(cli: CliContext) -> None:
    """List sandbox kinds and whether their images are built."""
    async with cli.open_read_client() as client:
        found = (await client.get("/v1/kinds"))["items"]
    if cli.as_json:
        return cli.out.print_json(found)
    rows = [
        [kind["name"], kind["title"], kind["image"], "built" if kind["built"] else "not built", kind["description"]]
        for kind in found
    ]
    return cli.out.print_table(["NAME", "TITLE", "IMAGE", "STATE", "DESCRIPTION"], rows)


async def build_kind_image(cli: CliContext, client: ServerClient, kind: str) -> bool:
    """Build the image of a kind, showing progress; return False if that is only possible on the server's machine."""
    from paddock.cli.connection.data_directory import create_data_directory, open_image_store
    from paddock.cli.image.build_progress import note_when_stopped, show_build_progress_on_stderr

    if cli.has_named_server:
        return False
    items = (await client.get("/v1/kinds"))["items"]
    image = next((str(item["image"]) for item in items if item["name"] == kind), None)
    config = cli.load_config({}, only=["data", "images"]).config
    images = open_image_store(config)
    if image is None or images.library.find(image) is None:
        return False
    create_data_directory(config.data)
    with note_when_stopped(), show_build_progress_on_stderr(image) as watch:
        await images.build_async(image, watch)
    return True
