"""`paddock sandbox record`: records a sandbox's screen and exports videos."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from paddock.cli.framework.command_registration import command_group, register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import CliError, UsageError
from paddock.cli.output.formatting import format_age, format_size, parse_time
from paddock.cli.sandbox.sandbox_lookup import SandboxArgument

if TYPE_CHECKING:
    from paddock.cli.connection.server_client import ServerClient

VIDEO_FORMATS = ("mp4", "gif", "mkv", "padrec")
RecordingArgument = Annotated[
    str | None,
    typer.Argument(metavar="RECORDING", help="Recording id.  [default: newest]", show_default=False),
]


def register_commands(sandboxes: typer.Typer) -> None:
    records = command_group("Record a sandbox's screen and export videos.")
    sandboxes.add_typer(records, name="record")
    register_command(
        records,
        "start",
        server=True,
        examples="paddock sandbox record start 3f2a\npaddock sandbox record start 3f2a --fps 10 --minutes 30",
    )(start_recording)
    register_command(records, "stop", server=True, examples="paddock sandbox record stop 3f2a")(stop_recording)
    register_command(
        records, "list", server=True, examples="paddock sandbox record list\npaddock sandbox record list 3f2a --json"
    )(list_recordings)
    register_command(
        records,
        "export",
        server=True,
        examples="""
            paddock sandbox record export 3f2a -o video.mp4
            paddock sandbox record export 3f2a rec-0123456789abcdef -o video.gif
        """,
    )(export_recording)
    register_command(records, "rm", server=True, examples="paddock sandbox record rm 3f2a rec-0123456789abcdef")(
        remove_recording
    )


async def start_recording(
    cli: CliContext,
    sandbox: SandboxArgument,
    fps: Annotated[float, typer.Option(metavar="N", min=0.1, max=30, help="Maximum frames per second.")] = 5.0,
    quality: Annotated[int, typer.Option(metavar="N", min=1, max=95, help="JPEG quality of frames.")] = 75,
    minutes: Annotated[float | None, typer.Option(metavar="N", help="Stop after this many minutes.")] = None,
    max_size: Annotated[str | None, typer.Option(metavar="SIZE", help="Stop at this size, such as 500Mi.")] = None,
) -> None:
    """Start recording a sandbox's screen and print the recording's id."""
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox
    from paddock.config.units import parse_size

    request: dict[str, Any] = {"fps": fps, "quality": quality}
    if minutes is not None:
        request["maxMinutes"] = minutes
    if max_size is not None:
        try:
            request["maxSize"] = parse_size(max_size)
        except ValueError as error:
            raise UsageError(f"--max-size: {error}") from None
    async with cli.open_client() as client:
        recording = await client.post(_recordings_path(await find_sandbox(client, sandbox)), request)
    if cli.as_json:
        return cli.out.print_json(recording)
    return cli.out.print_line(str(recording["id"]))


async def stop_recording(cli: CliContext, sandbox: SandboxArgument, recording: RecordingArgument = None) -> None:
    """Stop a recording."""
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox

    async with cli.open_client() as client:
        sandbox_id = await find_sandbox(client, sandbox)
        recording_id = await _newest_recording(client, sandbox_id, recording)
        stopped = await client.post(f"{_recordings_path(sandbox_id, recording_id)}/stop")
    if cli.as_json:
        return cli.out.print_json(stopped)
    pictures = "1 frame" if stopped["frames"] == 1 else f"{stopped['frames']} frames"
    return cli.out.print_line(f"{stopped['id']}  {pictures}, {format_size(stopped['size'])}")


async def list_recordings(
    cli: CliContext,
    sandbox: Annotated[
        str | None, typer.Argument(metavar="SANDBOX", help="Filter by sandbox.", show_default=False)
    ] = None,
) -> None:
    """List recordings, newest first."""
    async with cli.open_read_client() as client:
        path = "/v1/recordings" if sandbox is None else _recordings_path(await _find_recorded_sandbox(client, sandbox))
        found = (await client.get(path))["items"]
    if cli.as_json:
        return cli.out.print_json(found)
    if not found:
        return cli.out.print_if_interactive("No recordings. Start one: paddock sandbox record start SANDBOX")
    rows = [
        [
            str(item["id"]),
            _state_text(item),
            str(item["sandboxId"]),
            format_age(parse_time(item.get("startedAt"))),
            str(item["frames"]),
            format_size(item["size"]),
        ]
        for item in found
    ]
    return cli.out.print_table(["ID", "STATE", "SANDBOX", "AGE", "FRAMES", "SIZE"], rows, wraps=["STATE"])


async def export_recording(
    cli: CliContext,
    sandbox: SandboxArgument,
    recording: RecordingArgument = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write.  [default: RECORDING.mp4]")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="FORMAT", help="mp4, gif, mkv or padrec.  [default: by FILE's suffix]"),
    ] = None,
) -> None:
    """Save a recording as a video.

    mp4 and gif need ffmpeg on the server's machine; padrec is the server's own format.
    """
    chosen = form or (output.suffix.lstrip(".").lower() if output else "") or VIDEO_FORMATS[0]
    if chosen not in VIDEO_FORMATS:
        raise UsageError(f"unknown video format; use {', '.join(VIDEO_FORMATS)} as --format or as FILE's suffix")
    async with cli.open_client() as client:
        sandbox_id = await _find_recorded_sandbox(client, sandbox)
        recording_id = await _newest_recording(client, sandbox_id, recording)
        target = output or Path(f"{recording_id}.{chosen}")
        path = f"{_recordings_path(sandbox_id, recording_id)}/" + (
            "file" if chosen == "padrec" else f"export?format={chosen}"
        )
        written = await _download_file(client, path, target)
    if cli.as_json:
        return cli.out.print_json({"recording": recording_id, "path": str(target), "size": written})
    return cli.out.print_line(f"{target}  {format_size(written)}")


async def remove_recording(
    cli: CliContext, sandbox: SandboxArgument, recording: Annotated[str, typer.Argument(metavar="RECORDING")]
) -> None:
    """Remove a recording."""
    async with cli.open_client() as client:
        await client.delete(_recordings_path(await _find_recorded_sandbox(client, sandbox), recording))
    return cli.out.print_json({"removed": [recording]}) if cli.as_json else cli.out.print_line(recording)


def _state_text(recording: dict[str, Any]) -> str:
    """Return the recording's state, with the reason if it was not stopped by request."""
    state, reason = str(recording["state"]), recording.get("reason")
    return f"{state} ({reason})" if reason and reason != state else state


def _recordings_path(sandbox_id: str, recording: str | None = None) -> str:
    path = f"/v1/sandboxes/{quote(sandbox_id, safe='')}/recordings"
    return path if recording is None else f"{path}/{quote(recording, safe='')}"


async def _find_recorded_sandbox(client: ServerClient, name: str) -> str:
    """Return the id of a sandbox, including deleted ones with recordings."""
    from paddock.cli.sandbox.sandbox_lookup import NoSuchSandbox, choose_sandbox, find_sandbox

    try:
        return await find_sandbox(client, name)
    except NoSuchSandbox:
        left = {str(item["sandboxId"]) for item in (await client.get("/v1/recordings"))["items"]}
        return choose_sandbox([{"id": each} for each in left], name)


async def _newest_recording(client: ServerClient, sandbox_id: str, recording: str | None) -> str:
    if recording is not None:
        return recording
    found = (await client.get(_recordings_path(sandbox_id)))["items"]
    if not found:
        raise CliError("this sandbox has no recordings; start one with: paddock sandbox record start SANDBOX")
    return str(found[0]["id"])


async def _download_file(client: ServerClient, path: str, target: Path) -> int:
    """Download a response to a file, atomically."""
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
