"""Who is kept out at the door: no TLS, no certificate, a foreign one, another site's name, a site that gives orders."""

import os
import socket
import ssl
import subprocess
import time

import pytest

pytest.importorskip("nvflare", reason="needs the flare extra: pip install 'semifl[flare]'")

from deploy.net import OPERATOR, Net
from federated_pictures import make_federation
from semifl.deploy.flare.provision import environment, log_file, settle, site_command
from semifl.deploy.flare.session import HubDown, HubLine

pytestmark = pytest.mark.skipif(os.environ.get("SEMIFL_DEPLOY") != "full", reason="part of make test-deploy")
SITES = ("clinic-a", "clinic-b")


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """A hub and one of its two sites, clinic-a."""
    folder = tmp_path_factory.mktemp("federation")
    pictures = make_federation(folder / "pictures", SITES)
    net = Net(folder, SITES)
    try:
        net.provision()
        net.start("hub", "--data", str(pictures))
        net.start("clinic-a", "--data", str(pictures / "clients" / "clinic-a"))
        settle(net.kits[OPERATOR])
        wait_for(lambda: connected(net) == ["clinic-a"], 60)
        yield net
    finally:
        net.close()


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """Kits of another project with the same names, made by somebody else."""
    net = Net(tmp_path_factory.mktemp("foreign"), SITES)
    net.provision()
    return net


def connected(net):
    try:
        line = HubLine(net.kits[OPERATOR])
    except HubDown:
        return None
    try:
        return line.connected()
    finally:
        line.close()


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.5)


def context(net, certificate=None):
    made = ssl.create_default_context(cafile=str(net.kits["clinic-a"].startup / "rootCA.pem"))
    made.check_hostname = False
    if certificate:
        made.load_cert_chain(certificate / "client.crt", certificate / "client.key")
    return made


def talk(net, made):
    """What the hub answers to a few bytes over TLS; nothing if it hangs up, as TLS 1.3 does after the handshake."""
    try:
        with socket.create_connection(("127.0.0.1", net.port), timeout=10) as plain, made.wrap_socket(plain) as secure:
            secure.sendall(b"GET / HTTP/1.1\r\nHost: hub\r\n\r\n")
            return secure.recv(100)
    except (ssl.SSLError, ConnectionError):
        return b""


def test_plain_http_gets_no_answer(net):
    with socket.create_connection(("127.0.0.1", net.port), timeout=5) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: hub\r\n\r\n")
        plain.settimeout(5)
        try:
            answer = plain.recv(100)
        except OSError:
            answer = b""
    assert not answer.startswith(b"HTTP")


def test_our_own_certificate_is_let_in_so_the_next_two_tests_mean_something(net):
    assert talk(net, context(net, net.kits["clinic-b"].startup)).startswith(b"HTTP")


def test_tls_without_a_certificate_is_refused(net):
    assert talk(net, context(net)) == b""


def test_a_foreign_certificate_is_refused(net, foreign):
    assert talk(net, context(net, foreign.kits["clinic-a"].startup)) == b""


def test_a_site_cannot_take_the_name_of_another(net):
    """clinic-a's kit with clinic-b's name: the hub must not count it as clinic-b."""
    kit = net.kits["clinic-a"]
    command = [word.replace("uid=clinic-a", "uid=clinic-b") for word in site_command(kit)]
    assert "uid=clinic-b" in command
    with (net.folder / "impostor.out").open("ab") as log:
        impostor = subprocess.Popen(command, env=environment(kit), cwd=kit.folder, stdout=log, stderr=log)
    try:
        for _ in range(8):
            time.sleep(1)
            assert connected(net) == ["clinic-a"]
        assert impostor.poll() is None, "it gave up before it could be refused"
        assert "clinic-b" in log_file(net.kits["hub"]).read_text(), "it never came to the hub"
    finally:
        impostor.kill()
        impostor.wait()


def test_a_site_cannot_give_orders(net):
    """A site's certificate in the place of an operator's opens no session."""
    kit = net.kits[OPERATOR]
    kept = {name: (kit.startup / name).read_bytes() for name in ("client.crt", "client.key")}
    try:
        for name in kept:
            (kit.startup / name).write_bytes((net.kits["clinic-a"].startup / name).read_bytes())
        with pytest.raises(HubDown, match=f"does not let {OPERATOR} in"):
            HubLine(kit).close()
    finally:
        for name, content in kept.items():
            (kit.startup / name).write_bytes(content)
    assert connected(net) == ["clinic-a"]
