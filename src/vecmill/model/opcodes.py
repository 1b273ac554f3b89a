"""Pickles read by an interpreter that runs nothing: it imports no module, calls no function, builds no object.

A pickle is a program that may name and call any function of Python. This interpreter knows the few opcodes that dicts
of tensors consist of. A name that the file gives stays a word; what a word means says the table of its caller, and a
word that is not in the table ends the reading, as does any other opcode. Opcodes: Python's pickletools.
"""

import pickletools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from vecmill.errors import CorruptFile

SHOWN = 80
"""Most characters of a name in a message."""

Meaning = Callable[[tuple[Any, ...]], Any]
"""What the call of a name gives for its arguments; functions of ours, never the file's."""


class Name(NamedTuple):
    """A name that the file gives."""

    text: str


class Reader:
    """One reading. Values are numbers, words, lists, dicts, tuples, names and what the caller's functions give.

    Args:
        path: The file, for messages.
        names: All names that the file may give, to what their call means; None for those that are not called.
        refer: What a reference to something outside the pickle means, for the tuple that it is.
    """

    def __init__(self, path: Path, names: Mapping[str, Meaning | None], refer: Meaning) -> None:
        self.path = path
        self.names = names
        self.refer = refer
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def read(self, pickled: bytes) -> Any:  # noqa: ANN401 (whatever the pickle describes)
        """The value that the pickle describes.

        Raises:
            CorruptFile: It makes no sense, or gives a name or an opcode that is not known. Nothing was run.
        """
        try:
            for opcode, argument, _ in pickletools.genops(pickled):
                action = ACTIONS.get(opcode.name)
                if action is None:
                    raise self.refusal(f"does {opcode.name}")
                action(self, argument)
            return self.stack.pop()
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise CorruptFile(f"{self.path}: not readable as weights ({error})") from error

    def refusal(self, what: str) -> CorruptFile:
        """The error for something that a dictionary of tensors does not need."""
        return CorruptFile(f"{self.path}: it {what}, which weights do not need: nothing was run")

    def take(self) -> list[Any]:
        """Take what was pushed since the last mark."""
        start = self.marks.pop()
        values, self.stack[start:] = self.stack[start:], []
        return values


def _name(reader: Reader, words: str) -> None:
    _push_name(reader, words.replace(" ", ".", 1))


def _stack_name(reader: Reader, _: None) -> None:
    member, module = reader.stack.pop(), reader.stack.pop()
    if not isinstance(module, str) or not isinstance(member, str):
        raise TypeError("a name that is no word")
    _push_name(reader, f"{module}.{member}")


def _push_name(reader: Reader, name: str) -> None:
    if name not in reader.names:
        raise reader.refusal(f"asks for {name[:SHOWN]}")
    reader.stack.append(Name(name))


def _call(reader: Reader, _: None) -> None:
    arguments, name = reader.stack.pop(), reader.stack.pop()
    meaning = reader.names[name.text] if isinstance(name, Name) else None
    if meaning is None or not isinstance(arguments, tuple):
        raise reader.refusal("calls what is no function")
    reader.stack.append(meaning(arguments))


def _refer(reader: Reader, _: None) -> None:
    reader.stack.append(reader.refer(reader.stack.pop()))


def _state(reader: Reader, _: None) -> None:
    """What an object keeps beside its entries; dicts of modules note versions there, which nobody reads."""
    reader.stack.pop()
    if not isinstance(reader.stack[-1], dict):
        raise reader.refusal("sets the state of an object")


def _put(reader: Reader, entries: list[Any]) -> None:
    """Entries of the dict on top, keys and values in turn."""
    for key, value in zip(entries[::2], entries[1::2], strict=True):
        if not isinstance(key, str | int):  # a hash of nested tuples can take for ever
            raise TypeError("a key that is neither word nor number")
        reader.stack[-1][key] = value


def _set(reader: Reader, _: None) -> None:
    entry, reader.stack[-2:] = reader.stack[-2:], []
    _put(reader, entry)


def _append(reader: Reader, _: None) -> None:
    value = reader.stack.pop()
    reader.stack[-1].append(value)


def _append_many(reader: Reader, _: None) -> None:
    values = reader.take()
    reader.stack[-1].extend(values)


def _tuple(size: int) -> Callable[[Reader, Any], None]:
    def action(reader: Reader, _: None) -> None:
        if len(reader.stack) < size:
            raise IndexError("a tuple of more values than there are")
        start = len(reader.stack) - size
        reader.stack[start:] = [tuple(reader.stack[start:])]

    return action


def _marked_tuple(reader: Reader, _: None) -> None:
    values = reader.take()
    reader.stack.append(tuple(values))


def _mark(reader: Reader, _: None) -> None:
    reader.marks.append(len(reader.stack))


def _remember(reader: Reader, place: int | None) -> None:
    reader.memo[len(reader.memo) if place is None else place] = reader.stack[-1]


def _recall(reader: Reader, place: int) -> None:
    reader.stack.append(reader.memo[place])


def _push(reader: Reader, value: object) -> None:
    reader.stack.append(value)


def _constant(make: Callable[[], Any]) -> Callable[[Reader, Any], None]:
    return lambda reader, _: reader.stack.append(make())


def _nothing(_reader: Reader, _argument: object) -> None:
    pass


ACTIONS: dict[str, Callable[[Reader, Any], None]] = {
    "PROTO": _nothing,
    "FRAME": _nothing,
    "STOP": _nothing,
    "BININT": _push,
    "BININT1": _push,
    "BININT2": _push,
    "LONG1": _push,
    "BINFLOAT": _push,
    "BINUNICODE": _push,
    "SHORT_BINUNICODE": _push,
    "NONE": _constant(lambda: None),
    "NEWTRUE": _constant(lambda: True),
    "NEWFALSE": _constant(lambda: False),
    "EMPTY_DICT": _constant(dict),
    "EMPTY_LIST": _constant(list),
    "EMPTY_TUPLE": _constant(tuple),
    "MARK": _mark,
    "TUPLE": _marked_tuple,
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "APPEND": _append,
    "APPENDS": _append_many,
    "SETITEM": _set,
    "SETITEMS": lambda reader, _: _put(reader, reader.take()),
    "BINPUT": _remember,
    "LONG_BINPUT": _remember,
    "MEMOIZE": _remember,
    "BINGET": _recall,
    "LONG_BINGET": _recall,
    "GLOBAL": _name,
    "STACK_GLOBAL": _stack_name,
    "REDUCE": _call,
    "BUILD": _state,
    "BINPERSID": _refer,
}
"""Opcode to what it does; no other is known."""
