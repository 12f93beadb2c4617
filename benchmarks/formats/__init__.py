"""Costs of detection, headers, resizing and documents, beside other libraries in one interleaved run."""
