"""Chromium without a window, spoken to over its DevTools pipe.

    browser = Browser(directory).start()
    page = browser.page("http://127.0.0.1:8080")    # with cookies of its own
    page.open("/console/")
    page.find("button", "Sign in").click()
    page.wait_for("heading", "Overview")
    page.close()

MODELGW_CHROMIUM names the program; "chromium".

The pipe needs no driver, no port and no package, events arrive in order, and
the browser exits as soon as the pipe is closed, so that none is left even if
the tests are killed.  Elements are found by role and accessible name, as a
screen reader finds them, mouse and keys are real input events.  Nothing waits
for a time: wait() looks until a condition is true or its bound has passed.

A page keeps what the browser reports: "faults" are errors, warnings, messages
of scripts, exceptions, violations of the content security policy and of Trusted
Types, and dialogs; "requests" are those that it has sent, "pending" the ids of
those of the present document that have not ended.
"""

import base64
import collections
import fcntl
import json
import os
import re
import select
import shutil
import signal
import subprocess
import time
import urllib.parse

LIMIT = 20          # seconds to wait for anything
CHROMIUM = os.environ.get("MODELGW_CHROMIUM", "chromium")

# no network but 127.0.0.1: nothing of the browser's own is fetched or reported,
# and other names are not resolved

OPTIONS = """--headless=new --no-sandbox --remote-debugging-pipe
    --disable-background-networking --disable-breakpad
    --disable-client-side-phishing-detection --disable-component-update
    --disable-default-apps --disable-dev-shm-usage --disable-domain-reliability
    --disable-extensions --disable-gpu --disable-search-engine-choice-screen
    --disable-sync --no-default-browser-check --no-first-run --no-pings
    --no-proxy-server --metrics-recording-only --mute-audio
    --password-store=basic --use-mock-keychain --force-color-profile=srgb
    --hide-scrollbars --lang=en-US""".split() + [
    "--disable-features=OptimizationHints,MediaRouter,Translate,"
    "CertificateTransparencyComponentUpdater",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]

KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, ""),
        " ": (32, " "), "ArrowLeft": (37, ""), "ArrowUp": (38, ""),
        "ArrowRight": (39, ""), "ArrowDown": (40, ""), "Backspace": (8, "")}
MODIFIERS = {"Alt": 1, "Control": 2, "Shift": 8}


pattern = re.compile


class Error(Exception):
    """The browser refused a command, or a script has failed."""


class Browser:

    def __init__(self, directory):
        self.dir = str(directory)
        self.pid = None
        self.number = 0
        self.answers = {}
        self.pages = {}         # by session
        self.data = b""

    def start(self):
        os.makedirs(self.dir, exist_ok=True)
        theirs, self.out = os.pipe()
        self.inp, theirs_out = os.pipe()

        # in the browser they are 3 and 4

        theirs, theirs_out = (self.move(fd) for fd in (theirs, theirs_out))
        log = os.path.join(self.dir, "chromium.log")
        program = shutil.which(CHROMIUM)
        assert program, CHROMIUM + " is not installed"
        env = dict(os.environ, HOME=self.dir, TZ="UTC", LANG="C.UTF-8")
        self.pid = os.posix_spawn(
            program, [program] + OPTIONS
            + ["--user-data-dir=" + os.path.join(self.dir, "profile")], env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log,
                 os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
                (os.POSIX_SPAWN_DUP2, theirs, 3),
                (os.POSIX_SPAWN_DUP2, theirs_out, 4)])
        os.close(theirs)
        os.close(theirs_out)
        try:
            self.version = self.call("Browser.getVersion", limit=60)["product"]
        except BaseException:
            self.stop()
            raise
        return self

    @staticmethod
    def move(fd):
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
        os.close(fd)
        return high

    def stop(self):
        """Ends it, by its process id if it does not exit on its own."""
        if self.pid is None:
            return
        pid, self.pid = self.pid, None
        os.close(self.out)
        os.close(self.inp)
        end = time.monotonic() + LIMIT
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                break
            time.sleep(0.02)
        shutil.rmtree(self.dir, ignore_errors=True)

    # messages: JSON, each ends with a zero byte

    def send(self, method, session=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data):]
        return self.number

    def call(self, method, session=None, limit=LIMIT, **params):
        number = self.send(method, session, **params)
        self.answers[number] = None
        end = time.monotonic() + limit
        while self.answers[number] is None:
            left = end - time.monotonic()
            assert left > 0, "chromium: no answer to " + method
            self.pump(left)
        answer = self.answers.pop(number)
        if "error" in answer:
            raise Error("%s: %s" % (method, answer["error"]["message"]))
        return answer["result"]

    def pump(self, timeout=0):
        """Reads what has arrived, or arrives within the timeout."""
        if not select.select([self.inp], [], [], timeout)[0]:
            return
        data = os.read(self.inp, 1 << 20)
        assert data, "chromium has exited"
        *messages, self.data = (self.data + data).split(b"\0")
        for message in messages:
            message = json.loads(message)
            if "id" in message:
                if message["id"] in self.answers:
                    self.answers[message["id"]] = message
            elif message.get("sessionId") in self.pages:
                self.pages[message["sessionId"]].event(message["method"],
                                                       message["params"])

    def page(self, origin, **kw):
        return Page(self, origin, **kw)


class Page:
    """A tab with cookies, storage and a cache of its own; another of its
    siblings shares them."""

    def __init__(self, browser, origin, width=1280, height=800, theme="light",
                 sibling=None):
        self.browser = browser
        self.origin = origin
        self.faults = []
        self.requests = []
        self.loader = None
        self.pending = set()
        self.allowed = []
        self.events = collections.Counter()
        self.heap = None
        self.own = sibling is None
        if self.own:
            self.context = browser.call("Target.createBrowserContext")[
                "browserContextId"]
        else:
            self.context = sibling.context
        self.target = browser.call("Target.createTarget", url="about:blank",
                                   browserContextId=self.context)["targetId"]
        self.session = browser.call("Target.attachToTarget", flatten=True,
                                    targetId=self.target)["sessionId"]
        browser.pages[self.session] = self
        for domain in "Page Runtime Log Network Audits DOM".split():
            self.call(domain + ".enable")
        self.resize(width, height)
        self.theme(theme)
        self.downloads = os.path.join(browser.dir, "downloads-" + self.target)
        browser.call("Browser.setDownloadBehavior", behavior="allow",
                     browserContextId=self.context,
                     downloadPath=self.downloads)
        browser.call("Browser.grantPermissions", origin=origin,
                     browserContextId=self.context,
                     permissions=["clipboardReadWrite",
                                  "clipboardSanitizedWrite"])

    def close(self):
        if self.browser.pid is None:
            return
        self.browser.call("Target.closeTarget", targetId=self.target)
        del self.browser.pages[self.session]
        if self.own:
            self.browser.call("Target.disposeBrowserContext",
                              browserContextId=self.context)

    def call(self, method, limit=LIMIT, **params):
        return self.browser.call(method, self.session, limit, **params)

    # what the browser reports

    def event(self, method, params):
        self.events[method] += 1
        if method == "Log.entryAdded":
            entry = params["entry"]
            if entry["level"] in ("error", "warning"):
                self.fault(entry["source"], entry["text"],
                           entry.get("url", ""))
        elif method == "Runtime.consoleAPICalled":
            self.fault("console." + params["type"], *[
                str(a.get("value", a.get("description")))
                for a in params["args"]])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.fault("exception", details["text"], details.get(
                "exception", {}).get("description", ""))
        elif method == "Audits.issueAdded":
            issue = params["issue"]
            self.fault("issue", issue["code"], json.dumps(issue["details"]))
        elif method == "Page.javascriptDialogOpening":
            self.fault("dialog", params["message"])
            self.browser.send("Page.handleJavaScriptDialog", self.session,
                              accept=False)
        elif method == "Network.requestWillBeSent":
            self.requests.append(params)
            if params["requestId"] == params["loaderId"]:
                self.loader = params["loaderId"]
                self.pending.clear()
            if params["loaderId"] == self.loader:
                self.pending.add(params["requestId"])
        elif method in ("Network.loadingFinished", "Network.loadingFailed"):
            self.pending.discard(params["requestId"])
        elif method == "HeapProfiler.addHeapSnapshotChunk":
            self.heap.append(params["chunk"])

    def fault(self, *words):
        text = ": ".join(w for w in words if w)
        if not any(re.search(a, text) for a in self.allowed):
            self.faults.append(text)

    def allow(self, *patterns):
        """Reports that match are part of the test: the browser itself reports
        each answer of 400 and above."""
        self.allowed += patterns

    def check(self):
        """Nothing was reported, and no request has left the origin."""
        self.js("new Promise(done => setTimeout(done))")
        faults, self.faults = self.faults, []
        assert faults == [], "\n".join(faults)
        urls = [r["request"]["url"] for r in self.requests]
        assert [u for u in urls if not u.startswith(
            (self.origin + "/", "data:", "blob:" + self.origin + "/"))] == []

    # pages

    def open(self, path=""):
        """Loads the address; a fragment only is a step within the page."""
        url = urllib.parse.urljoin(self.url if path.startswith("#")
                                   else self.origin + "/", path)
        before = self.events["Page.loadEventFired"]
        r = self.call("Page.navigate", url=url)
        if r.get("errorText"):
            raise Error(r["errorText"])
        if "loaderId" in r:
            self.wait(lambda: self.events["Page.loadEventFired"] > before,
                      "load of " + url)

    def reload(self):
        before = self.events["Page.loadEventFired"]
        self.call("Page.reload")
        self.wait(lambda: self.events["Page.loadEventFired"] > before,
                  "reload")

    def back(self):
        history = self.call("Page.getNavigationHistory")
        entry = history["entries"][history["currentIndex"] - 1]
        self.call("Page.navigateToHistoryEntry", entryId=entry["id"])

    @property
    def url(self):
        return self.js("location.href")

    @property
    def route(self):
        """The part of the address after "#"."""
        return self.js("location.hash").lstrip("#")

    def resize(self, width, height=800):
        self.width, self.height = width, height
        self.call("Emulation.setDeviceMetricsOverride", width=width,
                  height=height, deviceScaleFactor=1, mobile=width < 600)

    def theme(self, name):
        self.scheme = name
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": name},
            {"name": "prefers-reduced-motion", "value": "reduce"}])

    def js(self, expression, **kw):
        """The value of an expression; of a promise, what it resolves to."""
        r = self.call("Runtime.evaluate", expression=expression,
                      returnByValue=True, awaitPromise=True, **kw)
        return self.result(r)

    @staticmethod
    def result(r):
        if "exceptionDetails" in r:
            d = r["exceptionDetails"]
            raise Error(d.get("exception", {}).get("description", d["text"]))
        return r["result"].get("value")

    def wait(self, condition, what="", limit=LIMIT):
        """The first true result of the condition.  An element that has gone
        meanwhile is no result."""
        end = time.monotonic() + limit
        while True:
            try:
                result = condition()
            except Error:
                result = None
            if result:
                return result
            if time.monotonic() > end:
                raise AssertionError(
                    "no %s within %d s; %s\n%s\nreported: %s"
                    % (what or "result", limit, self.url, self.text(),
                       self.faults))
            self.browser.pump(0.02)

    def text(self):
        return self.js("document.body ? document.body.innerText : ''")

    def wait_text(self, pattern, limit=LIMIT):
        return self.wait(lambda: re.search(pattern, self.text()),
                         "text " + repr(pattern), limit)

    # elements

    def all(self, role, name=None, within=None):
        """Those of the role; the name is the whole accessible name, or a
        pattern that is searched for in it."""
        if within:
            root = {"objectId": within.id}
        else:
            root = {"objectId": self.object("document")}
        if isinstance(name, str):
            root["accessibleName"] = name
        nodes = self.call("Accessibility.queryAXTree", role=role, **root)
        return [Element(self, node["backendDOMNodeId"])
                for node in nodes["nodes"]
                if not node["ignored"] and "backendDOMNodeId" in node
                and (name is None or isinstance(name, str)
                     or name.search(node.get("name", {}).get("value", "")))]

    def has(self, role, name=None, within=None):
        return bool(self.all(role, name, within))

    def find(self, role, name=None, within=None, limit=LIMIT):
        """The only one; waits until it exists."""
        found = self.wait(lambda: self.all(role, name, within),
                          '%s "%s"' % (role, name), limit)
        assert len(found) == 1, "%d of %s %s" % (len(found), role, name)
        return found[0]

    wait_for = find

    def wait_gone(self, role, name=None):
        self.wait(lambda: not self.has(role, name),
                  'end of %s "%s"' % (role, name))

    def select(self, css):
        """All that match."""
        n = self.js("document.querySelectorAll(%s).length" % json.dumps(css))
        return [self.element("document.querySelectorAll(%s)[%d]"
                             % (json.dumps(css), i)) for i in range(n)]

    def object(self, expression):
        r = self.call("Runtime.evaluate", expression=expression,
                      objectGroup="test")
        self.result(r)
        return r["result"].get("objectId")

    def element(self, expression):
        id = self.object(expression)
        return Element(self, self.call("DOM.describeNode", objectId=id)[
            "node"]["backendNodeId"]) if id else None

    @property
    def focused(self):
        return self.element("document.activeElement")

    # input

    def key(self, name, *modifiers):
        """A key of the keyboard, or one character."""
        code, text = KEYS.get(name, (0, name))
        bits = sum(MODIFIERS[m] for m in modifiers)
        common = {"key": name, "modifiers": bits,
                  "windowsVirtualKeyCode": code,
                  "code": {" ": "Space"}.get(name, name if code else "")}
        self.call("Input.dispatchKeyEvent",
                  type="keyDown" if text else "rawKeyDown", text=text,
                  **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def keys(self, text):
        for c in text:
            self.key(c)

    def insert(self, text):
        """As if pasted, where the focus is."""
        self.call("Input.insertText", text=text)

    def mouse(self, x, y, clicks=1):
        at = {"x": x, "y": y, "button": "left"}
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

        # not one by one: the second click of a double click does not wait for
        # what the first has started

        for n in range(1, clicks + 1):
            for type in "mousePressed", "mouseReleased":
                last = self.browser.send("Input.dispatchMouseEvent",
                                         self.session, type=type,
                                         clickCount=n, **at)
                self.browser.answers[last] = None
        self.wait(lambda: self.browser.answers[last], "click")
        self.browser.answers.pop(last)

    # pictures, memory, files

    def screenshot(self, path, whole=True, most=None):
        """A PNG of the whole page, or of what is visible; most: its height."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        height = max(self.height, size["height"]) if whole else self.height
        height = min(height, most or height)
        data = self.call(
            "Page.captureScreenshot", format="png", captureBeyondViewport=True,
            clip={"x": 0, "y": 0, "width": self.width, "height": height,
                  "scale": 1}, limit=60)["data"]
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))

    def strings(self):
        """What the page's scripts have in memory, as one text: a snapshot of
        the heap after a garbage collection.  What the browser has shown to
        the test would be kept for it: Elements from before are void."""
        self.call("Runtime.releaseObjectGroup", objectGroup="test")
        self.call("DOM.disable")
        self.call("DOM.enable")
        self.heap = []
        self.call("HeapProfiler.enable")
        self.call("HeapProfiler.collectGarbage")
        self.call("HeapProfiler.takeHeapSnapshot", reportProgress=False,
                  limit=120)
        text, self.heap = "".join(self.heap), None
        return text

    def files(self):
        """Complete downloads: the name is there before the bytes are."""
        try:
            return [file.path
                    for file in sorted(os.scandir(self.downloads),
                                       key=lambda file: file.name)
                    if not file.name.endswith(".crdownload")
                    and not file.name.startswith(".") and file.stat().st_size]
        except FileNotFoundError:
            return []

    def wait_file(self, n=1):
        return self.wait(lambda: self.files()[n - 1:], "download")[0]

    def cookies(self):
        return self.browser.call("Storage.getCookies",
                                 browserContextId=self.context)["cookies"]

    def clipboard(self):
        self.call("Page.bringToFront")
        return self.js("navigator.clipboard.readText()", userGesture=True)


class Element:

    def __init__(self, page, node):
        self.page = page
        self.node = node
        self.id = page.call("DOM.resolveNode", backendNodeId=node,
                            objectGroup="test")["object"]["objectId"]

    def __eq__(self, other):
        return isinstance(other, Element) and self.node == other.node

    def js(self, function, *args):
        """function is "function(…) {…}", this is the element."""
        r = self.page.call("Runtime.callFunctionOn", objectId=self.id,
                           functionDeclaration=function, returnByValue=True,
                           objectGroup="test",
                           awaitPromise=True,
                           arguments=[{"value": a} for a in args])
        return self.page.result(r)

    def get(self, property):
        return self.js("function(p) { return this[p]; }", property)

    @property
    def text(self):
        return self.get("innerText")

    @property
    def value(self):
        return self.get("value")

    def attribute(self, name):
        return self.js("function(n) { return this.getAttribute(n); }", name)

    @property
    def accessible(self):
        """(role, name)"""
        (node,) = self.page.call("Accessibility.getPartialAXTree",
                                 backendNodeId=self.node,
                                 fetchRelatives=False)["nodes"]
        return tuple(node.get(k, {}).get("value", "") for k in
                     ("role", "name"))

    def find(self, role, name=None, limit=LIMIT):
        return self.page.find(role, name, self, limit)

    def all(self, role, name=None):
        return self.page.all(role, name, self)

    def has(self, role, name=None):
        return self.page.has(role, name, self)

    def point(self):
        """The middle of it, when it neither moves nor is covered."""
        self.page.call("DOM.scrollIntoViewIfNeeded", backendNodeId=self.node)

        def place():
            return self.js("""function() {
                const a = this.getBoundingClientRect();
                return new Promise(done => requestAnimationFrame(() => {
                    const b = this.getBoundingClientRect();
                    const x = b.x + b.width / 2, y = b.y + b.height / 2;
                    const hit = document.elementFromPoint(x, y);
                    done(a.x == b.x && a.y == b.y && hit
                         && (this.contains(hit) || hit.contains(this)
                             || [...(this.labels || [])].some(
                                 l => l.contains(hit)))
                         ? [x, y] : null);
                }));
            }""")

        return self.page.wait(place, "way to click on %s %s"
                              % self.accessible)

    def click(self):
        self.page.mouse(*self.point())

    def double_click(self):
        self.page.mouse(*self.point(), clicks=2)

    def type(self, text):
        """Replaces the value of a field, as its user does."""
        self.js("function() { this.focus(); this.select && this.select(); }")
        if text:
            self.page.insert(text)
        else:
            self.page.key("Backspace")

    def choose(self, label):
        """The option of a select element."""
        done = self.js("""function(label) {
            const o = [...this.options].find(o => o.label.trim() == label);
            if (!o) return [...this.options].map(o => o.label);
            this.value = o.value;
            this.dispatchEvent(new Event("input", {bubbles: true}));
            this.dispatchEvent(new Event("change", {bubbles: true}));
        }""", label)
        assert not done, "no option %s: %s" % (label, done)
