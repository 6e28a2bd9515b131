"""Commands and files of the measured systems."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

START_TIMEOUT = 60.0


async def run_command(*words: str, stdin: bytes | None = None) -> str:
    """Run a program to its end and return its output; raise an error if it fails."""
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await process.communicate(stdin)
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)}: {errors.decode(errors='replace')}")
    return output.decode()


async def stop_process(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), 30)
    except TimeoutError:
        process.kill()
        await process.wait()


def write_small_files(directory: Path, count: int) -> Path:
    directory.mkdir(parents=True)
    for number in range(count):
        folder = directory / f"{number // 100}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.txt").write_text(f"file {number}\n" * 8)
    return directory
