"""`paddock sandbox screenshot`: saves a picture of a sandbox's screen."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import UsageError
from paddock.cli.output.formatting import format_size
from paddock.cli.sandbox.sandbox_lookup import SandboxArgument

_FORMATS = {".jpg": "jpeg", ".jpeg": "jpeg", ".png": "png"}


def register_commands(sandboxes: typer.Typer) -> None:
    register_command(
        sandboxes,
        "screenshot",
        server=True,
        examples="""
            paddock sandbox screenshot 3f2a -o screen.png
            paddock sandbox screenshot 3f2a -o corner.jpg --region 0,0,640,400 --scale 0.5
            paddock sandbox screenshot 3f2a -o - | viewer
        """,
    )(save_screenshot)


async def save_screenshot(
    cli: CliContext,
    sandbox: SandboxArgument,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="File to write, .jpg or .png; - for a pipe.")
    ],
    scale: Annotated[float, typer.Option(metavar="N", min=0.05, max=1, help="Scale factor.")] = 1.0,
    quality: Annotated[int, typer.Option(metavar="N", min=1, max=95, help="JPEG quality.")] = 80,
    region: Annotated[str | None, typer.Option(metavar="X,Y,W,H", help="Capture only this region, in pixels.")] = None,
) -> None:
    """Save a screenshot of a sandbox's screen."""
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox
    from paddock.cli.sandbox.tool_commands import write_picture

    piped = output == "-"
    if piped and sys.stdout.isatty():
        raise UsageError("cannot print a picture on a terminal; write it to a file with -o, or into a pipe")
    form = "jpeg" if piped else _FORMATS.get(Path(output).suffix.lower())
    if form is None:
        raise UsageError(f"-o {output}: the name must end in .jpg or .png")
    query = {"format": form, "scale": f"{scale:g}", "quality": str(quality), **({"region": region} if region else {})}
    async with cli.open_client() as client:
        path = f"/v1/sandboxes/{await find_sandbox(client, sandbox)}/screenshot"
        async with client.request("GET", path, params=query) as answer:
            data = await answer.read()
            width, height = (int(answer.headers.get(f"X-Paddock-{side}", 0)) for side in ("Width", "Height"))
    if piped:
        sys.stdout.buffer.write(data)
        return
    write_picture(Path(output), data)
    if cli.as_json:
        cli.out.print_json({"path": output, "size": len(data), "screen": {"width": width, "height": height}})
    elif cli.out.is_interactive:
        cli.out.print_line(f"saved {format_size(len(data))} to {output}; the screen is {width} by {height} pixels")
