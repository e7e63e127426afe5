"""Renders a configuration and runs nginx -t on it.

A configuration is put together from parts that a test replaces.  A line that
ends in "# HERE" is the one that a message must name; refused() searches all
files for it.
"""

import hashlib
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
NGINX = os.environ.get("MODELGW_NGINX", "/usr/sbin/nginx")
MODULE = os.environ.get("MODELGW_MODULE", os.path.join(
    ROOT, "build/ngx_http_modelgw_module.so"))

SECRET = "canary-5e0c2d"

# nginx -t exits without freeing its configuration

ENV = dict(os.environ, ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "")
           + ":detect_leaks=0")

GROUP = """
    protocol    messages;
    family      fam-a-;
    upstream    http://api.vendor-a.test;
    credential  x-api-key file:a.secret;
    model       fam-a-large  large-1  input=3 output=15;
"""

GROUP_B = """
    protocol    chat;
    family      fam-b- code-;
    upstream    http://api.vendor-b.test;
    credential  Authorization file:a.secret bearer;
    model       fam-b-one  one-1;
    model       ~^code-(.+)$  $1;
"""

LOCATION = "proxy_pass $modelgw_upstream;"


def digest(secret):
    return "sha256:" + hashlib.sha256(secret.encode()).hexdigest()


def key(id="alice", group="a", options="", secret=None):
    """One line of a modelgw_keys block."""
    return "%s %s %s %s;" % (id, digest(secret or "sk-eu-" + id), group,
                             options)


class Config:
    """The parts, and the result of nginx -t on them (rc, text)."""

    def __init__(self, directory):
        self.dir = str(directory)
        self.write("a.secret", SECRET + "\n", 0o600)

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, text, mode=0o644):
        with open(self.path(name), "wb") as f:
            f.write(text if isinstance(text, bytes) else text.encode())
        os.chmod(self.path(name), mode)

    def test(self, group=GROUP, group_b=GROUP_B, keys=None, http="",
             server="", location=LOCATION, enable="modelgw on;", locations="",
             groups=None, late="", upstreams=None, shipped=True):
        """nginx -t; late is put at the end of the http block."""
        if groups is None:
            groups = ("modelgw_group a {\n%s\n}\nmodelgw_group b {\n%s\n}"
                      % (group, group_b))
        if keys is None:
            keys = key()
        if upstreams is None:
            upstreams = ("upstream api.vendor-a.test { server 127.0.0.1:1; }\n"
                         "upstream api.vendor-b.test { server 127.0.0.1:1; }")
        if keys is not False:
            keys = "modelgw_keys {\n%s\n}" % keys
        text = """%s
%s
error_log stderr warn;
pid nginx.pid;
events {}
http {
access_log off;
client_body_temp_path %s/tmp;
proxy_temp_path %s/tmp;
fastcgi_temp_path %s/tmp;
uwsgi_temp_path %s/tmp;
scgi_temp_path %s/tmp;
%s
%s
%s
%s
server {
listen unix:%s/s;
%s
%s
location /v1/ {
%s
%s
}
%s
}
%s
}
""" % ("load_module %s;" % MODULE if MODULE else "",
            "user root;" if os.geteuid() == 0 else "", *[self.dir] * 5, http,
            upstreams, groups, keys or "", self.dir,
            "include %s/conf/modelgw/proxy.conf;" % ROOT if shipped else "",
            server, enable, location, locations, late)
        self.write("nginx.conf", text)
        p = subprocess.run([NGINX, "-t", "-p", self.dir, "-c",
                            self.path("nginx.conf"), "-e", "stderr"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                           text=True, timeout=120, env=ENV)
        self.rc = p.returncode
        self.text = p.stderr
        assert self.rc in (0, 1), self.text
        assert SECRET not in self.text
        return self

    def place(self):
        """FILE:LINE of the line that ends in "# HERE"."""
        for name in sorted(os.listdir(self.dir)):
            if not name.endswith(".conf"):
                continue
            with open(self.path(name), errors="replace") as f:
                for i, line in enumerate(f, 1):
                    if line.rstrip().endswith("# HERE"):
                        return "%s:%d" % (self.path(name), i)
        raise AssertionError("no line has # HERE")

    def lines(self, level):
        return [line for line in self.text.split("\n")
                if re.match(r"^(.*\s|nginx: )\[%s\] " % level, line)]

    def refused(self, *words, place=True, **parts):
        """It is refused with one line that has the words and the place."""
        self.test(**parts)
        lines = sorted(set(re.sub(r"^.*\[emerg\] (\d+#\d+: )?", "", line)
                           for line in self.lines("emerg")))
        assert self.rc == 1, "it was accepted"
        assert len(lines) == 1, self.text
        for word in words:
            assert word in lines[0], self.text
        if place:
            assert lines[0].endswith(" in " + self.place()), \
                "%s, not %s" % (lines[0], self.place())
        return lines[0]

    def accepted(self, **parts):
        """It passes without a warning."""
        self.test(**parts)
        assert self.rc == 0, self.text
        assert not self.lines("warn"), self.text

    def warned(self, *words, place=True, **parts):
        """It passes with one warning that has the words and the place."""
        self.test(**parts)
        assert self.rc == 0, self.text
        lines = self.lines("warn")
        assert len(lines) == 1, self.text
        for word in words:
            assert word in lines[0], self.text
        if place:
            assert lines[0].endswith(" in " + self.place()), \
                "%s, not %s" % (lines[0], self.place())
