"""A headless Chromium of the distribution, for tests of the gateway's page.

    with Browser() as browser:
        browser.open("file:///tmp/run.html")
        browser.text("#job")

It needs the packages chromium, chromium-driver and python3-selenium; without them find() says what is missing.
"""

import importlib.util
import os
import sys
import time

CHROMIUM = "/usr/bin/chromium"
DRIVER = "/usr/bin/chromedriver"
SYSTEM_PYTHON = "/usr/bin/python3"  # has the distribution's packages, which another Python does not see


def find():
    """Says whether a browser is here. Begins this program again with the distribution's Python if that has selenium."""
    missing = [path for path in (CHROMIUM, DRIVER) if not os.access(path, os.X_OK)]
    if missing:
        print(f"skipped: {' and '.join(missing)} missing (packages chromium, chromium-driver)")
        return False
    if importlib.util.find_spec("selenium"):
        return True
    if os.path.exists(SYSTEM_PYTHON) and "CAIRN_BROWSER_AGAIN" not in os.environ:
        os.environ["CAIRN_BROWSER_AGAIN"] = "1"
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, "-B", *sys.argv])
    print("skipped: no selenium (package python3-selenium)")
    return False


class Browser:
    def __init__(self, width=1280):
        self.width = width

    def __enter__(self):
        from selenium import webdriver  # only where find() said yes
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                         "--disable-background-networking", "--no-first-run", f"--window-size={self.width},900"):
            options.add_argument(argument)
        options.binary_location = CHROMIUM
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(service=Service(DRIVER), options=options)
        self.driver.set_page_load_timeout(120)
        self.driver.set_script_timeout(120)
        return self

    def __exit__(self, *_):
        self.driver.quit()

    def open(self, address):
        self.driver.get(address)

    def run(self, script, *values):
        return self.driver.execute_script(script, *values)

    def text(self, selector):
        """What a person sees of the first such element; nothing while it is not shown."""
        return self.run("const e = document.querySelector(arguments[0]);"
                        "return e && e.getClientRects().length ? e.innerText : ''", selector)

    def texts(self, selector):
        return self.run("return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText.trim())", selector)

    def count(self, selector):
        return self.run("return document.querySelectorAll(arguments[0]).length", selector)

    def click(self, selector):
        self.driver.find_element("css selector", selector).click()

    def wait(self, what, test, timeout=90):
        """Until test() gives something true; returns it."""
        deadline = time.monotonic() + timeout
        while not (found := test()):
            assert time.monotonic() < deadline, f"the page did not show {what} in {timeout} s:\n{self.text('body')}"
            time.sleep(0.1)
        return found

    def press(self, *keys):
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        chain = ActionChains(self.driver)
        for key in keys:
            chain.send_keys(getattr(Keys, key, key))
        chain.perform()

    def resize(self, width, height=900):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def dark(self, on):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if on else "light"}]})

    def shot(self, path, width=1280):
        """A picture of the whole page."""
        self.resize(width)
        self.resize(width, max(900, self.run("return document.documentElement.scrollHeight")))
        self.run("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        self.driver.save_screenshot(path)
        self.resize(width)

    def sideways(self):
        """Pixels by which the page is wider than the window."""
        return self.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")

    def messages(self):
        """What the browser's log has: errors of scripts, breaches of the policy, files that are missing."""
        return [entry["message"] for entry in self.driver.get_log("browser")]
