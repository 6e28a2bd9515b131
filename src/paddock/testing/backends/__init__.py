"""Conformance checks for sandbox backends, for use in a backend's own tests.

A plugin's test file needs one class and two fixtures:

    from paddock.testing.backends import BackendConformance

    class TestMyBackend(BackendConformance):
        pass

    @pytest.fixture
    def make_backend(tmp_path):             # called more than once; each backend must find the sandboxes of the others
        return lambda: MyBackend(tmp_path)

    @pytest.fixture
    def image():                            # with python3 and a shell
        return ...

The checks import no pytest and need no plugin. A check of a feature that the backend does not support on this machine
is skipped with the reason.
"""

from paddock.testing.backends.command_checks import CommandChecks
from paddock.testing.backends.isolation_checks import IsolationChecks
from paddock.testing.backends.pause_and_snapshot_checks import PauseAndSnapshotChecks
from paddock.testing.backends.removal_checks import RemovalChecks


class BackendConformance(CommandChecks, IsolationChecks, PauseAndSnapshotChecks, RemovalChecks):
    """All conformance checks. Subclass it in a test module."""


__all__ = ["BackendConformance"]
