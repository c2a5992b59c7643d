"""What stands after --on: the address of a Dask scheduler, or a file that says how to reach it."""

from __future__ import annotations

from pathlib import Path

from semifl.configuration.config import read
from semifl.errors import UserError
from semifl.federation.cluster.address import Cluster, Tls, whole_address
from semifl.registry import did_you_mean
from semifl.toml import Table

KEYS = ("scheduler", "direct", "tls")


def find_cluster(text: str, device: str) -> Cluster:
    """A cluster whose workers compute on `device`; "auto" is what each of them has."""
    path = Path(text)
    if path.suffix != ".toml" and not path.is_file():
        return Cluster(whole_address(text), text, device=device)
    content = read(path)
    if unknown := [key for key in content if key not in KEYS]:
        raise UserError(
            f"{path}: unknown key {unknown[0]!r}{did_you_mean(unknown[0], KEYS) or '; it may have ' + ', '.join(KEYS)}"
        )
    if not isinstance(content.get("scheduler"), str):
        raise UserError(f'{path} does not say where the scheduler is: scheduler = "tls://HOST:8786"')
    direct = content.get("direct", True)
    if not isinstance(direct, bool):
        raise UserError(f"{path}: direct must be true or false")
    try:
        address = whole_address(content["scheduler"])
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return Cluster(address, text, _tls(path, content.get("tls")), direct, device)


def _tls(path: Path, table: Table | None) -> Tls | None:
    """Files of certificates, relative to the file that names them."""
    if table is None:
        return None
    if (
        not isinstance(table, dict)
        or set(table) != set(Tls._fields)
        or not all(isinstance(each, str) for each in table.values())
    ):
        raise UserError(f"{path}: [tls] has the keys ca, cert and key, each the path of a file")
    found = Tls(**{name: str(path.absolute().parent / Path(file).expanduser()) for name, file in table.items()})
    for name, file in found._asdict().items():
        if not Path(file).is_file():
            raise UserError(f"{path}: tls.{name} = {table[name]!r} is not a file")
    return found
