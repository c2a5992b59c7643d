"""Run directories in, pictures and pages out; no torch here."""
