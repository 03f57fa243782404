"""The keeper: a small process beside the daemon that owns its workers.

It starts them, restarts them, writes down what they print, and ends them with everything they
started: when told to, and when the daemon dies without a word. It is a program of its own, so
everything here needs the standard library only and is imported in a few milliseconds.
"""
