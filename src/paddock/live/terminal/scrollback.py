"""Keeps the newest output of a terminal for viewers that read at different speeds."""

from __future__ import annotations

from bisect import bisect_right

STDIN, STDOUT, STDERR, REPLAY = 0x00, 0x01, 0x02, 0x03
"""First byte of binary terminal messages: the type of their content."""
CAPACITY = 2**20
JOIN_BELOW = 4096
"""Chunks below this size are merged with the next one: echoed keystrokes come one by one."""
MAX_MESSAGE = 2**18
"""Bytes of one message to a viewer."""
LINE_SEARCH_LIMIT = 4096
"""Bytes searched for the start of a line."""
_STDOUT = bytes((STDOUT,))


class SharedScrollback:
    """A bounded output buffer addressed by absolute offsets; the oldest output is dropped.

    Chunks are stored as ready messages, so that sending to an up-to-date viewer needs no copy.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._frames: list[bytes] = []
        self.end = 0

    @property
    def start(self) -> int:
        return self._starts[0] if self._starts else self.end

    def append(self, frame: bytes) -> None:
        """Append output, given as a message that begins with `STDOUT`."""
        size = len(frame) - 1
        if size <= 0:
            return
        if self._frames and len(self._frames[-1]) < JOIN_BELOW and size <= CAPACITY:
            self._frames[-1] += frame[1:]
        elif size > CAPACITY:
            self._starts.append(self.end + size - CAPACITY)
            self._frames.append(_STDOUT + frame[-CAPACITY:])
        else:
            self._starts.append(self.end)
            self._frames.append(frame)
        self.end += size
        old = 0
        while old < len(self._starts) - 1 and self.end - self._starts[old + 1] >= CAPACITY:
            old += 1
        if old:
            del self._starts[:old], self._frames[:old]

    def load_replay(self, first: int, data: bytes) -> None:
        """Append replayed output that starts at an offset. Known output is skipped; a gap restarts the buffer."""
        if first <= self.end and self._starts:
            self.append(_STDOUT + data[self.end - first :])
            return
        self._starts.clear()
        self._frames.clear()
        self.end = first
        self.append(_STDOUT + data)

    def clear(self) -> None:
        """Reset the buffer for a terminal that has restarted."""
        self._starts.clear()
        self._frames.clear()
        self.end = 0

    def next_message(self, position: int) -> tuple[bytes, int]:
        """Return the next message for a viewer at `position` and its new position; empty when up to date.

        A viewer that has fallen behind the kept output gets a replay of the rest.
        """
        if position >= self.end:
            return b"", position
        if position < self.start:
            return self.replay_message(position)
        index = bisect_right(self._starts, position) - 1
        skipped = position - self._starts[index]
        frame = self._frames[index]
        if not skipped and (index == len(self._frames) - 1 or len(frame) > JOIN_BELOW):
            return frame, position + len(frame) - 1
        data = bytearray(_STDOUT)
        data += memoryview(frame)[1 + skipped :]
        for more in self._frames[index + 1 :]:
            if len(data) + len(more) > MAX_MESSAGE:
                break
            data += memoryview(more)[1:]
        return bytes(data), position + len(data) - 1

    def replay_message(self, since: int) -> tuple[bytes, int]:
        """Return all kept output after `since` as one message, and the new position; empty when there is none.

        If older output was dropped, the replay starts at a line, or at least at a whole character.
        """
        first = max(self.start, since)
        if since > self.end:  # The offset belongs to an earlier terminal.
            since, first = 0, self.start
        if first >= self.end:
            return b"", self.end
        index = bisect_right(self._starts, first) - 1
        data = bytearray(memoryview(self._frames[index])[1 + first - self._starts[index] :])
        for more in self._frames[index + 1 :]:
            data += memoryview(more)[1:]
        if first != since:
            cut = find_clean_text_start(data)
            del data[:cut]
            first += cut
        return bytes((REPLAY,)) + first.to_bytes(8, "big") + bytes(data), self.end


def find_clean_text_start(data: bytes | bytearray) -> int:
    """Return the offset of the first whole line, or whole character, in output that was cut at the start."""
    line = data.find(b"\n", 0, LINE_SEARCH_LIMIT)
    if line >= 0:
        return line + 1
    skipped_bytes = 0
    while skipped_bytes < 3 and skipped_bytes < len(data) and data[skipped_bytes] & 0xC0 == 0x80:
        skipped_bytes += 1
    return skipped_bytes
