"""The ports: taken before anything else, so that a taken one is known at once."""

import socket
from importlib.util import find_spec

from vecmill.config import Settings
from vecmill.errors import AddressUnavailable, BadSettings


def address(listener: socket.socket) -> str:
    """The URL under which a listening socket is reached from this machine."""
    host, port = listener.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{shown}:{port}"


GRPC = ("grpc", "grpc_health", "grpc_reflection")
"""What the gRPC service needs, which only vecmill[grpc] installs."""


def check_grpc(settings: Settings) -> None:
    """Refuse what gRPC's own library would tell late, or in many lines.

    Raises:
        BadSettings: The service is wanted and its libraries are not installed.
        AddressUnavailable: Its port is taken.
    """
    if settings.grpc_port is None:
        return
    if not all(find_spec(library) for library in GRPC):
        raise BadSettings(f"grpc_port is {settings.grpc_port}; gRPC needs more libraries: pip install 'vecmill[grpc]'")
    listen(settings.host, settings.grpc_port, "--grpc-port").close()


def listen(host: str, port: int, flag: str) -> socket.socket:
    """A socket that listens.

    Raises:
        AddressUnavailable: Naming the flag that chooses another.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise AddressUnavailable(
            f"cannot listen on {host} port {port}: {error}; choose another with --host or {flag}"
        ) from error


def share_grpc(settings: Settings) -> socket.socket | None:
    """The port of gRPC for processes that each listen on it; kept while the socket, which does not listen, is open.

    Raises:
        BadSettings: As `check_grpc`.
        AddressUnavailable: As `check_grpc`.
    """
    check_grpc(settings)
    if settings.grpc_port is None:
        return None
    kept = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    kept.bind((settings.host, settings.grpc_port))
    return kept
