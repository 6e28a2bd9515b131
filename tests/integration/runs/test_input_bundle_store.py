"""Uploaded inputs: deduplicated, validated during the upload, and unpacked by a real sandbox."""

from __future__ import annotations

import asyncio
import gzip
import io
import os
import subprocess
import tarfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from paddock.errors import InvalidInput, NotFound, TooLarge
from paddock.runs.inputs.input_bundle_store import InputBundleStore
from paddock.sandbox.daemon.client import DaemonClient
from tests.contract.backends.support import host_image, local_backend

pytestmark = pytest.mark.anyio
LIMIT = 10_000_000


@pytest.fixture
def bundles(tmp_path: Path) -> InputBundleStore:
    result = InputBundleStore(tmp_path / "bundles")
    result.open()
    return result


def tar_of(*members: tuple[str, bytes] | tarfile.TarInfo, form: int = tarfile.GNU_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return buffer.getvalue()


def special_member(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


async def chunks(data: bytes, size: int = 65536) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def stored_files(tmp_path: Path) -> list[str]:
    return sorted(os.listdir(tmp_path / "bundles" / "acme"))


async def test_identical_uploads_are_stored_once(bundles: InputBundleStore, tmp_path: Path) -> None:
    data = tar_of(("notes.txt", b"hello"), special_member("sub", tarfile.DIRTYPE), ("sub/x", b"x" * 100_000))
    bundle_id = await bundles.save("acme", chunks(data), LIMIT)
    assert await bundles.save("acme", chunks(data, 7), LIMIT) == bundle_id
    assert bundles.bundle_path("acme", bundle_id).read_bytes() == data
    assert stored_files(tmp_path) == [f"{bundle_id}.tar"]


async def test_tenant_cannot_read_bundles_of_another_tenant(bundles: InputBundleStore) -> None:
    bundle_id = await bundles.save("acme", chunks(tar_of(("a", b"a"))), LIMIT)
    for tenant, bundle_name in (
        ("other", bundle_id),
        ("acme", "0" * 64),
        ("acme", f"../acme/{bundle_id}"),
        ("acme", ""),
        ("acme", "x"),
    ):
        with pytest.raises(NotFound, match="upload the inputs again"):
            bundles.bundle_path(tenant, bundle_name)
    for tenant in ("..", "", "a/b"):
        with pytest.raises(InvalidInput):
            bundles.bundle_path(tenant, bundle_id)


async def test_archives_of_all_tar_formats_are_accepted(bundles: InputBundleStore, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / ("d" * 90) / ("e" * 90)).mkdir(parents=True)
    (source / ("d" * 90) / ("e" * 90) / ("ü" * 60)).write_text("long")
    (source / "file").write_text("x" * 5000)
    (source / "link").symlink_to("file")
    (source / ("d" * 90) / "up").symlink_to("../file")
    (source / "hard").hardlink_to(source / "file")
    for form in ("gnu", "posix", "ustar", "v7"):
        where = source if form in ("gnu", "posix") else source / ("d" * 90) / ("e" * 90)
        words = ["tar", f"--format={form}", "-C", str(where), "-cf", "-", "." if form in ("gnu", "posix") else "./"]
        result = subprocess.run(words, capture_output=True, check=form in ("gnu", "posix"))
        bundle_id = await bundles.save("acme", chunks(result.stdout, 1000), LIMIT)
        assert bundles.bundle_path("acme", bundle_id).read_bytes() == result.stdout


Damage = Callable[[bytes], bytes]
GOOD = tar_of(("a", b"x" * 2000), ("b", b"y"))
REFUSED: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "empty"),
    "no tar": (b"hello " * 1000, "not a tar archive"),
    "compressed": (gzip.compress(GOOD) + bytes(600), "send a plain tar"),
    "cut in a header": (GOOD[:300], "is truncated"),
    "cut in a file": (GOOD[:1200], "is truncated"),
    "damaged": (GOOD[:2700] + b"\x55" + GOOD[2701:], "damaged"),
    "up": (tar_of(("../x", b"x")), "leaves the directory"),
    "up in the middle": (tar_of(("a/../../x", b"x")), "leaves the directory"),
    "absolute": (tar_of(("/etc/x", b"x")), "leaves the directory"),
    "long and up": (tar_of(("a/" * 100 + "../" * 102 + "x", b"x")), "leaves the directory"),
    "pax and up": (tar_of(("../" + "ü" * 100, b"x"), form=tarfile.PAX_FORMAT), "leaves the directory"),
    "link out": (tar_of(special_member("a/l", tarfile.SYMTYPE, "../../x")), "link 'a/l' leaves the directory"),
    "link to the root": (tar_of(special_member("l", tarfile.SYMTYPE, "/etc/passwd")), "leaves the directory"),
    "link to nothing": (tar_of(special_member("l", tarfile.SYMTYPE)), "leaves the directory"),
    "hard link out": (tar_of(special_member("l", tarfile.LNKTYPE, "../x")), "leaves the directory"),
    "long link out": (tar_of(special_member("l", tarfile.SYMTYPE, "../" * 60 + "x")), "leaves the directory"),
    "device": (tar_of(special_member("d", tarfile.CHRTYPE)), "is a device"),
    "disk": (tar_of(special_member("d", tarfile.BLKTYPE)), "is a device"),
    "pipe": (tar_of(special_member("p", tarfile.FIFOTYPE)), "is a named pipe"),
    "sparse": (tar_of(special_member("s", b"S")), "sparse"),
    "unknown": (tar_of(special_member("u", b"Z")), "unknown kind"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_invalid_archive_is_refused_with_a_reason(bundles: InputBundleStore, tmp_path: Path, case: str) -> None:
    data, reason = REFUSED[case]
    for size in (65536, 333):
        with pytest.raises(InvalidInput, match=reason) as raised:
            await bundles.save("acme", chunks(data, size), LIMIT)
        assert raised.value.message.isprintable()
    assert stored_files(tmp_path) == []


def header(kind: bytes, size: bytes, name: bytes = b"x") -> bytes:
    block = bytearray(512)
    block[: len(name)] = name
    block[124 : 124 + len(size)] = size
    block[156:157] = kind
    block[257:265] = b"ustar\x0000"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (header(b"x", b"77777777777") + bytes(512), "too long"),
        (header(b"L", b"00000000000") + bytes(512), "too long"),
        (header(b"0", b"\x80" + b"\xff" * 11), "impossible size"),
        (header(b"0", b"\xff" * 12), "damaged"),
        (header(b"0", b"99999999999"), "damaged"),
        (header(b"x", b"00000000010") + b"99999 a=".ljust(512, b"\0"), "invalid header"),
        (header(b"x", b"00000000010") + b"8 abcde\n".ljust(512, b"\0"), "invalid header"),
        (header(b"x", b"00000000012") + b"10 size=x\n".ljust(512, b"\0") + header(b"0", b"0"), "invalid size"),
        (header(b"g", b"00000000012") + b"10 path=x\n".ljust(512, b"\0"), "global header with a name or a size"),
    ],
)
async def test_false_tar_headers_are_refused(bundles: InputBundleStore, data: bytes, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        await bundles.save("acme", chunks(data), LIMIT)


async def test_upload_stops_at_the_size_limit(bundles: InputBundleStore, tmp_path: Path) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield header(b"0", b"\x80" + (2**40).to_bytes(11, "big"))
        while True:
            sent += 65536
            yield bytes(65536)

    with pytest.raises(TooLarge, match="more than 1000000 bytes"):
        await bundles.save("acme", endless(), 1_000_000)
    assert sent < 4_000_000 and stored_files(tmp_path) == []


async def test_interrupted_upload_leaves_no_file(bundles: InputBundleStore, tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield GOOD[:1000]
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await bundles.save("acme", broken(), LIMIT)
    assert stored_files(tmp_path) == []


async def test_cancelled_upload_leaves_no_file(bundles: InputBundleStore, tmp_path: Path) -> None:
    waiting = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield GOOD[:1000]
        waiting.set()
        await asyncio.sleep(30)

    work = asyncio.create_task(bundles.save("acme", slow(), LIMIT))
    await waiting.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert stored_files(tmp_path) == []


async def test_partial_uploads_are_removed_at_start(bundles: InputBundleStore, tmp_path: Path) -> None:
    bundle_id = await bundles.save("acme", chunks(GOOD), LIMIT)
    (tmp_path / "bundles" / "acme" / ".partial-0badcafe").write_bytes(b"half")
    InputBundleStore(tmp_path / "bundles").open()
    assert stored_files(tmp_path) == [f"{bundle_id}.tar"]


async def test_unused_bundles_are_removed(bundles: InputBundleStore, tmp_path: Path) -> None:
    used, unused, recent = [await bundles.save("acme", chunks(tar_of((name, b"x"))), LIMIT) for name in "abc"]
    for bundle_id in (used, unused):
        os.utime(tmp_path / "bundles" / "acme" / f"{bundle_id}.tar", (0, time.time() - 100))
    assert bundles.remove_unused([("acme", used), ("other", unused)], unused_for=50) == 1
    assert stored_files(tmp_path) == sorted(f"{each}.tar" for each in (used, recent))
    os.utime(bundles.bundle_path("acme", recent), (0, time.time() - 100))
    bundles.bundle_path("acme", recent)
    assert bundles.remove_unused([("acme", used)], unused_for=50) == 0, "asking for one is a use of it"


async def test_removed_bundle_can_be_uploaded_again(bundles: InputBundleStore, tmp_path: Path) -> None:
    bundle_id = await bundles.save("acme", chunks(GOOD), LIMIT)
    other = await bundles.save("other", chunks(GOOD), LIMIT)
    for bundle_name in (bundle_id, bundle_id, f"../other/{other}"):
        bundles.remove("acme", bundle_name)
    assert stored_files(tmp_path) == []
    assert bundles.bundle_path("other", other).exists()
    assert await bundles.save("acme", chunks(GOOD), LIMIT) == bundle_id


def test_real_sandbox_unpacks_a_bundle(tmp_path: Path) -> None:
    bundles = InputBundleStore(tmp_path / "bundles")
    bundles.open()
    data = tar_of(("in/notes.txt", b"hello"), special_member("link", tarfile.SYMTYPE, "in/notes.txt"))
    with local_backend(tmp_path, host_image(tmp_path / "images")) as harness, harness.sandbox() as running_sandbox:

        async def send() -> None:
            path = bundles.bundle_path("acme", await bundles.save("acme", chunks(data), LIMIT))
            async with DaemonClient(running_sandbox.backend.daemon_address(running_sandbox.record)) as daemon:
                await daemon.put_archive("/workspace", path.read_bytes())

        asyncio.run(send())
        assert running_sandbox.output("cat /workspace/link") == "hello"
