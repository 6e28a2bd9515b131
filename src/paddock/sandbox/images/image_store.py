"""Images of the machine: resolve, build, pull, list and remove."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import tarfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from paddock.errors import BuildError, ConfigError, Conflict, ImageNotFound, PaddockError
from paddock.model.sandbox import FrozenModel, Image
from paddock.sandbox.images.build_command_runner import BuildCommandRunner, BuildProgress, ImageBuildCancelled, Watcher
from paddock.sandbox.images.built_images import (
    DIGEST_LENGTH,
    BuiltImageDirectory,
    ImageBuildWorkspace,
    ImageManifest,
    StoredImage,
)
from paddock.sandbox.images.host_image import HostImage
from paddock.sandbox.images.oci_images import OciImagePull, RegistryCredentials, canonical_image_reference
from paddock.sandbox.images.recipe import HOST
from paddock.sandbox.images.recipe_build import RecipeBuild, count_build_steps
from paddock.sandbox.images.recipe_library import RecipeBuildPlan, RecipeLibrary, default_recipe_directories


class ImageInfo(FrozenModel):
    """An image on this machine."""

    manifest: ImageManifest
    directory: Path
    current: bool
    """Whether it is up to date; False if its recipe or the host changed."""


class ImagePruneResult(FrozenModel):
    """Result of a prune."""

    images: tuple[str, ...]
    leftovers: int
    bytes: int


class ImageStore:
    """Resolves references to images, builds them, lists them and removes them.

    The methods block; the `…_async` ones run them in a thread. Several stores, in several processes, may share a
    directory.
    """

    def __init__(
        self,
        directory: Path,
        recipe_dirs: Sequence[Path] | None = None,
        mirror: str | None = None,
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        self.library = RecipeLibrary(default_recipe_directories() if recipe_dirs is None else recipe_dirs)
        self._directory = BuiltImageDirectory(directory)
        self._host = HostImage(self._directory)
        self._mirror = mirror
        self._aliases = dict(aliases or {})

    def names(self) -> list[str]:
        """Return all known names: recipes, `host` and aliases."""
        return sorted({*self.library.names(), HOST, *self._aliases})

    def resolve(self, reference: str) -> Image:
        """Return the image of a reference without building anything but `host`.

        A reference is a recipe's name, `host`, an alias, `NAME@DIGEST`, or an OCI reference pulled before.
        Raises `ImageNotFound` saying how to get it.
        """
        reference = self._aliases.get(reference, reference)
        name, _, digest = reference.partition("@")
        if digest and not digest.startswith("sha256:"):
            return self._by_digest(name, digest).image
        if reference == HOST:
            return self._host.resolve()
        if self.library.find(reference) is not None:
            return self._by_recipe(reference).image
        canonical = canonical_image_reference(reference)
        for stored in self._directory.all():
            if stored.manifest.kind == "oci" and stored.manifest.name == canonical:
                return stored.image
        pull = f"; if it is an OCI image, pull it with 'paddock image build {reference}'" if canonical else ""
        raise ImageNotFound(self._unknown(reference) + pull)

    def check(self, reference: str) -> None:
        """Raise `ImageNotFound` with suggestions for an unknown reference.

        Builds and copies nothing.
        """
        name = self._aliases.get(reference, reference)
        if name != HOST and self.library.find(name) is None:
            self.resolve(name)

    def build(
        self,
        reference: str,
        progress: Watcher = lambda progress: None,
        *,
        credentials: RegistryCredentials | None = None,
        platform: str | None = None,
        cancel: threading.Event | None = None,
    ) -> Image:
        """Build a recipe with its bases, or pull an OCI image. Returns at once if it exists.

        `progress` is called in this thread. Setting `cancel` ends the build's programs and raises
        `ImageBuildCancelled`. Raises `BuildError`, and `ConfigError` for an invalid recipe.
        """
        reference = self._aliases.get(reference, reference)
        cancel = cancel or threading.Event()
        if reference == HOST:
            return self._host.resolve()
        if "@" in reference and "@sha256:" not in reference:
            return self.resolve(reference)
        if self.library.find(reference) is not None:
            return self._build_recipe(self.library.plan(reference), progress, cancel).image
        canonical = canonical_image_reference(reference)
        if canonical is None:
            raise ImageNotFound(self._unknown(reference))
        with self._workspace(canonical, progress, cancel) as (workspace, console):
            pull = OciImagePull(canonical, workspace, console, credentials, platform)
            try:
                digest = pull.find()
            except ImageNotFound as error:
                if "/" in reference or ":" in reference:
                    raise
                raise ImageNotFound(f"{self._unknown(reference)}; {error.message}") from None
            with self._claim(digest, progress, cancel):
                stored = self._directory.get(canonical, digest)
                if stored is None:
                    stored = self._directory.publish(workspace, pull.run())
        return stored.image

    def list(self) -> list[ImageInfo]:
        """Return all images, newest first."""
        current = {stored.directory for stored in self._current()}
        return [
            ImageInfo(manifest=stored.manifest, directory=stored.directory, current=stored.directory in current)
            for stored in self._directory.all()
        ]

    def show(self, reference: str) -> ImageInfo:
        """Return the details of an image. Raises `ImageNotFound`."""
        root = self.resolve(reference).root
        return next(info for info in self.list() if info.directory == root.parent)

    def remove(self, reference: str, in_use: Collection[str] = frozenset()) -> Sequence[str]:
        """Remove all images of a name, or the one with a digest. Returns their digests.

        Raises `Conflict`, removing none, if one is in use; `ImageNotFound` if there is none.
        """
        reference = self._aliases.get(reference, reference)
        named = {reference, canonical_image_reference(reference)}
        digest = reference.rpartition("@")[2]
        chosen = [stored for stored in self._directory.all() if stored.manifest.name in named]
        if not chosen and len(digest) >= 6:
            chosen = [stored for stored in self._directory.all() if stored.manifest.digest.startswith(digest)]
        if not chosen:
            raise ImageNotFound(f"there is no built image '{reference}'; 'paddock image list' shows those there are")
        busy = [stored for stored in chosen if stored.manifest.digest in in_use]
        if busy:
            raise Conflict(f"image '{_title(busy[0])}' is in use by a sandbox; remove that first")
        for stored in chosen:
            self._directory.discard(stored)
        return [stored.manifest.digest for stored in chosen]

    def prune(self, in_use: Collection[str] = frozenset()) -> ImagePruneResult:
        """Remove outdated images, leftovers of dead builders and logs of failed builds."""
        current = {stored.directory for stored in self._current()}
        old = [
            stored
            for stored in self._directory.all()
            if stored.directory not in current and stored.manifest.digest not in in_use
        ]
        leftovers = self._directory.sweep()
        for stored in old:
            self._directory.discard(stored)
        self._directory.forget_logs()
        self._directory.forget_locks()
        return ImagePruneResult(
            images=tuple(_title(stored) for stored in old),
            leftovers=leftovers,
            bytes=sum(stored.manifest.size for stored in old),
        )

    def disk_used(self) -> int:
        """Return the disk bytes of all images."""
        return sum(stored.manifest.size for stored in self._directory.all())

    def export_tar(self, image: Image, file: IO[bytes]) -> None:
        """Write an image's root as a tar that `docker import` takes. Raises `ConfigError` for `host`."""
        if image.binds:
            raise ConfigError(f"image '{image.name}' is this machine's own /usr and cannot be exported; use a recipe")
        with tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            archive.add(image.root, arcname=".", filter=_map_owners(image))

    async def resolve_async(self, reference: str) -> Image:
        return await asyncio.to_thread(self.resolve, reference)

    async def build_async(
        self,
        reference: str,
        progress: Watcher = lambda progress: None,
        *,
        credentials: RegistryCredentials | None = None,
        platform: str | None = None,
    ) -> Image:
        """Run `build` in a thread with `progress` in the event loop; cancelling ends the build and waits for it."""
        loop = asyncio.get_running_loop()
        cancel = threading.Event()

        def relay(now: BuildProgress) -> None:
            loop.call_soon_threadsafe(progress, now)

        work = asyncio.ensure_future(
            asyncio.to_thread(self.build, reference, relay, credentials=credentials, platform=platform, cancel=cancel)
        )
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            cancel.set()
            with contextlib.suppress(PaddockError):
                await work
            raise

    async def prune_async(self, in_use: Collection[str] = frozenset()) -> ImagePruneResult:
        return await asyncio.to_thread(self.prune, in_use)

    async def remove_async(self, reference: str, in_use: Collection[str] = frozenset()) -> Sequence[str]:
        return await asyncio.to_thread(self.remove, reference, in_use)

    def _build_recipe(self, plan: RecipeBuildPlan, progress: Watcher, cancel: threading.Event) -> StoredImage:
        chain = [plan]
        while chain[0].base:
            chain.insert(0, chain[0].base)
        missing = [each for each in chain if self._directory.get(each.name, each.digest) is None]
        stored: StoredImage | None = None
        for each in chain:
            watcher = progress
            if each in missing and len(missing) > 1:
                watcher = _scale_progress(progress, each, missing)
            stored = self._build_one(each, stored, watcher, cancel)
        assert stored is not None
        return stored

    def _build_one(
        self, plan: RecipeBuildPlan, base: StoredImage | None, progress: Watcher, cancel: threading.Event
    ) -> StoredImage:
        with self._claim(plan.digest, progress, cancel):
            stored = self._directory.get(plan.name, plan.digest)
            if stored is None:
                with self._workspace(plan.name, progress, cancel) as (workspace, console):
                    manifest = RecipeBuild(plan, base, workspace, console, self._mirror).run()
                    stored = self._directory.publish(workspace, manifest)
                progress(BuildProgress("done", 1.0))
        return stored

    @contextlib.contextmanager
    def _claim(self, digest: str, progress: Watcher, cancel: threading.Event) -> Iterator[None]:
        """Hold the build lock of a digest; report when waiting for another builder."""
        at_once = threading.Event()
        at_once.set()
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self._directory.claim(digest, at_once))
            except ImageBuildCancelled:
                progress(BuildProgress("waiting for another build", None))
                held.enter_context(self._directory.claim(digest, cancel))
            yield

    @contextlib.contextmanager
    def _workspace(
        self, name: str, progress: Watcher, cancel: threading.Event
    ) -> Iterator[tuple[ImageBuildWorkspace, BuildCommandRunner]]:
        """Open a workspace with its console; errors name the kept log."""
        with self._directory.workspace() as workspace:
            try:
                with open(workspace.log_path, "wb", buffering=0) as log:
                    yield workspace, BuildCommandRunner(log, progress, cancel)
            except ImageBuildCancelled:
                raise
            except BuildError as error:
                log_path = self._directory.keep_log(workspace, name)
                raise type(error)(f"{error.message}\nThe full log is in {log_path}") from error

    def _by_recipe(self, name: str) -> StoredImage:
        plan = self.library.plan(name)
        stored = self._directory.get(name, plan.digest)
        if stored is None:
            older = any(other.manifest.name == name for other in self._directory.all())
            state = "has changed since it was built" if older else "is not built yet"
            raise ImageNotFound(f"image '{name}' {state}: run 'paddock image build {name}'")
        return stored

    def _by_digest(self, name: str, digest: str) -> StoredImage:
        for stored in self._directory.all():
            if stored.manifest.name == name and stored.manifest.digest.startswith(digest):
                return stored
        raise ImageNotFound(f"there is no image '{name}@{digest}'; 'paddock image list' shows those there are")

    def _current(self) -> Sequence[StoredImage]:
        current = []
        pulled: set[str] = set()
        for stored in self._directory.all():
            made = stored.manifest
            if made.kind == "oci":
                if made.name not in pulled:
                    current.append(stored)
                pulled.add(made.name)
            elif made.kind == "host":
                if made.digest == self._host.digest():
                    current.append(stored)
            elif self._digest_of(made.name) == made.digest:
                current.append(stored)
        return current

    def _digest_of(self, name: str) -> str | None:
        """Return a recipe's digest, or None if the recipe is missing or invalid."""
        try:
            return self.library.plan(name).digest
        except ConfigError:
            return None

    def _unknown(self, reference: str) -> str:
        names = self.names()
        near = difflib.get_close_matches(reference, names, n=1)
        hint = f" (did you mean '{near[0]}'?)" if near else ""
        return f"no recipe named '{reference}'{hint}; known: {', '.join(names)}"


def _scale_progress(progress: Watcher, plan: RecipeBuildPlan, missing: Sequence[RecipeBuildPlan]) -> Watcher:
    """Scale the progress of one image to its share of several; all but the last carry their name."""
    index, count = missing.index(plan), len(missing)
    steps = [count_build_steps(each) for each in missing]

    def report(progress_of_image: BuildProgress) -> None:
        fraction = None if progress_of_image.fraction is None else (index + progress_of_image.fraction) / count
        step = progress_of_image.step if index == count - 1 else f"{plan.name}: {progress_of_image.step}"
        number = progress_of_image.step_number
        numbered = (None, None) if number is None else (sum(steps[:index]) + number, sum(steps))
        progress(BuildProgress(step, fraction, progress_of_image.line, *numbered))

    return report


def _title(stored: StoredImage) -> str:
    return f"{stored.manifest.name}@{stored.manifest.digest[:DIGEST_LENGTH]}"


def _map_owners(image: Image) -> Callable[[tarfile.TarInfo], tarfile.TarInfo]:
    """Map owners to owners inside the image; an ordinary user's build owns all files."""
    home = PurePosixPath(image.user.home).relative_to("/")
    unprivileged = image.root.stat().st_uid != 0

    def owned(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uname = entry.gname = ""
        if unprivileged:
            own = PurePosixPath(entry.name).is_relative_to(home)
            entry.uid, entry.gid = (image.user.uid, image.user.gid) if own else (0, 0)
        return entry

    return owned
