"""`python -m ocssl`: the command line."""

from ocssl.cli import main

main()
