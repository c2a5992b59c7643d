"""An engine that carries packets to sites in this process, and writes down what passed."""

from collections.abc import Iterator
from pathlib import Path

from federated_pictures import SITES
from semifl.deploy.policy import Policy
from semifl.deploy.remote import Answer
from semifl.deploy.site import Site


class ByHand:
    """The last site is asked first: the order of answers must not matter."""

    def __init__(self, sites: dict[str, Site]) -> None:
        self.sites = sites
        self.packets: list[tuple[str, bytes, bytes]] = []  # site, what it was sent, what it answered

    def exchange(self, packets, seconds, largest) -> Iterator[Answer]:
        for name in reversed(list(packets)):
            data = self.sites[name].answer(packets[name])
            self.packets.append((name, packets[name], data))
            yield Answer(name, data, "", 0.1)

    def close(self) -> None:
        for site in self.sites.values():
            site.close()


def transport_to(
    pictures: Path, folder: Path, policy: Policy, labels: Path | None = None, trains_apart: bool = True
) -> ByHand:
    """All sites of the pictures, with this policy; their trainers are processes of their own, or this one."""
    return ByHand(
        {
            name: Site(
                name, pictures / "clients" / name, labels, policy, folder / "memory" / name, trains_apart=trains_apart
            )
            for name in SITES
        }
    )
