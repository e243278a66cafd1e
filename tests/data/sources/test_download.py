"""Downloads against real servers on this machine: ones that continue, ignore, break off, lie and never end."""

from __future__ import annotations

import hashlib
import http.server
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ocssl.data.sources import download
from ocssl.data.sources.download import checksum, data_folder, fetch
from ocssl.errors import DataError

CONTENT = np.random.default_rng(0).bytes(700_000)
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server:
    """Serves with one function, and remembers from which byte each request asked."""

    def __init__(self, answer: Callable[[Server, http.server.BaseHTTPRequestHandler, int], None]) -> None:
        outer = self
        self.asked: list[int] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                start = int(self.headers.get("Range", "bytes=0-")[6:-1])
                outer.asked.append(start)
                with suppress(OSError):  # the other side may have heard enough
                    answer(outer, self, start)
                self.close_connection = True

            def log_message(self, *args: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/file.tar.gz"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


Answer = Callable[[Server, http.server.BaseHTTPRequestHandler, int], None]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answer], Server]]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    servers: list[Server] = []

    def start(answer: Answer) -> Server:
        servers.append(Server(answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def send(
    handler: Any, start: int = 0, content: bytes = CONTENT, end: int | None = None, says: int | None = None
) -> None:
    """The content from a byte on, as a part if that is not the first; up to another byte if it breaks off there."""
    handler.send_response(206 if start else 200)
    if start:
        handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{says or len(content)}")
    handler.send_header("Content-Length", str(len(content) - start))
    handler.end_headers()
    handler.wfile.write(content[start:end])


def continuing(server: Server, handler: Any, start: int) -> None:
    send(handler, start)


def ignoring(server: Server, handler: Any, start: int) -> None:
    send(handler)


def breaking(server: Server, handler: Any, start: int) -> None:
    send(handler, start, end=start + 300_000)


def breaking_and_ignoring(server: Server, handler: Any, start: int) -> None:
    send(handler, 0, end=300_000)


def changed(server: Server, handler: Any, start: int) -> None:
    send(handler, start, bytes(len(CONTENT)))


def longer(server: Server, handler: Any, start: int) -> None:
    send(handler, start, CONTENT + b"!", says=len(CONTENT))


def shorter(server: Server, handler: Any, start: int) -> None:
    send(handler, start, b"<html>Log in first</html>")


def endless(server: Server, handler: Any, start: int) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(bytes(10_000))


def silent(server: Server, handler: Any, start: int) -> None:
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(CONTENT[:1000])
    handler.rfile.read(1)  # until the other side gives up


def absent(server: Server, handler: Any, start: int) -> None:
    handler.send_error(404)


def too_short_for_a_part(server: Server, handler: Any, start: int) -> None:
    handler.send_error(416) if start else send(handler)


def get(server: Server, folder: Path, **more: Any) -> Path:
    return fetch(server.url, folder / "sub" / "file.tar.gz", size=len(CONTENT), **({"md5": MD5, "timeout": 5} | more))


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "sub").iterdir())


Serve = Callable[[Answer], Server]


def test_a_file_is_downloaded_once(serve: Serve, tmp_path: Path) -> None:
    server = serve(continuing)
    told: list[tuple[str, int, int]] = []
    for _ in range(2):
        path = get(server, tmp_path, report=lambda *report: told.append(report))
        assert path.read_bytes() == CONTENT
        assert left(tmp_path) == ["file.tar.gz"]
    assert server.asked == [0]
    assert {(what, total) for what, _, total in told} == {("downloading file.tar.gz", len(CONTENT))}
    done = [done for _, done, _ in told]
    assert done == sorted(set(done))
    assert done[-1] == len(CONTENT)


def test_a_file_with_another_content_is_replaced(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file.tar.gz").write_bytes(bytes(len(CONTENT)))
    assert get(serve(continuing), tmp_path).read_bytes() == CONTENT


def test_a_broken_connection_is_taken_up_again(serve: Serve, tmp_path: Path) -> None:
    server = serve(breaking)
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.asked == [0, 300_000, 600_000]


def test_an_earlier_part_is_taken_up_again(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file.tar.gz.part").write_bytes(CONTENT[:12_345])
    server = serve(continuing)
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.asked == [12_345]
    assert left(tmp_path) == ["file.tar.gz"]


def test_a_whole_part_needs_no_server(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "x.part").write_bytes(CONTENT)
    fetch("https://nowhere.invalid/x", tmp_path / "part" / "x", size=len(CONTENT), md5=MD5)
    assert (tmp_path / "part" / "x").read_bytes() == CONTENT


@pytest.mark.parametrize("answer", [ignoring, too_short_for_a_part])
def test_a_server_that_cannot_continue_is_asked_for_all(serve: Serve, tmp_path: Path, answer: Answer) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file.tar.gz.part").write_bytes(CONTENT[:12_345])
    assert get(serve(answer), tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("part", [bytes(12_345), bytes(len(CONTENT)), bytes(len(CONTENT) + 1)])
def test_a_part_of_another_file_is_removed_and_all_is_fetched_again(serve: Serve, tmp_path: Path, part: bytes) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file.tar.gz.part").write_bytes(part)
    server = serve(continuing)
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.asked[-1] == 0


@pytest.mark.parametrize(
    ("answer", "requests", "reason"),
    [
        (changed, 2, rf"md5 [0-9a-f]{{32}}, wanted {MD5}"),
        (longer, 2, "700001 bytes, wanted 700000"),
        (shorter, 2, "25 bytes, wanted 700000"),
        (endless, 2, "more than 700000 bytes"),
        (absent, 1, "HTTP 404 Not Found"),
    ],
)
def test_a_wrong_file_is_removed_and_said(
    serve: Serve, tmp_path: Path, answer: Answer, requests: int, reason: str
) -> None:
    server = serve(answer)
    with pytest.raises(DataError, match=rf"cannot download {server.url} \({reason}\): get it by hand .* --data DIR\.$"):
        get(server, tmp_path)
    assert server.asked == [0] * requests
    assert left(tmp_path) == []


def test_a_part_that_the_server_places_elsewhere_is_not_used(serve: Serve, tmp_path: Path) -> None:
    def elsewhere(server: Server, handler: Any, start: int) -> None:
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes 0-699999/{len(CONTENT)}")
        handler.end_headers()
        handler.wfile.write(CONTENT)

    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file.tar.gz.part").write_bytes(CONTENT[:12_345])
    server = serve(lambda s, handler, start: elsewhere(s, handler, start) if start else send(handler))
    told: list[int] = []
    assert get(server, tmp_path, report=lambda what, done, total: told.append(done)).read_bytes() == CONTENT
    assert server.asked == [12_345, 0]
    assert told == sorted(told)  # nothing of it was read


def test_an_endless_file_is_not_read_further_than_its_size(serve: Serve, tmp_path: Path) -> None:
    told: list[int] = []
    with pytest.raises(DataError, match="more than"):
        get(serve(endless), tmp_path, report=lambda what, done, total: told.append(done))
    assert max(told) == len(CONTENT) + 1


def test_what_came_before_a_break_is_kept_for_the_next_time(serve: Serve, tmp_path: Path) -> None:
    server = serve(breaking_and_ignoring)
    with pytest.raises(DataError, match="it ended after 300000 of 700000 bytes"):
        get(server, tmp_path)
    assert server.asked == [0, 300_000]
    assert left(tmp_path) == ["file.tar.gz.part"]
    later = serve(continuing)
    assert get(later, tmp_path).read_bytes() == CONTENT
    assert later.asked == [300_000]


def test_a_server_that_falls_silent_is_left(serve: Serve, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot download .*timed out"):
        get(serve(silent), tmp_path, timeout=0.2)
    assert (tmp_path / "sub" / "file.tar.gz.part").read_bytes() == CONTENT[:1000]


def test_a_file_a_byte_at_a_time_is_given_up(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_CONNECTIONS", 4)
    server = serve(lambda s, handler, start: send(handler, start, end=start + 1))
    with pytest.raises(DataError, match="the connection broke 4 times"):
        get(server, tmp_path)
    assert server.asked == [0, 1, 2, 3]


def test_without_a_server_the_way_by_hand_is_told(serve: Serve, tmp_path: Path) -> None:
    server = serve(continuing)
    server.close()
    server.close = lambda: None  # type: ignore[method-assign]
    with pytest.raises(DataError, match=r"\(Connection refused\): get it by hand and name .* --data DIR\.$"):
        get(server, tmp_path)
    assert left(tmp_path) == []


def test_redirects_are_followed_but_not_to_other_kinds_of_address(serve: Serve, tmp_path: Path) -> None:
    real = serve(continuing)
    secret = tmp_path / "secret"
    secret.write_bytes(CONTENT)

    def to(place: str) -> Server:
        def redirect(server: Server, handler: Any, start: int) -> None:
            handler.send_response(302)
            handler.send_header("Location", place)
            handler.end_headers()

        return serve(redirect)

    assert get(to(real.url), tmp_path / "a").read_bytes() == CONTENT
    refused = {
        "http://example.org/x": "only https",
        "http://" + "a" * 99: "only https",
        "ftp://127.0.0.1/x": "only https",
        f"file://{secret}": "HTTP 302",
        "http://[": "Invalid IPv6 URL",
    }
    for place, reason in refused.items():
        with pytest.raises(DataError, match=rf"cannot download .*\({reason}"):
            get(to(place), tmp_path / "b")
        assert not (tmp_path / "b" / "sub" / "file.tar.gz").exists()


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/x",
        "http://10.0.0.1/x",
        "file:///etc/passwd",
        "ftp://localhost/x",
        "",
        "x",
        "http://127.0.0.1.org/x",
    ],
)
def test_only_https_is_asked(tmp_path: Path, url: str) -> None:
    with pytest.raises(DataError, match="only https is allowed"):
        fetch(url, tmp_path / "x", size=1, md5="0")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match=r"cannot write .*x \((Not a directory|File exists)\).*OCSSL_DATA"):
        fetch("https://example.org/x", tmp_path / "file" / "x", size=1, md5="0")


def test_a_full_disk_is_not_taken_for_the_network(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"cannot write .*No space left on device"):
        get(serve(continuing), tmp_path)


def test_an_interrupted_download_is_continued(serve: Serve, tmp_path: Path) -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    server = serve(continuing)
    with pytest.raises(KeyboardInterrupt):
        get(server, tmp_path, report=interrupt)
    assert left(tmp_path) == ["file.tar.gz.part"]
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.asked[1] > 0


def two_at_a_time(serve: Serve, folder: Path, answer: Callable[[Any], None]) -> tuple[Server, list[str]]:
    """Fetch the same twice; the first is answered when the second says that it waits. What was said and refused."""
    waits = threading.Event()
    said: list[str] = []

    def held_up(server: Server, handler: Any, start: int) -> None:
        first = len(server.asked) == 1
        assert waits.wait(60)
        answer(handler) if first else send(handler)

    def report(what: str, done: int, total: int) -> None:
        if what.startswith("waiting"):
            said.append(what)
            waits.set()

    def run() -> None:
        try:
            get(server, folder, report=report, timeout=60)
        except DataError as error:
            said.append(str(error))

    server = serve(held_up)
    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert left(folder) == ["file.tar.gz"]
    assert (folder / "sub" / "file.tar.gz").read_bytes() == CONTENT
    return server, said


def test_two_at_a_time_download_once(serve: Serve, tmp_path: Path) -> None:
    server, said = two_at_a_time(serve, tmp_path, send)
    assert said == ["waiting for another download"]
    assert server.asked == [0]


def test_the_second_goes_on_where_the_first_gives_up(serve: Serve, tmp_path: Path) -> None:
    server, said = two_at_a_time(serve, tmp_path, lambda handler: handler.send_error(404))
    assert said[0] == "waiting for another download"
    assert "HTTP 404" in said[1]
    assert server.asked == [0, 0]


def test_a_proxy_of_the_environment_is_used(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = serve(continuing)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", proxy.url)
    url = "http://127.0.0.1:9/file.tar.gz"
    fetch(url, tmp_path / "x", size=len(CONTENT), md5=MD5)
    assert proxy.asked == [0]


def test_the_data_folder_is_where_the_environment_says() -> None:
    home = Path.home()
    assert data_folder({"OCSSL_DATA": "/a", "XDG_DATA_HOME": "/b"}) == Path("/a")
    assert data_folder({"OCSSL_DATA": "~/a"}) == home / "a"
    assert data_folder({"OCSSL_DATA": "", "XDG_DATA_HOME": "/b"}) == Path("/b/ocssl")
    assert data_folder({"XDG_DATA_HOME": "b"}) == home / ".local" / "share" / "ocssl"
    assert data_folder({}) == home / ".local" / "share" / "ocssl"


def test_checksums_are_those_of_hashlib(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(CONTENT)
    assert checksum(tmp_path / "x") == MD5
    with pytest.raises(DataError, match="cannot read"):
        checksum(tmp_path / "y")
