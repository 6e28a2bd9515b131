"""Kinds: the sorts of computer that sandboxes can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from paddock.cli.commands import command, group
from paddock.cli.context import Cli

if TYPE_CHECKING:
    from paddock.cli.client import Client


def register(app: typer.Typer) -> None:
    kinds = group("List the sorts of computer that sandboxes can be.")
    app.add_typer(kinds, name="kind")
    command(kinds, "list", server=True, examples="paddock kind list\npaddock kind list --json")(list_)


async def list_(cli: Cli) -> None:
    """List the kinds there are, and whether their images are built."""
    async with cli.reading() as client:
        found = (await client.get("/v1/kinds"))["items"]
    if cli.as_json:
        return cli.out.document(found)
    rows = [
        [kind["name"], kind["title"], kind["image"], "built" if kind["built"] else "not built", kind["description"]]
        for kind in found
    ]
    return cli.out.table(["NAME", "TITLE", "IMAGE", "STATE", "DESCRIPTION"], rows)


async def build_image_of(cli: Cli, client: Client, kind: str) -> bool:
    """Build the image of a kind, showing how far it is; False where only the server's own machine could do that."""
    from paddock.cli.building import told_when_stopped, watching_aside
    from paddock.cli.local import image_store

    if cli.names_server:
        return False
    items = (await client.get("/v1/kinds"))["items"]
    image = next((str(item["image"]) for item in items if item["name"] == kind), None)
    images = image_store(cli.load({}, only=["data", "images"]).config)
    if image is None or images.library.find(image) is None:
        return False
    with told_when_stopped(), watching_aside(image) as watch:
        await images.build_async(image, watch)
    return True
