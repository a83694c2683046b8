"""A relay in the fewest lines that FastAPI and httpx allow: it reads nothing of the stream, and has no timeouts."""

# mypy: ignore-errors
# It runs in an environment of its own, whose packages ours does not have.

import os
from collections.abc import AsyncIterator

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

KEPT = ("authorization", "content-type", "accept")

app = FastAPI()
client = httpx.AsyncClient(
    base_url=os.environ["UPSTREAM"],
    timeout=None,
    limits=httpx.Limits(max_connections=None, max_keepalive_connections=512),
)


@app.post("/v1/chat/completions")
async def relay(request: Request) -> StreamingResponse:
    headers = {name: value for name, value in request.headers.items() if name in KEPT}
    asked = client.build_request("POST", request.url.path, headers=headers, content=await request.body())
    answer = await client.send(asked, stream=True)

    async def body() -> AsyncIterator[bytes]:
        try:
            async for data in answer.aiter_raw():
                yield data
        finally:
            await answer.aclose()

    return StreamingResponse(body(), status_code=answer.status_code, media_type=answer.headers["content-type"])
