"""`paddock sandbox record`: recordings of a sandbox's screen."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from paddock.cli.commands import command, group
from paddock.cli.context import Cli
from paddock.cli.failure import CliError, UsageProblem
from paddock.cli.output import ago, moment, size
from paddock.cli.sandbox import SandboxArgument

if TYPE_CHECKING:
    from paddock.cli.client import Client

FORMATS = ("mp4", "gif", "mkv", "padrec")
RecordingArgument = Annotated[
    str | None,
    typer.Argument(metavar="RECORDING", help="Id; the newest one if left out.", show_default=False),
]


def register(boxes: typer.Typer) -> None:
    records = group("Record a sandbox's screen, and get the film.")
    boxes.add_typer(records, name="record")
    command(
        records,
        "start",
        server=True,
        examples="paddock sandbox record start 3f2a\npaddock sandbox record start 3f2a --fps 10 --minutes 30",
    )(start)
    command(records, "stop", server=True, examples="paddock sandbox record stop 3f2a")(stop)
    command(
        records, "list", server=True, examples="paddock sandbox record list\npaddock sandbox record list 3f2a --json"
    )(list_)
    command(
        records,
        "export",
        server=True,
        examples="""
            paddock sandbox record export 3f2a -o film.mp4
            paddock sandbox record export 3f2a rec-0123456789abcdef -o film.gif
        """,
    )(export)
    command(records, "rm", server=True, examples="paddock sandbox record rm 3f2a rec-0123456789abcdef")(remove)


async def start(
    cli: Cli,
    sandbox: SandboxArgument,
    fps: Annotated[float, typer.Option(metavar="N", min=0.1, max=30, help="Most pictures a second.")] = 5.0,
    quality: Annotated[int, typer.Option(metavar="N", min=1, max=95, help="Of the pictures, which are JPEG.")] = 75,
    minutes: Annotated[float | None, typer.Option(metavar="N", help="Stop after this time.")] = None,
    max_size: Annotated[str | None, typer.Option(metavar="SIZE", help="Stop at this size, such as 500Mi.")] = None,
) -> None:
    """Begin to record a sandbox's screen, and print the recording's id."""
    from paddock.cli.find import find
    from paddock.config.units import parse_size

    request: dict[str, Any] = {"fps": fps, "quality": quality}
    if minutes is not None:
        request["maxMinutes"] = minutes
    if max_size is not None:
        try:
            request["maxSize"] = parse_size(max_size)
        except ValueError as error:
            raise UsageProblem(f"--max-size: {error}") from None
    async with cli.client() as client:
        recording = await client.post(_path(await find(client, sandbox)), request)
    if cli.as_json:
        return cli.out.document(recording)
    return cli.out.line(str(recording["id"]))


async def stop(cli: Cli, sandbox: SandboxArgument, recording: RecordingArgument = None) -> None:
    """Stop a recording."""
    from paddock.cli.find import find

    async with cli.client() as client:
        sandbox_id = await find(client, sandbox)
        wanted = await _newest(client, sandbox_id, recording)
        stopped = await client.post(f"{_path(sandbox_id, wanted)}/stop")
    if cli.as_json:
        return cli.out.document(stopped)
    pictures = "1 picture" if stopped["frames"] == 1 else f"{stopped['frames']} pictures"
    return cli.out.line(f"{stopped['id']}  {pictures}, {size(stopped['size'])}")


async def list_(
    cli: Cli,
    sandbox: Annotated[
        str | None, typer.Argument(metavar="SANDBOX", help="Only of this one.", show_default=False)
    ] = None,
) -> None:
    """List recordings, newest first."""
    async with cli.reading() as client:
        path = "/v1/recordings" if sandbox is None else _path(await _sandbox(client, sandbox))
        found = (await client.get(path))["items"]
    if cli.as_json:
        return cli.out.document(found)
    if not found:
        return cli.out.nothing("There are no recordings. Make one: paddock sandbox record start SANDBOX")
    rows = [
        [
            str(item["id"]),
            _state(item),
            str(item["sandboxId"]),
            ago(moment(item.get("startedAt"))),
            str(item["frames"]),
            size(item["size"]),
        ]
        for item in found
    ]
    return cli.out.table(["ID", "STATE", "SANDBOX", "AGE", "PICTURES", "SIZE"], rows, wraps=["STATE"])


async def export(
    cli: Cli,
    sandbox: SandboxArgument,
    recording: RecordingArgument = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to put it; RECORDING.mp4 if left out.")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", metavar="FORMAT", help="mp4, gif, mkv or padrec; else as FILE ends.")
    ] = None,
) -> None:
    """Save a recording as a film. mp4 and gif need ffmpeg where the server runs; padrec is what it keeps."""
    chosen = form or (output.suffix.lstrip(".").lower() if output else "") or FORMATS[0]
    if chosen not in FORMATS:
        raise UsageProblem(f"films are {', '.join(FORMATS)}; choose one with --format, or by how FILE ends")
    async with cli.client() as client:
        sandbox_id = await _sandbox(client, sandbox)
        wanted = await _newest(client, sandbox_id, recording)
        target = output or Path(f"{wanted}.{chosen}")
        path = f"{_path(sandbox_id, wanted)}/" + ("file" if chosen == "padrec" else f"export?format={chosen}")
        written = await _save(client, path, target)
    if cli.as_json:
        return cli.out.document({"recording": wanted, "path": str(target), "size": written})
    return cli.out.line(f"{target}  {size(written)}")


async def remove(
    cli: Cli, sandbox: SandboxArgument, recording: Annotated[str, typer.Argument(metavar="RECORDING")]
) -> None:
    """Remove a recording."""
    async with cli.client() as client:
        await client.delete(_path(await _sandbox(client, sandbox), recording))
    return cli.out.document({"removed": [recording]}) if cli.as_json else cli.out.line(recording)


def _state(recording: dict[str, Any]) -> str:
    """Its state, and why it stopped where that was not because somebody asked for it."""
    state, reason = str(recording["state"]), recording.get("reason")
    return f"{state} ({reason})" if reason and reason != state else state


def _path(sandbox_id: str, recording: str | None = None) -> str:
    path = f"/v1/sandboxes/{quote(sandbox_id, safe='')}/recordings"
    return path if recording is None else f"{path}/{quote(recording, safe='')}"


async def _sandbox(client: Client, wanted: str) -> str:
    """The id of a sandbox, also of one that is no more and has left a recording."""
    from paddock.cli.find import NoSuchSandbox, choose, find

    try:
        return await find(client, wanted)
    except NoSuchSandbox:
        left = {str(item["sandboxId"]) for item in (await client.get("/v1/recordings"))["items"]}
        return choose([{"id": each} for each in left], wanted)


async def _newest(client: Client, sandbox_id: str, recording: str | None) -> str:
    if recording is not None:
        return recording
    found = (await client.get(_path(sandbox_id)))["items"]
    if not found:
        raise CliError("this sandbox has no recordings; make one: paddock sandbox record start SANDBOX")
    return str(found[0]["id"])


async def _save(client: Client, path: str, target: Path) -> int:
    """Write an answer to a file, whole or not at all."""
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    written = 0
    try:
        async with client.request("GET", path) as answer:
            with partial.open("xb") as file:
                async for piece in answer.content.iter_any():
                    written += file.write(piece)
        os.replace(partial, target)
    except OSError as error:
        raise CliError(f"{target} cannot be written: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)
    return written
