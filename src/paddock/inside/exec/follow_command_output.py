"""Follows the output of a background command from a cursor on."""

from __future__ import annotations

import json
from binascii import b2a_base64

from ..http.http11 import ChunkedWriter
from .commands import CommandExecution
from .execution_events import MAX_PIECE, format_execution_event, utf8_boundary
from .output_spool import OutputSegment, OutputSpool

POLL_SECONDS = 5.0


def follow_command_output(
    command: CommandExecution, spool: OutputSpool, cursor: int, chunks: ChunkedWriter, whole: bool = False
) -> None:
    """Send one JSON line per piece of output, each with the cursor after it, then the end event.

    A client that lost its connection resumes from the last cursor it saw. With `whole`, pieces are not split at
    newlines and are sent as base64 only, which is much cheaper for many short lines.
    """
    position = spool.clamp_offset(cursor)
    if position > cursor:
        dropped = format_execution_event(
            "status", text=f"{position - cursor} bytes are no longer kept", cursor=position
        )
        chunks.send(dropped.rstrip(b"\n") + b"\n")
    seen = position
    while True:
        more = spool.wait_beyond(max(position, seen), POLL_SECONDS)
        final = not command.running
        segments = spool.read(position)
        for segment in segments:
            # A segment that another one follows is sent as it is, even if it ends within a character.
            pieces, position = _encode_segment(segment, final=final or segment is not segments[-1], whole=whole)
            chunks.send(pieces)
            spool.report_follower_position(position)
            seen = segment.end
        if not more:
            break
        if spool.end <= position and not chunks.client.stays_connected(0):
            return
    ending = json.loads(command.ended_event())
    chunks.send(json.dumps({**ending, "cursor": position}).encode() + b"\n")


def _encode_segment(segment: OutputSegment, final: bool, whole: bool) -> tuple[bytes, int]:
    """Split a segment at its newlines unless `whole`; an incomplete character at the end waits for the rest."""
    data, position = segment.data, segment.offset
    if not final:
        data = data[: utf8_boundary(data, len(data))]
    lines = []
    for line in [data] if whole else _split_keeping_newlines(data):
        while line:
            cut = utf8_boundary(line, MAX_PIECE) if len(line) > MAX_PIECE else len(line)
            piece, line = line[:cut], line[cut:]
            position += len(piece)
            lines.append(_base64_line(segment, piece, position) if whole else _text_line(segment, piece, position))
    return b"".join(lines), position


def _split_keeping_newlines(data: bytes) -> list[bytes]:
    *lines, rest = data.split(b"\n")
    return [line + b"\n" for line in lines] + ([rest] if rest else [])


def _base64_line(segment: OutputSegment, piece: bytes, cursor: int) -> bytes:
    data = b2a_base64(piece, newline=False).decode("ascii")
    return f'{{"type":"{segment.stream}","data":"{data}","cursor":{cursor},"timestamp":{segment.written_ms}}}\n'.encode(
        "ascii"
    )


def _text_line(segment: OutputSegment, piece: bytes, cursor: int) -> bytes:
    eol = piece.endswith(b"\n")
    body = piece[:-1] if eol else piece
    document: dict[str, object] = {"type": segment.stream, "text": body.decode("utf-8", "replace")}
    try:
        body.decode()
    except UnicodeDecodeError:
        document["data"] = b2a_base64(body, newline=False).decode("ascii")
    document.update(eol=eol, cursor=cursor, timestamp=segment.written_ms)
    return json.dumps(document).encode() + b"\n"
