"""Repeat the few failed tests of a session alone; a test that fails alone has failed.

Several workers share few processors, and some tests watch the clock: how smoothly a page scrolls, how soon a flooded
server responds. Tests that pass alone are listed, since a race may be the cause.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

LAST_FAILED_FILE = Path(__file__).parents[2] / ".pytest_cache/v/cache/lastfailed"
MAX_RETRIED = 5
"""More failures than this are not due to timing."""


def main() -> int:
    code = int(sys.argv[1])
    if code != pytest.ExitCode.TESTS_FAILED:
        return code
    failed = sorted(json.loads(LAST_FAILED_FILE.read_text()))
    if not 0 < len(failed) <= MAX_RETRIED:
        return code
    print(f"\n{len(failed)} of all tests failed: once more, alone", flush=True)
    code = pytest.main(["--last-failed", "--last-failed-no-failures", "none"])
    if code == pytest.ExitCode.OK:
        print("\nFailed among others, passed alone:", *failed, sep="\n  ")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
