"""CIFAR-10 (Krizhevsky 2009): 50,000 training and 10,000 test pictures of ten kinds of things."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from semifl.data.cifar import Edition
from semifl.data.dataset import Dataset
from semifl.data.files import Download, Published


@dataclass(frozen=True)
class Cifar10:
    """The publisher's pickled batches, as a folder or inside the archive."""

    root: str = ""  # the folder that holds `cifar-10-batches-py` or `cifar-10-python.tar.gz`; empty: the default place
    verify: bool = True  # compare every file with the published checksum

    FILES: ClassVar[Published] = Published(
        dataset="cifar10",
        page="https://www.cs.toronto.edu/~kriz/cifar.html",
        files=(
            Download(
                name="cifar-10-python.tar.gz",
                md5="c58f30108f718f92721af3b95e74349a",
                urls=("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
            ),
        ),
    )
    EDITION: ClassVar[Edition] = Edition(
        published=FILES,
        folder="cifar-10-batches-py",
        train=("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"),
        test="test_batch",
        meta="batches.meta",
        md5={
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
            "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
        },
        labels="labels",
        names="label_names",
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2023, 0.1994, 0.2010),
    )

    def load(self) -> Dataset:
        return self.EDITION.load(self.root, self.verify)
