"""Route that starts a demonstration chat: a script stands in for the model, everything else is real."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Body
from pydantic import Field

from paddock.agents.sessions.session_requests import CreateSessionRequest, MessageRequest
from paddock.api.http.authorization import SessionWriter
from paddock.api.http.body_models import RequestBody, ResponseBody
from paddock.api.http.error_responses import openapi_errors
from paddock.api.sandboxes.kind_routes import is_image_built
from paddock.api.services import ApiServices
from paddock.errors import Unsupported
from paddock.llm.demo import DEMO_MODEL, DEMO_PROMPTS, DEMO_SCRIPT
from paddock.model.sessions import Policy, PolicyAction, PolicyRule

_KINDS = ("linux", "code")
TITLES = {"en": "A demonstration, by a script", "zh": "演示（由脚本完成）"}  # noqa: RUF001
_INSTRUCTIONS = {"en": "Answer in English.", "zh": "Answer in Simplified Chinese."}
_POLICY = Policy(
    rules=(
        PolicyRule(tool="write_file", arguments={"path": "/workspace/*"}, action=PolicyAction.ALLOW),
        PolicyRule(tool="start_app", action=PolicyAction.ALLOW),
    )
)
"""One command needs an approval, so that the viewer makes a decision."""


class StartDemoRequest(RequestBody):
    language: Literal["en", "zh"] = "en"
    begin: bool = True
    """Whether to send the prompt at once."""
    again: bool = Field(default=False)
    """Whether to create a new session although one exists."""


class DemoResponse(ResponseBody):
    session: str
    """The id of the session."""
    model: str
    script: Literal[True] = True
    """A script answers instead of a model."""
    kind: str
    image: str
    built: bool
    """Whether the image is ready; otherwise it is built on first use, which takes minutes."""
    prompt: str
    """The text sent to the agent."""


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/demo", tags=["Sessions"])
    sessions = services.sessions

    def find_model() -> str:
        settings = services.gateway.settings
        for name, model in settings.models.items():
            if settings.providers[model.provider].file == DEMO_SCRIPT and "*" not in name:
                return name
        raise Unsupported(
            f"the demonstration is off because providers are configured; to enable it, add its script to them: "
            f"llm.providers.{DEMO_MODEL}: {{kind: script, file: {DEMO_SCRIPT}}}"
        )

    def find_kind() -> tuple[str, str, bool]:
        images_by_kind = {kind.name: kind.image for kind in services.fleet.kinds}
        candidates = [name for name in _KINDS if name in images_by_kind] or list(images_by_kind)
        built = next((name for name in candidates if is_image_built(services, images_by_kind[name])), None)
        name = built or candidates[-1]
        return name, images_by_kind[name], built is not None

    @router.post("", status_code=201, responses=openapi_errors(429))
    async def begin_demo(
        principal: SessionWriter, body: Annotated[StartDemoRequest | None, Body()] = None
    ) -> DemoResponse:
        """Start a demonstration chat, or return the existing one unless `again` is set.

        It works on a desktop if an image with one is built, else in a sandbox without a screen.
        """
        request_body = body or StartDemoRequest()
        model = find_model()
        kind, image, built = await asyncio.to_thread(find_kind)
        by = principal.name
        language = request_body.language
        new_session = CreateSessionRequest(
            model=model, kinds=(kind,), policy=_POLICY, title=TITLES[language], instructions=_INSTRUCTIONS[language]
        )
        request_key = None if request_body.again else f"demo/{principal.key_id}/{language}"
        session = await sessions.create(principal.tenant, new_session, by, request_key=request_key)
        prompt = DEMO_PROMPTS[language]
        if request_body.begin:
            await sessions.send_message(
                principal.tenant, session.id, MessageRequest(text=prompt), by, request_key="demo"
            )
        kind = next(iter(session.kinds), kind)
        return DemoResponse(session=session.id, model=model, kind=kind, image=image, built=built, prompt=prompt)

    return router
