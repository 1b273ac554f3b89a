"""Uvicorn alone: the same answer to every request, of the size of a vector in base64. No server on it takes less.

usage: floor.py [arguments, of which none counts]
"""

import asyncio
import socket

import uvicorn
from starlette.types import Receive, Scope, Send

ANSWER = b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":"%b"}]}' % (b"A" * 2048)


async def same(_: Scope, receive: Receive, send: Send) -> None:
    """Answer one request."""
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": ANSWER})


def main() -> None:
    """Listen until a signal."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"ready on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        config = uvicorn.Config(same, lifespan="off", log_config=None, access_log=False, server_header=False)
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    main()
