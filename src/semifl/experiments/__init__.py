"""From a configuration to a run directory: the loop, its records and checkpoints, presets."""
