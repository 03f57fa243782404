"""`python -m busd` is `busd`."""

from busd.ops.cli import main

main()
