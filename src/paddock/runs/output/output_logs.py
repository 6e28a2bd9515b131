"""Log files of an entrypoint's output, limited in size."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import structlog

log = structlog.get_logger()


class OutputLog:
    """Log file of one stream: its first half holds the beginning of the stream, its second half the end.

    While the stream is open, its end is in pieces beside the file, each named after its start position,
    so that the files alone show how much is stored after a crash. `finish` joins them.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._head = max(1, limit // 2)
        self._piece = max(1, limit // 4)
        path.parent.mkdir(parents=True, exist_ok=True)
        pieces = self._pieces()
        current = self._piece_path(pieces[-1]) if pieces else path
        self._whole = not pieces and path.exists() and path.stat().st_size > self._head
        """Whether the pieces are joined; then writes are ignored."""
        self._file = current.open("ab", buffering=0)
        self._begins = pieces[-1] if pieces else 0
        self._size = self._file.tell()
        self._broken = False

    @property
    def end_position(self) -> int:
        """Position up to which the stream is stored."""
        return self._begins + self._size

    def write_at(self, data: bytes, position: int) -> None:
        """Store data at a position; data that is stored already is skipped."""
        data = data[max(0, self.end_position - position) :]
        while data and not self._whole:
            free = (self._piece if self._begins else self._head) - self._size
            if free <= 0:
                self._start_piece()
                continue
            self._append(data[:free])
            data = data[free:]

    def tail(self, most: int) -> bytes:
        """Return the last bytes of the stored output."""
        kept = b""
        for begins in [*reversed(self._pieces()), 0]:
            path = self._piece_path(begins) if begins else self._path
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - (most - len(kept))))
                kept = file.read() + kept
            if len(kept) >= most:
                break
        return kept

    def finish(self) -> None:
        """Join the pieces into one file that states the omitted bytes. Idempotent."""
        self.close()
        pieces = self._pieces()
        if not pieces:
            return
        whole = self._path.with_name(f".{self._path.name}.whole")
        shutil.copyfile(self._path, whole)
        with whole.open("ab") as target:
            left_out = pieces[0] - self._head
            if left_out > 0:
                target.write(f"\n[paddock: {left_out} bytes are left out here]\n".encode())
            for begins in pieces:
                with self._piece_path(begins).open("rb") as source:
                    shutil.copyfileobj(source, target, 2**20)
        os.replace(whole, self._path)
        for begins in pieces:
            self._piece_path(begins).unlink()

    def close(self) -> None:
        self._file.close()

    def _append(self, data: bytes) -> None:
        self._size += len(data)
        if self._broken:
            return
        try:
            while data:
                data = data[self._file.write(data) or 0 :]
        except OSError as error:
            # A full host disk must not end the run; the log is incomplete then.
            self._broken = True
            log.error("could not store run output", path=str(self._path), error=str(error))

    def _start_piece(self) -> None:
        begins = self.end_position
        self._file.close()
        self._file = self._piece_path(begins).open("ab", buffering=0)
        self._begins, self._size = begins, 0
        for old in self._pieces()[:-2]:
            with suppress(FileNotFoundError):
                self._piece_path(old).unlink()

    def _pieces(self) -> list[int]:
        names = (path.name.rpartition(".")[2] for path in self._path.parent.glob(f"{self._path.name}.*"))
        return sorted(int(name) for name in names if name.isdigit())

    def _piece_path(self, begins: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{begins}")


class OutputLogs:
    """Log files of both streams: `agent.out` and `agent.err`."""

    def __init__(self, directory: Path, limit: int) -> None:
        self._logs = {
            "stdout": OutputLog(directory / "agent.out", limit // 2),
            "stderr": OutputLog(directory / "agent.err", limit // 2),
        }
        self.positions = dict.fromkeys(self._logs, 0)
        """Bytes received per stream."""

    def write(self, stream: str, data: bytes) -> None:
        self._logs[stream].write_at(data, self.positions[stream])
        self.positions[stream] += len(data)

    def tails(self, most: int) -> dict[str, bytes]:
        return {stream: log.tail(most) for stream, log in self._logs.items()}

    def finish(self) -> None:
        for each in self._logs.values():
            each.finish()

    def close(self) -> None:
        for each in self._logs.values():
            each.close()
