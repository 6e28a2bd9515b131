"""A package index on this machine with one large wheel."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import sys
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from support.commands import stop_process

WHEEL_PACKAGE = "large-package"
_MODULE = "large_package"


def write_index(directory: Path, size: int) -> None:
    """Write an index with a wheel of about `size` bytes, which cannot be compressed."""
    packages = directory / "simple" / WHEEL_PACKAGE
    packages.mkdir(parents=True)
    info = f"{_MODULE}-1.0.dist-info"
    files = {
        f"{_MODULE}/__init__.py": b"",
        f"{_MODULE}/data.bin": os.urandom(size),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {WHEEL_PACKAGE}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in files.items())
    wheel = packages / f"{_MODULE}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    (packages / "index.html").write_text(f'<!doctype html><a href="{wheel.name}">{wheel.name}</a>')


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


@asynccontextmanager
async def serve_index(directory: Path) -> AsyncIterator[int]:
    """Serve the index over HTTP in a process of its own; yield the port."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(directory)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()  # Serving HTTP on 127.0.0.1 port 40001 (…) ...
        yield int(line.split(" port ")[1].split()[0])
    finally:
        await stop_process(process)
