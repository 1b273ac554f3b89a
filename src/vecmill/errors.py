"""What can go wrong, named for what happened. A dialect chooses the status and the body.

VecmillError
├── StartError                before ready: the command prints the line and exits with 1
│   ├── BadSettings               a setting that does not exist or makes no sense
│   ├── AddressUnavailable        the port is taken, or the address is not ours
│   └── LoadError                 a model cannot be loaded
│       ├── ModelNotFound             no such folder, repository, wheel or revision
│       ├── NetworkUnavailable        neither cached nor reachable
│       ├── AccessDenied              private or gated, and no token that opens it
│       ├── DiskFull                  no room for the download
│       ├── MissingFile               the checkpoint lacks a file that it needs
│       ├── CorruptFile               a file is truncated, damaged or not what its name says
│       └── UnsupportedModel          an architecture, module or setting that vecmill cannot run
└── RequestError              while serving: one request gets it, the others do not notice
    ├── InvalidRequest            the caller can mend it: the text, a number, a type
    │   ├── NotJson                   the body does not parse
    │   ├── EmptyInput                there is nothing to read
    │   ├── TooManyInputs             more than a request may hold
    │   ├── InputTooLong              longer than the model's limit, and truncation refused
    │   └── WrongTask                 the model is of another kind
    ├── Unauthorized              no API key, or none that is known
    ├── UnknownModel              no model of that name is served here
    ├── UnknownRoute              no such path
    ├── MethodNotAllowed          the path exists, the method does not
    ├── BodyTooLarge              more bytes than the server takes
    ├── BodyStalled               the rest of it does not come
    ├── UnsupportedMediaType      not JSON by its own account
    ├── Overloaded                the queue is full: come back after `retry_after_s`
    ├── ModelLoading              a model of that name is on its way: come back after `retry_after_s`
    ├── TimedOut                  it was not done within the time that it had
    ├── ShuttingDown              the server drains
    └── EngineFailed              our fault: the engine raised, or its numbers are no vector
        └── EngineLost            no engine of the model is left
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Self

_WORD = re.compile(r"\w+")
_PLACE = re.compile(r"input\[(\d+)\]")


class VecmillError(Exception):
    """Anything that vecmill raises on purpose. `str(error)` is one line for the person who reads it."""


class StartError(VecmillError):
    """The command cannot start; the message says what to do."""


class BadSettings(StartError):
    """A setting does not exist or makes no sense."""


class AddressUnavailable(StartError):
    """The port is taken, or the address is not one of this machine."""


class LoadError(StartError):
    """A model cannot be loaded; the message says what to do."""


class ModelNotFound(LoadError):
    """No folder, repository, wheel or revision of that name."""


class NetworkUnavailable(LoadError):
    """The model is not on this machine and where it lives cannot be reached."""


class AccessDenied(LoadError):
    """The repository is private or gated and the token, if any, does not open it."""


class DiskFull(LoadError):
    """The disk has no room for the model."""


class MissingFile(LoadError):
    """The checkpoint lacks a file that it needs."""


class CorruptFile(LoadError):
    """A file of the checkpoint is truncated, damaged or not what its name says."""


class UnsupportedModel(LoadError):
    """The checkpoint asks for something that vecmill cannot do without giving wrong numbers."""


class RequestError(VecmillError):
    """One request fails; the others do not notice."""


class InvalidRequest(RequestError):
    """The caller can mend it.

    Attributes:
        param: The field of the request that is wrong, or None when it is the body as a whole.
        code: A short word for programs, or None.
        part: Which of several questions in one is wrong, in the caller's words; "" where there is one.
    """

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
        self.part = ""

    def __str__(self) -> str:
        return f"{self.part}: {self.args[0]}" if self.part else str(self.args[0])

    def about(self, names: Mapping[str, str]) -> Self:
        """The same with the caller's names of our fields, where one of ours is the field or begins the message."""
        message = str(self.args[0])
        begins = _WORD.match(message)
        if begins and begins[0] in names:
            self.args = (names[begins[0]] + message[begins.end() :],)
        self.param = names.get(self.param, self.param) if self.param else self.param
        return self

    def at(self, place: Callable[[int], str]) -> Self:
        """The same with the caller's name of an input, where the message begins with `input` and its number."""
        message = str(self.args[0])
        begins = _PLACE.match(message)
        if begins:
            named = place(int(begins[1]))
            self.args = (named + message[begins.end() :],)
            self.param = _WORD.findall(named)[0] if self.param == "input" else self.param
        return self


class NotJson(InvalidRequest):
    """The body does not parse."""


class EmptyInput(InvalidRequest):
    """There is no input, or one without content."""


class TooManyInputs(InvalidRequest):
    """More inputs than a request may hold.

    Attributes:
        count: How many there are.
        limit: How many there may be.
    """

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(f"{count} inputs; a request may hold at most {limit}", param="input")
        self.count = count
        self.limit = limit


class InputTooLong(InvalidRequest):
    """An input has more tokens than the model takes and the caller refused truncation."""


class WrongTask(InvalidRequest):
    """The model is served, but is not of the kind that could answer."""

    def __init__(self, model: str, wanted: str, given: Sequence[str]) -> None:
        super().__init__(f"model {model!r} gives {' and '.join(given)}, not {wanted}", param="model", code="wrong_task")


class Unauthorized(RequestError):
    """There is no API key, or none that is known."""


class UnknownModel(RequestError):
    """No model of that name is served here."""

    def __init__(self, name: str | None, served: list[str]) -> None:
        what = "the request names no model" if name is None else f"model {name!r} is not served here"
        super().__init__(f"{what}; served: {', '.join(served) or 'none'}")


class UnknownRoute(RequestError):
    """No such path."""


class MethodNotAllowed(RequestError):
    """The path exists, the method does not.

    Attributes:
        allowed: The methods that the path answers.
    """

    def __init__(self, method: str, path: str, allowed: list[str]) -> None:
        super().__init__(f"{method} is not allowed on {path}; allowed: {', '.join(allowed)}")
        self.allowed = allowed


class BodyTooLarge(RequestError):
    """The body has more bytes than the server takes."""


class BodyStalled(RequestError):
    """The rest of the body does not come."""


class UnsupportedMediaType(RequestError):
    """The body is not JSON by its own account."""


class Overloaded(RequestError):
    """The queue is full.

    Attributes:
        retry_after_s: Seconds after which the queue will, at the speed measured, have room again.
    """

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ModelLoading(RequestError):
    """A model of that name is being fetched or loaded.

    Attributes:
        retry_after_s: Seconds after which it is worth asking again.
    """

    retry_after_s = 1.0


class TimedOut(RequestError):
    """The request was not done within the time that its caller or the server gave it."""


class ShuttingDown(RequestError):
    """The server drains and takes no new work."""


class EngineFailed(RequestError):
    """The engine raised, or what it returned is no vector. Never the caller's fault."""


class EngineLost(EngineFailed):
    """No engine of the model is left, so no input of it can be answered."""
