"""A browser without a window, driven through two pipes: DevTools messages are JSON that ends with a zero byte."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = "no Chromium here: 'apt-get install chromium' gets one"
SECONDS = 60  # after which a browser that says nothing is given up


def find() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab. `troubles` collects what a console would show in red, `requests` all that was asked for."""

    def __init__(self, browser: subprocess.Popen[bytes], to: int, back: int) -> None:
        self._browser, self._to, self._back = browser, to, back
        self._number, self._rest = 0, b""
        self._session: str | None = None
        self.troubles: list[str] = []
        self.requests: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; what happens meanwhile is noted."""
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": self._number, "method": method, "params": parameters, **session}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self._note(answer)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def open(self, address: str) -> None:
        self.troubles.clear()
        self.requests.clear()
        self.ask("Page.navigate", url=address)
        while (event := self._next()).get("method") != "Page.loadEventFired":
            self._note(event)
        self._note(event)

    def look(self, width: int, scheme: str = "light", media: str = "screen") -> None:
        """Be a screen of this width, in this colour scheme, or a sheet of paper."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", media=media, features=features)

    def value(self, script: str) -> Any:
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def picture(self, path: Path) -> None:
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _note(self, event: dict[str, Any]) -> None:
        about = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.troubles.append(str(about["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if about["type"] in ("error", "warning", "assert"):
                self.troubles.append(str(about["args"]))
            case "Log.entryAdded" if about["entry"]["level"] in ("error", "warning"):
                self.troubles.append(about["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(about["request"]["url"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._back, 1 << 20)
            assert part, f"the browser has ended: {self._browser.wait(10)}"
            self._rest += part
        message, self._rest = self._rest.split(b"\0", 1)
        return dict(json.loads(message))


@contextmanager
def browser(program: str, profile: Path) -> Iterator[Page]:
    """A fresh browser, gone afterwards."""
    to_read, to_write = os.pipe()
    back_read, back_write = os.pipe()
    # Chromium takes commands from descriptor 3 and answers on 4; a shell puts them there.
    command = f'exec "$@" 3<&{to_read} 4>&{back_write}'
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    options += [f"--user-data-dir={profile}", "--remote-debugging-pipe", "--disable-background-networking"]
    process = subprocess.Popen(
        ["timeout", str(SECONDS * 5), "bash", "-c", command, "bash", program, *options, "about:blank"],
        pass_fds=(to_read, back_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(back_write)
    try:
        yield Page(process, to_write, back_read)
    finally:
        os.close(to_write)
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        os.close(back_read)
