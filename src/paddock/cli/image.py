"""Images: built, listed, shown, removed. Works on the data directory; no server is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.commands import command, group
from paddock.cli.context import Cli
from paddock.cli.failure import CliError, UsageProblem
from paddock.cli.output import ago, pairs, size

if TYPE_CHECKING:
    from paddock.config import Config
    from paddock.model.sandbox import Image
    from paddock.sandbox.images import ImageInfo, ImageStore
    from paddock.sandbox.images.console import Watcher

ImageArgument = Annotated[str, typer.Argument(metavar="IMAGE", help="Name, or NAME@DIGEST.", show_default=False)]
_DIGEST = 12


class NoSuchImage(CliError):
    """There is no recipe or image of this name."""

    code = "IMAGE_NOT_FOUND"


def register(app: typer.Typer) -> None:
    images = group("Build, list and remove images.")
    app.add_typer(images, name="image")
    command(
        images,
        "build",
        examples="""
            paddock image build code
            paddock image build --all
            paddock image build docker.io/library/python:3.12
        """,
    )(build)
    command(images, "list", examples="paddock image list\npaddock image list --json")(list_)
    command(images, "show", examples="paddock image show code\npaddock image show code --packages")(show)
    command(images, "rm", examples="paddock image rm code\npaddock image rm code@8efd42a1d349")(remove)
    command(images, "prune", examples="paddock image prune")(prune)


async def build(
    cli: Cli,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="IMAGE", help="Recipes, or OCI references to pull.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All recipes there are.")] = False,
) -> None:
    """Build images from their recipes, or pull them from a registry.

    What is built already is not built again. Ctrl-C stops a build and leaves nothing of it behind.
    """
    import time

    from paddock.cli.building import told_when_stopped, watching
    from paddock.cli.local import image_store

    if bool(names) == everything:
        raise UsageProblem("say which images to build, or --all")
    images = image_store(_config(cli))
    for name in images.library.names() if everything else names or []:
        began = time.monotonic()
        with told_when_stopped(), watching(cli.out, name) as watch:
            image = await _built(images, name, watch)
        took = time.monotonic() - began
        if cli.as_json:
            cli.out.event({"image": name, "event": "done", "digest": image.digest, "seconds": round(took, 2)})
        else:
            cli.out.line(f"{name}@{image.digest[:_DIGEST]}  ready after {took:.1f} s")


async def _built(images: ImageStore, name: str, watch: Watcher) -> Image:
    from paddock.errors import ImageNotFound

    try:
        return await images.build_async(name, watch)
    except ImageNotFound as error:
        raise NoSuchImage(error.message, hint="see the recipes and images there are: paddock image list") from None


def list_(cli: Cli) -> None:
    """List images that are built, and recipes that could be."""
    from paddock.cli.local import image_store

    images = image_store(_config(cli))
    built = images.list()
    waiting = [name for name in images.names() if not any(i.manifest.name == name and i.current for i in built)]
    if cli.as_json:
        return cli.out.document({"images": [_summary(info) for info in built], "notBuilt": waiting})
    rows = [_row(info) for info in built]
    rows += [[name, "", _state_of(name), "", "", _description(images, name)] for name in waiting]
    return cli.out.table(["NAME", "DIGEST", "STATE", "SIZE", "AGE", "DESCRIPTION"], rows)


def show(
    cli: Cli,
    image: ImageArgument,
    packages: Annotated[bool, typer.Option("--packages", help="List its Debian packages too.")] = False,
) -> None:
    """Show all that is known of an image."""
    from paddock.cli.local import image_store

    info = image_store(_config(cli)).show(image)
    made = info.manifest
    if cli.as_json:
        return cli.out.document(
            {**made.model_dump(mode="json"), "directory": str(info.directory), "current": info.current}
        )
    facts = [
        ("name", made.name),
        ("digest", made.digest),
        ("kind", made.kind),
        ("current", "yes" if info.current else "no"),
        ("description", made.description),
        ("built", f"{made.built_at:%Y-%m-%d %H:%M:%S %Z} ({ago(made.built_at)} ago)"),
        ("size", size(made.size)),
        ("root", str(info.directory / "root")),
        ("suite", made.suite or ""),
        ("python", made.python),
        ("user", f"{made.user.name} ({made.user.uid}:{made.user.gid}), {made.user.home}"),
        ("env", pairs(made.env)),
        ("services", " ".join(service.name for service in made.services)),
        ("packages", f"{len(made.packages)}" if made.packages else ""),
    ]
    cli.out.facts([fact for fact in facts if fact[1]])
    if packages:
        cli.out.table(["PACKAGE", "VERSION"], sorted(made.packages.items()))
    return None


async def remove(
    cli: Cli,
    names: Annotated[list[str], typer.Argument(metavar="IMAGE", help="Names, or NAME@DIGEST.", show_default=False)],
) -> None:
    """Remove images. Those that sandboxes or snapshots need are refused."""
    from paddock.cli.local import digests_in_use, image_store

    config = _config(cli)
    images = image_store(config)
    in_use = await digests_in_use(config, images)
    removed: list[str] = []
    for name in names:
        removed += [
            f"{name.partition('@')[0]}@{digest[:_DIGEST]}" for digest in await images.remove_async(name, in_use)
        ]
    if cli.as_json:
        return cli.out.document({"removed": removed})
    return cli.out.line("\n".join(removed))


async def prune(cli: Cli) -> None:
    """Remove images whose recipes have changed since, and what broken builds left."""
    from paddock.cli.local import digests_in_use, image_store

    config = _config(cli)
    images = image_store(config)
    done = await images.prune_async(await digests_in_use(config, images))
    if cli.as_json:
        return cli.out.document(done.model_dump(mode="json"))
    for title in done.images:
        cli.out.line(title)
    return cli.out.line(f"removed {len(done.images)} images and {done.leftovers} leftovers, freed {size(done.bytes)}")


def _config(cli: Cli) -> Config:
    """What images need to know; a secret of a model's provider is not among it."""
    return cli.load({}, only=["data", "images"]).config


def _row(info: ImageInfo) -> list[str]:
    made = info.manifest
    state = "current" if info.current else "old"
    return [made.name, made.digest[:_DIGEST], state, size(made.size), ago(made.built_at), made.description]


def _summary(info: ImageInfo) -> dict[str, Any]:
    kept = {"name", "digest", "kind", "description", "size", "built_at", "python"}
    return {**info.manifest.model_dump(mode="json", include=kept), "current": info.current}


def _state_of(name: str) -> str:
    return "ready" if name == "host" else "not built"


def _description(images: ImageStore, name: str) -> str:
    from paddock.errors import ConfigError

    if name == "host":
        return "This machine's own /usr, for trying things out."
    try:
        return images.library.plan(name).recipe.description
    except (ConfigError, CliError) as error:
        return error.message.splitlines()[0]
