"""Signed links to previews: the id of a preview, and a signature that only this server can make."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from pathlib import Path
from typing import NamedTuple

from paddock.auth.key_secrets import read_key_secret_file, write_key_secret_file

_TOKEN = re.compile(r"([0-9a-f]{32})(?:\.([A-Za-z0-9_-]{43}))?")
_PURPOSE = b"paddock preview "


class PreviewToken(NamedTuple):
    """Token of an address, as read."""

    preview_id: str
    signed: bool
    """Whether it has a valid signature."""


class PreviewLinkSigner:
    """Signs and reads tokens. The key is not in the database, so a copy of the database opens no preview."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    @classmethod
    def open(cls, path: Path) -> PreviewLinkSigner:
        """Read the key from a file, or create it; without the file, earlier links are invalid."""
        key = read_key_secret_file(path)
        if not key:
            key = secrets.token_urlsafe(32)
            write_key_secret_file(path, key)
        return cls(key)

    def sign(self, preview_id: str) -> str:
        """Return the token of a preview's link."""
        return f"{preview_id}.{self._signature(preview_id)}"

    def read(self, token: str) -> PreviewToken | None:
        """Return what a token says; `None` if it is malformed or its signature is wrong."""
        found = _TOKEN.fullmatch(token)
        if found is None:
            return None
        preview_id, signature = found.groups()
        if signature is None:
            return PreviewToken(preview_id, signed=False)
        if not hmac.compare_digest(signature, self._signature(preview_id)):
            return None
        return PreviewToken(preview_id, signed=True)

    def _signature(self, preview_id: str) -> str:
        digest = hmac.new(self._key, _PURPOSE + preview_id.encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
