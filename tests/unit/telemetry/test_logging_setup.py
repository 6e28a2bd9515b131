"""The server's log shows tracebacks without local variables."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

SCRIPT = """
import structlog
from paddock.telemetry.logging_setup import configure_logging
from paddock.config.schema import LogConfig

configure_logging(LogConfig(format={format!r}))
try:
    secret = "pdk_" + "x" * 10
    raise ValueError("it broke")
except ValueError:
    structlog.get_logger().exception("failed")
"""


HELD_SCRIPT = """
import sys, structlog
from paddock.telemetry.logging_setup import configure_logging
from paddock.config.schema import LogConfig

handler = configure_logging(LogConfig(format="console"), with_banner=True)
log = structlog.get_logger()
log.info("starting")
log.warning("no disk limit")
print("banner", file=sys.stderr)
handler.end_hold()
log.info("stopping")
"""


def test_terminal_shows_the_banner_before_log_lines_with_short_times() -> None:
    done = subprocess.run([sys.executable, "-c", HELD_SCRIPT], capture_output=True, text=True, timeout=60, check=True)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stderr)
    assert [re.sub(r"^\d\d:\d\d:\d\d ", "", line).split()[-1] for line in plain.splitlines()] == [
        "banner",
        "limit",
        "stopping",
    ]
    assert re.match(r"\d\d:\d\d:\d\d \[warning", plain.splitlines()[1])


@pytest.mark.parametrize("shape", ["console", "json"])
def test_logged_exception_has_no_local_variables(shape: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(format=shape)], capture_output=True, text=True, timeout=60, check=True
    )
    assert "ValueError: it broke" in done.stderr
    assert "pdk_x" not in done.stderr
