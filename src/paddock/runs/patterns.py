"""Looks for a user's regular expressions in what agents write, without letting either keep the server busy."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from contextlib import suppress

LONGEST = 16 * 2**10
"""Characters of a line that are looked at; the end counts, not the beginning."""
PATIENCE = 2.0
TRIES = 3
SIMPLE = re.compile(r"\^?(?:[^\\.^$*+?{}\[\]|()]|\\[^\w\s])*\$?")
"""Plain words, perhaps at the beginning or end of a line: all else can take far longer than in proportion to the text,
alternatives and dots as well."""
# The re module holds the interpreter's lock while it searches, so a thread would be no help.
PROGRAM = """
import json, re, sys
pattern = re.compile(json.loads(sys.stdin.readline()), re.MULTILINE)
for line in sys.stdin:
    found = next((text for text in json.loads(line) if pattern.search(text)), None)
    print(json.dumps(found), flush=True)
"""


class Search:
    """One pattern. What takes too long to be searched counts as not found, and after a few times nothing is."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._simple = re.compile(pattern, re.MULTILINE) if SIMPLE.fullmatch(pattern) else None
        self._process: asyncio.subprocess.Process | None = None
        self.too_slow = 0
        """How often it took too long."""

    async def first(self, texts: Sequence[str]) -> str | None:
        """The first text that the pattern is found in, or the end of it."""
        texts = [text[-LONGEST:] for text in texts if text]
        if not texts:
            return None
        if self._simple is not None:
            simple = self._simple
            return next((text for text in texts if simple.search(text)), None)
        if self.too_slow >= TRIES:
            return None
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._ask(texts)
        except (TimeoutError, OSError, ValueError):
            self.too_slow += 1
            await self.close()
            return None
        except asyncio.CancelledError:
            await self.close()
            raise

    async def _ask(self, texts: Sequence[str]) -> str | None:
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-I", "-S", "-c", PROGRAM),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=8 * LONGEST,
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


class Lines:
    """Cuts what comes in pieces into lines, of which only the end is kept where they are too long."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """The lines that are complete now."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = self._rest + lines[0]
            self._rest = b""
        self._rest = (self._rest + rest)[-4 * LONGEST :]
        return [line.decode(errors="replace").rstrip("\r") for line in lines]

    @property
    def unfinished(self) -> str:
        return self._rest.decode(errors="replace")
