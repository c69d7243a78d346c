"""The interactive page in a real browser: clicks, keys and hovering, and what the page then says.

Chromium is driven over its remote debugging pipe: JSON messages that end in a zero byte, on file descriptors 3 and 4
(https://chromedevtools.github.io/devtools-protocol/).
"""

import json
import os
import select
import shutil
import subprocess
import time
from itertools import pairwise

import numpy as np
import pytest

from mybert.visualization import AttentionMap, InputPicture

fcntl = pytest.importorskip("fcntl", reason="the browser's pipes need POSIX file descriptors")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 120  # seconds; only a hanging browser needs them
HOSTILE = [
    "[CLS]",
    "</script><script>window.hacked = 1</script>",
    '<img src="x" onerror="window.hacked = 1">',
    "##&amp;",
]
TOKENS = [*HOSTILE, "[SEP]", "second", "한국어", "[SEP]"]
SEGMENTS = [0, 0, 0, 0, 0, 1, 1, 1]
LAYERS, HEADS = 2, 3


def moved(end):
    """A pipe's end away from the numbers 3 and 4, where the browser wants its own."""
    copy = fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(end)
    return copy


class Browser:
    """A headless Chromium with one page."""

    def __init__(self, program, profile):
        to_browser, from_browser = (tuple(map(moved, os.pipe())) for _ in range(2))

        def connect():
            os.dup2(to_browser[0], 3)
            os.dup2(from_browser[1], 4)

        command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"]
        self.process = subprocess.Popen(
            [*command, f"--user-data-dir={profile}", "--window-size=1280,1000", "about:blank"],
            preexec_fn=connect,
            pass_fds=(3, 4),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        self.input, self.output = to_browser[1], from_browser[0]
        self.answers = select.poll()  # `select` takes no file descriptor above 1023
        self.answers.register(self.output, select.POLLIN)
        self.buffer, self.count, self.events, self.session = b"", 0, [], None
        page = next(target for target in self.call("Target.getTargets")["targetInfos"] if target["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        """Sends a command and returns its result; events that come meanwhile are kept."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.input, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self.count:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self.events.append(answer)

    def _receive(self):
        while b"\0" not in self.buffer:
            assert self.answers.poll(1000 * PATIENCE), "the browser does not answer"
            received = os.read(self.output, 1 << 16)
            assert received, "the browser has ended"
            self.buffer += received
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def evaluate(self, expression):
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, expression):
        """Waits until a JavaScript expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.02)

    def open(self, path, choice="", ready="document.documentElement?.dataset.ready === 'true'"):
        """Opens a file, with a choice after the #, as a new page."""
        self.call("Page.navigate", url="about:blank")
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri() + (f"#{choice}" if choice else ""))
        self.wait_for(f"location.protocol === 'file:' && {ready}")

    def text(self, selector):
        """The text of an element."""
        return self.evaluate(f"document.querySelector({json.dumps(selector)}).textContent")

    def move(self, selector, across=0.5, down=0.5):
        """Puts the mouse over a point of an element, given as shares of its width and height."""
        x, y = self.evaluate(
            f"(() => {{ const element = document.querySelector({json.dumps(selector)});"
            "element.scrollIntoView({block: 'center'}); const box = element.getBoundingClientRect();"
            f"return [box.left + {across} * box.width, box.top + {down} * box.height]; }})()"
        )
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        return x, y

    def click(self, selector, across=0.5, down=0.5):
        """Clicks on an element."""
        x, y = self.move(selector, across, down)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key):
        """Presses a key."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def close(self):
        """Ends the browser."""
        self.session = None
        try:
            self.call("Browser.close")
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()
            os.close(self.input)
            os.close(self.output)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"there is no Chromium: none of {', '.join(BROWSERS)} is installed")
    browser = Browser(program, tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def attention():
    weights = np.random.default_rng(1).dirichlet(np.full(len(TOKENS), 0.4), size=(LAYERS, HEADS, len(TOKENS)))
    return AttentionMap(TOKENS, SEGMENTS, weights, "tiny <b>BERT</b>")


@pytest.fixture
def page(browser, attention, tmp_path):
    browser.open(attention.save(tmp_path / "attention.html"))
    yield browser
    requests = [event["params"]["request"]["url"] for event in browser.events if "request" in event.get("params", {})]
    assert requests and all(url.startswith(("file:", "blob:", "data:")) for url in requests)
    assert not [event for event in browser.events if event.get("method") == "Runtime.exceptionThrown"]
    log = [event["params"]["entry"] for event in browser.events if event.get("method") == "Log.entryAdded"]
    assert not [entry for entry in log if entry["level"] == "error"]
    assert browser.evaluate("window.hacked") is None


def cell(layer, head):
    return f'#grid button[data-layer="{layer}"][data-head="{head}"]'


def token(index):
    return (
        f"#tokens .token:nth-child({index % 5 + 1})" if index < 5 else f".segment.second .token:nth-child({index - 4})"
    )


def chosen(page):
    """What the page says is chosen: the heading, the pressed map, and the list's heading."""
    pressed = page.evaluate(
        "[...document.querySelectorAll('#grid button[aria-pressed=true]')].map((button) => button.title)"
    )
    assert pressed == [page.text("#chosen")]
    return pressed[0], page.text("#selected")


def listed(page):
    """The list of weights: (token, its place, the weight as it is written)."""
    return page.evaluate(
        "[...document.querySelectorAll('#targets li')].map((item) => [item.querySelector('span').firstChild.data,"
        "Number(item.querySelector('small').textContent), item.querySelector('output').textContent])"
    )


def assert_lists(page, weights):
    """The list shows these weights (T,), the largest first, each within what one byte can tell."""
    entries = listed(page)
    assert sorted(place for _, place, _ in entries) == list(range(len(TOKENS)))
    for name, place, written in entries:
        assert name == TOKENS[place]
        assert float(written.removesuffix(" %")) == pytest.approx(100 * weights[place], abs=0.9)
    shown = [weights[place] for _, place, _ in entries]
    assert all(before >= after - 0.004 for before, after in pairwise(shown))


def test_it_opens_with_the_first_head(page, attention):
    assert page.text("h1") == page.evaluate("document.title") == "Attention of tiny <b>BERT</b>"
    assert page.evaluate("document.querySelectorAll('#grid button').length") == LAYERS * HEADS
    names = page.evaluate("[...document.querySelectorAll('.token')].map((button) => button.firstChild.data)")
    assert names == TOKENS
    seconds = page.evaluate("[...document.querySelectorAll('.segment.second .token')].length")
    assert seconds == sum(SEGMENTS)
    assert chosen(page) == ("Layer 0, head 0", f"“{TOKENS[1]}” (1) attends to")
    assert_lists(page, attention.weights[0, 0, 1])


def test_clicks_choose_layer_and_head(page, attention):
    for layer, head in ((1, 2), (0, 1), (1, 0)):
        page.click(cell(layer, head))
        assert chosen(page)[0] == f"Layer {layer}, head {head}"
        assert_lists(page, attention.weights[layer, head, 1])


def test_hovering_shows_a_token_and_a_click_keeps_it(page, attention):
    page.move(token(6))
    assert chosen(page)[1] == "“한국어” (6) attends to"
    assert_lists(page, attention.weights[0, 0, 6])
    page.move("h1")
    assert chosen(page)[1] == f"“{TOKENS[1]}” (1) attends to"
    page.click(token(5))
    page.move("h1")
    assert chosen(page)[1] == "“second” (5) attends to"
    assert_lists(page, attention.weights[0, 0, 5])
    label = page.evaluate(f"document.querySelector({json.dumps(token(0))}).title")
    assert label.startswith("[CLS] (0): ")
    assert float(label.split()[-2]) == pytest.approx(100 * attention.weights[0, 0, 5, 0], abs=0.9)


def test_keys_choose(page, attention):
    for key, name in (
        ("ArrowRight", "Layer 0, head 1"),
        ("ArrowDown", "Layer 1, head 1"),
        ("ArrowDown", "Layer 1, head 1"),  # there is no further layer
        ("ArrowLeft", "Layer 1, head 0"),
        ("ArrowUp", "Layer 0, head 0"),
    ):
        page.press(key)
        assert chosen(page)[0] == name
    page.press(".")
    assert_lists(page, attention.weights[0, 0, 2])
    page.press("d")
    assert chosen(page)[1] == f"“{TOKENS[2]}” (2) is attended by"
    assert_lists(page, attention.weights[0, 0, :, 2])
    page.press("r")
    assert chosen(page) == ("Rollout, layer 0", f"“{TOKENS[2]}” (2) flows into")
    page.press("ArrowDown")
    assert chosen(page)[0] == "Rollout, layers 0–1"
    assert_lists(page, attention.rollout[1, :, 2])


def test_switches_choose_view_and_direction(page, attention):
    page.click(cell(0, 1))
    page.click("#views button[data-value=rollout]")
    assert page.evaluate("document.querySelectorAll('#grid button').length") == LAYERS
    page.click(cell(1, 0))
    assert chosen(page) == ("Rollout, layers 0–1", f"“{TOKENS[1]}” (1) takes from")
    assert_lists(page, attention.rollout[1, 1])
    page.click("#views button[data-value=attention]")
    page.click("#directions button[data-value=to]")
    assert chosen(page) == ("Layer 1, head 1", f"“{TOKENS[1]}” (1) is attended by")  # the previous head
    assert_lists(page, attention.weights[1, 1, :, 1])


def test_the_map_is_drawn_and_read_by_the_mouse(page, attention):
    page.click(cell(1, 1))
    width, height = page.evaluate("(({width, height}) => [width, height])(document.querySelector('#map'))")
    # The map is the square at the lower right, with the page's largest cells: eight tokens have space for them.
    for i, j in ((7, 7), (7, 5), (0, 7), (6, 0), (3, 4)):
        x, y = (side - 2 - 30 * (7.5 - place) for side, place in ((width, j), (height, i)))
        page.move("#map", x / width, y / height)
        row, column, written = page.evaluate(
            "/^.* \\((\\d+)\\) → .* \\((\\d+)\\): (.*) %$/s.exec("
            "document.querySelector('#readout').textContent).slice(1)"
        )
        assert (int(row), int(column)) == (i, j)
        weight = attention.weights[1, 1, i, j]
        assert float(written) == pytest.approx(100 * weight, abs=0.9)
        opacity = page.evaluate(
            f"document.querySelector('#map').getContext('2d').getImageData({round(x)}, {round(y)}, 1, 1).data[3]"
        )
        assert opacity == pytest.approx(255 * np.sqrt(weight), abs=2)


def test_the_address_keeps_the_choice(browser, attention, tmp_path):
    path = attention.save(tmp_path / "attention.html", layer=1, head=1)
    browser.open(path)
    assert chosen(browser)[0] == "Layer 1, head 1"
    browser.click(cell(0, 2))
    browser.click(token(3))
    browser.click("#directions button[data-value=to]")
    address = browser.evaluate("location.hash.slice(1)")
    browser.open(path, address)
    browser.move("h1")
    assert chosen(browser) == ("Layer 0, head 2", f"“{TOKENS[3]}” (3) is attended by")
    browser.open(path, "view=rollout&layer=99&token=-4&head=x")
    browser.move("h1")
    assert chosen(browser) == ("Rollout, layers 0–1", "“[CLS]” (0) takes from")


@pytest.mark.parametrize("width", [500, 1280])
def test_long_texts_fit_the_window(browser, tmp_path, width):
    tokens = [f"word{i}" for i in range(150)]
    weights = np.random.default_rng(0).dirichlet(np.full(150, 0.1), size=(2, 12, 150))
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    browser.open(AttentionMap(tokens, [0] * 75 + [1] * 75, weights).save(tmp_path / "long.html"))
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    browser.move(".segment.second .token:nth-child(40)")
    assert browser.text("#selected") == "“word114” (114) attends to"
    best = int(weights[0, 0, 114].argmax())
    assert listed(browser)[0][:2] == [f"word{best}", best]
    browser.call("Emulation.clearDeviceMetricsOverride")


def test_light_and_dark(browser, attention, tmp_path):
    count = len(TOKENS)
    pages = [
        (attention.save(tmp_path / "attention.html"), "document.documentElement?.dataset.ready === 'true'"),
        (
            InputPicture(TOKENS, range(count), SEGMENTS, range(count), [1] * count).save(tmp_path / "input.html"),
            "document.readyState === 'complete'",
        ),
    ]
    for path, ready in pages:
        brightness = {}
        for scheme in ("light", "dark"):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            browser.call("Emulation.setEmulatedMedia", features=features)
            browser.open(path, ready=ready)
            for part, name in (("page", "backgroundColor"), ("text", "color")):
                color = browser.evaluate(f"getComputedStyle(document.body).{name}")
                brightness[scheme, part] = sum(map(int, color.removeprefix("rgb(").removesuffix(")").split(",")))
        assert brightness["light", "page"] - brightness["light", "text"] > 400
        assert brightness["dark", "text"] - brightness["dark", "page"] > 400
        assert browser.evaluate("window.hacked") is None
    browser.call("Emulation.setEmulatedMedia", features=[])
