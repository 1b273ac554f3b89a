"""`python -m vecmill` is `vecmill`."""

from vecmill.cli import main

main()
