"""scikit-learn's handwritten digits: 1,797 pictures, 8×8, grey; the data set that needs no download."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from semifl.data.dataset import Dataset, Facts, moments


@dataclass(frozen=True)
class Digits:
    """Every fifth picture of each digit is for testing, whatever the experiment's seed."""

    def load(self) -> Dataset:
        from sklearn.datasets import load_digits

        source = load_digits()
        pixels = np.rint(source.images * 255 / 16).astype(np.uint8)  # sixteen grey levels on the full scale
        images, labels = torch.from_numpy(pixels)[:, None], torch.from_numpy(source.target.astype(np.int64))
        testing = torch.zeros(len(labels), dtype=torch.bool)
        for digit in range(10):
            testing[torch.nonzero(labels == digit)[::5]] = True
        mean, std = moments(images[~testing])
        facts = Facts(tuple("0123456789"), mean, std, may_flip=False, channels=1, size=8)
        return Dataset(facts, images[~testing], labels[~testing], images[testing], labels[testing])
