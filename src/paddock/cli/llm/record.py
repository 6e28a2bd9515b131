"""`paddock llm record`: writes a recording of archived exchanges."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.connection.server_client import ServerClient
from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.llm import exchange_filters
from paddock.cli.output.errors import CliError, RequestRefused, UsageError

if TYPE_CHECKING:
    from paddock.llm.exchange import Exchange

_PARALLEL_FETCHES = 8
WriteExchange = Callable[["Exchange"], None]


def register_commands(models: typer.Typer) -> None:
    register_command(
        models,
        "record",
        server=True,
        examples="""
            paddock llm record run.jsonl --sandbox 3f2a
            paddock llm record run.jsonl.zst --since 1h --model fast
            paddock llm record run.jsonl --id 42 --id 43 --append
        """,
    )(record_exchanges)


async def record_exchanges(
    cli: CliContext,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Recording to write; compressed if named .zst.", show_default=False)
    ],
    ids: Annotated[
        list[str] | None, typer.Option("--id", metavar="EXCHANGE", help="Exchange to record; repeatable.")
    ] = None,
    sandbox: exchange_filters.SandboxOption = None,
    run: exchange_filters.RunOption = None,
    session: exchange_filters.SessionOption = None,
    model: exchange_filters.ModelOption = None,
    since: exchange_filters.SinceOption = None,
    until: exchange_filters.UntilOption = None,
    append: Annotated[bool, typer.Option("--append", help="Append to an existing recording.")] = False,
) -> None:
    """Write a recording of requests and answers.

    A recording can answer in place of a model; see `paddock llm replay`. Requests that Paddock refused, whose client
    disconnected, or that were themselves replayed are left out.
    """
    from paddock.cli.output.atomic_file import show_running_count

    filters = {"sandbox": sandbox, "run": run, "session": session, "model": model, "since": since, "until": until}
    if ids and any(filters.values()):
        raise UsageError("--id cannot be combined with other filters")
    if file.exists() and not append:
        raise CliError(f"{file} already exists", hint="append to it with --append, or choose another file")
    known = await asyncio.to_thread(_read_recorded_ids, file) if append else set()
    written = 0
    async with cli.open_client() as client:
        if ids:
            exchange_ids = [await exchange_filters.find_exchange_id(client, each) for each in ids]
        else:
            query = await exchange_filters.build_exchange_query(client, **filters)
            found = [
                each
                async for each in exchange_filters.list_recent_exchanges(client, query, None)
                if _may_be_recordable(each)
            ]
            exchange_ids = [str(each["id"]) for each in reversed(found)]
        new_ids = [each for each in dict.fromkeys(exchange_ids) if each not in known]
        if not new_ids and not known:
            raise CliError("no matching exchanges to record", hint="list exchanges: paddock llm log")
        with _open_recording(file, append) as write, show_running_count("exchanges") as show:
            async for exchange in _fetch_exchanges(client, new_ids):
                if await asyncio.to_thread(_write_if_recordable, write, exchange):
                    written += 1
                    show(written)
            if not written and not known:
                raise CliError(
                    "none of these exchanges can be replayed",
                    hint="they were refused by Paddock, or replayed themselves",
                )
    total = len(known) + written
    if cli.as_json:
        return cli.out.print_json({"file": str(file), "exchanges": written, "total": total})
    if known:
        sys.stderr.write(f"{written:,} added, {total:,} in {file}\n")
    else:
        sys.stderr.write(f"{total:,} {'exchange' if total == 1 else 'exchanges'} in {file}\n")
    return None


def _may_be_recordable(summary: dict[str, Any]) -> bool:
    """Return whether an exchange may be recordable, to avoid fetching others."""
    return summary.get("outcome") not in ("refused", "client_gone") and summary.get("providerKind") != "replay"


def _write_if_recordable(write: WriteExchange, exchange: Exchange) -> bool:
    from paddock.llm.replay.recording_files import is_recordable

    if not is_recordable(exchange):
        return False
    write(exchange)
    return True


def _read_recorded_ids(path: Path) -> set[str]:
    from paddock.llm.replay.recording_files import read_recording

    return {recorded.id for recorded in read_recording(path)} if path.exists() else set()


@contextmanager
def _open_recording(path: Path, append: bool) -> Iterator[WriteExchange]:
    from paddock.llm.replay.recording_files import RecordingWriter, encode_recording_line

    if append and path.exists():
        yield RecordingWriter(path).add
        return
    import zstandard

    from paddock.cli.output.atomic_file import open_atomic_file

    # Each exchange is compressed by itself, so that more can be appended later.
    pack = zstandard.ZstdCompressor(level=6).compress if path.suffix == ".zst" else bytes
    with open_atomic_file(path) as file:
        yield lambda exchange: _put(file.write, pack(encode_recording_line(exchange)))


def _put(write: Callable[[bytes], int], data: bytes) -> None:
    write(data)


async def _fetch_exchanges(client: ServerClient, ids: list[str]) -> AsyncIterator[Exchange]:
    """Yield the exchanges in order, fetching several at a time."""
    for start in range(0, len(ids), _PARALLEL_FETCHES):
        requests = [_fetch_exchange(client, each) for each in ids[start : start + _PARALLEL_FETCHES]]
        for exchange in await asyncio.gather(*requests, return_exceptions=True):
            if isinstance(exchange, BaseException):
                raise exchange
            if exchange is not None:
                yield exchange


async def _fetch_exchange(client: ServerClient, exchange_id: str) -> Exchange | None:
    """Fetch an archived exchange; None if it was deleted meanwhile."""
    from paddock.llm.exchange import Exchange, ExchangeOutcome, ModelCaller

    try:
        shown = await client.get(f"/v1/exchanges/{exchange_id}")
        request = await _fetch_body(client, exchange_id, "request")
        response = await _fetch_body(client, exchange_id, "response")
    except RequestRefused as error:
        if error.status == 404:
            return None
        raise
    pieces, offset = [], 0
    for moment, length in shown["pieces"]:
        pieces.append((float(moment), response[offset : offset + length]))
        offset += length
    from paddock.cli.output.formatting import parse_time as moment_of

    at = moment_of(shown["at"])
    return Exchange(
        id=shown["id"],
        at=at.timestamp() if at else 0.0,
        caller=ModelCaller("", ""),  # recordings do not name the caller
        format=shown["format"],
        operation=shown["operation"],
        model=shown["model"],
        request=request,
        stream=shown["stream"],
        conversation=shown.get("conversation"),
        provider_kind=shown.get("providerKind"),
        status=shown["status"],
        outcome=ExchangeOutcome(shown["outcome"]),
        response=pieces,
    )


async def _fetch_body(client: ServerClient, exchange_id: str, which: str) -> bytes:
    content = bytearray()
    async with client.request("GET", f"/v1/exchanges/{exchange_id}", params={"raw": which}) as answer:
        async for piece in answer.content.iter_any():
            content += piece
    return bytes(content)
