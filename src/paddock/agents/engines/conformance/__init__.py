"""What every engine must do, as checks that any engine can run against itself. They need no server and no model.

A plugin's test file needs one class and one fixture:

    from paddock.agents.engines.conformance import EngineConformance

    class TestMyEngine(EngineConformance):
        pass

    @pytest.fixture
    def engine():       # an engine, or a function that gives an async context manager of one
        return MyEngine(...)

Nothing here needs pytest to be imported, nor any plugin of it to run. Engines that bring their own tools skip what is
about ours, and the skip says so.
"""

from paddock.agents.engines.conformance.calling import Calling
from paddock.agents.engines.conformance.deciding import Deciding
from paddock.agents.engines.conformance.surviving import Surviving
from paddock.agents.engines.conformance.talking import Talking


class EngineConformance(Talking, Calling, Deciding, Surviving):
    """Every check. Subclass it in a test module."""


__all__ = ["EngineConformance"]
