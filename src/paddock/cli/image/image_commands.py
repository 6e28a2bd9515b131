"""`paddock image`: builds, lists, shows and removes images in the data directory, without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.framework.command_registration import command_group, register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import CliError, UsageError
from paddock.cli.output.formatting import format_age, format_pairs, format_size

if TYPE_CHECKING:
    from paddock.config import Config
    from paddock.model.sandbox import Image
    from paddock.sandbox.images import ImageInfo, ImageStore
    from paddock.sandbox.images.build_command_runner import Watcher

ImageArgument = Annotated[str, typer.Argument(metavar="IMAGE", help="Name, or NAME@DIGEST.", show_default=False)]
_DIGEST_LENGTH = 12


class NoSuchImage(CliError):
    """No recipe or image has this name."""

    code = "IMAGE_NOT_FOUND"


def register_commands(app: typer.Typer) -> None:
    images = command_group("Build, list and remove images.")
    app.add_typer(images, name="image")
    register_command(
        images,
        "build",
        examples="""
            paddock image build code
            paddock image build --all
            paddock image build docker.io/library/python:3.12
        """,
    )(build_images)
    register_command(images, "list", examples="paddock image list\npaddock image list --json")(list_images)
    register_command(images, "show", examples="paddock image show code\npaddock image show code --packages")(show_image)
    register_command(images, "rm", examples="paddock image rm code\npaddock image rm code@8efd42a1d349")(remove_images)
    register_command(images, "prune", examples="paddock image prune")(prune_images)


async def build_images(
    cli: CliContext,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="IMAGE", help="Recipe names, or OCI references to pull.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Build all recipes.")] = False,
) -> None:
    """Build images from recipes, or pull them from a registry.

    Images that are up to date are not built again. Ctrl-C stops a build and removes its partial result.
    """
    import time

    from paddock.cli.connection.data_directory import create_data_directory, open_image_store
    from paddock.cli.image.build_progress import note_when_stopped, show_build_progress

    if bool(names) == everything:
        raise UsageError("name the images to build, or use --all")
    config = _image_config(cli)
    create_data_directory(config.data)
    images = open_image_store(config)
    for name in images.library.names() if everything else names or []:
        started_at = time.monotonic()
        with note_when_stopped(), show_build_progress(cli.out, name) as watch:
            image = await _build_image(images, name, watch)
        took = time.monotonic() - started_at
        if cli.as_json:
            cli.out.print_json_line({"image": name, "event": "done", "digest": image.digest, "seconds": round(took, 2)})
        else:
            cli.out.print_line(f"{name}@{image.digest[:_DIGEST_LENGTH]}  ready after {took:.1f} s")


async def _build_image(images: ImageStore, name: str, watch: Watcher) -> Image:
    from paddock.errors import ImageNotFound

    try:
        return await images.build_async(name, watch)
    except ImageNotFound as error:
        raise NoSuchImage(error.message, hint="list recipes and images: paddock image list") from None


def list_images(cli: CliContext) -> None:
    """List built images and unbuilt recipes."""
    from paddock.cli.connection.data_directory import open_image_store

    images = open_image_store(_image_config(cli))
    built = images.list()
    waiting = [name for name in images.names() if not any(i.manifest.name == name and i.current for i in built)]
    if cli.as_json:
        return cli.out.print_json({"images": [_image_summary(info) for info in built], "notBuilt": waiting})
    rows = [_image_row(info) for info in built]
    rows += [[name, "", _unbuilt_state(name), "", "", _recipe_description(images, name)] for name in waiting]
    return cli.out.print_table(["NAME", "DIGEST", "STATE", "SIZE", "AGE", "DESCRIPTION"], rows)


def show_image(
    cli: CliContext,
    image: ImageArgument,
    packages: Annotated[bool, typer.Option("--packages", help="Also list the Debian packages.")] = False,
) -> None:
    """Show an image's details."""
    from paddock.cli.connection.data_directory import open_image_store

    info = open_image_store(_image_config(cli)).show(image)
    manifest = info.manifest
    if cli.as_json:
        return cli.out.print_json(
            {**manifest.model_dump(mode="json"), "directory": str(info.directory), "current": info.current}
        )
    facts = [
        ("name", manifest.name),
        ("digest", manifest.digest),
        ("kind", manifest.kind),
        ("current", "yes" if info.current else "no"),
        ("description", manifest.description),
        ("built", f"{manifest.built_at:%Y-%m-%d %H:%M:%S %Z} ({format_age(manifest.built_at)} ago)"),
        ("size", format_size(manifest.size)),
        ("root", str(info.directory / "root")),
        ("suite", manifest.suite or ""),
        ("python", manifest.python),
        ("user", f"{manifest.user.name} ({manifest.user.uid}:{manifest.user.gid}), {manifest.user.home}"),
        ("env", format_pairs(manifest.env)),
        ("services", " ".join(service.name for service in manifest.services)),
        ("packages", f"{len(manifest.packages)}" if manifest.packages else ""),
    ]
    cli.out.print_facts([fact for fact in facts if fact[1]])
    if packages:
        cli.out.print_table(["PACKAGE", "VERSION"], sorted(manifest.packages.items()))
    return None


async def remove_images(
    cli: CliContext,
    names: Annotated[list[str], typer.Argument(metavar="IMAGE", help="Names, or NAME@DIGEST.", show_default=False)],
) -> None:
    """Remove images that no sandbox or snapshot needs."""
    from paddock.cli.connection.data_directory import create_data_directory, find_image_digests_in_use, open_image_store

    config = _image_config(cli)
    create_data_directory(config.data)
    images = open_image_store(config)
    in_use = await find_image_digests_in_use(config, images)
    removed: list[str] = []
    for name in names:
        removed += [
            f"{name.partition('@')[0]}@{digest[:_DIGEST_LENGTH]}" for digest in await images.remove_async(name, in_use)
        ]
    if cli.as_json:
        return cli.out.print_json({"removed": removed})
    return cli.out.print_line("\n".join(removed))


async def prune_images(cli: CliContext) -> None:
    """Remove outdated images and leftovers of failed builds."""
    from paddock.cli.connection.data_directory import create_data_directory, find_image_digests_in_use, open_image_store

    config = _image_config(cli)
    create_data_directory(config.data)
    images = open_image_store(config)
    done = await images.prune_async(await find_image_digests_in_use(config, images))
    if cli.as_json:
        return cli.out.print_json(done.model_dump(mode="json"))
    for title in done.images:
        cli.out.print_line(title)
    return cli.out.print_line(
        f"removed {len(done.images)} images and {done.leftovers} leftovers, freed {format_size(done.bytes)}"
    )


def _image_config(cli: CliContext) -> Config:
    """Load only the settings that images need, so that provider secrets may be unset."""
    return cli.load_config({}, only=["data", "images"]).config


def _image_row(info: ImageInfo) -> list[str]:
    manifest = info.manifest
    state = "current" if info.current else "old"
    return [
        manifest.name,
        manifest.digest[:_DIGEST_LENGTH],
        state,
        format_size(manifest.size),
        format_age(manifest.built_at),
        manifest.description,
    ]


def _image_summary(info: ImageInfo) -> dict[str, Any]:
    fields = {"name", "digest", "kind", "description", "size", "built_at", "python"}
    return {**info.manifest.model_dump(mode="json", include=fields), "current": info.current}


def _unbuilt_state(name: str) -> str:
    return "ready" if name == "host" else "not built"


def _recipe_description(images: ImageStore, name: str) -> str:
    from paddock.errors import ConfigError

    if name == "host":
        return "This machine's own /usr, for experiments."
    try:
        return images.library.plan(name).recipe.description
    except (ConfigError, CliError) as error:
        return error.message.splitlines()[0]
