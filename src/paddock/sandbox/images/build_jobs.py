"""Background image builds of a server, one at a time, with progress."""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Literal

import structlog

from paddock.errors import Conflict, ImageNotFound, NotFound, PaddockError
from paddock.model.sandbox import FrozenModel
from paddock.sandbox.images.build_command_runner import BuildProgress
from paddock.sandbox.images.image_store import ImageStore

MAX_LISTED_BUILDS = 20
"""Number of builds kept in the list."""
_LINES = 200
log = structlog.get_logger()


class ImageBuild(FrozenModel):
    """State of a build."""

    id: str
    image: str
    state: Literal["running", "done", "failed", "cancelled"]
    step: str
    fraction: float | None
    """Share of the whole build, 0 to 1, if known."""
    step_number: int | None
    step_count: int | None
    lines: tuple[str, ...]
    """Last lines of output."""
    error: str | None
    started_at: datetime
    ended_at: datetime | None


class _Job:
    def __init__(self, image: str) -> None:
        self.build = ImageBuild(
            id=f"build-{uuid.uuid4().hex[:16]}",
            image=image,
            state="running",
            step="starting",
            fraction=None,
            step_number=None,
            step_count=None,
            lines=(),
            error=None,
            started_at=datetime.now(UTC),
            ended_at=None,
        )
        self.task: asyncio.Task[None] | None = None
        self._lines: deque[str] = deque(maxlen=_LINES)
        self.changed = asyncio.Event()
        """Set at the next change, then replaced."""

    def progress(self, now: BuildProgress) -> None:
        if now.line and (not self._lines or self._lines[-1] != now.line):
            self._lines.append(now.line)
        self.change(
            step=now.step,
            fraction=now.fraction,
            step_number=now.step_number,
            step_count=now.step_count,
            lines=tuple(self._lines),
        )

    def change(self, **changes: object) -> None:
        self.build = self.build.model_copy(update=changes)
        self.changed.set()
        self.changed = asyncio.Event()


class ImageBuildJobs:
    """Builds of one server. They end with it; finished parts are reused by the next build."""

    def __init__(self, images: ImageStore) -> None:
        self._images = images
        self._jobs: OrderedDict[str, _Job] = OrderedDict()

    def list(self) -> Sequence[ImageBuild]:
        """Return builds of this server, newest first."""
        return [job.build for job in reversed(self._jobs.values())]

    def get(self, build_id: str) -> ImageBuild:
        """Raises `NotFound`."""
        return self._find(build_id).build

    async def start(self, image: str) -> ImageBuild:
        """Build an image by the name of its recipe; a running build of it is returned.

        Raises `ImageNotFound` for a name without a recipe, `Conflict` while another image is built.
        """
        if image not in await asyncio.to_thread(self._images.names):
            raise ImageNotFound(f"there is no recipe for an image {image[:80]!r}")
        for job in self._jobs.values():
            if job.build.state == "running":
                if job.build.image == image:
                    return job.build
                raise Conflict(f"the image {job.build.image} is being built; wait for it, or cancel it")
        job = _Job(image)
        self._jobs[job.build.id] = job
        while len(self._jobs) > MAX_LISTED_BUILDS:
            self._jobs.popitem(last=False)
        job.task = asyncio.create_task(self._run(job), name=f"build of {image}")
        return job.build

    async def cancel(self, build_id: str) -> ImageBuild:
        """Stop a build; idempotent. Raises `NotFound`."""
        job = self._find(build_id)
        if job.task is not None and not job.task.done():
            job.task.cancel()
            await asyncio.gather(job.task, return_exceptions=True)
        return job.build

    async def follow(self, build_id: str) -> AsyncIterator[ImageBuild]:
        """Yield a build at every change until its end. Raises `NotFound`."""
        job = self._find(build_id)
        while True:
            seen, changed = job.build, job.changed
            yield seen
            if seen.state != "running":
                return
            await changed.wait()

    async def close(self) -> None:
        for build in self.list():
            await self.cancel(build.id)

    def _find(self, build_id: str) -> _Job:
        if build_id not in self._jobs:
            raise NotFound(f"there is no build {build_id[:80]}; builds are forgotten when the server stops")
        return self._jobs[build_id]

    async def _run(self, job: _Job) -> None:
        image = job.build.image
        log.info("image build started", image=image)
        try:
            await self._images.build_async(image, job.progress)
        except asyncio.CancelledError:
            log.info("image build cancelled", image=image)
            job.change(state="cancelled", ended_at=datetime.now(UTC))
            raise
        except PaddockError as error:
            log.warning("image build failed", image=image, error=error.message)
            job.change(state="failed", error=error.message, ended_at=datetime.now(UTC))
        except Exception as error:
            log.exception("image build failed", image=image)
            job.change(state="failed", error=f"{type(error).__name__}: {error}", ended_at=datetime.now(UTC))
        else:
            log.info("image build finished", image=image)
            job.change(state="done", step="done", fraction=1.0, ended_at=datetime.now(UTC))
