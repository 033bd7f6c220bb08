"""llama-server's endpoints for tools that clients run one by one: the list of tools, and a call."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.requests import Request

from pumice.mcp import HostedTools, Offer, ToolError
from pumice_server.interface import Whole, bad_request, make_answer, unless_gone
from pumice_server.protocols.llama_server.answer_types import CalledTool, ToolOffer
from pumice_server.protocols.llama_server.bodies import ToolBody

_OFF = "no tools are run for clients: the server was started without --allow-tools"


async def list_tools(request: Request) -> Whole[list[ToolOffer]]:
    """List the tools that the server runs for clients, with `--allow-tools`."""
    _, offer = await _offered(request)

    def listing() -> list[ToolOffer]:
        return [
            ToolOffer(
                display_name=f"{tool.server}: {tool.own_name}",
                tool=tool.name,
                type="mcp",
                server_label=tool.server,
                definition=tool.definition(tool.name),
            )
            for tool in offer.tools
        ]

    return await make_answer(listing, sum(len(tool.parameters) for tool in offer.tools))


async def call_tool(request: Request, body: ToolBody) -> CalledTool:
    """Call one of these tools."""
    hosted, offer = await _offered(request)
    if body.tool not in {tool.name for tool in offer.tools}:
        raise bad_request(f"tool: there is no tool {body.tool!r:.80}; GET /tools lists them")
    seconds = request.app.state.settings.timeout
    try:
        async with asyncio.timeout(seconds):
            text = await unless_gone(request, hosted.call(body.tool, body.params))
    except ToolError as error:
        return CalledTool(error=str(error))
    except TimeoutError:
        return CalledTool(error=f"the tool took longer than {seconds:g} seconds")
    return CalledTool(plain_text_response=text)


async def _offered(request: Request) -> tuple[HostedTools, Offer]:
    hosted: HostedTools | None = request.app.state.tools
    if hosted is None:
        raise HTTPException(501, _OFF)
    try:
        return hosted, await hosted.offer()
    except ToolError as error:
        raise HTTPException(503, str(error)) from None
