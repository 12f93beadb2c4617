"""How long a test waits for what must happen: long enough for a crowded machine, short enough that a hang is seen."""

PATIENCE_SECONDS = 60.0
