"""The run directory: what is written while a run goes on, and how it is read again. No torch."""
