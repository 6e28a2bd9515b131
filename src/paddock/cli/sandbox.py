"""Sandboxes: made, listed, shown, paused, renewed, removed."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli import parse
from paddock.cli.commands import command, group
from paddock.cli.context import Cli
from paddock.cli.failure import CliError, Refused, UsageProblem, warn
from paddock.cli.output import ago, moment, pairs, size, until
from paddock.cli.sharing import register_sharing

if TYPE_CHECKING:
    from paddock.cli.client import Client

SandboxArgument = Annotated[
    str, typer.Argument(metavar="SANDBOX", help="Id, a beginning of it, or name.", show_default=False)
]
_SETTLING = ("Pending", "Resuming", "Pausing")
_ENDED = ("Terminated", "Failed")
_WAIT_SECONDS = 120.0


def register(app: typer.Typer) -> typer.Typer:
    boxes = group("Make, use and remove sandboxes.")
    app.add_typer(boxes, name="sandbox")
    command(
        boxes,
        "create",
        server=True,
        examples="""
            paddock sandbox create --image code
            paddock sandbox create --kind linux --name desk
            paddock sandbox create --kind mobile --device pixel
            paddock sandbox create --image host --timeout 30m --memory 512Mi --env DEBUG=1
            paddock sandbox create --image code -- python3 -m http.server 8000
            id=$(paddock sandbox create --image host -q)
        """,
    )(create)
    command(
        boxes,
        "list",
        server=True,
        examples="paddock sandbox list\npaddock sandbox list --state Running --metadata team=a",
    )(list_)
    command(boxes, "show", server=True, examples="paddock sandbox show 3f2a\npaddock sandbox show builder --json")(show)
    command(boxes, "pause", server=True, examples="paddock sandbox pause 3f2a")(pause)
    command(boxes, "resume", server=True, examples="paddock sandbox resume 3f2a")(resume)
    register_sharing(boxes, "sandbox", "sandboxes", Cli.client, _path_of)
    command(boxes, "renew", server=True, examples="paddock sandbox renew 3f2a --for 2h")(renew)
    command(
        boxes,
        "rm",
        server=True,
        examples="paddock sandbox rm 3f2a 77b1\npaddock sandbox rm --all",
    )(remove)
    command(boxes, "metrics", server=True, examples="paddock sandbox metrics 3f2a")(metrics)
    command(
        boxes,
        "port",
        server=True,
        examples="curl http://$(paddock sandbox port 3f2a 8000)/",
    )(port)
    return boxes


async def create(
    cli: Cli,
    entrypoint: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="What the sandbox runs from the start.", show_default=False),
    ] = None,
    image: Annotated[
        str | None, typer.Option("--image", "-i", metavar="IMAGE", help="Image, or the configured default.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--kind", "-k", metavar="KIND", help="Sort of computer: linux, browser, windows, mobile, code."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="Android device it is to work, for kind mobile.")
    ] = None,
    snapshot: Annotated[
        str | None, typer.Option(metavar="SNAPSHOT", help="Start from this snapshot instead, by id or name.")
    ] = None,
    pool: Annotated[str | None, typer.Option(metavar="NAME", help="Take a box that is ready from this pool.")] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name to call it by.")] = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it lives, such as 30m; `none` until it is removed.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", metavar="K=V", help="Variable, more than once.")
    ] = None,
    env_file: Annotated[list[Path] | None, typer.Option(metavar="FILE", help="File of K=V lines.")] = None,
    cpu: Annotated[str | None, typer.Option(metavar="N", help="CPUs, such as 0.5 or 500m.")] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Memory, such as 512Mi.")] = None,
    disk: Annotated[str | None, typer.Option(metavar="SIZE", help="What it may write, such as 2Gi.")] = None,
    volume: Annotated[
        list[str] | None,
        typer.Option(
            "--volume", "-v", metavar="SRC:/DIR[:ro]", help="What to mount: a host directory, or a volume's name."
        ),
    ] = None,
    metadata: Annotated[
        list[str] | None, typer.Option("--metadata", "-m", metavar="K=V", help="Label, more than once.")
    ] = None,
    extension: Annotated[
        list[str] | None,
        typer.Option("--extension", "-x", metavar="K=V", help="Extension, such as paddock.llm.budget-cost=2."),
    ] = None,
    words: Annotated[
        str | None, typer.Option("--entrypoint", metavar="WORDS", help="As COMMAND, in one argument.")
    ] = None,
    wait: Annotated[bool, typer.Option(help="Wait until it runs.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the id only, as when piped.")] = False,
) -> None:
    """Make a sandbox and print its id.

    A kind brings its image, which is built first where it is missing; --image gives it another one.
    """
    request: dict[str, Any] = {
        **parse.lifetime(timeout),
        "env": parse.environment(env or [], env_file or []),
        "metadata": parse.assignments(metadata or [], "--metadata"),
        "resourceLimits": parse.resource_limits(cpu=cpu, memory=memory, disk=disk),
        "volumes": parse.volumes(volume or []),
        "extensions": parse.assignments(extension or [], "--extension"),
    }
    if sum(item is not None for item in (image, snapshot)) > 1:
        raise UsageProblem("--image and --snapshot both say what to start from; give one")
    if image:
        request["image"] = {"uri": image}
    if device is not None:
        request["extensions"]["paddock.device"] = device
        kind = kind or "mobile"
    if kind:
        request["extensions"]["paddock.kind"] = kind
    if pool:
        request["extensions"]["poolRef"] = pool
    if name:
        request["name"] = name
    if words and entrypoint:
        raise UsageProblem("--entrypoint and COMMAND say the same; give one")
    if words or entrypoint:
        request["entrypoint"] = entrypoint or _split(words or "")
    began = time.monotonic()
    async with cli.client() as client:
        if snapshot:
            from paddock.cli.find import find_snapshot

            request["snapshotId"] = await find_snapshot(client, snapshot)
        asked = {key: value for key, value in request.items() if value or key == "timeout"}
        sandbox = await _made(cli, client, asked, kind if not (image or snapshot or pool) else None)
        if wait:
            sandbox = await _settled(cli, client, sandbox)
            if request.get("entrypoint"):
                await _warn_of_no_entry(client, sandbox["id"], request["entrypoint"][0])
    if cli.as_json:
        cli.out.document(sandbox)
    elif quiet or not sys.stdout.isatty():
        cli.out.line(str(sandbox["id"]))
    else:
        took = time.monotonic() - began
        cli.out.line(
            f"{sandbox['id']}  {_state(sandbox)} in {took:.2f} s, expires {until(moment(sandbox.get('expiresAt')))}"
        )


async def list_(
    cli: Cli,
    state: Annotated[list[str] | None, typer.Option(metavar="STATE", help="Only in this state.")] = None,
    metadata: Annotated[list[str] | None, typer.Option("--metadata", "-m", metavar="K=V", help="Only with it.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print ids only.")] = False,
) -> None:
    """List sandboxes, the newest first."""
    from urllib.parse import urlencode

    wanted = parse.assignments(metadata or [], "--metadata")
    async with cli.reading() as client:
        found = await client.items("/v1/sandboxes", metadata=urlencode(wanted) or None)
    if state:
        known = {item.lower() for item in state}
        found = [sandbox for sandbox in found if _state(sandbox).lower() in known]
    if cli.as_json:
        return cli.out.document(found)
    if quiet:
        for sandbox in found:
            cli.out.line(str(sandbox["id"]))
        return None
    if not found:
        return cli.out.nothing("There are no sandboxes. Make one: paddock sandbox create --image host")
    named = any((sandbox.get("metadata") or {}).get("name") for sandbox in found)
    columns = ["ID", "STATE", "KIND", "IMAGE", "AGE", "EXPIRES", *(["NAME"] if named else [])]
    return cli.out.table(columns, [_row(sandbox, named) for sandbox in found])


async def show(cli: Cli, sandbox: SandboxArgument) -> None:
    """Show all that is known of a sandbox."""
    from paddock.cli.find import find

    async with cli.reading() as client:
        found = await client.get(f"/v1/sandboxes/{await find(client, sandbox)}")
    if cli.as_json:
        return cli.out.document(found)
    return cli.out.facts(_facts(found))


async def _path_of(client: Client, wanted: str) -> str:
    from paddock.cli.find import find

    return f"/v1/sandboxes/{await find(client, wanted)}"


async def pause(cli: Cli, sandbox: SandboxArgument) -> None:
    """Stop every process of a sandbox where it stands."""
    await _change(cli, sandbox, "pause", "Paused")


async def resume(cli: Cli, sandbox: SandboxArgument) -> None:
    """Let a paused sandbox go on."""
    await _change(cli, sandbox, "resume", "Running")


async def renew(
    cli: Cli,
    sandbox: SandboxArgument,
    time: Annotated[str, typer.Option("--for", metavar="TIME", help="How long from now.")] = "1h",
) -> None:
    """Give a sandbox a new end, counted from now."""
    from paddock.cli.find import find

    expires = parse.later(time)
    async with cli.client() as client:
        sandbox_id = await find(client, sandbox)
        answer = await client.post(f"/v1/sandboxes/{sandbox_id}/renew-expiration", {"expiresAt": expires})
    expires = (answer or {}).get("expiresAt") or expires
    if cli.as_json:
        return cli.out.document({"id": sandbox_id, "expiresAt": expires})
    return cli.out.line(f"{sandbox_id}  expires {until(moment(expires))}")


async def remove(
    cli: Cli,
    sandboxes: Annotated[
        list[str] | None, typer.Argument(metavar="SANDBOX", help="Ids, beginnings of them, or names.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove all there are.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before removing all.")] = False,
) -> None:
    """Remove sandboxes, with all that is in them."""
    import asyncio

    from paddock.cli.find import choose

    if bool(sandboxes) == everything:
        raise UsageProblem("say which sandboxes to remove, or --all")
    async with cli.client() as client:
        known = await client.items("/v1/sandboxes")
        ids = [str(item["id"]) for item in known] if everything else [choose(known, item) for item in sandboxes or []]
        if everything and ids and not yes and sys.stdin.isatty():
            typer.confirm(f"Remove {len(ids)} sandboxes?", abort=True)
        await asyncio.gather(*(client.delete(f"/v1/sandboxes/{item}") for item in dict.fromkeys(ids)))
    if cli.as_json:
        return cli.out.document({"removed": list(dict.fromkeys(ids))})
    for item in dict.fromkeys(ids):
        cli.out.line(item)
    return None


async def metrics(cli: Cli, sandbox: SandboxArgument) -> None:
    """Show what a sandbox uses now."""
    from paddock.cli.find import find

    async with cli.client() as client:
        found = await client.get(client.box(await find(client, sandbox), "/metrics"))
    if cli.as_json:
        return cli.out.document(found)
    used, total = found.get("mem_used_mib"), found.get("mem_total_mib")
    facts = [("CPU", f"{found.get('cpu_used_pct', 0):.1f} % of {found.get('cpu_count', '?')} CPUs")]
    if used is not None and total is not None:
        facts.append(("memory", f"{size(used * 2**20)} of {size(total * 2**20)}"))
    return cli.out.facts(facts)


async def port(
    cli: Cli,
    sandbox: SandboxArgument,
    number: Annotated[int, typer.Argument(metavar="PORT", min=1, max=65535, help="Port in the sandbox.")],
    proxy: Annotated[bool, typer.Option("--proxy", help="Through the server, for use from other machines.")] = False,
) -> None:
    """Print an address that leads to a port of a sandbox."""
    from paddock.cli.find import find

    async with cli.client() as client:
        found = await client.get(
            f"/v1/sandboxes/{await find(client, sandbox)}/endpoints/{number}", use_server_proxy=str(proxy).lower()
        )
    if cli.as_json:
        return cli.out.document(found)
    return cli.out.line(str(found["endpoint"]))


async def _change(cli: Cli, wanted: str, verb: str, becomes: str) -> None:
    from paddock.cli.find import find

    async with cli.client() as client:
        sandbox_id = await find(client, wanted)
        await client.post(f"/v1/sandboxes/{sandbox_id}/{verb}")
        sandbox = await _settled(cli, client, {"id": sandbox_id})
    if cli.as_json:
        return cli.out.document(sandbox)
    if _state(sandbox) != becomes:
        raise CliError(f"sandbox {sandbox_id} is {_state(sandbox)}, not {becomes}")
    return cli.out.line(f"{sandbox_id}  {_state(sandbox)}")


async def _made(cli: Cli, client: Any, request: dict[str, Any], kind: str | None) -> dict[str, Any]:
    """Ask for a sandbox; for one of a kind whose image is not built yet, build that first where it can be."""
    from paddock.cli.kind import build_image_of

    try:
        made: dict[str, Any] = await client.post("/v1/sandboxes", request)
    except Refused as error:
        if error.server_code == "NAME_TAKEN":
            error.hint = f"to remove it: paddock sandbox rm {request['name']}"
        if kind is None or error.server_code != "IMAGE_NOT_FOUND" or not await build_image_of(cli, client, kind):
            raise
        made = await client.post("/v1/sandboxes", request)
    return made


async def _settled(cli: Cli, client: Any, sandbox: dict[str, Any]) -> dict[str, Any]:
    """The sandbox once it is no longer on its way to another state."""
    import asyncio

    deadline = time.monotonic() + _WAIT_SECONDS
    pause = 0.05
    while True:
        found: dict[str, Any] = await client.get(f"/v1/sandboxes/{sandbox['id']}")
        if _state(found) not in _SETTLING:
            break
        if time.monotonic() > deadline:
            raise CliError(f"sandbox {found['id']} is still {_state(found)} after {_WAIT_SECONDS:.0f} s")
        await asyncio.sleep(pause)
        pause = min(1.0, pause * 1.5)
    if _state(found) == "Failed":
        reason = (found.get("status") or {}).get("message") or (found.get("status") or {}).get("reason") or "no reason"
        raise CliError(f"sandbox {found['id']} failed: {reason}")
    return found


async def _warn_of_no_entry(client: Any, sandbox_id: str, program: str) -> None:
    """Say so when the entrypoint could not even be started; the sandbox runs without it."""
    from paddock.cli.execution import Execution, Sink
    from paddock.cli.logs import ENTRYPOINT

    execution = Execution(client, sandbox_id, Sink(False))
    execution.id = ENTRYPOINT
    try:
        reason = await execution.failure()
    except Refused:
        return  # it has ended already, or this key may not look
    if reason.startswith(f"{program}: "):
        warn(f"{reason}; the sandbox runs without it (images are named with --image)")


def _row(sandbox: dict[str, Any], named: bool) -> list[str]:
    row = [
        str(sandbox["id"]),
        _state(sandbox),
        _kind(sandbox),
        _source(sandbox),
        ago(moment(sandbox.get("createdAt"))),
        until(moment(sandbox.get("expiresAt"))) if _state(sandbox) not in _ENDED else "",
    ]
    return [*row, (sandbox.get("metadata") or {}).get("name", "")] if named else row


def _facts(sandbox: dict[str, Any]) -> list[tuple[str, str]]:
    status = sandbox.get("status") or {}
    created, expires = moment(sandbox.get("createdAt")), moment(sandbox.get("expiresAt"))
    facts = [("id", str(sandbox["id"])), ("state", _state(sandbox))]
    facts += [(name, str(status[name])) for name in ("reason", "message") if status.get(name)]
    if _kind(sandbox):
        facts.append(("kind", _kind(sandbox)))
    facts.append(("image", _source(sandbox)))
    if created:
        facts.append(("created", f"{created:%Y-%m-%d %H:%M:%S %Z} ({ago(created)} ago)"))
    if _state(sandbox) in _ENDED:
        facts.append(("expires", "no more: it has ended, and is forgotten some time later (sandboxes.keep_ended)"))
    else:
        facts.append(("expires", f"{expires:%Y-%m-%d %H:%M:%S %Z} ({until(expires)})" if expires else "never"))
    if sandbox.get("snapshotId"):
        facts.append(("snapshot", str(sandbox["snapshotId"])))
    if sandbox.get("entrypoint"):
        import shlex

        facts.append(("entrypoint", shlex.join(sandbox["entrypoint"])))
    for name, key in (("limits", "resourceLimits"), ("metadata", "metadata"), ("extensions", "extensions")):
        if sandbox.get(key):
            facts.append((name, pairs(sandbox[key])))
    return facts


def _state(sandbox: dict[str, Any]) -> str:
    return str((sandbox.get("status") or {}).get("state", "unknown"))


def _kind(sandbox: dict[str, Any]) -> str:
    said = sandbox.get("extensions") or {}
    return f"{said.get('paddock.kind', '')}{' (Android)' if 'paddock.device' in said else ''}"


def _source(sandbox: dict[str, Any]) -> str:
    image = sandbox.get("image") or {}
    return str(image.get("uri") or sandbox.get("snapshotId") or "")


def _split(words: str) -> list[str]:
    import shlex

    try:
        return shlex.split(words)
    except ValueError as error:
        raise UsageProblem(f"--entrypoint: {error}") from None
