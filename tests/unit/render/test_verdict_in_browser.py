"""A verdict's page in a real headless Chromium: wide and narrow, light and dark, printed, and without any request.

Skipped where there is no Chromium (Debian: `apt-get install chromium`, about 360 MB installed).
"""

import html as html_module
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.unit.estimator.verdicts import profile
from tests.unit.render.screens import EXAMPLES
from tests.unit.render.test_verdict_page import owned, page_of

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LIMIT_SECONDS = 120  # a busy machine
PROBE = """<!doctype html><meta charset="utf-8"><body><script>
const found = {};
const look = (name, frame) => {
  const page = frame.contentDocument, root = page.documentElement, view = frame.contentWindow;
  const shown = e => e.getBoundingClientRect().width > 0;
  const figures = [...page.querySelectorAll("svg")].filter(shown);
  const inside = e => [...e.querySelectorAll("text")].every(t => {
    const a = t.getBoundingClientRect(), b = e.getBoundingClientRect();
    return a.left >= b.left - 2 && a.right <= b.right + 2 && a.top >= b.top - 2 && a.bottom <= b.bottom + 2; });
  found[name] = {
    overflow: root.scrollWidth - root.clientWidth,
    figures: figures.length,
    titled: figures.every(e => e.getAttribute("role") === "img" && e.getAttribute("aria-label").length > 20),
    inside: figures.every(inside),
    sticking: [...page.querySelectorAll("h1, h2, p, li, .tile")].filter(
      e => shown(e) && e.getBoundingClientRect().right > root.clientWidth + 1).length,
    smallest: Math.min(...[...page.querySelectorAll("p, li, td, th, dd")].filter(shown).map(
      e => parseFloat(view.getComputedStyle(e).fontSize))),
    paper: view.getComputedStyle(page.body).backgroundColor,
    ink: view.getComputedStyle(page.body).color,
    part: view.getComputedStyle(page.querySelector("rect.part")).fill,
    styled: view.getComputedStyle(page.querySelector(".tile")).borderRadius,
    requests: view.performance.getEntriesByType("resource").length,
    text: page.body.innerText.length,
  };
};
let left = 2;
for (const width of [360, 1280]) {
  const frame = document.createElement("iframe");
  frame.width = width; frame.height = 4000; frame.src = "page.html";
  frame.onload = () => { look(String(width), frame); if (!--left) {
    const out = document.createElement("pre"); out.id = "found"; out.textContent = JSON.stringify(found);
    document.body.append(out); } };
  document.body.append(frame);
}
</script></body>"""


@cache
def browser() -> str | None:
    return next(
        (path for name in BROWSERS if (path := shutil.which(name, path=f"{os.environ['PATH']}:/usr/bin"))), None
    )


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser() is None, reason="no Chromium here: apt-get install chromium"),
]


def chromium(tmp_path: Path, *arguments: str) -> str:
    """What a headless Chromium that reaches no host prints."""
    done = subprocess.run(
        [
            str(browser()),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def measured(tmp_path: Path, html: str, *flags: str) -> dict[str, dict[str, Any]]:
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    (tmp_path / "probe.html").write_text(PROBE, encoding="utf-8")
    dom = chromium(
        tmp_path,
        "--allow-file-access-from-files",
        "--virtual-time-budget=20000",
        "--window-size=1700,4200",
        *flags,
        "--dump-dom",
        (tmp_path / "probe.html").as_uri(),
    )
    match = re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)
    assert match, dom[-2000:]
    return dict(json.loads(html_module.unescape(match.group(1))))


def long_page() -> str:
    """With names as long as they come."""
    whose = profile(script="a_very_long_name_of_a_training_script_" * 4 + ".py", loops=["train.py:1 for " + "x" * 150])
    advice = [replace(one, action=f"{one.action} {'w' * 300}") for one in EXAMPLES["gpu"]().advice]
    return page_of(whose=whose, advice=tuple(advice), own=owned(), fits_colab=True)


@pytest.mark.timeout(400)
def test_the_page_is_readable_on_a_phone_and_on_a_desk_by_day_and_by_night(tmp_path: Path) -> None:
    html = long_page()
    light = measured(tmp_path, html)
    dark = measured(tmp_path, html, "--blink-settings=preferredColorScheme=0")
    for found in (*light.values(), *dark.values()):
        assert found["overflow"] <= 0
        assert found["sticking"] == 0
        assert found["figures"] == 2  # of the wide and the narrow ones, only one is shown
        assert found["titled"]
        assert found["inside"]
        assert found["smallest"] >= 11
        assert found["requests"] == 0
        assert found["text"] > 1000
        assert found["styled"] != "0px"  # the page's own rules let its style sheet in
    for width in ("360", "1280"):
        assert luminance(light[width]["paper"]) > 0.8 > 0.2 > luminance(light[width]["ink"])
        assert luminance(dark[width]["paper"]) < 0.2 < 0.8 < luminance(dark[width]["ink"])
        assert light[width]["part"] != dark[width]["part"]


def luminance(colour: str) -> float:
    """Roughly, 0 to 1, of ``rgb(1, 2, 3)``."""
    red, green, blue = (int(n) for n in re.findall(r"\d+", colour)[:3])
    return (0.3 * red + 0.59 * green + 0.11 * blue) / 255


def test_the_page_prints(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(long_page(), encoding="utf-8")
    target = tmp_path / "page.pdf"
    chromium(tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={target}", (tmp_path / "page.html").as_uri())
    data = target.read_bytes()
    assert data.startswith(b"%PDF")
    pages = len(re.findall(rb"/Type\s*/Page\b", data))
    assert 2 <= pages <= 8


def test_the_probe_sees_a_page_that_is_too_wide(tmp_path: Path) -> None:
    html = page_of()
    wide = html.replace("<section>", "<section style='min-width:900px'>", 1)
    found = measured(tmp_path, wide)
    assert found["360"]["overflow"] > 400
    assert found["1280"]["overflow"] <= 0
