"""axe-core: rules of accessibility, checked on a page as it is drawn."""

import json
import os
import re

from gateway import ROOT

PATH = os.path.join(os.environ.get("MODELGW_NPM",
                                   os.path.join(ROOT, "build/npm")),
                    "node_modules/axe-core/axe.min.js")
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa",
        "best-practice"]

# Where axe-core does not compute a contrast: what is not in view, the "x" of
# dialogs, and fields without a value.

NO_TEXT = re.compile(
    "overlapped by another element|overlaps other elements|partially obscured"
    "|outside|too short to determine|Element has no value")


def check(page):
    """The page's violations; the rules run in a world of their own, in which
    the page's scripts are not."""
    frame = page.call("Page.getFrameTree")["frameTree"]["frame"]["id"]
    world = page.call("Page.createIsolatedWorld", frameId=frame,
                      worldName="axe")["executionContextId"]
    if not page.js("typeof axe == 'object'", contextId=world):
        with open(PATH) as f:
            page.js(f.read() + ";0", contextId=world)


    # the contrast of what is on the shadows of tables could not be computed

    found = page.js("""(() => {
        const sheet = new CSSStyleSheet();
        sheet.replaceSync(".scroll { background-image: none !important }");
        document.adoptedStyleSheets = [sheet];
        return axe.run(document, {
            runOnly: {type: "tag", values: %s},
            resultTypes: ["violations", "incomplete"]
        }).finally(() => { document.adoptedStyleSheets = []; });
    })().then(r => [...r.violations,
                    ...r.incomplete.filter(i => i.id === "color-contrast")
        ].flatMap(v => v.nodes.map(n => v.id + ": " + v.help + "\\n    "
            + n.html.slice(0, 200) + "\\n      "
            + n.failureSummary.replace(/\\n/g, "\\n      "))))"""
                    % json.dumps(TAGS), contextId=world, limit=60)
    found = [text for text in found if not NO_TEXT.search(text)]
    assert found == [], "%s, %s, %d px:\n%s" % (page.url, page.scheme,
                                               page.width, "\n".join(found))
