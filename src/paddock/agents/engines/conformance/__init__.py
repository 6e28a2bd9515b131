"""What every engine must do, as checks that any engine can run against itself. They need no server and no model.

A plugin's test file needs one class and one fixture:

    from paddock.agents.engines.conformance import EngineConformance

    class TestMyEngine(EngineConformance):
        pass

    @pytest.fixture
    def engine():       # an engine, or a function that gives an async context manager of one
        return MyEngine(...)

Nothing here needs pytest to be imported, nor any plugin of it to run.

An engine that brings its own tools and asks its own model does not hear the scripts of the checks by itself, and skips
them. Where the fixture gives a `Cast` in place of the engine, somebody plays them in front of it, and it runs all but
the few that cannot concern it, of which each skip says why:

    class MyCast(Cast):                     # given as MyCast(engine)
        def begin(self, turn): ...          # from now on, this turn's script and tools are those of its session

    # In whatever the engine's program takes for its model and its tools:
    answer = turn.answer(messages)          # the next of the script; what was asked is kept for the checks
    result = await turn.perform("add", {"a": 1, "b": 2})
"""

from paddock.agents.engines.conformance.calling import Calling
from paddock.agents.engines.conformance.deciding import Deciding
from paddock.agents.engines.conformance.stage import Cast
from paddock.agents.engines.conformance.surviving import Surviving
from paddock.agents.engines.conformance.talking import Talking


class EngineConformance(Talking, Calling, Deciding, Surviving):
    """Every check. Subclass it in a test module."""


__all__ = ["Cast", "EngineConformance"]
