"""A relay in the fewest lines that FastAPI and aiohttp allow: it reads nothing of the stream, and has no timeouts."""

# mypy: ignore-errors
# It runs in an environment of its own, whose packages ours does not have.

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

KEPT = ("authorization", "content-type", "accept")


@asynccontextmanager
async def session(app: FastAPI) -> AsyncIterator[None]:
    """One session for all requests; it wants a running loop to be made in."""
    unlimited = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        os.environ["UPSTREAM"], connector=unlimited, timeout=aiohttp.ClientTimeout(total=None)
    ) as app.state.session:
        yield


app = FastAPI(lifespan=session)


@app.post("/v1/chat/completions")
async def relay(request: Request) -> StreamingResponse:
    headers = {name: value for name, value in request.headers.items() if name in KEPT}
    body = await request.body()
    answer = await app.state.session.post(request.url.path, headers=headers, data=body)

    async def relayed() -> AsyncIterator[bytes]:
        async with answer:
            async for data in answer.content.iter_any():
                yield data

    return StreamingResponse(relayed(), status_code=answer.status, media_type=answer.headers["content-type"])
