"""NVIDIA FLARE as the engine between hub and sites; nothing outside this folder imports it."""
