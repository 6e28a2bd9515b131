"""A demonstration that needs no key of any provider: a chat in which a script is the model, and all else is real."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Body
from pydantic import Field

from paddock.agents.requests import NewSession, Written
from paddock.api.access import SessionWriter
from paddock.api.errors import documented
from paddock.api.kinds import is_built
from paddock.api.services import Services
from paddock.api.wire import Asked, Said
from paddock.errors import Unsupported
from paddock.llm.demo import DEMO, PROMPTS, SCENARIO
from paddock.model.sessions import Action, Policy, Rule

_KINDS = ("linux", "code")
TITLES = {"en": "A demonstration, by a script", "zh": "演示（由脚本完成）"}  # noqa: RUF001
_INSTRUCTIONS = {"en": "Answer in English.", "zh": "Answer in Simplified Chinese."}
_POLICY = Policy(
    rules=(
        Rule(tool="write_file", arguments={"path": "/workspace/*"}, action=Action.ALLOW),
        Rule(tool="start_app", action=Action.ALLOW),
    )
)
"""One command is asked about, so that the one who watches decides something, but not everything."""


class DemoBody(Asked):
    language: Literal["en", "zh"] = "en"
    begin: bool = True
    """Whether its question is asked at once."""
    again: bool = Field(default=False)
    """Whether a new one is made, though there is one."""


class DemoSaid(Said):
    session: str
    """The id of the session."""
    model: str
    script: Literal[True] = True
    """No model is asked."""
    kind: str
    image: str
    built: bool
    """Whether the image is ready; if not, it is built when the session first needs it, which takes minutes."""
    prompt: str
    """What it is asked."""


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/demo", tags=["Sessions"])
    sessions = services.sessions

    def find_model() -> str:
        settings = services.gateway.settings
        for name, model in settings.models.items():
            if settings.providers[model.provider].file == SCENARIO and "*" not in name:
                return name
        raise Unsupported(
            f"there is no demonstration here, because providers are set; name the script among them to have it: "
            f"llm.providers.{DEMO}: {{kind: script, file: {SCENARIO}}}"
        )

    def find_kind() -> tuple[str, str, bool]:
        known = {kind.name: kind.image for kind in services.fleet.kinds}
        offered = [name for name in _KINDS if name in known] or list(known)
        built = next((name for name in offered if is_built(services, known[name])), None)
        name = built or offered[-1]
        return name, known[name], built is not None

    @router.post("", status_code=201, responses=documented(429))
    async def begin_demo(principal: SessionWriter, body: Annotated[DemoBody | None, Body()] = None) -> DemoSaid:
        """Begin a chat in which a script shows what agents do here; the same one each time, unless `again` is said.

        It works on a desktop if the image of one is built, else in a box without a screen.
        """
        asked = body or DemoBody()
        model = find_model()
        kind, image, built = await asyncio.to_thread(find_kind)
        by = principal.name
        language = asked.language
        wanted = NewSession(
            model=model, kinds=(kind,), policy=_POLICY, title=TITLES[language], instructions=_INSTRUCTIONS[language]
        )
        once = None if asked.again else f"demo/{principal.key_id}/{language}"
        session = await sessions.create(principal.tenant, wanted, by, request_key=once)
        prompt = PROMPTS[language]
        if asked.begin:
            await sessions.send(principal.tenant, session.id, Written(text=prompt), by, request_key="demo")
        kind = next(iter(session.kinds), kind)
        return DemoSaid(session=session.id, model=model, kind=kind, image=image, built=built, prompt=prompt)

    return router
