"""A testbed for testing methods: the toy world, a server and clients that write down what they are asked."""

from semifl.configuration.build import build_world
from semifl.configuration.config import decode
from semifl.federation.local import LocalFederation
from semifl.federation.sites import ServerSite
from semifl.federation.tally import Tally
from semifl.federation.workers import Here
from semifl.federation.world import Round
from semifl.randomness import Seed
from toys import toy_table


class WatchedServer(ServerSite):
    def fit(self, job):
        fitted = super().fit(job)
        self.fits.append((job, fitted))
        return fitted


class WatchedClients(LocalFederation):
    def each(self, cohort, message, t, own=None):
        self.sent.append((message, {client: own(client) for client in cohort} if own else None))
        for reply in super().each(cohort, message, t, own):
            self.replies.append(reply)
            yield reply


class Testbed:
    """The toy world of `toys`, played round by round."""

    def __init__(self, memory=None, clients=4, **method) -> None:
        table = toy_table()
        table["data"] = {**table["data"], "clients": clients}
        table["method"] = {"activity_rate": 1.0, **method}
        world = build_world(decode(table))
        self.method = world.config.method.thing
        self.place, self.tally = world.place(memory, "cpu"), Tally()
        self.server = WatchedServer(
            self.place, world.division.server, world.data.labels, Here(self.place), 1, self.tally
        )
        self.server.fits = []
        self.clients = WatchedClients(Here(self.place), len(world.division.clients), self.method, self.tally)
        self.first = self.place.network.weights()

    def trained(self):
        """The models of the clients that trained: what each was sent, and its change."""
        ((sent, _),) = self.clients.sent
        changes = [reply.update.change for reply in self.clients.replies if reply.update]
        return [{name: sent.weights[name] + tensor for name, tensor in change.items()} for change in changes]

    def round(self, index, state, progress=0.0):
        self.clients.sent, self.clients.replies, self.server.fits = [], [], []
        self.tally.reset()
        t = Round(index, progress, Seed(0).under("round", index))
        state, self.model = self.method.round(t, state, self.server.at(t), self.clients)
        return state
