# modelgw: build, demo and tests.
#
#   make            build/ngx_http_modelgw_module.so for the packaged nginx
#   make install    the module, its snippets, modelgwctl, the console (DESTDIR)
#   make run        the demo on 127.0.0.1:8080, until Ctrl-C
#   make test       everything that CI runs
#   make help       the other targets
#
# Everything is made under build/; "make clean" keeps what was downloaded.

SHELL       = /bin/bash

BUILD       = build
CC          = cc
PYTHON      = python3

# The nginx to build for: Debian's nginx-dev (headers, auto/ and conf_flags) or
# any nginx source tree.  One without conf_flags is taken to be the sources of
# an nginx with --with-compat and TLS: without the latter, the checks of TLS
# to the upstream would not be compiled in.

NGINX_SRC   = /usr/share/nginx/src
NGINX_FLAGS = $(shell f=$(NGINX_SRC)/conf_flags; \
                if [ -f $$f ]; then sed 's/^NGX_CONF_FLAGS=(//; s/)$$//' $$f; \
                else echo --with-compat --with-http_ssl_module; fi)

# No function of ours is replaced by one of the same name: calls within the
# module are direct, or inlined.

CC_OPT      = -O2 -fPIC -fstack-protector-strong -D_FORTIFY_SOURCE=2 \
              -fno-semantic-interposition -Wextra -Wno-unused-parameter
LD_OPT      = -Wl,-z,relro -Wl,-z,now -Wl,-Bsymbolic-functions

MODULES_DIR = $(shell nginx -V 2>&1 \
                | sed -n 's/.*--modules-path=\([^ ]*\).*/\1/p')
CONF_DIR    = /etc/nginx/modelgw
SBIN_DIR    = /usr/sbin
SHARE_DIR   = /usr/share/modelgw

CONSOLE     = $(BUILD)/console
MODULE      = $(BUILD)/ngx_http_modelgw_module.so
NGINX_OBJS  = $(BUILD)/module

# each directory of src/ is a room; floor 0 is all of them but src/http/

ROOMS       = $(filter-out http,$(notdir $(wildcard src/*)))
SOURCES     = config ngx_http_modelgw_module.c \
              $(wildcard src/*/*.[ch] src/*/*/*.[ch])

JOBS        = $(shell nproc 2>/dev/null || echo 1)


.PHONY: all module console install run test check style clang unit pytest vectors \
        test-asan test-matrix fuzz fuzz-quick bench bench-quick bench-growth \
        bench-instructions bench-scan bench-ledger bench-store \
        bench-questions \
        limits-minute setup-build help clean distclean \
        torture torture-quick cluster-test cluster-test-quick cluster-scale test-busy test-console console-pictures

all: setup-build
	@$(MAKE) --no-print-directory module

setup-build:
	@t/tools/setup.sh build

module: $(MODULE)

$(MODULE): $(NGINX_OBJS)/objs/Makefile $(SOURCES)
	@echo "compile $(NGINX_OBJS)"
	@$(MAKE) -s -C $(NGINX_OBJS) -f objs/Makefile -j$(JOBS) modules
	@! nm -D --undefined-only $(NGINX_OBJS)/objs/$(notdir $@) \
	    | grep modelgw \
	    || { echo "is a function declared and not defined?"; exit 1; }
	@install -m 644 $(NGINX_OBJS)/objs/$(notdir $@) $@.new && mv $@.new $@

CONFIGURE   = $(NGINX_FLAGS) --add-dynamic-module=$(CURDIR) \
              --with-cc-opt='$(CC_OPT)' --with-ld-opt='$(LD_OPT)'

$(NGINX_OBJS)/objs/Makefile: config Makefile $(NGINX_SRC)/src/core/nginx.h \
        $(BUILD)/sources $(BUILD)/configured
	$(call configure,$(NGINX_SRC),$(CONFIGURE))

$(NGINX_SRC)/src/core/nginx.h:
	@echo "NGINX_SRC=$(NGINX_SRC) is not an nginx source tree: $@ is missing"
	@exit 1

# configure wants its own tree as the current directory, and writes beside it:
# a directory of symbolic links keeps the tree itself as it is

# $(1) nginx sources, $(2) flags; runs in the directory of the target, less objs/

define configure
	@echo "configure $(1) in $(patsubst %/objs,%,$(@D))"
	@mkdir -p $(patsubst %/objs,%,$(@D))
	@cd $(patsubst %/objs,%,$(@D)) && rm -rf auto src configure objs \
	&& ln -s $(addprefix $(abspath $(1))/,auto src configure) . \
	&& ./configure --with-cc=$(CC) $(2) > configure.log 2>&1 \
	|| { tail -n 20 configure.log; rm -f objs/Makefile; exit 1; }
endef

# changes when a source file comes or goes

$(BUILD)/sources: FORCE
	@mkdir -p $(BUILD)
	@echo $(sort $(SOURCES)) | cmp -s - $@ || echo $(sort $(SOURCES)) > $@

# changes when the tree, the compiler or a flag does: times of files do not show
# it, another tree may be older than what was made from the former one

$(BUILD)/configured: FORCE
	@mkdir -p $(BUILD)
	@echo $(call quote,$(CONFIGURED)) | cmp -s - $@ \
	    || echo $(call quote,$(CONFIGURED)) > $@

CONFIGURED  = $(abspath $(NGINX_SRC)) $(CC) $(CONFIGURE)
quote       = '$(subst ','\'',$(1))'

FORCE:


# the console is left out where npm, which fetches its libraries, is missing

install: module $(if $(shell command -v npm)$(wildcard $(CONSOLE)/.complete),\
        console)
	@[ -n "$(MODULES_DIR)" ] || \
	    { echo "nginx -V names no --modules-path; set MODULES_DIR"; exit 1; }
	install -D -m 644 $(MODULE) \
	    $(DESTDIR)$(MODULES_DIR)/$(notdir $(MODULE))
	install -d -m 755 $(DESTDIR)$(SBIN_DIR)
	install -m 755 $(wildcard conf/modelgwctl*) $(DESTDIR)$(SBIN_DIR)
	install -D -m 644 conf/openapi.json \
	    $(DESTDIR)$(SHARE_DIR)/openapi.json
	install -d -m 755 $(DESTDIR)$(SHARE_DIR)/cluster
	install -m 644 conf/cluster/*.sql $(DESTDIR)$(SHARE_DIR)/cluster
	install -d -m 755 $(DESTDIR)$(CONF_DIR)
	@for f in conf/modelgw/*.conf; do \
	    to=$(DESTDIR)$(CONF_DIR)/$${f##*/}; \
	    if [ -f $$to ] && ! cmp -s $$f $$to; then \
	        echo "$$to differs and is kept, the new one is $$to.new"; \
	        to=$$to.new; \
	    fi; \
	    install -m 644 $$f $$to || exit 1; \
	done
	@if [ -f $(CONSOLE)/.complete ]; then \
	    to=$(DESTDIR)$(SHARE_DIR)/console; \
	    echo "install the console to $$to"; \
	    rm -rf $$to && install -d -m 755 $$to/vendor \
	    && install -m 644 $(CONSOLE)/*.* $$to \
	    && install -m 644 $(CONSOLE)/vendor/* $$to/vendor; \
	else \
	    echo "NOTICE: npm is missing: the console is not installed"; \
	fi


# The rest by subject.

include console/console.mk t/unit/unit.mk t/fuzz/fuzz.mk t/bench/bench.mk \
        t/tools/nginx.mk t/tools/pytest.mk


# Style: the house rules that a program can see, the order of the rooms first.

style:
	@$(PYTHON) t/tools/style.py


# The other compiler's warnings are errors too.

clang:
	@if command -v clang >/dev/null; then \
	    $(MAKE) --no-print-directory module CC=clang BUILD=$(BUILD)/clang; \
	else \
	    echo "NOTICE: clang is not installed, its warnings are not seen" \
	        | tee -a $(BUILD)/notices; \
	fi


# Everything, cheapest first; what fails does not hide what comes after it.  The
# test of clusters waits more than it computes: it runs beside test-asan.

STEPS       = style fuzz-quick clang unit pytest test-console torture-quick \
              vectors test-asan test-matrix
BESIDE      = cluster-test-quick

test check: setup-test
	@rm -f $(BUILD)/notices; mkdir -p $(BUILD); failed=; begin=$$SECONDS; \
	line() { summary="$$summary$$(printf '%-18s %-6s %4ds' "$$@")"$$'\n'; }; \
	for step in all $(STEPS); do \
	    echo "=== make $$step"; start=$$SECONDS; \
	    if [ $$step = test-asan ]; then \
	        beside=$$SECONDS; \
	        $(MAKE) --no-print-directory $(BESIDE) \
	            > $(BUILD)/beside.log 2>&1 & pid=$$!; \
	    fi; \
	    if $(MAKE) --no-print-directory $$step; then result=ok; \
	    else result=FAILED; failed="$$failed $$step"; fi; \
	    line $$step $$result $$((SECONDS - start)); \
	    if [ $$step = test-asan ]; then \
	        if wait $$pid; then result=ok; \
	        else result=FAILED; failed="$$failed $(BESIDE)"; fi; \
	        echo "=== make $(BESIDE), beside"; cat $(BUILD)/beside.log; \
	        line $(BESIDE) $$result $$((SECONDS - beside)); \
	    fi; \
	done; \
	printf '\n%s' "$$summary"; \
	cat $(BUILD)/notices 2>/dev/null; \
	if [ -n "$$failed" ]; then \
	    echo "make test: FAILED:$$failed ($$((SECONDS - begin)) s)"; exit 1; \
	fi; \
	echo "make test: all passed ($$((SECONDS - begin)) s)"

# RUNS times beside busy loops and a disk that syncs, where tests that race
# fail; the outputs are kept in $(BUILD)/busy, failures are listed last

RUNS        = 1

test-busy:
	@mkdir -p $(BUILD)/busy; rm -f $(BUILD)/busy/*.log; set -o pipefail; \
	for run in $$(seq $(RUNS)); do \
	    log=$(BUILD)/busy/$$run.log; \
	    echo "=== busy run $$run of $(RUNS), $$log"; \
	    t/tools/busy.py --sync $(BUILD) -- $(MAKE) --no-print-directory test \
	        2>&1 | tee $$log || { \
	        echo "make test-busy: run $$run of $(RUNS) has failed:"; \
	        grep -E '^(FAILED|ERROR) |FAILED' $$log; exit 1; \
	    }; \
	done; \
	echo "make test-busy: $(RUNS) runs passed"


# The demo: stub upstream, nginx, keys; see demo/run.sh.

run: setup-run
	@$(MAKE) --no-print-directory -s module
	@$(MAKE) --no-print-directory -s console \
	    || echo "NOTICE: the demo runs without the console"
	@MODELGW_MODULE=$(abspath $(MODULE)) MODELGW_RUN=$(abspath $(BUILD))/run \
	    MODELGW_CONSOLE=$(abspath $(CONSOLE)) \
	    MODELGW_NGINX=$(NGINX) exec demo/run.sh


help:
	@echo 'make                 build the module'
	@echo 'make install         install it (DESTDIR, {MODULES,CONF,SBIN,SHARE}_DIR)'
	@echo 'make console         lay out the console, with libraries from npm'
	@echo 'make run             the demo (MODELGW_PORT, MODELGW_A_SECRET, ...)'
	@echo 'make test            all of these, cheapest first:'
	@echo '$(STEPS) $(BESIDE)' | fmt -w 58 | sed 's/^/                     /'
	@echo 'make test-busy       make test on a busy machine, RUNS times'
	@echo 'make style           house rules, sizes, the order of the rooms'
	@echo 'make clang           the module, compiled by clang'
	@echo 'make unit            C unit tests under ASan and UBSan'
	@echo 'make pytest          full suite, packaged nginx (PYTEST_ARGS)'
	@echo 'make test-console    the console, in a browser (PYTEST_ARGS)'
	@echo 'make console-pictures  docs/console/*.png anew, in a browser'
	@echo 'make vectors         translation vectors (VECTORS=dirs REPORT=file)'
	@echo 'make test-asan       full suite, nginx and module under ASan'
	@echo 'make test-matrix     what depends on nginx, newer series, 4 workers'
	@echo 'make fuzz            libFuzzer on floor 0 (FUZZ_SECONDS)'
	@echo 'make torture         money through 1000 kills, 100 power cuts'
	@echo 'make torture-quick   the same with 20 and 3, in half a minute'
	@echo 'make cluster-test    several nodes, all that can fail does: an hour'
	@echo 'make cluster-test-quick  the same in four minutes'
	@echo 'make cluster-scale   clusters of many nodes, accounts (CASES)'
	@echo 'make limits-minute   limits of keys under load, three minutes'
	@echo 'make bench           CPU, latency, memory beside plain: 40 minutes'
	@echo 'make bench-quick     its most telling lines: 5 minutes (BENCH_ARGS)'
	@echo 'make bench-growth    many keys, many streams, reload under load'
	@echo 'make bench-instructions  instructions per request, by callgrind'
	@echo 'make bench-scan      speed of the request scanner'
	@echo 'make bench-ledger    what a call costs in the ledger'
	@echo 'make bench-store     what a call costs the writer of the ledger'
	@echo 'make bench-questions what it takes to open an old ledger and ask it'
	@echo 'make module NGINX_SRC=dir  build for another nginx tree'

# "clean" keeps downloads and what was installed from them

clean:
	rm -rf $(filter-out $(addprefix $(BUILD)/,apt src venv npm),\
	    $(wildcard $(BUILD)/* $(BUILD)/.[a-z]*))

distclean:
	rm -rf $(BUILD)


setup-run setup-unit setup-test setup-fuzz setup-bench setup-pictures: setup-%:
	@t/tools/setup.sh $(SETUP_$*)

SETUP_run   = --ask build run
SETUP_unit  = --ask build unit
SETUP_test  = --ask build run unit test
SETUP_pictures = --ask pictures
SETUP_fuzz  = --ask build unit fuzz
SETUP_bench = --ask build run bench

.PHONY: FORCE unit-build pytest-tools setup-run setup-unit \
        setup-test setup-fuzz setup-bench setup-pictures
