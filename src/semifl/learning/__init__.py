"""Weights, the one training loop, static BatchNorm, pseudo-labels and scores; knows no data set and no client."""
