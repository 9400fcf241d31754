"""The chat page's Markdown renderer, as Chromium runs it under the page's own policy."""

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from tests.browser import running_browser
from tests.console.chat.renderer import Renderer

pytestmark = pytest.mark.browser

LINK = 'target="_blank" rel="noopener noreferrer nofollow"'


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with running_browser() as browser:
        yield browser.new_page()


@pytest.fixture(scope="module")
def loaded(page: Page) -> Renderer:
    return Renderer(page)


@pytest.fixture
def render(loaded: Renderer) -> Iterator[Renderer]:
    """A renderer that nothing may have been fetched through, nor complained about, by the end of the test."""
    loaded.requests.clear()
    loaded.complaints.clear()
    yield loaded
    assert (loaded.requests, loaded.complaints) == ([], [])


def _link(href: str, text: str) -> str:
    return f'<a href="{href}" title="{href}" {LINK}>{text}</a>'


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("", ""),
        ("plain", "<p>plain</p>"),
        ("one\ntwo\n\nthree", "<p>one\ntwo</p><p>three</p>"),
        ("one\r\n\r\ntwo", "<p>one</p><p>two</p>"),
        ("# One\n### Three ###\n###### Six", "<h3>One</h3><h5>Three</h5><h6>Six</h6>"),
        ("#hash\n####### seven", "<p>#hash\n####### seven</p>"),
        (
            "a **b** *c* ***d*** ~~e~~",
            "<p>a <strong>b</strong> <em>c</em> <em><strong>d</strong></em> <del>e</del></p>",
        ),
        ("__b__ _c_ snake_case_name", "<p><strong>b</strong> <em>c</em> snake_case_name</p>"),
        ("**a *b* c**", "<p><strong>a <em>b</em> c</strong></p>"),
        ("2 * 3 * 4 and **open", "<p>2 * 3 * 4 and **open</p>"),
        (r"\*no\* \# \\ \q", r"<p>*no* # \ \q</p>"),
        ("`a*b*` ``x`y`` `open", "<p><code>a*b*</code> <code>x`y</code> `open</p>"),
        ("***", "<hr>"),
        ("a\n\n---\n\nb", "<p>a</p><hr><p>b</p>"),
        ("a &amp; <b>", "<p>a &amp;amp; &lt;b&gt;</p>"),
    ],
)
def test_it_renders_text_and_emphasis(render: Renderer, text: str, html: str) -> None:
    assert render(text) == html


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("- a\n- b", "<ul><li>a</li><li>b</li></ul>"),
        ("3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'),
        ("1) a\n2) b", "<ol><li>a</li><li>b</li></ol>"),
        ("- a\n  - b\n    - c\n- d", "<ul><li>a<ul><li>b<ul><li>c</li></ul></li></ul></li><li>d</li></ul>"),
        ("1. a\n  - b\n  - c\n2. d", "<ol><li>a<ul><li>b</li><li>c</li></ul></li><li>d</li></ol>"),
        ("1. a\n   - b\n     1. c", "<ol><li>a<ul><li>b<ol><li>c</li></ol></li></ul></li></ol>"),
        ("- a\n\n- b", "<ul><li><p>a</p></li><li><p>b</p></li></ul>"),
        ("- a\n\n  b", "<ul><li><p>a</p><p>b</p></li></ul>"),
        ("- a\nlazy\n\nafter", "<ul><li>a\nlazy</li></ul><p>after</p>"),
        ("- [ ] a\n- [x] b", "<ul><li>☐ a</li><li>☑ b</li></ul>"),
        ("text\n- a", "<p>text</p><ul><li>a</li></ul>"),
        ("in\n1999. no list", "<p>in\n1999. no list</p>"),
        ("- a\n1. b", "<ul><li>a</li></ul><ol><li>b</li></ol>"),
        ("> a\nlazy\n>> b", "<blockquote><p>a\nlazy</p><blockquote><p>b</p></blockquote></blockquote>"),
        ("> - a\n> - b", "<blockquote><ul><li>a</li><li>b</li></ul></blockquote>"),
    ],
)
def test_it_renders_lists_and_quotes(render: Renderer, text: str, html: str) -> None:
    assert render(text) == html


def _code(language: str, text: str) -> str:
    return f'<figure class="code"><figcaption>{language}</figcaption><pre><code>{text}</code></pre></figure>'


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("```python\nx = 1\n\n\ty\n```", _code("python", "x = 1\n\n\ty")),
        ("~~~\n```\n~~~", _code("text", "```")),
        ("````\n```\n````", _code("text", "```")),
        ("```\n<b>*a*</b>", _code("text", "&lt;b&gt;*a*&lt;/b&gt;")),
        ("- a\n  ```sh\n  ls\n    -l\n  ```\n- b", "<ul><li>a" + _code("sh", "ls\n  -l") + "</li><li>b</li></ul>"),
        ("a ```b``` c", "<p>a <code>b</code> c</p>"),
    ],
)
def test_it_renders_code(render: Renderer, text: str, html: str) -> None:
    assert render(text) == html


def test_it_renders_a_table_with_alignments_short_rows_and_escaped_bars(render: Renderer) -> None:
    head = '<thead><tr><th>a</th><th class="align-end">b</th><th class="align-center">c</th></tr></thead>'
    rows = (
        '<tr><td><strong>1</strong></td><td class="align-end">2|3</td><td class="align-center">4</td></tr>'
        '<tr><td>5</td><td class="align-end"></td><td class="align-center"></td></tr>'
    )
    html = f'<div class="table"><table>{head}<tbody>{rows}</tbody></table></div><p>after</p>'
    text = "| a | b | c |\n|:--|--:|:-:|\n| **1** | 2\\|3 | 4 | 5 |\n| 5 |\n\nafter"
    assert render(text) == html
    assert render("before\n" + text) == f"<p>before</p>{html}"


@pytest.mark.parametrize("text", ["a | b\nno rule", "a | b\n|---|", "|" * 200 + "\n" + "|-" * 200 + "|"])
def test_what_is_no_table_stays_text(render: Renderer, text: str) -> None:
    assert "<table" not in render(text)


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("[a](https://b.test/c)", _link("https://b.test/c", "a")),
        ("[**a** b](http://b.test/)", _link("http://b.test/", "<strong>a</strong> b")),
        ('[a](https://b.test/ "title")', _link("https://b.test/", "a")),
        ("[a](<https://b.test/x y>)", _link("https://b.test/x%20y", "a")),
        ("[a](https://b.test/x_(y))", _link("https://b.test/x_(y)", "a")),
        ("[a](mailto:b@c.test)", _link("mailto:b@c.test", "a")),
        ("<https://b.test/>", _link("https://b.test/", "https://b.test/")),
        ("(see https://b.test/a_b_c).", f"(see {_link('https://b.test/a_b_c', 'https://b.test/a_b_c')})."),
        ("*https://b.test/*", f"<em>{_link('https://b.test/', 'https://b.test/')}</em>"),
    ],
)
def test_it_links_to_the_web_and_to_mail_and_gives_nothing_away(render: Renderer, text: str, html: str) -> None:
    assert render(text) == f"<p>{html}</p>"


def test_it_shows_an_image_as_a_link_and_does_not_fetch_it(render: Renderer) -> None:
    attributes = f'href="https://b.test/i.png" title="https://b.test/i.png" {LINK} class="image-link"'
    assert render("![a *chart*](https://b.test/i.png)") == f"<p><a {attributes}>a *chart*</a></p>"


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "java\tscript:alert(1)",
        "\x01javascript:alert(1)",
        "data:text/html,<b>x</b>",
        "vbscript:x",
        "file:///etc/passwd",
        "blob:x",
        "//b.test/",
        "/admin/",
        "#x",
        "https://",
        "ftp://b.test/",
        "&#106;avascript:alert(1)",
        "https://b.test/" + "x" * 3000,
    ],
)
@pytest.mark.parametrize("form", ["[x]({})", "![x]({})", "<{}>", "[x](<{}>)"])
def test_no_other_address_becomes_a_link(render: Renderer, form: str, address: str) -> None:
    assert "<a " not in render(form.format(address)).replace('<a href="https://b.test/xxx', "")


HOSTILE = [
    "<script>document.title = 'owned'</script>",
    "<img src=https://evil.test/x onerror=\"document.title = 'owned'\">",
    "<iframe src='https://evil.test/'></iframe><object data='https://evil.test/'></object>",
    "<style>@import 'https://evil.test/x'</style><link rel=stylesheet href=https://evil.test/>",
    "<svg onload=\"document.title = 'owned'\"><base href=https://evil.test/>",
    '```"><img src=x onerror=alert(1)>\ncode\n```',
    "# <b onclick=alert(1)>x</b>",
    "| <img src=x> | <b> |\n|---|---|\n| <script>x</script> | <i> |",
    "[<img src=x onerror=alert(1)>](https://b.test/)",
    '[x](https://b.test/"onmouseover="alert(1))',
    "<!-- --><a href='javascript:alert(1)'>x</a>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    '!["><img src=x>](https://b.test/)',
]
ALLOWED = {"a", "p", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "hr", "strong", "em", "del", "code", "pre"}
ALLOWED |= {"div", "table", "thead", "tbody", "tr", "th", "td", "figure", "figcaption", "span", "button", "svg", "use"}


@pytest.mark.parametrize("text", [*HOSTILE, "\n\n".join(HOSTILE)])
def test_html_stays_text_and_runs_nothing(render: Renderer, text: str) -> None:
    render(text)
    elements = render.page.evaluate(
        "() => [...document.querySelectorAll('main *')].map(e => [e.localName, ...e.getAttributeNames()])"
    )
    assert {name for name, *_ in elements} <= ALLOWED
    assert not [name for _, *names in elements for name in names if name.startswith("on") or name == "style"]
    assert render.page.title() == ""
    if text in HOSTILE[:5]:
        assert render.page.evaluate("document.querySelector('main').textContent") == text


REPEATED = 20_000
HUGE = {
    "nested quotes": "> " * REPEATED + "x",
    "quotes line by line": "\n".join(">" * (depth % 500) + " x" for depth in range(5000)),
    "nested lists": "\n".join(" " * (2 * depth) + "- x" for depth in range(1500)),
    "list markers in a line": "- " * REPEATED + "x",
    "opened emphasis": "*a **b _c " * REPEATED,
    "closing emphasis": "a* b** c_ " * REPEATED,
    "a run of stars": "*" * 100_000,
    "stars around a letter": "*" * 50_000 + "a" + "*" * 50_000,
    "opened brackets": "[" * 100_000,
    "brackets and parentheses": "[a](" * REPEATED,
    "closed brackets": "[" * REPEATED + "](" * REPEATED,
    "images": "![" * REPEATED + "](x)" * REPEATED,
    "backticks of every length": " ".join("`" * length for length in range(1, 600)),
    "unclosed fences": "```\n" + "~~~\n`` \n" * REPEATED,
    "one long line": "word " * 100_000,
    "one long word": "x" * 500_000,
    "many lines": "line\n" * 50_000,
    "blank lines": "- a" + "\n" * 100_000 + "b",
    "spaces": "#" + " " * 200_000 + "x",
    "spaces after a fence": "```" + " " * 100_000 + "x" + " " * 100_000 + "`",
    "a wide table": "|" * REPEATED + "\n" + "|-" * REPEATED + "\n" + "|\n" * REPEATED,
    "a long table": "|a|b|\n|-|-|\n" + "|1|2|\n" * REPEATED,
    "bare addresses": "https://a.test/(((((.,.,.,. " * 5000,
    "angle brackets": "<https://" * REPEATED,
    "backslashes": "\\" * 200_001,
    "lone surrogates": "\ud800 \udfff" * 100,
    "control characters": "".join(map(chr, range(32))) * 100,
}


@pytest.mark.parametrize("name", HUGE)
def test_it_survives_huge_input_without_deep_nesting(render: Renderer, name: str) -> None:
    # The text is built from JSON, as it arrives: the driver's own channel refuses lone surrogates.
    depth, shown = render.page.evaluate(
        """text => {
          const root = document.querySelector('main');
          root.replaceChildren();
          module.renderMarkdown(root, JSON.parse(text));
          const depthOf = node => Math.max(0, ...Array.from({ length: Math.min(node.children.length, 2000) },
            (_, index) => depthOf(node.children[index]))) + 1;
          return [depthOf(root), root.textContent.length + root.childElementCount];
        }""",
        json.dumps(HUGE[name]),
    )
    assert depth < 100
    assert shown > 0


def _steps(render: Renderer, text: str) -> int:
    """How often the renderer's blocks of code run for `text`: its work without a clock."""
    session = render.page.context.new_cdp_session(render.page)
    session.send("Profiler.enable")
    session.send("Profiler.startPreciseCoverage", {"callCount": True, "detailed": True})
    render.page.evaluate("text => module.renderMarkdown(document.createElement('div'), text)", text)
    scripts = session.send("Profiler.takePreciseCoverage")["result"]
    session.send("Profiler.stopPreciseCoverage")
    session.detach()
    functions = [function for script in scripts if "/markdown" in script["url"] for function in script["functions"]]
    return sum(block["count"] for function in functions for block in function["ranges"])


REPEATED_UNITS = [
    "> ",
    "*a **b _c ",
    "[a](",
    "![",
    "`a ``b ",
    "- a\n",
    "|a|b|\n",
    "<https://x ",
    "a* ",
    "\\*",
    "~~~\n",
    "[",
    "](x)",
]
REPEATED_UNITS += ["a | b\n", "-", "  - a\n\n", ">\n", "1. a\n", "[a](https://b.test/(", "https://a.test/) "]


@pytest.mark.parametrize("unit", REPEATED_UNITS)
def test_its_work_grows_with_the_input_and_not_with_its_square(render: Renderer, unit: str) -> None:
    """Ten times the input: ten times the work, where a square would be a hundred. The count varies a little with
    what the browser has compiled by then, so that the bound lies between the two."""
    _steps(render, unit)
    assert _steps(render, unit * 10_000) < 40 * _steps(render, unit * 1000)


DOCUMENT = """## A *title*

Some **bold text**, `code`, [a link](https://b.test/x) and ~~more~~.
With a | bar

1. one
   - nested **item**
   - another
2. two

   with a paragraph

| a | b |
|---|:-:|
| 1 | `2` |

> quoted
> > twice

```python
def f():
    return "```"
```

---
- [x] done
* * *
intro
| c | d |
|---|---|
| 3 | 4 |
"""


@pytest.mark.parametrize("step", [1, 2, 7, 40])
def test_a_stream_ends_as_the_whole_text_would_look(render: Renderer, step: int) -> None:
    assert render.stream(DOCUMENT, step)[-1] == render(DOCUMENT)


def test_a_stream_never_shows_half_of_a_mark(render: Renderer) -> None:
    shown = render.stream(
        "Some **bold text** and `code`, see [a link](https://b.test/x).\n\n- item\n\n| a |\n|---|\n| b |\n", 1
    )
    for html in shown[:-1]:
        assert not re.search(r"\*\*|`|\]\(|\||<p>-", html), html


def test_finished_blocks_keep_their_nodes_while_the_answer_goes_on(render: Renderer) -> None:
    kept = render.page.evaluate(
        """() => {
          const root = document.querySelector('main');
          root.replaceChildren();
          const view = new module.MarkdownView(root);
          view.update('first\\n\\n```js\\nlet a', { streaming: true });
          const [paragraph, figure] = root.children;
          const button = figure.querySelector('button');
          view.update('first\\n\\n```js\\nlet a = 1;\\nlet b', { streaming: true });
          view.update('first\\n\\n```js\\nlet a = 1;\\nlet b = 2;\\n```\\n\\nlast', { streaming: false });
          return root.children[0] === paragraph && root.children[1] === figure && button.isConnected;
        }"""
    )
    assert kept
