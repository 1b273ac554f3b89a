"""How the server logs."""

import logging
import sys


def configure_logging(level: str, who: str = "") -> None:
    """One line an event on standard error.

    Args:
        level: The least that is logged.
        who: Which of several processes this is.
    """
    line = f"%(asctime)s %(levelname)s {who and who + ' '}%(name)s: %(message)s"
    logging.basicConfig(stream=sys.stderr, level=level.upper(), format=line)
    for noisy in ("httpx", "httpcore", "filelock", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # its warnings tell of bytes that are no request, one by one
