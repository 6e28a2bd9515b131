"""Reads a background command's output from a cursor on, and goes on as it grows."""

from __future__ import annotations

import json
from binascii import b2a_base64

from .commands import Command
from .events import MAX_PIECE, character_boundary, event
from .http import Chunks
from .spool import Run, Spool

POLL_SECONDS = 5.0


def follow(command: Command, spool: Spool, cursor: int, chunks: Chunks, whole: bool = False) -> None:
    """Send one JSON line per piece of output, each with the cursor behind it, then the ending.

    Whoever lost the connection asks again with the last cursor seen and misses nothing. With `whole`, pieces are not
    cut at newlines and come as base64 alone: a flood of short lines costs much less that way.
    """
    position = spool.clamp(cursor)
    if position > cursor:
        dropped = event("status", text=f"{position - cursor} bytes are no longer kept", cursor=position)
        chunks.send(dropped.rstrip(b"\n") + b"\n")
    seen = position
    while True:
        more = spool.wait_beyond(max(position, seen), POLL_SECONDS)
        final = not command.running
        runs = spool.read(position)
        for run in runs:
            # What another run follows stays as it is, even if it ends within a character.
            pieces, position = _pieces(run, final=final or run is not runs[-1], whole=whole)
            chunks.send(pieces)
            spool.followed(position)
            seen = run.end
        if not more:
            break
        if spool.end <= position and not chunks.wire.stays_quiet(0):
            return
    ending = json.loads(command.last_event())
    chunks.send(json.dumps({**ending, "cursor": position}).encode() + b"\n")


def _pieces(run: Run, final: bool, whole: bool) -> tuple[bytes, int]:
    """Cut a run at its newlines, unless it is to stay whole; an unfinished character at the end waits for the rest."""
    data, position = run.data, run.offset
    if not final:
        data = data[: character_boundary(data, len(data))]
    lines = []
    for line in [data] if whole else _split_keeping_newlines(data):
        while line:
            cut = character_boundary(line, MAX_PIECE) if len(line) > MAX_PIECE else len(line)
            piece, line = line[:cut], line[cut:]
            position += len(piece)
            lines.append(_whole(run, piece, position) if whole else _line(run, piece, position))
    return b"".join(lines), position


def _split_keeping_newlines(data: bytes) -> list[bytes]:
    *lines, rest = data.split(b"\n")
    return [line + b"\n" for line in lines] + ([rest] if rest else [])


def _whole(run: Run, piece: bytes, cursor: int) -> bytes:
    data = b2a_base64(piece, newline=False).decode("ascii")
    return f'{{"type":"{run.stream}","data":"{data}","cursor":{cursor},"timestamp":{run.written_ms}}}\n'.encode("ascii")


def _line(run: Run, piece: bytes, cursor: int) -> bytes:
    eol = piece.endswith(b"\n")
    body = piece[:-1] if eol else piece
    document: dict[str, object] = {"type": run.stream, "text": body.decode("utf-8", "replace")}
    try:
        body.decode()
    except UnicodeDecodeError:
        document["data"] = b2a_base64(body, newline=False).decode("ascii")
    document.update(eol=eol, cursor=cursor, timestamp=run.written_ms)
    return json.dumps(document).encode() + b"\n"
