"""The newest output of a terminal, which many read at their own pace."""

from __future__ import annotations

from bisect import bisect_right

STDIN, STDOUT, STDERR, REPLAY = 0x00, 0x01, 0x02, 0x03
"""How binary messages of terminals begin: what they carry."""
KEPT = 2**20
SMALL = 4096
"""Pieces below this size are joined with what follows: keystrokes come one by one."""
LARGEST = 2**18
"""Most bytes that are shown at once."""
LINE_WITHIN = 4096
"""How far is looked for the beginning of a line to start at."""
_STDOUT = bytes((STDOUT,))


class Scroll:
    """Bytes addressed by how many came before them; the oldest are forgotten.

    Pieces are kept as the messages they go out in, so that a reader who keeps up costs no copy.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._frames: list[bytes] = []
        self.end = 0

    @property
    def start(self) -> int:
        return self._starts[0] if self._starts else self.end

    def append(self, frame: bytes) -> None:
        """Take output, as a message that begins with `STDOUT`."""
        size = len(frame) - 1
        if size <= 0:
            return
        if self._frames and len(self._frames[-1]) < SMALL and size <= KEPT:
            self._frames[-1] += frame[1:]
        elif size > KEPT:
            self._starts.append(self.end + size - KEPT)
            self._frames.append(_STDOUT + frame[-KEPT:])
        else:
            self._starts.append(self.end)
            self._frames.append(frame)
        self.end += size
        old = 0
        while old < len(self._starts) - 1 and self.end - self._starts[old + 1] >= KEPT:
            old += 1
        if old:
            del self._starts[:old], self._frames[:old]

    def load(self, first: int, data: bytes) -> None:
        """Take output from an offset on. What is known already is left out; what was missed leaves a gap behind it."""
        if first <= self.end and self._starts:
            self.append(_STDOUT + data[self.end - first :])
            return
        self._starts.clear()
        self._frames.clear()
        self.end = first
        self.append(_STDOUT + data)

    def forget(self) -> None:
        """Begin anew, with a terminal that has begun anew."""
        self._starts.clear()
        self._frames.clear()
        self.end = 0

    def take(self, position: int) -> tuple[bytes, int]:
        """The next message for who has seen all before `position`, and the position behind it; empty when all is seen.

        Who has fallen behind what is kept is given a replay of the rest.
        """
        if position >= self.end:
            return b"", position
        if position < self.start:
            return self.replay(position)
        place = bisect_right(self._starts, position) - 1
        skipped = position - self._starts[place]
        frame = self._frames[place]
        if not skipped and (place == len(self._frames) - 1 or len(frame) > SMALL):
            return frame, position + len(frame) - 1
        data = bytearray(_STDOUT)
        data += memoryview(frame)[1 + skipped :]
        for more in self._frames[place + 1 :]:
            if len(data) + len(more) > LARGEST:
                break
            data += memoryview(more)[1:]
        return bytes(data), position + len(data) - 1

    def replay(self, since: int) -> tuple[bytes, int]:
        """All that is kept after `since` as one message, and the position behind it; empty when there is nothing.

        Where its beginning is not what was asked for, it begins with a line, or at least with a whole character.
        """
        first = max(self.start, since)
        if since > self.end:  # Counted in a terminal that is no more.
            since, first = 0, self.start
        if first >= self.end:
            return b"", self.end
        place = bisect_right(self._starts, first) - 1
        data = bytearray(memoryview(self._frames[place])[1 + first - self._starts[place] :])
        for more in self._frames[place + 1 :]:
            data += memoryview(more)[1:]
        if first != since:
            cut = whole(data)
            del data[:cut]
            first += cut
        return bytes((REPLAY,)) + first.to_bytes(8, "big") + bytes(data), self.end


def whole(data: bytes | bytearray) -> int:
    """Where to begin in output whose beginning has been cut off, so that no character and no line is half shown."""
    line = data.find(b"\n", 0, LINE_WITHIN)
    if line >= 0:
        return line + 1
    begun = 0
    while begun < 3 and begun < len(data) and data[begun] & 0xC0 == 0x80:
        begun += 1
    return begun
