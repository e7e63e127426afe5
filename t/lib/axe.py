"""axe-core: rules of accessibility, checked on a page as it is drawn."""

import json
import os

from gateway import ROOT

PATH = os.path.join(os.environ.get("MODELGW_NPM",
                                   os.path.join(ROOT, "build/npm")),
                    "node_modules/axe-core/axe.min.js")
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa",
        "best-practice"]


def check(page):
    """The page's violations; the rules run in a world of their own, in which
    the page's scripts are not."""
    frame = page.call("Page.getFrameTree")["frameTree"]["frame"]["id"]
    world = page.call("Page.createIsolatedWorld", frameId=frame,
                      worldName="axe")["executionContextId"]
    if not page.js("typeof axe == 'object'", contextId=world):
        with open(PATH) as f:
            page.js(f.read() + ";0", contextId=world)
    found = page.js("""axe.run(document, {
        runOnly: {type: "tag", values: %s}, resultTypes: ["violations"]
    }).then(r => r.violations.map(v => v.id + ": " + v.help + "\\n" +
        v.nodes.map(n => "    " + n.html.slice(0, 200) + "\\n      "
            + n.failureSummary.replace(/\\n/g, "\\n      ")).join("\\n")))"""
                    % json.dumps(TAGS), contextId=world, limit=60)
    assert found == [], "%s, %s, %d px:\n%s" % (page.url, page.scheme,
                                               page.width, "\n".join(found))
