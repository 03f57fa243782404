"""The tests of what stores mail: real files, real threads, real kills."""
