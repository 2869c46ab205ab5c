"""``python -m critpath.functions SCRIPT``: the program, with its functions recorded."""

from critpath.functions.agent import main

main()
