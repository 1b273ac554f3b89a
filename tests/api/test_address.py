"""The address that the banner tells."""

import socket
from unittest.mock import Mock

import pytest

from vecmill.api.listen import address


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8080"),
        ("0.0.0.0", "http://127.0.0.1:8080"),  # noqa: S104 (nothing is bound)
        ("192.0.2.1", "http://192.0.2.1:8080"),
        ("::1", "http://[::1]:8080"),
        ("::", "http://[::1]:8080"),
    ],
)
def test_the_address_can_be_opened(host: str, url: str) -> None:
    """What is listened on becomes a URL that works on this machine; "everywhere" becomes the machine itself."""
    listener = Mock(spec=socket.socket)
    listener.getsockname.return_value = (host, 8080, 0, 0)
    assert address(listener) == url
