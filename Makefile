# modelgw: build, demo and tests.
#
#   make            build/ngx_http_modelgw_module.so for the packaged nginx
#   make install    the module, its snippets, modelgwctl (with DESTDIR)
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

# Nobody replaces a function of ours by one of the same name: calls within the
# module are direct, or inlined.

CC_OPT      = -O2 -fPIC -fstack-protector-strong -D_FORTIFY_SOURCE=2 \
              -fno-semantic-interposition -Wextra -Wno-unused-parameter
LD_OPT      = -Wl,-z,relro -Wl,-z,now -Wl,-Bsymbolic-functions

MODULES_DIR = $(shell nginx -V 2>&1 \
                | sed -n 's/.*--modules-path=\([^ ]*\).*/\1/p')
CONF_DIR    = /etc/nginx/modelgw
SBIN_DIR    = /usr/sbin

MODULE      = $(BUILD)/ngx_http_modelgw_module.so
NGINX_OBJS  = $(BUILD)/module
# each directory of src/ is a room; floor 0 is all of them but src/http/

ROOMS       = $(filter-out http,$(notdir $(wildcard src/*)))
SOURCES     = config ngx_http_modelgw_module.c \
              $(wildcard src/*/*.[ch] src/*/*/*.[ch])

JOBS        = $(shell nproc 2>/dev/null || echo 1)


.PHONY: all module install run test check style clang unit pytest vectors \
        test-asan test-matrix fuzz fuzz-quick bench bench-quick bench-growth \
        bench-instructions bench-scan bench-ledger bench-store \
        limits-minute setup-build help clean distclean \
        torture torture-quick test-busy

all: setup-build
	@$(MAKE) --no-print-directory module

setup-build:
	@t/setup.sh build

module: $(MODULE)

$(MODULE): $(NGINX_OBJS)/objs/Makefile $(SOURCES)
	@echo "compile $(NGINX_OBJS)"
	@$(MAKE) -s -C $(NGINX_OBJS) -f objs/Makefile -j$(JOBS) modules
	@! nm -D --undefined-only $(NGINX_OBJS)/objs/$(notdir $@) \
	    | grep modelgw || { echo "is a function declared and not defined?"; exit 1; }
	@install -m 644 $(NGINX_OBJS)/objs/$(notdir $@) $@.new && mv $@.new $@

# configure wants its own tree as the current directory, and writes beside it:
# a directory of symbolic links keeps the tree itself as it is

$(NGINX_OBJS)/objs/Makefile: config Makefile $(NGINX_SRC)/src/core/nginx.h \
        $(BUILD)/sources
	$(call configure,$(NGINX_SRC),$(NGINX_FLAGS) \
	    --add-dynamic-module=$(CURDIR) \
	    --with-cc-opt='$(CC_OPT)' --with-ld-opt='$(LD_OPT)')

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

FORCE:


install: module
	@[ -n "$(MODULES_DIR)" ] || \
	    { echo "nginx -V names no --modules-path; set MODULES_DIR"; exit 1; }
	install -D -m 644 $(MODULE) \
	    $(DESTDIR)$(MODULES_DIR)/$(notdir $(MODULE))
	install -D -m 755 conf/modelgwctl $(DESTDIR)$(SBIN_DIR)/modelgwctl
	install -d -m 755 $(DESTDIR)$(CONF_DIR)
	@for f in conf/modelgw/*.conf; do \
	    to=$(DESTDIR)$(CONF_DIR)/$${f##*/}; \
	    if [ -f $$to ] && ! cmp -s $$f $$to; then \
	        echo "$$to differs and is kept, the new one is $$to.new"; \
	        to=$$to.new; \
	    fi; \
	    install -m 644 $$f $$to || exit 1; \
	done


# Unit tests of floor 0: t/unit/test_*.c, each a program with all of
# src/, all rooms but http, and the nginx core that strings and pools need.  nginx-dev
# has headers only, so the .c files come from the sources of the same release:
# they and the configured headers in $(NGINX_OBJS) belong together.

SERIES      = $(shell sed -n 's/^\#define NGINX_VERSION *"\([0-9]*\.[0-9]*\).*/\1/p' \
                $(NGINX_SRC)/src/core/nginx.h 2>/dev/null)
CORE_SRC    = $(BUILD)/src/nginx-$(SERIES)

CORE        = core/ngx_palloc core/ngx_string core/ngx_array core/ngx_list \
              core/ngx_buf core/ngx_hash core/ngx_rbtree core/ngx_crc32 \
              core/ngx_murmurhash core/ngx_slab core/ngx_sha1 core/ngx_parse \
              os/unix/ngx_alloc

INCLUDES    = $(ROOMS:%=-Isrc/%) -It/unit -I$(NGINX_OBJS)/objs \
              -I$(CORE_SRC)/src/core -I$(CORE_SRC)/src/event \
              -I$(CORE_SRC)/src/event/modules \
              -I$(CORE_SRC)/src/event/quic -I$(CORE_SRC)/src/os/unix
WARNINGS    = -W -Wall -Wextra -Wpointer-arith -Wno-unused-parameter -Werror
ASAN        = -g -O1 -fsanitize=address -fno-omit-frame-pointer \
              -DNGX_DEBUG_PALLOC=1

# UBSan for our own code only: nginx's ngx_string.c trips it

UBSAN       = -fsanitize=undefined -fno-sanitize-recover=undefined

FLOOR0      = $(patsubst src/%.c,%,$(wildcard $(ROOMS:%=src/%/*.c)))
UNIT        = $(BUILD)/unit
UNIT_LIBS   = -lcmocka -lyajl -lcrypto -lsqlite3 -lpthread
UNIT_OBJS   = $(FLOOR0:%=$(UNIT)/%.o) $(CORE:%=$(UNIT)/nginx/%.o)
UNIT_TESTS  = $(patsubst t/unit/%.c,$(UNIT)/%,$(wildcard t/unit/test_*.c))
HEADERS     = $(wildcard src/*/*.h src/*/*/*.h t/unit/*.h) \
              | $(NGINX_OBJS)/objs/Makefile $(CORE_SRC)/.complete

unit: setup-unit
	@$(MAKE) --no-print-directory -j$(JOBS) unit-build
	@for t in $(UNIT_TESTS); do \
	    echo "== $$t"; $$t || failed="$$failed $$t"; \
	done; \
	[ -z "$$failed" ] || { echo "unit tests failed:$$failed"; exit 1; }

unit-build: $(UNIT_TESTS)

$(CORE_SRC)/.complete:
	BUILD=$(BUILD) t/nginx-src.sh $(SERIES)

$(UNIT)/nginx/%.o: | $(CORE_SRC)/.complete $(NGINX_OBJS)/objs/Makefile
	@mkdir -p $(@D); echo "cc $*.c"
	@$(CC) $(ASAN) -W -Wall $(INCLUDES) -c -o $@ $(CORE_SRC)/src/$*.c

$(UNIT)/%.o: src/%.c $(HEADERS)
	@mkdir -p $(@D); echo "cc $<"
	@$(CC) $(ASAN) $(UBSAN) $(WARNINGS) $(INCLUDES) -c -o $@ $<

$(UNIT)/%: t/unit/%.c $(UNIT_OBJS) $(HEADERS)
	@mkdir -p $(@D); echo "cc $<"
	@$(CC) $(ASAN) $(UBSAN) $(WARNINGS) $(INCLUDES) -o $@ $< $(UNIT_OBJS) \
	    $(UNIT_LIBS)

.PRECIOUS: $(UNIT)/%.o $(UNIT)/nginx/%.o


# What a call costs, beside plain proxy_pass: by the clock (gateway.py), in
# instructions, which are the same on a busy machine (instructions.py), and
# with many keys and streams (growth.py).  What is measured is in
# t/bench/cases.py; rows of the first are in $(BUILD)/bench.json, too.

BENCH_ARGS  =

BENCH_ENV   = MODELGW_NGINX=$(NGINX) MODELGW_MODULE=$(abspath $(MODULE)) \
              MODELGW_BENCH=$(abspath $(BUILD))/bench
BENCH_PROGS = $(BUILD)/bench/upstream $(BUILD)/bench/stage.so
BENCH_HTTP  = $(addprefix -I$(NGINX_OBJS)/src/,core event event/modules \
                event/quic os/unix http http/modules http/v2 http/v3)

bench bench-quick: setup-bench module
	@$(MAKE) --no-print-directory $(BENCH_PROGS)
	@$(BENCH_ENV) $(PYTHON) t/bench/gateway.py --out $(BUILD)/bench.json \
	    $(if $(filter bench-quick,$@),--quick) $(BENCH_ARGS)

bench-instructions: setup-bench module
	@$(MAKE) --no-print-directory $(BENCH_PROGS)
	@$(BENCH_ENV) $(PYTHON) t/bench/instructions.py \
	    --out $(BUILD)/instructions.txt $(BENCH_ARGS)

bench-growth: setup-bench setup-unit module
	@$(MAKE) --no-print-directory $(BENCH_PROGS) $(BUILD)/bench/scan
	@$(BENCH_ENV) $(PYTHON) t/bench/growth.py --out $(BUILD)/growth.json \
	    $(BENCH_ARGS)
	@$(BUILD)/bench/scan | sed -n '/32 MB/,$$p'

$(BUILD)/bench/upstream: t/bench/upstream.c
	@mkdir -p $(@D); echo "cc $<"
	@$(CC) -g -O2 $(WARNINGS) -o $@ $<

# a module that looks into the state of ours

$(BUILD)/bench/stage.so: t/bench/stage.c $(wildcard src/*/*.h src/*/*/*.h) \
        | $(NGINX_OBJS)/objs/Makefile
	@mkdir -p $(@D); echo "cc $<"
	@$(CC) -g -O2 -fPIC -shared $(WARNINGS) \
	    $(addprefix -I,$(wildcard $(ROOMS:%=src/%) src/http src/http/*)) \
	    -I$(NGINX_OBJS)/objs \
	    $(BENCH_HTTP) -o $@ $<


# The same sources without sanitizers, for numbers.

bench-scan bench-ledger: bench-%: $(BUILD)/bench/%
	$<

bench-store: $(BUILD)/bench/store
	$< $(BUILD)/bench

$(BUILD)/bench/scan $(BUILD)/bench/ledger $(BUILD)/bench/store: \
        $(BUILD)/bench/%: t/bench/%.c \
        $(FLOOR0:%=src/%.c) $(HEADERS)
	@mkdir -p $(@D); echo "cc $<"
	@$(CC) -g -O2 $(WARNINGS) $(INCLUDES) -o $@ $< $(FLOOR0:%=src/%.c) \
	    $(CORE:%=$(CORE_SRC)/src/%.c) $(UNIT_LIBS)


# libFuzzer on floor 0: every t/fuzz/fuzz_*.c for FUZZ_SECONDS, beginning with
# what it found before and with the vectors.

FUZZ_SECONDS = 30
FUZZERS     = $(patsubst t/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard t/fuzz/fuzz_*.c))

# the short form of "make fuzz", for "make test"

fuzz-quick:
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=10

fuzz: setup-fuzz
	@$(MAKE) --no-print-directory -j$(JOBS) $(FUZZERS)
	@$(PYTHON) t/fuzz/seeds.py $(BUILD)/fuzz
	@printf '%s\n' $(FUZZERS) | xargs -P $(JOBS) -I{} sh -c ' \
	    mkdir -p {}.corpus && {} -max_total_time=$(FUZZ_SECONDS) \
	        -dict=$(BUILD)/fuzz/codec.dict -print_final_stats=1 \
	        -artifact_prefix=$(BUILD)/fuzz/ {}.corpus > {}.log 2>&1; \
	    rc=$$?; echo "== {}"; tail -n 7 {}.log; \
	    [ $$rc = 0 ] || { tail -n 60 {}.log; exit 255; }'

FUZZ_CC     = clang -g -O1 -fsanitize=fuzzer-no-link,address,undefined \
              -DNGX_DEBUG_PALLOC=1 $(INCLUDES)
FUZZ_OBJS   = $(FLOOR0:%=$(BUILD)/fuzz/obj/%.o) \
              $(CORE:%=$(BUILD)/fuzz/obj/nginx/%.o)

$(BUILD)/fuzz/%: t/fuzz/%.c $(FUZZ_OBJS) $(wildcard t/fuzz/*.h) $(HEADERS)
	@mkdir -p $(@D); echo "clang $<"
	@$(FUZZ_CC) -fsanitize=fuzzer -o $@ $< $(FUZZ_OBJS) $(UNIT_LIBS)

$(BUILD)/fuzz/obj/nginx/%.o: | $(CORE_SRC)/.complete $(NGINX_OBJS)/objs/Makefile
	@mkdir -p $(@D)
	@$(FUZZ_CC) -c -o $@ $(CORE_SRC)/src/$*.c

$(BUILD)/fuzz/obj/%.o: src/%.c $(HEADERS)
	@mkdir -p $(@D)
	@$(FUZZ_CC) -c -o $@ $<

.PRECIOUS: $(BUILD)/fuzz/obj/%.o $(BUILD)/fuzz/obj/nginx/%.o


# nginx built from the sources of a series, for the matrix; "asan" is one of
# them with AddressSanitizer in nginx and module alike.  The latter is linked
# in statically: leaks in a .so that was closed have no symbols.  NGX_DEBUG_PALLOC
# gives each allocation from a pool a block of its own, without which ASan does
# not see an overflow inside a pool.

NGINX_WITH  = --with-compat --with-debug --with-threads --with-pcre-jit \
              --with-http_ssl_module --with-http_v2_module \
              --with-http_realip_module --with-http_auth_request_module \
              --with-http_stub_status_module --with-http_gunzip_module \
              --with-http_sub_module --with-http_addition_module \
              --prefix=/usr/share/nginx --error-log-path=stderr

MATRIX      = 1.26 1.30
ASAN_SERIES = 1.26
SUPPRESS    = -DNGX_SUPPRESS_WARN=1

$(BUILD)/nginx-%/nginx:
	BUILD=$(BUILD) t/nginx-src.sh $*
	$(call configure,$(BUILD)/src/nginx-$*,$(NGINX_WITH) --with-cc-opt='-O1 -g')
	@echo "compile $(@D)"
	@$(MAKE) -s -C $(@D) -f objs/Makefile -j$(JOBS) binary
	mv $(@D)/objs/nginx $@

$(BUILD)/asan/objs/Makefile: config Makefile $(BUILD)/sources
	BUILD=$(BUILD) t/nginx-src.sh $(ASAN_SERIES)
	$(call configure,$(BUILD)/src/nginx-$(ASAN_SERIES),$(NGINX_WITH) --add-module=$(CURDIR) \
	    --with-cc-opt='$(ASAN) $(SUPPRESS)' \
	    --with-ld-opt='-fsanitize=address')

$(BUILD)/asan/nginx: $(BUILD)/asan/objs/Makefile $(SOURCES)
	@echo "compile $(@D)"
	@$(MAKE) -s -C $(@D) -f objs/Makefile -j$(JOBS) binary
	cp $(@D)/objs/nginx $@


# pytest: against the packaged nginx, the sanitizer build, the other series; with
# 1, 2 and 4 workers.

VENV        = $(BUILD)/venv
NPM         = $(BUILD)/npm
PYTEST_ARGS =

# tests wait more than they compute

PYTEST_JOBS = $(shell echo $$((2 * $(JOBS) + 1)))

TEST_ENV    = MODELGW_BUILD=$(abspath $(BUILD)) \
              MODELGW_NPM=$(abspath $(NPM)) \
              MODELGW_SCAN_CLI=$(abspath $(UNIT)/scan_cli) \
              MODELGW_COST_CLI=$(abspath $(UNIT)/cost_cli)
PYTEST      = $(TEST_ENV) $(VENV)/bin/python -m pytest t -n $(PYTEST_JOBS)

NGINX       = $(firstword $(wildcard /usr/sbin/nginx) nginx)

pytest: setup-test module pytest-tools
	MODELGW_NGINX=$(NGINX) MODELGW_MODULE=$(abspath $(MODULE)) \
	    $(PYTEST) $(PYTEST_ARGS)

test-asan: setup-test $(BUILD)/asan/nginx pytest-tools
	MODELGW_NGINX=$(abspath $(BUILD)/asan/nginx) MODELGW_MODULE= \
	    MODELGW_ASAN=1 MODELGW_WORKERS=2 \
	    ASAN_OPTIONS=detect_stack_use_after_return=1:detect_odr_violation=0 \
	    LSAN_OPTIONS=suppressions=$(CURDIR)/t/lsan.supp:print_suppressions=0 \
	    $(PYTEST) $(PYTEST_ARGS)

# the other series: built and tested as Debian's newer releases will; a series
# that cannot be fetched is named at the end, and is no failure of ours

# what does not depend on nginx's version is left out: clients and properties

MATRIX_ARGS = $(addprefix --ignore=t/test_,$(addsuffix .py,assistants cost \
                ledger_config limits messages_api modelgwctl scan_properties \
                sdk_node sdk_python translate_agents translate_parity \
                translate_requests translate_sdk_node translate_sdk_python))

test-matrix: setup-test pytest-tools
	@rc=0; for series in $(MATRIX); do \
	    $(MAKE) --no-print-directory test-on-$$series || rc=1; \
	done; exit $$rc

test-on-%:
	@BUILD=$(BUILD) t/nginx-src.sh $*; rc=$$?; \
	if [ $$rc = 3 ]; then \
	    echo "NOTICE: $*: sources not available, skipped" \
	        | tee -a $(BUILD)/notices; \
	    exit 0; \
	fi; \
	[ $$rc = 0 ] || exit $$rc; \
	grep ^NOTICE $(BUILD)/src/nginx-$*/.complete >> $(BUILD)/notices; \
	$(MAKE) --no-print-directory $(BUILD)/nginx-$*/nginx \
	&& $(MAKE) --no-print-directory -s install BUILD=$(BUILD)/nginx-$* \
	    NGINX_SRC=$(BUILD)/src/nginx-$* DESTDIR=$(BUILD)/nginx-$*/root \
	    MODULES_DIR=/usr/lib/nginx/modules \
	&& t/docker.sh $(BUILD)/nginx-$*/nginx $(BUILD)/nginx-$*/root \
	&& MODELGW_NGINX=$(abspath $(BUILD))/nginx-$*/nginx \
	    MODELGW_MODULE=$(abspath $(BUILD))/nginx-$*/root/usr/lib/nginx/modules/$(notdir $(MODULE)) \
	    MODELGW_WORKERS=4 $(PYTEST) $(MATRIX_ARGS) $(PYTEST_ARGS)

# translation vectors: a directory of them through nginx, PASS or FAIL each; see
# t/vectors.py

VECTORS     = t/vectors
REPORT      =

vectors: setup-test module $(VENV)/.complete
	@MODELGW_NGINX=$(NGINX) MODELGW_MODULE=$(abspath $(MODULE)) $(TEST_ENV) \
	    $(VENV)/bin/python t/vectors.py '$(VECTORS)' \
	    $(if $(REPORT),--report '$(REPORT)')

# Money under torture: what the ledger says against an outside invoice, through
# kills of workers, reloads and, in the long form, a hundred power cuts; the
# short one is part of "make test".

TORTURE     = MODELGW_NGINX=$(NGINX) MODELGW_MODULE=$(abspath $(MODULE)) \
              $(TEST_ENV) $(VENV)/bin/python t/torture.py

torture: setup-test module $(VENV)/.complete
	$(TORTURE) $(TORTURE_ARGS)

torture-quick: setup-test module $(VENV)/.complete
	$(TORTURE) --quick $(TORTURE_ARGS)

# limits of keys under load, a minute each with 1, 2 and 4 workers; not a part of
# "test"

limits-minute: setup-test module $(VENV)/.complete
	@MODELGW_NGINX=$(NGINX) MODELGW_MODULE=$(abspath $(MODULE)) $(TEST_ENV) \
	    $(VENV)/bin/python t/limits_minute.py

pytest-tools: $(VENV)/.complete $(NPM)/.complete \
        $(patsubst t/unit/%.c,$(UNIT)/%,$(wildcard $(addprefix t/unit/,\
            scan_cli.c cost_cli.c)))

$(VENV)/.complete: t/requirements.txt
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@

# the official SDKs and a coding assistant; where they cannot be installed the
# tests that need them are skipped, and say so

$(NPM)/.complete: $(wildcard t/sdk/package.json)
	@mkdir -p $(NPM)
	@[ -z "$^" ] || cp $^ $(NPM)
	@if [ -z "$^" ] || (cd $(NPM) && npm install --no-package-lock \
	    --no-audit --no-fund --loglevel=error); \
	then \
	    touch $@; \
	else \
	    echo "NOTICE: npm packages cannot be installed:" \
	         "the tests with Node SDKs and assistants are skipped" \
	        | tee -a $(BUILD)/notices; \
	fi


# Style: the house rules that a program can see, and that floor 0 stays pure.

style:
	@$(PYTHON) t/style.py


# The other compiler's warnings are errors too.

clang:
	@if command -v clang >/dev/null; then \
	    $(MAKE) --no-print-directory module CC=clang BUILD=$(BUILD)/clang; \
	else \
	    echo "NOTICE: clang is not installed, its warnings are not seen" \
	        | tee -a $(BUILD)/notices; \
	fi


# Everything, cheapest first; what fails does not hide what comes after it.

STEPS       = style fuzz-quick clang unit pytest torture-quick vectors \
              test-asan test-matrix

test check: setup-test
	@rm -f $(BUILD)/notices; mkdir -p $(BUILD); failed=; begin=$$SECONDS; \
	for step in all $(STEPS); do \
	    echo "=== make $$step"; start=$$SECONDS; \
	    if $(MAKE) --no-print-directory $$step; then result=ok; \
	    else result=FAILED; failed="$$failed $$step"; fi; \
	    summary="$$summary$$(printf '%-12s %-6s %4ds' \
	        $$step $$result $$((SECONDS - start)))"$$'\n'; \
	done; \
	printf '\n%s' "$$summary"; \
	cat $(BUILD)/notices 2>/dev/null; \
	if [ -n "$$failed" ]; then \
	    echo "make test: FAILED:$$failed ($$((SECONDS - begin)) s)"; exit 1; \
	fi; \
	echo "make test: all passed ($$((SECONDS - begin)) s)"

# RUNS times beside busy loops and a disk that syncs, where tests that race
# fail; the outputs stay in $(BUILD)/busy, and what has failed is named last

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


# The demo: stub upstream, nginx, keys; see t/demo/run.sh.

run: setup-run
	@$(MAKE) --no-print-directory -s module
	@MODELGW_MODULE=$(abspath $(MODULE)) MODELGW_RUN=$(abspath $(BUILD))/run \
	    MODELGW_NGINX=$(NGINX) exec t/demo/run.sh


help:
	@echo 'make                 build the module'
	@echo 'make install         install it (DESTDIR, MODULES_DIR, CONF_DIR)'
	@echo 'make run             the demo (MODELGW_PORT, MODELGW_A_SECRET, ...)'
	@echo 'make test            everything below but fuzz, bench, limits'
	@echo 'make test-busy       make test on a busy machine, RUNS times'
	@echo 'make style           house rules, sizes, purity of floor 0'
	@echo 'make clang           the module, compiled by clang'
	@echo 'make unit            C unit tests under ASan and UBSan'
	@echo 'make pytest          full suite, packaged nginx (PYTEST_ARGS)'
	@echo 'make vectors         translation vectors (VECTORS=dir REPORT=file)'
	@echo 'make test-asan       full suite, nginx and module under ASan'
	@echo 'make test-matrix     suite without clients, newer nginx series'
	@echo 'make fuzz            libFuzzer on floor 0 (FUZZ_SECONDS)'
	@echo 'make torture         money through 1000 kills, 100 power cuts'
	@echo 'make torture-quick   the same with 20 and 3, in half a minute'
	@echo 'make limits-minute   limits of keys under load, three minutes'
	@echo 'make bench           CPU, latency, memory beside plain: 40 minutes'
	@echo 'make bench-quick     its most telling lines: 4 minutes (BENCH_ARGS)'
	@echo 'make bench-growth    many keys, many streams, reload under load'
	@echo 'make bench-instructions  instructions per request, by callgrind'
	@echo 'make bench-scan      speed of the request scanner'
	@echo 'make bench-ledger    what a call costs in the ledger'
	@echo 'make bench-store     what a call costs the writer of the ledger'
	@echo 'make module NGINX_SRC=dir  build for another nginx tree'

# downloads and what was installed from them survive "clean"

clean:
	rm -rf $(filter-out $(addprefix $(BUILD)/,apt src venv npm),\
	    $(wildcard $(BUILD)/* $(BUILD)/.[a-z]*))

distclean:
	rm -rf $(BUILD)


setup-run setup-unit setup-test setup-fuzz setup-bench: setup-%:
	@t/setup.sh $(SETUP_$*)

SETUP_run   = --ask build run
SETUP_unit  = --ask build unit
SETUP_test  = --ask build run unit test
SETUP_fuzz  = --ask build unit fuzz
SETUP_bench = --ask build run bench

.PHONY: FORCE unit-build pytest-tools setup-run setup-unit \
        setup-test setup-fuzz setup-bench
