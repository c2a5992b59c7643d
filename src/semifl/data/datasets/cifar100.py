"""CIFAR-100 (Krizhevsky 2009): 50,000 training and 10,000 test pictures of a hundred kinds of things."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from semifl.data.cifar import Edition
from semifl.data.dataset import Dataset
from semifl.data.files import Download, Published


@dataclass(frozen=True)
class Cifar100:
    """The publisher's pickled batches with their fine labels, as a folder or inside the archive."""

    root: str = ""  # the folder that holds `cifar-100-python` or `cifar-100-python.tar.gz`; empty: the default place
    verify: bool = True  # compare every file with the published checksum

    FILES: ClassVar[Published] = Published(
        dataset="cifar100",
        page="https://www.cs.toronto.edu/~kriz/cifar.html",
        files=(
            Download(
                name="cifar-100-python.tar.gz",
                md5="eb9058c3a382ffc7106e4002c42a8d85",
                urls=("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",),
            ),
        ),
    )
    EDITION: ClassVar[Edition] = Edition(
        published=FILES,
        folder="cifar-100-python",
        train=("train",),
        test="test",
        meta="meta",
        md5={
            "train": "16019d7e3df5f24257cddd939b257f8d",
            "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
            "meta": "7973b15100ade9c7d40fb424638fde48",
        },
        labels="fine_labels",
        names="fine_label_names",
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
    )

    def load(self) -> Dataset:
        return self.EDITION.load(self.root, self.verify)
