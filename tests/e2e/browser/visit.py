"""visit.py URL UROCECTL DEVICE FOLDER PID: opens the page of `urocectl web` in headless Chromium and uses it as a reader would, also
in more tabs and windows than a browser has connections. Screenshots go to FOLDER; at the end urocectl, process PID, is
interrupted. Runs with Debian's Python, whose package python3-selenium is installed, next to chromium and chromium-driver."""
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import urllib.parse

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

URL, UROCECTL, DEVICE, FOLDER, PID = sys.argv[1:]
HOSTILE = '<img src=x onerror=alert(1)>'


def started():
    options = webdriver.ChromeOptions()
    # The tests run as root, which Chromium's sandbox refuses; /dev/shm may be small.
    for each in ('--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--hide-scrollbars'):
        options.add_argument(each)
    options.binary_location = '/usr/bin/chromium'
    options.set_capability('goog:loggingPrefs', {'browser': 'ALL'})
    return webdriver.Chrome(options=options, service=Service('/usr/bin/chromedriver'))


def rules():
    done = subprocess.run([UROCECTL, '-d', DEVICE, '--json', 'fault'], capture_output=True, text=True, check=True, timeout=20)
    return json.loads(done.stdout)[DEVICE]['settings']['fault']


class Page:
    def __init__(self, browser):
        self.browser = browser

    def wait(self, what, condition):
        try:
            return WebDriverWait(self.browser, 40, 0.1, [StaleElementReferenceException]).until(lambda _: condition())
        except Exception:
            print(f'not seen: {what}\n{self.text("body")}', file=sys.stderr)
            raise

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.one(selector).text

    def row(self, program):
        return next((row for row in self.all('#qps tbody tr') if row.find_element(By.CSS_SELECTOR, 'td').text == program), None)

    def errors(self):
        return [each for each in self.browser.get_log('browser') if each['level'] == 'SEVERE']

    def shoot(self, width, height, scheme):
        self.browser.execute_cdp_cmd('Emulation.setEmulatedMedia', {'features': [{'name': 'prefers-color-scheme', 'value': scheme}]})
        screen = {'width': width, 'height': height, 'deviceScaleFactor': 1, 'mobile': False}
        self.browser.execute_cdp_cmd('Emulation.setDeviceMetricsOverride', screen)
        before = self.text('#totals')
        self.wait('another snapshot', lambda: self.text('#totals') != before)
        self.browser.save_screenshot(f'{FOLDER}/{width}x{height}-{scheme}.png')
        wide = self.browser.execute_script('return document.documentElement.scrollWidth')
        if wide > width:
            raise AssertionError(f'the page is {wide} pixels wide on a screen of {width}')
        tall = self.browser.execute_script('return document.documentElement.scrollHeight')
        self.browser.execute_cdp_cmd('Emulation.setDeviceMetricsOverride', {**screen, 'height': tall})
        self.browser.save_screenshot(f'{FOLDER}/{width}-{scheme}-whole.png')


def queue_pairs(page):
    page.browser.get(URL)
    page.wait('the stream', lambda: page.text('#status') == 'live')
    if 'token' in page.browser.current_url:
        raise AssertionError(f'the address bar has the token: {page.browser.current_url}')
    sending = page.wait('a QP of ib_write_bw that sends', lambda: page.row('ib_write_bw') and page.all('#picture .flow.active')
                        and page.row('ib_write_bw'))
    sending.click()
    page.wait('its life', lambda: 'process' in page.text('#life') and page.all('#life .strip .now'))
    page.wait('the program whose name is HTML', lambda: page.row(HOSTILE)).click()
    page.wait('its life', lambda: HOSTILE in page.text('#life'))
    if page.all('img'):
        raise AssertionError('the name of a program became an element')
    page.one('#filter').send_keys('onerror')
    page.wait('the filtered row', lambda: len(page.all('#qps tbody tr')) == 1)
    page.one('#filter').clear()
    page.one('#filter').send_keys(' ')
    page.wait('all rows', lambda: len(page.all('#qps tbody tr')) > 1)
    page.row('ib_write_bw').click()


def faults(page):
    page.wait('the device', lambda: [each for each in page.all('#fault-devices button') if each.text == DEVICE])[0].click()
    page.one('#loss').click()
    page.wait('the rule in urocectl fault', lambda: 'drop=0.01' in rules())
    page.wait('the rule in the list', lambda: 'drop=0.01' in page.text('#rules'))
    page.wait('frames that it matched', lambda: ' frames' in page.text('#rules') and '\n0 frames' not in page.text('#rules'))
    page.wait('packets that are sent again', lambda: 'sent again' in page.text('#totals'))
    page.one('#rule').send_keys('drop=nonsense\n')
    page.wait('the objection of the daemon', lambda: 'drop=nonsense' in page.text('#fault-error'))
    page.one('#measure').click()
    page.wait('a histogram', lambda: page.all('#latency rect'))
    for scheme in ('light', 'dark'):
        for width in (1280, 400):
            page.shoot(width, 900, scheme)
    page.browser.execute_cdp_cmd('Emulation.clearDeviceMetricsOverride', {})
    page.one('#rules button').click()
    page.wait('no rule in urocectl fault', lambda: rules() == 'off')
    page.wait('no rule in the list', lambda: 'No rule' in page.text('#rules'))
    page.one('#measure').click()
    page.wait('the end of the measurement', lambda: page.text('#measure') == 'measure')
    page.one('#link').click()
    page.wait('the link that is down', lambda: page.all('#picture .node.down') and page.text('#link') == 'link up')
    page.one('#link').click()
    page.wait('the link that is up', lambda: not page.all('#picture .node.down') and page.text('#link') == 'link down')


def tab(page, kind, url):
    """Another page, in front; its handle."""
    page.browser.switch_to.new_window(kind)
    page.browser.set_page_load_timeout(40)
    page.browser.get(url)
    return page.browser.current_window_handle


def show(page, handle):
    page.browser.switch_to.window(handle)
    page.browser.execute_cdp_cmd('Page.bringToFront', {})


def live(page):
    page.wait('the stream', lambda: page.text('#status') == 'live')


def tabs(page):
    """The seventh tab is served, as those that are hidden have no connection, and each goes on when it is shown."""
    first = page.browser.current_window_handle
    for _ in range(6):
        tab(page, 'tab', URL)
        live(page)
    show(page, first)
    live(page)
    return [each for each in page.browser.window_handles if each != first]


def windows(page, others):
    """A tab that comes to the front while six windows show the page says so, and goes on once there is a connection."""
    first = page.browser.current_window_handle
    for each in others:
        page.browser.switch_to.window(each)
        page.browser.close()
    page.browser.switch_to.window(first)
    tab(page, 'tab', 'about:blank')
    shown = []
    for _ in range(6):
        shown.append(tab(page, 'window', URL))
        live(page)
    show(page, first)
    page.wait('the line about six pages', lambda: 'six pages are shown' in page.text('#status'))
    for each in shown:
        page.browser.switch_to.window(each)
        page.browser.close()
    show(page, first)
    live(page)


def stream_of(url):
    """A response that lasts; None: the server has none. That of a page that was hidden a moment ago may still count."""
    connection = http.client.HTTPConnection(url.netloc, timeout=20)
    connection.request('GET', f'/events?{url.query}')
    response = connection.getresponse()
    return response if response.status == 200 else response.close()


def crowd(page):
    """Without a stream for one page more than may be open, the page says why, and goes on when there is one."""
    parts = urllib.parse.urlsplit(URL)
    first = page.browser.current_window_handle
    with contextlib.ExitStack() as streams:
        blank = tab(page, 'tab', 'about:blank')
        for _ in range(12):
            streams.enter_context(page.wait('a stream', lambda: stream_of(parts)))
        show(page, first)
        page.wait('the reason', lambda: 'refused: 12 pages are open: close one of them; trying again' in page.text('#status'))
    live(page)
    page.browser.switch_to.window(blank)
    page.browser.close()
    page.browser.switch_to.window(first)


def main():
    browser = started()
    page = Page(browser)
    try:
        queue_pairs(page)
        faults(page)
        if found := page.errors():
            raise AssertionError(f'the console has errors: {found}')
        windows(page, tabs(page))
        crowd(page)
        os.kill(int(PID), signal.SIGINT)
        page.wait('that the stream broke', lambda: 'trying again' in page.text('#status'))
    except BaseException:
        browser.save_screenshot(f'{FOLDER}/failed.png')
        raise
    finally:
        browser.quit()


main()
