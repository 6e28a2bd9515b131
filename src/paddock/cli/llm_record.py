"""`paddock llm record`: a recording from archived exchanges."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli import llm_filters as by
from paddock.cli.client import Client
from paddock.cli.commands import command
from paddock.cli.context import Cli
from paddock.cli.failure import CliError, Refused, UsageProblem

if TYPE_CHECKING:
    from paddock.llm.exchange import Exchange

_AT_ONCE = 8
Write = Callable[["Exchange"], None]


def register(models: typer.Typer) -> None:
    command(
        models,
        "record",
        server=True,
        examples="""
            paddock llm record run.jsonl --sandbox 3f2a
            paddock llm record run.jsonl.zst --since 1h --model fast
            paddock llm record run.jsonl --id 42 --id 43 --append
        """,
    )(record)


async def record(
    cli: Cli,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Recording to write; .zst is compressed.", show_default=False)
    ],
    ids: Annotated[list[str] | None, typer.Option("--id", metavar="EXCHANGE", help="This one, more than once.")] = None,
    sandbox: by.Sandbox = None,
    run: by.Run = None,
    session: by.Session = None,
    model: by.Model = None,
    since: by.Since = None,
    until: by.Until = None,
    append: Annotated[bool, typer.Option("--append", help="Add to a recording that is there.")] = False,
) -> None:
    """Write a recording of what was asked and answered.

    A recording can answer in the place of a model: see paddock llm replay. Requests that Paddock refused, that nobody
    heard the end of, or that were themselves replayed are left out.
    """
    from paddock.cli.whole import counting

    filters = {"sandbox": sandbox, "run": run, "session": session, "model": model, "since": since, "until": until}
    if ids and any(filters.values()):
        raise UsageProblem("--id says which exchanges are meant; leave the other filters out")
    if file.exists() and not append:
        raise CliError(f"{file} is there already", hint="add to it with --append, or write another")
    known = await asyncio.to_thread(_known, file) if append else set()
    written = 0
    async with cli.client() as client:
        if ids:
            wanted = [await by.exchange_id(client, each) for each in ids]
        else:
            asked = await by.query(client, **filters)
            found = [each async for each in by.recent(client, asked, None) if _is_worth_it(each)]
            wanted = [str(each["id"]) for each in reversed(found)]
        fresh = [each for each in dict.fromkeys(wanted) if each not in known]
        if not fresh and not known:
            raise CliError("there is nothing to record", hint="see what there is: paddock llm log")
        with _writing(file, append) as write, counting("exchanges") as show:
            async for exchange in _fetch(client, fresh):
                if await asyncio.to_thread(_write_if_recordable, write, exchange):
                    written += 1
                    show(written)
            if not written and not known:
                raise CliError("none of these can be answered from", hint="Paddock refused them, or they were replayed")
    total = len(known) + written
    if cli.as_json:
        return cli.out.document({"file": str(file), "exchanges": written, "total": total})
    if known:
        sys.stderr.write(f"{written:,} added, {total:,} in {file}\n")
    else:
        sys.stderr.write(f"{total:,} {'exchange' if total == 1 else 'exchanges'} in {file}\n")
    return None


def _is_worth_it(summary: dict[str, Any]) -> bool:
    """Spares fetching what would not be recorded."""
    return summary.get("outcome") not in ("refused", "client_gone") and summary.get("providerKind") != "replay"


def _write_if_recordable(write: Write, exchange: Exchange) -> bool:
    from paddock.llm.recording import is_recordable

    if not is_recordable(exchange):
        return False
    write(exchange)
    return True


def _known(path: Path) -> set[str]:
    from paddock.llm.recording import read_recording

    return {recorded.id for recorded in read_recording(path)} if path.exists() else set()


@contextmanager
def _writing(path: Path, append: bool) -> Iterator[Write]:
    from paddock.llm.recording import RecordingWriter, exchange_to_line

    if append and path.exists():
        yield RecordingWriter(path).add
        return
    import zstandard

    from paddock.cli.whole import whole_file

    # Each exchange by itself, so that more can be added later.
    pack = zstandard.ZstdCompressor(level=6).compress if path.suffix == ".zst" else bytes
    with whole_file(path) as file:
        yield lambda exchange: _put(file.write, pack(exchange_to_line(exchange)))


def _put(write: Callable[[bytes], int], data: bytes) -> None:
    write(data)


async def _fetch(client: Client, ids: list[str]) -> AsyncIterator[Exchange]:
    """The exchanges in this order, some at a time."""
    for start in range(0, len(ids), _AT_ONCE):
        asked = [_exchange(client, each) for each in ids[start : start + _AT_ONCE]]
        for exchange in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(exchange, BaseException):
                raise exchange
            if exchange is not None:
                yield exchange


async def _exchange(client: Client, exchange_id: str) -> Exchange | None:
    """One exchange as the archive has it; nothing if it has been deleted in the meantime."""
    from paddock.llm.exchange import Caller, Exchange, Outcome

    try:
        shown = await client.get(f"/v1/exchanges/{exchange_id}")
        request = await _bytes(client, exchange_id, "request")
        response = await _bytes(client, exchange_id, "response")
    except Refused as error:
        if error.status == 404:
            return None
        raise
    pieces, place = [], 0
    for moment, length in shown["pieces"]:
        pieces.append((float(moment), response[place : place + length]))
        place += length
    from paddock.cli.output import moment as moment_of

    at = moment_of(shown["at"])
    return Exchange(
        id=shown["id"],
        at=at.timestamp() if at else 0.0,
        caller=Caller("", ""),  # a recording says nothing of who asked
        format=shown["format"],
        operation=shown["operation"],
        model=shown["model"],
        request=request,
        stream=shown["stream"],
        conversation=shown.get("conversation"),
        provider_kind=shown.get("providerKind"),
        status=shown["status"],
        outcome=Outcome(shown["outcome"]),
        response=pieces,
    )


async def _bytes(client: Client, exchange_id: str, which: str) -> bytes:
    content = bytearray()
    async with client.request("GET", f"/v1/exchanges/{exchange_id}", params={"raw": which}) as answer:
        async for piece in answer.content.iter_any():
            content += piece
    return bytes(content)
