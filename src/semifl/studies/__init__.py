"""Many runs: presets, tables, sweeps."""
