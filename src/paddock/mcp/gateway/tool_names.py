"""Names of tools: patterns of rules, and names of aggregates that all model APIs accept.

A name of an aggregate depends on its server and its tool alone, never on other servers, so it stays the same when
servers are added. The part before the first `_` stands for the server; it has no `_` itself, so that `a` with `b_c` and
`a_b` with `c` stay different.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from paddock.config.wildcards import wildcard_source

MAX_NAME_LENGTH = 64
"""Longest tool name that all model APIs accept."""
MAX_CACHED_LENGTH = 200
_HASH_LENGTH = 8
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]")
_LOOKS_HASHED = re.compile(rf".*_[0-9a-f]{{{_HASH_LENGTH}}}", re.DOTALL)
_PREFIX_LOOKS_HASHED = re.compile(r".*-[0-9a-f]{4}", re.DOTALL)


@lru_cache(4096)
def server_prefix(server: str) -> str:
    """Return the prefix of a server's tools: its name, in which `_` and `.` become `-` and a hash is added."""
    plain = re.sub(r"[^a-z0-9-]", "-", server)
    if plain == server and not _PREFIX_LOOKS_HASHED.fullmatch(server):
        return plain
    return f"{plain}-{_digest(server)[:4]}"


def aggregate_name(server: str, name: str) -> str:
    """Return the name of a server's tool or prompt in lists of several servers: `server_name`."""
    # Servers choose names, and the cache would keep long ones in memory.
    return _cached_name(server, name) if len(name) <= MAX_CACHED_LENGTH else _aggregate_name(server, name)


def _aggregate_name(server: str, name: str) -> str:
    prefix = server_prefix(server)
    plain = _ILLEGAL.sub("_", name)
    full = f"{prefix}_{plain}"
    if plain == name and len(full) <= MAX_NAME_LENGTH and not _LOOKS_HASHED.fullmatch(name):
        return full
    kept = full[: MAX_NAME_LENGTH - _HASH_LENGTH - 1]
    return f"{kept}_{_digest(f'{server}/{name}')[:_HASH_LENGTH]}"


_cached_name = lru_cache(65536)(_aggregate_name)


@lru_cache(1024)
def _pattern(patterns: tuple[str, ...]) -> re.Pattern[str]:
    # `fnmatch` would also give `?` and `[` a meaning.
    return re.compile("|".join(map(wildcard_source, patterns)), re.DOTALL)


def matches_pattern(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name fits one of the patterns, in which `*` stands for any text."""
    return _pattern(tuple(patterns)).fullmatch(name) is not None


def plain_name(name: str) -> str:
    """Return a name in lower case and plain characters, without spaces around it and without invisible characters."""
    if name.isascii() and name.isprintable():
        return name.casefold().strip()
    shown = "".join(each for each in unicodedata.normalize("NFKC", name) if unicodedata.category(each)[0] != "C")
    return shown.casefold().strip()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
