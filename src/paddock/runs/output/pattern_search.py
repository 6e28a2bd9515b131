"""Search agent output for a user's regular expression, with a time limit in a separate process."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from contextlib import suppress

MAX_LINE_CHARACTERS = 16 * 2**10
"""Maximum searched characters of a line, from its end."""
SEARCH_TIMEOUT = 2.0
MAX_TIMEOUTS = 3
LITERAL_PATTERN = re.compile(r"\^?(?:[^\\.^$*+?{}\[\]|()]|\\[^\w\s])*\$?")
"""Literal text, optionally anchored. All other patterns may take more than linear time,
including alternatives and dots."""
# The re module holds the GIL during a search, so a thread would not help.
SEARCH_PROGRAM = """
import json, re, sys
pattern = re.compile(json.loads(sys.stdin.readline()), re.MULTILINE)
for line in sys.stdin:
    found = next((text for text in json.loads(line) if pattern.search(text)), None)
    print(json.dumps(found), flush=True)
"""


class PatternSearch:
    """Search for one pattern. A timeout counts as not found; after several timeouts the search is disabled."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._simple = re.compile(pattern, re.MULTILINE) if LITERAL_PATTERN.fullmatch(pattern) else None
        self._process: asyncio.subprocess.Process | None = None
        self.timeouts = 0
        """Number of timeouts."""

    async def find_first_match(self, texts: Sequence[str]) -> str | None:
        """Return the first text that contains the pattern, shortened to its end."""
        texts = [text[-MAX_LINE_CHARACTERS:] for text in texts if text]
        if not texts:
            return None
        if self._simple is not None:
            simple = self._simple
            return next((text for text in texts if simple.search(text)), None)
        if self.timeouts >= MAX_TIMEOUTS:
            return None
        try:
            async with asyncio.timeout(SEARCH_TIMEOUT):
                return await self._search_in_process(texts)
        except (TimeoutError, OSError, ValueError):
            self.timeouts += 1
            await self.close()
            return None
        except asyncio.CancelledError:
            await self.close()
            raise

    async def _search_in_process(self, texts: Sequence[str]) -> str | None:
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-I", "-S", "-c", SEARCH_PROGRAM),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=8 * MAX_LINE_CHARACTERS,
                env={},
            )
            self._write(self._pattern)
        self._write(texts)
        assert self._process.stdout is not None
        found = json.loads(await self._process.stdout.readline())
        return None if found is None else str(found)

    def _write(self, document: object) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(document).encode() + b"\n")

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            if process.stdin is not None:
                process.stdin.close()
            await process.wait()


class LineSplitter:
    """Split pieces into lines; only the end of overlong lines is kept."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that are now complete."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = self._rest + lines[0]
            self._rest = b""
        self._rest = (self._rest + rest)[-4 * MAX_LINE_CHARACTERS :]
        return [line.decode(errors="replace").rstrip("\r") for line in lines]

    @property
    def unfinished(self) -> str:
        return self._rest.decode(errors="replace")
