"""Where recordings are kept: for each tenant a directory, for each recording its pictures and what is known of it."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path

import structlog
from pydantic import ValidationError

from paddock.errors import NotFound, PaddockError, Unavailable
from paddock.live import padrec
from paddock.live.padrec import Writer
from paddock.model.recordings import Recording, RecordingState

ID = re.compile(r"rec-[0-9a-f]{16}")
log = structlog.get_logger()


class Shelf:
    """Nothing here waits for the event loop: call it in a thread."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, tenant: str, recording_id: str) -> Path:
        """Where a recording's pictures are. Raises `NotFound` for what is no id."""
        if not ID.fullmatch(recording_id):
            raise NotFound(f"there is no recording {recording_id[:40]!r}")
        return self._root / tenant / f"{recording_id}{padrec.SUFFIX}"

    def create(self, recording: Recording) -> Writer:
        """Begin a recording's files. Raises `OSError`."""
        path = self.path(recording.tenant, recording.id)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.write(recording)
        about = {"id": recording.id, "sandbox": recording.sandbox_id, "started_at": recording.started_at.isoformat()}
        return Writer.create(path, {**about, "fps": recording.fps, "quality": recording.quality})

    def write(self, recording: Recording) -> None:
        """Keep what is known of a recording, whole or not at all."""
        place = self.path(recording.tenant, recording.id).with_suffix(".json")
        partial = place.with_suffix(".json.partial")
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(recording.model_dump_json())
            file.flush()
            os.fsync(file.fileno())
        partial.replace(place)

    def read(self, tenant: str, recording_id: str) -> Recording:
        try:
            return Recording.model_validate_json(self.path(tenant, recording_id).with_suffix(".json").read_bytes())
        except FileNotFoundError:
            raise NotFound(f"there is no recording {recording_id}") from None
        except (OSError, ValidationError) as error:
            raise Unavailable(f"what is known of recording {recording_id} cannot be read: {error}") from None

    def all(self, tenant: str) -> list[Recording]:
        found = []
        for place in (self._root / tenant).glob("rec-*.json"):
            try:
                found.append(self.read(tenant, place.stem))
            except PaddockError as error:
                log.warning("a recording is left out", recording=place.stem, error=error.message)
        return found

    def repair(self) -> list[Recording]:
        """Close the recordings that a server which is no more has left open, and return them."""
        repaired = []
        for directory in self._root.glob("[!.]*"):
            for recording in self.all(directory.name):
                if recording.state is not RecordingState.RECORDING:
                    continue
                path = self.path(recording.tenant, recording.id)
                try:
                    places = padrec.repair(path)
                    closed = recording.model_copy(
                        update={
                            "state": RecordingState.STOPPED,
                            "stopped_at": datetime.fromtimestamp(path.stat().st_mtime, UTC),
                            "reason": "server",
                            "frames": len(places),
                            "size": path.stat().st_size,
                            "width": max((place.width for place in places), default=0),
                            "height": max((place.height for place in places), default=0),
                        }
                    )
                    self.write(closed)
                    repaired.append(closed)
                except FileNotFoundError:
                    self.remove(recording.tenant, recording.id)
                except OSError as error:
                    log.error("a recording could not be closed", recording=recording.id, error=str(error))
        return repaired

    def remove(self, tenant: str, recording_id: str) -> None:
        path = self.path(tenant, recording_id)
        for suffix in (".json", ".json.partial", padrec.INDEX_SUFFIX, padrec.SUFFIX):
            path.with_suffix(suffix).unlink(missing_ok=True)
