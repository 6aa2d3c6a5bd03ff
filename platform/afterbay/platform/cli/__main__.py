"""`python -m afterbay.platform.cli`: the same as `afterbay`."""

from afterbay.platform.cli import main

main()
