"""What every backend must do, as checks that any backend can run against itself.

A plugin's test file needs one class and two fixtures:

    from paddock.sandbox.conformance import BackendConformance

    class TestMyBackend(BackendConformance):
        pass

    @pytest.fixture
    def make_backend(tmp_path):             # called more than once: each object must find the others' boxes
        return lambda: MyBackend(tmp_path)

    @pytest.fixture
    def image():                            # with python3 and a shell
        return ...

Nothing here needs pytest to be imported, nor any plugin of it to run. A check that asks for something the backend says
it cannot do on this machine is skipped, and the skip says so.
"""

from paddock.sandbox.conformance.ending import Ending
from paddock.sandbox.conformance.fencing import Fencing
from paddock.sandbox.conformance.keeping import Keeping
from paddock.sandbox.conformance.running import Running


class BackendConformance(Running, Fencing, Keeping, Ending):
    """Every check. Subclass it in a test module."""


__all__ = ["BackendConformance"]
