"""`vecmill`, but its queue is full the first time that something is asked: clients get the server's own refusal."""

from vecmill.cli import main
from vecmill.core import ANYONE, Caller, Request, Result
from vecmill.errors import Overloaded
from vecmill.serving.served import ServedModel

asked: set[str] = set()
submit = ServedModel.submit


async def refuse_once(self: ServedModel, request: Request, caller: Caller = ANYONE) -> Result:
    """As `ServedModel.submit`, the second time.

    Raises:
        Overloaded: The first time.
    """
    question = repr(request.inputs)
    if question not in asked:
        asked.add(question)
        raise Overloaded("the queue is full", retry_after_s=0.1)
    return await submit(self, request, caller)


ServedModel.submit = refuse_once  # type: ignore[method-assign]
main()
