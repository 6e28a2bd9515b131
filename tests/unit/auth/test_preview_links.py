"""Links to previews can be made only by the server that reads them."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from paddock.auth.preview_links import PreviewLinkSigner

PREVIEW = "0123456789abcdef" * 2
OTHER = "f" * 32


def test_signed_token_is_recognised() -> None:
    signer = PreviewLinkSigner("key")
    token = signer.read(signer.sign(PREVIEW))
    assert token is not None and token.preview_id == PREVIEW and token.signed


def test_id_alone_is_read_as_unsigned() -> None:
    token = PreviewLinkSigner("key").read(PREVIEW)
    assert token is not None and token.preview_id == PREVIEW and not token.signed


@pytest.mark.parametrize(
    "forge",
    [
        lambda token: token[:-1],
        lambda token: token[:-1] + ("A" if token[-1] != "A" else "B"),
        lambda token: token.upper(),
        lambda token: token.replace(PREVIEW, OTHER),
        lambda token: token + "=",
        lambda token: token + "\n",
        lambda token: f"{PREVIEW}.",
        lambda token: PREVIEW[1:],
        lambda token: "",
        lambda token: PreviewLinkSigner("another key").sign(PREVIEW),
    ],
)
def test_forged_tokens_are_refused(forge: object) -> None:
    signer = PreviewLinkSigner("key")
    assert callable(forge)
    assert signer.read(forge(signer.sign(PREVIEW))) is None


def test_key_is_kept_in_a_file_of_the_owner(tmp_path: Path) -> None:
    path = tmp_path / "preview.key"
    token = PreviewLinkSigner.open(path).sign(PREVIEW)
    assert PreviewLinkSigner.open(path).sign(PREVIEW) == token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.unlink()
    assert PreviewLinkSigner.open(path).read(token) is None
