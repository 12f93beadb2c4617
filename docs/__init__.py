"""The documentation, and `python -m docs.generate`, which writes anew the pages that are made from the code."""
