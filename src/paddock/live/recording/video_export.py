"""Exports recordings as MP4, GIF or Matroska video.

ffmpeg runs confined because its input comes from untrusted sandboxes.
"""

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
from paddock.live.recording import matroska
from paddock.live.recording.padrec_file import PictureIndexEntry, read_index_entries, read_picture

VideoFormat = Literal["mp4", "gif", "mkv"]
MEDIA_TYPES: dict[VideoFormat, str] = {"mp4": "video/mp4", "gif": "image/gif", "mkv": "video/x-matroska"}
MAX_WIDTHS: dict[VideoFormat, int] = {"mp4": 1920, "gif": 800, "mkv": 16384}
MAX_VIDEO_SIZE = 2 * 2**30
"""Bytes of an exported video."""
CHUNK_SIZE = 2**18
MAX_MEMORY = 4 * 2**30
MAX_ERROR_TEXT = 4096
UNPRIVILEGED_UID = 65534
OUTPUT_DIRECTORY = "/out"
PACKAGES = {"ffmpeg": "ffmpeg", "bwrap": "bubblewrap", "prlimit": "util-linux", "setpriv": "util-linux"}
_LAST_PICTURE_TIME = 1.0
"""Minimum seconds for which the last picture is shown."""


async def export_video(recording: Path, until: float | None, format: VideoFormat, target: Path, timeout: float) -> None:
    """Convert a recording to a video file; the last picture is shown until the time `until`.

    Raises `Unavailable` naming the programs to install, `TooLarge` if the export takes too long or the file grows too
    large.
    """
    entries = await asyncio.to_thread(read_index_entries, recording)
    if not entries:
        raise InvalidInput("this recording has no pictures yet")
    try:
        async with asyncio.timeout(timeout):
            if format == "mkv":
                await asyncio.to_thread(_write_matroska, recording, entries, until, target)
            else:
                await _run_encoder(recording, entries, until, format, target)
    except TimeoutError:
        raise TooLarge(
            f"the export takes longer than live.export_time ({timeout:g} s); "
            "download the recording itself, or use format=mkv"
        ) from None


def matroska_chunks(recording: Path, entries: Sequence[PictureIndexEntry], until: float | None) -> Iterator[bytes]:
    """Yield the Matroska file in chunks, with every picture as recorded."""
    yield matroska.matroska_header(max(entry.width for entry in entries), max(entry.height for entry in entries))
    began, last = entries[0].at, -1
    data = b""
    for entry in entries:
        data = read_picture(recording, entry)
        last = max(last + 1, round((entry.at - began) * 1000))
        yield matroska.matroska_picture(last, data)
    # Repeat the last picture, so that players know how long to show it.
    end = round(((until or 0.0) - began) * 1000)
    yield matroska.matroska_picture(max(last + round(_LAST_PICTURE_TIME * 1000), end), data)


def _write_matroska(recording: Path, entries: Sequence[PictureIndexEntry], until: float | None, target: Path) -> None:
    with target.open("xb") as file:
        for part in matroska_chunks(recording, entries, until):
            if file.tell() + len(part) > MAX_VIDEO_SIZE:
                raise TooLarge(f"an exported video has at most {MAX_VIDEO_SIZE} bytes")
            file.write(part)


async def _run_encoder(
    recording: Path, entries: Sequence[PictureIndexEntry], until: float | None, format: VideoFormat, target: Path
) -> None:
    command = _ffmpeg_command(format, entries)
    # The confined program writes outside the data directory, which it cannot even see.
    directory = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="paddock-video-"))
    try:
        if os.geteuid() == 0:
            os.chown(directory, UNPRIVILEGED_UID, UNPRIVILEGED_UID)
        await _run_ffmpeg([*_confinement_command(directory), *command], matroska_chunks(recording, entries, until))
        await asyncio.to_thread(_copy_output, directory / f"video.{format}", target)
    finally:
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)


async def _run_ffmpeg(command: Sequence[str], source: Iterator[bytes]) -> None:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.environ.get("PATH", os.defpath)},
    )
    try:
        _, error_text = await asyncio.gather(_feed_ffmpeg(process, source), _read_error_tail(process))
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if code:
        lines = error_text.decode(errors="replace").strip().splitlines()
        raise Unavailable(f"ffmpeg could not export the video: {lines[-1][:300] if lines else f'it ended with {code}'}")


def _copy_output(output: Path, target: Path) -> None:
    """Copy the confined program's output, accepting only a regular file."""
    try:
        descriptor = os.open(output, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        raise Unavailable("ffmpeg wrote no video and reported no error") from None
    with open(descriptor, "rb") as source, target.open("xb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Unavailable("ffmpeg wrote no video and reported no error")
        shutil.copyfileobj(source, file, CHUNK_SIZE)


async def _feed_ffmpeg(process: asyncio.subprocess.Process, source: Iterator[bytes]) -> None:
    assert process.stdin is not None
    try:
        while part := await asyncio.to_thread(next, source, b""):
            process.stdin.write(part)
            await process.stdin.drain()
    except (BrokenPipeError, ConnectionResetError):
        pass  # ffmpeg has ended; its exit code tells why.
    finally:
        process.stdin.close()


async def _read_error_tail(process: asyncio.subprocess.Process) -> bytes:
    assert process.stderr is not None
    words = b""
    while piece := await process.stderr.read(MAX_ERROR_TEXT):
        words = (words + piece)[-MAX_ERROR_TEXT:]
    return words


def _confinement_command(directory: Path) -> list[str]:
    """Return the command prefix that confines ffmpeg: no network, no files, limited memory."""
    missing = [name for name in PACKAGES if shutil.which(name) is None]
    if missing:
        wanted = " ".join(PACKAGES[name] for name in missing)
        raise Unavailable(f"video export needs programs that are not installed; as root: apt-get install {wanted}")
    words = ["prlimit", f"--as={MAX_MEMORY}", f"--fsize={MAX_VIDEO_SIZE}", "--core=0", "--nofile=64"]
    if os.geteuid() == 0:
        words += [
            "setpriv",
            f"--reuid={UNPRIVILEGED_UID}",
            f"--regid={UNPRIVILEGED_UID}",
            "--clear-groups",
            "--no-new-privs",
        ]
    words += ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--setenv", "PATH"]
    words += ["/usr/local/bin:/usr/bin:/bin", "--ro-bind", "/usr", "/usr"]
    for name in ("bin", "lib", "lib64"):
        if Path(f"/{name}").is_symlink():
            words += ["--symlink", f"usr/{name}", f"/{name}"]
        elif Path(f"/{name}").is_dir():
            words += ["--ro-bind", f"/{name}", f"/{name}"]
    for path in ("/etc/alternatives", "/etc/ld.so.cache"):
        words += ["--ro-bind-try", path, path]
    return [*words, "--proc", "/proc", "--dev", "/dev", "--bind", str(directory), OUTPUT_DIRECTORY, "--"]


def _ffmpeg_command(format: VideoFormat, entries: Sequence[PictureIndexEntry]) -> list[str]:
    wide, high = max(entry.width for entry in entries), max(entry.height for entry in entries)
    width = min(wide, MAX_WIDTHS[format])
    height = max(2, round(high * width / wide) // 2 * 2)
    width = max(2, width // 2 * 2)
    fitted = f"scale={width}:{height}:force_original_aspect_ratio=decrease,pad={width}:{height}:(ow-iw)/2:(oh-ih)/2"
    words = ["ffmpeg", "-hide_banner", "-loglevel", "error", "-protocol_whitelist", "pipe,file", "-f", "matroska"]
    words += ["-c:v", "mjpeg", "-i", "pipe:0", "-an", "-vsync", "vfr"]
    if format == "gif":
        # One palette per picture: a common one would need all pictures in memory.
        palette = "split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1"
        return [
            *words,
            "-vf",
            f"{fitted},{palette}",
            "-final_delay",
            "100",
            "-f",
            "gif",
            f"{OUTPUT_DIRECTORY}/video.gif",
        ]
    words += ["-vf", f"{fitted},format=yuv420p", "-c:v", "libx264", "-preset", "veryfast", "-crf", "27"]
    return [*words, "-movflags", "+faststart", "-f", "mp4", f"{OUTPUT_DIRECTORY}/video.mp4"]
