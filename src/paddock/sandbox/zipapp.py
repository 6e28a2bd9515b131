"""Packs `paddock.inside` into the one file that every box starts with.

It holds the sources and, for a box whose Python has the same bytecode as ours, the compiled modules,
which start in half the time. Those are marked as never to be checked against their source, because
zipimport would compare times that a reproducible archive does not have.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import tempfile
import zipfile
from importlib._bootstrap_external import _code_to_hash_pyc  # type: ignore[attr-defined]
from pathlib import Path

_SOURCE = Path(__file__).resolve().parent.parent / "inside"
_MAIN = b"import sys\nfrom inside.main import main\nsys.exit(main(sys.argv[1:]))\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def pack(target_dir: Path) -> Path:
    """Write `inside-<hash>.pyz` into `target_dir`, unless it is there already, and return its path."""
    entries = {"__main__.py": _MAIN}
    for path in sorted(_SOURCE.rglob("*.py")):
        entries[f"inside/{path.relative_to(_SOURCE).as_posix()}"] = path.read_bytes()
    target = target_dir / f"inside-{_digest(entries)}.pyz"
    if target.exists():
        return target
    entries |= {name + "c": _compiled(name, source) for name, source in entries.items()}
    target_dir.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=target_dir, prefix=".inside-")
    try:
        with os.fdopen(descriptor, "wb") as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
            for name, data in sorted(entries.items()):
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    return target


def _compiled(name: str, source: bytes) -> bytes:
    code = compile(source, name, "exec", dont_inherit=True, optimize=0)
    compiled: bytes = _code_to_hash_pyc(code, importlib.util.source_hash(source), False)
    return compiled


def _digest(entries: dict[str, bytes]) -> str:
    digest = hashlib.sha256(importlib.util.MAGIC_NUMBER)
    for name, data in sorted(entries.items()):
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:16]
