"""Try once more, alone, the few tests that failed among all others; what fails alone as well has failed.

Several workers share few processors, and some tests watch the clock: how smoothly a page scrolls, how soon a flooded
server answers. What passes alone is listed all the same, since it may be a race that somebody should look for.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

FAILED = Path(__file__).parents[2] / ".pytest_cache/v/cache/lastfailed"
FEW = 5
"""More than these are no accident."""


def main() -> int:
    code = int(sys.argv[1])
    if code != pytest.ExitCode.TESTS_FAILED:
        return code
    shaky = sorted(json.loads(FAILED.read_text()))
    if not 0 < len(shaky) <= FEW:
        return code
    print(f"\n{len(shaky)} of all tests failed: once more, alone", flush=True)
    code = pytest.main(["--last-failed", "--last-failed-no-failures", "none"])
    if code == pytest.ExitCode.OK:
        print("\nFailed among others, passed alone:", *shaky, sep="\n  ")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
