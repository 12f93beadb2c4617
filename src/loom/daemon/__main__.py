"""`python -m loom.daemon`."""

from loom.daemon.serve import main

if __name__ == "__main__":
    main()
