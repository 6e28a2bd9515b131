"""`paddock sandbox screenshot`: what is on a sandbox's screen."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from paddock.cli.commands import command
from paddock.cli.context import Cli
from paddock.cli.failure import UsageProblem
from paddock.cli.output import size
from paddock.cli.sandbox import SandboxArgument

_FORMATS = {".jpg": "jpeg", ".jpeg": "jpeg", ".png": "png"}


def register(boxes: typer.Typer) -> None:
    command(
        boxes,
        "screenshot",
        server=True,
        examples="""
            paddock sandbox screenshot 3f2a -o screen.png
            paddock sandbox screenshot 3f2a -o corner.jpg --region 0,0,640,400 --scale 0.5
            paddock sandbox screenshot 3f2a -o - | viewer
        """,
    )(screenshot)


async def screenshot(
    cli: Cli,
    sandbox: SandboxArgument,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to put it, as .jpg or .png; - for the pipe.")
    ],
    scale: Annotated[float, typer.Option(metavar="N", min=0.05, max=1, help="Of the screen's own size.")] = 1.0,
    quality: Annotated[int, typer.Option(metavar="N", min=1, max=95, help="Of JPEG.")] = 80,
    region: Annotated[
        str | None, typer.Option(metavar="X,Y,W,H", help="Only this part, in the screen's pixels.")
    ] = None,
) -> None:
    """Save what is on a sandbox's screen as a picture."""
    from paddock.cli.find import find
    from paddock.cli.tool import write_picture

    piped = output == "-"
    if piped and sys.stdout.isatty():
        raise UsageProblem("a picture is nothing for a terminal; write it to a file with -o, or into a pipe")
    form = "jpeg" if piped else _FORMATS.get(Path(output).suffix.lower())
    if form is None:
        raise UsageProblem(f"-o {output}: the name must end in .jpg or .png")
    query = {"format": form, "scale": f"{scale:g}", "quality": str(quality), **({"region": region} if region else {})}
    async with cli.client() as client:
        path = f"/v1/sandboxes/{await find(client, sandbox)}/screenshot"
        async with client.request("GET", path, params=query) as answer:
            data = await answer.read()
            width, height = (int(answer.headers.get(f"X-Paddock-{side}", 0)) for side in ("Width", "Height"))
    if piped:
        sys.stdout.buffer.write(data)
        return
    write_picture(Path(output), data)
    if cli.as_json:
        cli.out.document({"path": output, "size": len(data), "screen": {"width": width, "height": height}})
    elif cli.out.for_people:
        cli.out.line(f"saved {size(len(data))} to {output}; the screen is {width} by {height} pixels")
