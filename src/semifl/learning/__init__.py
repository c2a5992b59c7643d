"""Weights, the one training loop, static BatchNorm, pseudo-label targets and scores; knows no data set and no client."""
