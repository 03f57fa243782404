"""The keeper: a small process beside the daemon that owns its workers.

It starts and restarts them, logs their output, and ends them together with everything they have
started: on request, and when the daemon crashes. It is a separate program, so everything here
needs the standard library only and is imported in a few milliseconds.
"""
