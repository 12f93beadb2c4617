"""The cost of detection, headers, resizing and documents, compared with other libraries in one interleaved run."""
