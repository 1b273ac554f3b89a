"""One wire format a file, pure functions."""
