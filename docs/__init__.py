"""The documentation. `python -m docs.generate` regenerates the pages that are made from the code."""
