"""Bytes in, bytes out: HTTP, the dialects that clients speak, and what operators look at."""
