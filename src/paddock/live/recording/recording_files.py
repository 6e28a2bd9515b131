"""Stores recordings in files: a directory per tenant; pictures, index and JSON metadata per recording."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path

import structlog
from pydantic import ValidationError

from paddock.errors import NotFound, PaddockError, Unavailable
from paddock.live.recording import padrec_file
from paddock.live.recording.padrec_file import PadrecWriter
from paddock.model.recordings import Recording, RecordingState

RECORDING_ID = re.compile(r"rec-[0-9a-f]{16}")
log = structlog.get_logger()


class RecordingFiles:
    """Reads and writes recording files. All methods block: call them in a thread."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def picture_path(self, tenant: str, recording_id: str) -> Path:
        """Return the path of a recording's picture file. Raises `NotFound` for invalid ids."""
        if not RECORDING_ID.fullmatch(recording_id):
            raise NotFound(f"there is no recording {recording_id[:40]!r}")
        return self._root / tenant / f"{recording_id}{padrec_file.SUFFIX}"

    def create_files(self, recording: Recording) -> PadrecWriter:
        """Create the files of a new recording. Raises `OSError`."""
        path = self.picture_path(recording.tenant, recording.id)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.write_metadata(recording)
        about = {"id": recording.id, "sandbox": recording.sandbox_id, "started_at": recording.started_at.isoformat()}
        return PadrecWriter.create(path, {**about, "fps": recording.fps, "quality": recording.quality})

    def write_metadata(self, recording: Recording) -> None:
        """Write the metadata of a recording atomically."""
        metadata_path = self.picture_path(recording.tenant, recording.id).with_suffix(".json")
        partial = metadata_path.with_suffix(".json.partial")
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(recording.model_dump_json())
            file.flush()
            os.fsync(file.fileno())
        partial.replace(metadata_path)

    def read_metadata(self, tenant: str, recording_id: str) -> Recording:
        try:
            return Recording.model_validate_json(
                self.picture_path(tenant, recording_id).with_suffix(".json").read_bytes()
            )
        except FileNotFoundError:
            raise NotFound(f"there is no recording {recording_id}") from None
        except (OSError, ValidationError) as error:
            raise Unavailable(f"the metadata of recording {recording_id} cannot be read: {error}") from None

    def list_recordings(self, tenant: str) -> list[Recording]:
        found = []
        for metadata_path in (self._root / tenant).glob("rec-*.json"):
            try:
                found.append(self.read_metadata(tenant, metadata_path.stem))
            except PaddockError as error:
                log.warning("skipping unreadable recording", recording=metadata_path.stem, error=error.message)
        return found

    def close_interrupted(self) -> list[Recording]:
        """Mark recordings that an earlier server left open as stopped, and return them."""
        repaired = []
        for directory in self._root.glob("[!.]*"):
            for recording in self.list_recordings(directory.name):
                if recording.state is not RecordingState.RECORDING:
                    continue
                path = self.picture_path(recording.tenant, recording.id)
                try:
                    entries = padrec_file.repair_padrec(path)
                    closed = recording.model_copy(
                        update={
                            "state": RecordingState.STOPPED,
                            "stopped_at": datetime.fromtimestamp(path.stat().st_mtime, UTC),
                            "reason": "server",
                            "frames": len(entries),
                            "size": path.stat().st_size,
                            "width": max((entry.width for entry in entries), default=0),
                            "height": max((entry.height for entry in entries), default=0),
                        }
                    )
                    self.write_metadata(closed)
                    repaired.append(closed)
                except FileNotFoundError:
                    self.remove_files(recording.tenant, recording.id)
                except OSError as error:
                    log.error("cannot close recording", recording=recording.id, error=str(error))
        return repaired

    def remove_files(self, tenant: str, recording_id: str) -> None:
        path = self.picture_path(tenant, recording_id)
        for suffix in (".json", ".json.partial", padrec_file.INDEX_SUFFIX, padrec_file.SUFFIX):
            path.with_suffix(suffix).unlink(missing_ok=True)
