"""`python -m busd` is `busd`."""

from busd.cli.main import main

main()
