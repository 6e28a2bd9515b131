"""Recordings as films that any player shows. The work is ffmpeg's, in a fence: boxes made what it reads."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from paddock.errors import InvalidInput, TooLarge, Unavailable
from paddock.live import matroska
from paddock.live.padrec import Entry, entries, picture

Form = Literal["mp4", "gif", "mkv"]
MEDIA: dict[Form, str] = {"mp4": "video/mp4", "gif": "image/gif", "mkv": "video/x-matroska"}
WIDEST: dict[Form, int] = {"mp4": 1920, "gif": 800, "mkv": 16384}
LARGEST = 2 * 2**30
"""Bytes of a film."""
PIECE = 2**18
MEMORY = 4 * 2**30
LAST_WORDS = 4096
NOBODY = 65534
OUT = "/out"
PACKAGES = {"ffmpeg": "ffmpeg", "bwrap": "bubblewrap", "prlimit": "util-linux", "setpriv": "util-linux"}
_LAST_SHOWN = 1.0
"""Seconds for which the last picture is shown at least."""


async def make(recording: Path, until: float | None, form: Form, film: Path, within: float) -> None:
    """Turn a recording, whose last picture was there `until` a time, into a film.

    Raises `Unavailable` naming what is missing here, `TooLarge` if it takes too long or becomes too large.
    """
    places = await asyncio.to_thread(entries, recording)
    if not places:
        raise InvalidInput("this recording has no pictures yet")
    try:
        async with asyncio.timeout(within):
            if form == "mkv":
                await asyncio.to_thread(_copy, recording, places, until, film)
            else:
                await _encode(recording, places, until, form, film)
    except TimeoutError:
        raise TooLarge(
            f"this takes longer than live.export_time ({within:g} s); fetch the recording itself, or format=mkv"
        ) from None


def parts(recording: Path, places: Sequence[Entry], until: float | None) -> Iterator[bytes]:
    """The film, piece by piece, with every picture as it was recorded."""
    yield matroska.beginning(max(place.width for place in places), max(place.height for place in places))
    began, last = places[0].at, -1
    data = b""
    for place in places:
        data = picture(recording, place)
        last = max(last + 1, round((place.at - began) * 1000))
        yield matroska.picture(last, data)
    # Shown once more at the end, which is how players know how long it stays.
    end = round(((until or 0.0) - began) * 1000)
    yield matroska.picture(max(last + round(_LAST_SHOWN * 1000), end), data)


def _copy(recording: Path, places: Sequence[Entry], until: float | None, film: Path) -> None:
    with film.open("xb") as file:
        for part in parts(recording, places, until):
            if file.tell() + len(part) > LARGEST:
                raise TooLarge(f"a film is at most {LARGEST} bytes")
            file.write(part)


async def _encode(recording: Path, places: Sequence[Entry], until: float | None, form: Form, film: Path) -> None:
    command = _encoder(form, places)
    # A directory that the fenced program may write to, outside the data directory, where it may not even look.
    room = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="paddock-film-"))
    try:
        if os.geteuid() == 0:
            os.chown(room, NOBODY, NOBODY)
        await _run([*_fence(room), *command], parts(recording, places, until))
        await asyncio.to_thread(_fetch, room / f"film.{form}", film)
    finally:
        await asyncio.to_thread(shutil.rmtree, room, ignore_errors=True)


async def _run(command: Sequence[str], source: Iterator[bytes]) -> None:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.environ.get("PATH", os.defpath)},
    )
    try:
        _, words = await asyncio.gather(_feed(process, source), _last_words(process))
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if code:
        said = words.decode(errors="replace").strip().splitlines()
        raise Unavailable(f"ffmpeg could not make the film: {said[-1][:300] if said else f'it ended with {code}'}")


def _fetch(made: Path, film: Path) -> None:
    """Take what the fenced program has made; only a file is one."""
    try:
        descriptor = os.open(made, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        raise Unavailable("ffmpeg made no film, and did not say why") from None
    with open(descriptor, "rb") as source, film.open("xb") as target:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Unavailable("ffmpeg made no film, and did not say why")
        shutil.copyfileobj(source, target, PIECE)


async def _feed(process: asyncio.subprocess.Process, source: Iterator[bytes]) -> None:
    assert process.stdin is not None
    try:
        while part := await asyncio.to_thread(next, source, b""):
            process.stdin.write(part)
            await process.stdin.drain()
    except (BrokenPipeError, ConnectionResetError):
        pass  # It has ended, and its exit code says more.
    finally:
        process.stdin.close()


async def _last_words(process: asyncio.subprocess.Process) -> bytes:
    assert process.stderr is not None
    words = b""
    while piece := await process.stderr.read(LAST_WORDS):
        words = (words + piece)[-LAST_WORDS:]
    return words


def _fence(room: Path) -> list[str]:
    """No network, no files but programs and what is made, no more than so much memory."""
    missing = [name for name in PACKAGES if shutil.which(name) is None]
    if missing:
        wanted = " ".join(PACKAGES[name] for name in missing)
        raise Unavailable(f"films are made by a program that is not installed; as root: apt-get install {wanted}")
    words = ["prlimit", f"--as={MEMORY}", f"--fsize={LARGEST}", "--core=0", "--nofile=64"]
    if os.geteuid() == 0:
        words += ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"]
    words += ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--setenv", "PATH"]
    words += ["/usr/local/bin:/usr/bin:/bin", "--ro-bind", "/usr", "/usr"]
    for name in ("bin", "lib", "lib64"):
        if Path(f"/{name}").is_symlink():
            words += ["--symlink", f"usr/{name}", f"/{name}"]
        elif Path(f"/{name}").is_dir():
            words += ["--ro-bind", f"/{name}", f"/{name}"]
    for place in ("/etc/alternatives", "/etc/ld.so.cache"):
        words += ["--ro-bind-try", place, place]
    return [*words, "--proc", "/proc", "--dev", "/dev", "--bind", str(room), OUT, "--"]


def _encoder(form: Form, places: Sequence[Entry]) -> list[str]:
    wide, high = max(place.width for place in places), max(place.height for place in places)
    width = min(wide, WIDEST[form])
    height = max(2, round(high * width / wide) // 2 * 2)
    width = max(2, width // 2 * 2)
    fitted = f"scale={width}:{height}:force_original_aspect_ratio=decrease,pad={width}:{height}:(ow-iw)/2:(oh-ih)/2"
    words = ["ffmpeg", "-hide_banner", "-loglevel", "error", "-protocol_whitelist", "pipe,file", "-f", "matroska"]
    words += ["-c:v", "mjpeg", "-i", "pipe:0", "-an", "-vsync", "vfr"]
    if form == "gif":
        # A palette for each picture: one for all would need all of them in memory.
        palette = "split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1"
        return [*words, "-vf", f"{fitted},{palette}", "-final_delay", "100", "-f", "gif", f"{OUT}/film.gif"]
    words += ["-vf", f"{fitted},format=yuv420p", "-c:v", "libx264", "-preset", "veryfast", "-crf", "27"]
    return [*words, "-movflags", "+faststart", "-f", "mp4", f"{OUT}/film.mp4"]
