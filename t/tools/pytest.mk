# pytest.  Each test runs with the packaged nginx and one worker; tests that
# run nginx again under AddressSanitizer, with two; those that depend on
# nginx's version or the number of workers also with the newest series, with
# four.  Those of the console, in a browser, run once, and are a step of their
# own.

VENV        = $(BUILD)/venv
NPM         = $(BUILD)/npm
PYTEST_ARGS =

# tests wait more than they compute; long ones are taken over by idle workers,
# so that both cores are busy to the end

PYTEST_JOBS = $(shell echo $$((4 * $(JOBS))))

TEST_ENV    = MODELGW_BUILD=$(abspath $(BUILD)) \
              MODELGW_NPM=$(abspath $(NPM)) \
              MODELGW_SCAN_CLI=$(abspath $(UNIT)/json/scan_cli) \
              MODELGW_COST_CLI=$(abspath $(UNIT)/ledger/cost_cli) \
              MODELGW_EXCHANGE_CLI=$(abspath $(UNIT)/cluster/exchange_cli) \
              MODELGW_ENGINES_CLI=$(abspath $(UNIT)/store/engines_cli) \
              MODELGW_FINALIZE=$(abspath $(BUILD)/finalize.so) \
              MODELGW_MODULE_MEMORY=$(abspath $(BUILD)/memory.so) \
              MODELGW_MODULE_NEXT=$(abspath $(BUILD)/next.so)
PYTEST      = $(TEST_ENV) $(VENV)/bin/python -m pytest -n $(PYTEST_JOBS) --dist worksteal

NGINX       = $(firstword $(wildcard /usr/sbin/nginx) nginx)

pytest: setup-test module pytest-tools
	MODELGW_NGINX=$(NGINX) MODELGW_MODULE=$(abspath $(MODULE)) \
	    $(PYTEST) --ignore=t/console $(PYTEST_ARGS) t

# of t/cluster, what has no nginx: the programs that it runs instead are built with
# a sanitizer in any case; and what is about minutes, or builds of the module

ASAN_IGNORED = $(addprefix --ignore=t/,unit console config/test_docs.py \
                $(addprefix cluster/test_,clerk.py ctl.py engines.py \
                    exchange.py harness.py limits_sql.py shared_limits.py \
                    versions.py))

test-asan: setup-test $(BUILD)/asan/nginx pytest-tools
	MODELGW_NGINX=$(abspath $(BUILD)/asan/nginx) MODELGW_MODULE= \
	    MODELGW_ASAN=1 MODELGW_WORKERS=2 \
	    ASAN_OPTIONS=detect_stack_use_after_return=1:detect_odr_violation=0 \
	    LSAN_OPTIONS=suppressions=$(CURDIR)/t/tools/lsan.supp:print_suppressions=0 \
	    $(PYTEST) $(ASAN_IGNORED) $(PYTEST_ARGS) t

# A browser keeps a core busy: one for each.  Pictures of all screens are left
# in $(BUILD)/console-shots.

CONSOLE_TEST = MODELGW_NGINX=$(NGINX) MODELGW_MODULE=$(abspath $(MODULE)) \
              $(PYTEST) -n $(JOBS) $(PYTEST_ARGS) t/console

test-console: setup-test module console pytest-tools
	$(CONSOLE_TEST)

# those of docs/console.md, in few colours

console-pictures: setup-pictures setup-test module console pytest-tools
	$(CONSOLE_TEST)/test_console_screens.py
	@mkdir -p docs/console && rm -f docs/console/*.png
	@for file in $(BUILD)/console-shots/docs/*.png; do \
	    pngquant --strip --nofs --speed 1 --output docs/console/$${file##*/} \
	        32 $$file || exit 1; \
	done

# the other series: built and tested as in Debian's newer releases; a series
# that cannot be fetched is named at the end, and is not a failure

MATRIX_1.30 = $(addprefix t/,http credit \
                translate/test_translate_request.py \
                translate/test_translate_stream.py)

# the sanitizer build is of 1.26, and has two workers, the newest series four:
# it remains to check that it loads the module

MATRIX_1.26 = t/config

# of nginx, what the module has code for

MATRIX_FLAGS = --with-compat --with-http_ssl_module \
               --with-http_stub_status_module

MATRIX_ARGS = $(addprefix --ignore=t/,config/test_docs.py \
                config/test_ledger_config.py credit/test_limits.py \
                credit/test_modelgwctl.py credit/test_openapi.py)

test-matrix: setup-test pytest-tools
	@rc=0; for series in $(MATRIX); do \
	    $(MAKE) --no-print-directory test-on-$$series || rc=1; \
	done; exit $$rc

test-on-%:
	@BUILD=$(BUILD) t/tools/nginx-src.sh $*; rc=$$?; \
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
	    NGINX_FLAGS='$(MATRIX_FLAGS)' \
	    CONSOLE=$(CONSOLE) CONSOLE_TGZ=$(CONSOLE_TGZ) \
	    MODULES_DIR=/usr/lib/nginx/modules \
	&& t/tools/docker.sh $(BUILD)/nginx-$*/nginx $(BUILD)/nginx-$*/root \
	&& MODELGW_NGINX=$(abspath $(BUILD))/nginx-$*/nginx \
	    MODELGW_MODULE=$(abspath $(BUILD))/nginx-$*/root/usr/lib/nginx/modules/$(notdir $(MODULE)) \
	    MODELGW_WORKERS=4 $(PYTEST) $(MATRIX_ARGS) $(PYTEST_ARGS) \
	    $(MATRIX_$*)

# translation vectors: directories of them through nginx, PASS or FAIL each; see
# t/lib/vectors.py

VECTORS     = t/vectors t/vectors-responses
REPORT      =

vectors: setup-test module $(VENV)/.complete
	@MODELGW_NGINX=$(NGINX) MODELGW_MODULE=$(abspath $(MODULE)) $(TEST_ENV) \
	    $(VENV)/bin/python t/lib/vectors.py $(VECTORS) \
	    $(if $(REPORT),--report '$(REPORT)')

# The torture test of credit: the ledger against the upstream's invoice,
# through kills of workers, reloads and, in the long form, a hundred power
# cuts; the short one is part of "make test".

TORTURE     = MODELGW_NGINX=$(NGINX) MODELGW_MODULE=$(abspath $(MODULE)) \
              $(TEST_ENV) $(VENV)/bin/python t/credit/torture.py

torture: setup-test module $(VENV)/.complete
	$(TORTURE) $(TORTURE_ARGS)

torture-quick: setup-test module $(VENV)/.complete
	$(TORTURE) --quick $(TORTURE_ARGS)

# The same of a cluster: nodes, databases and what is between them are killed;
# an hour, or so many SECONDS; the short form is part of "make test".

CLUSTER_TEST = MODELGW_NGINX=$(NGINX) MODELGW_MODULE=$(abspath $(MODULE)) \
              $(TEST_ENV) $(VENV)/bin/python t/cluster/torture_cluster.py

cluster-test: setup-test module $(VENV)/.complete
	@$(CLUSTER_TEST) $(if $(SECONDS),--seconds $(SECONDS)) $(CLUSTER_ARGS)

cluster-test-quick: setup-test module $(VENV)/.complete
	@$(CLUSTER_TEST) --quick $(CLUSTER_ARGS)

# the same at sizes that tests do not have: CASES, see torture_scale.py

CASES       = race kills cuts holes clocks nodes accounts

cluster-scale: setup-test module $(VENV)/.complete $(BUILD)/clock.so
	@MODELGW_CLOCK_SO=$(abspath $(BUILD)/clock.so) \
	    MODELGW_NGINX=$(NGINX) MODELGW_MODULE=$(abspath $(MODULE)) \
	    $(TEST_ENV) $(VENV)/bin/python t/cluster/torture_scale.py $(CASES) \
	    $(CLUSTER_ARGS)

# limits of keys under load, a minute each with 1, 2 and 4 workers; not a part of
# "test"

limits-minute: setup-test module $(VENV)/.complete
	@MODELGW_NGINX=$(NGINX) MODELGW_MODULE=$(abspath $(MODULE)) $(TEST_ENV) \
	    $(VENV)/bin/python t/credit/limits_minute.py

pytest-tools: $(VENV)/.complete $(NPM)/.complete \
        $(BUILD)/finalize.so $(BUILD)/memory.so $(BUILD)/next.so \
        $(patsubst t/unit/%.c,$(UNIT)/%,$(wildcard $(addprefix t/unit/,\
            json/scan_cli.c ledger/cost_cli.c cluster/exchange_cli.c \
            store/engines_cli.c)))

# a module for tests, for the packaged nginx: a filter that ends an answer

$(BUILD)/finalize.so: t/http/finalize.c | $(NGINX_OBJS)/objs/Makefile
	@mkdir -p $(@D); echo "cc $<"
	@$(CC) -g -O2 -fPIC -shared $(WARNINGS) -I$(NGINX_OBJS)/objs $(BENCH_HTTP) \
	    -o $@ $<

# a clock that is off

$(BUILD)/clock.so: t/cluster/clock.c
	@mkdir -p $(@D); echo "cc $<"
	@$(CC) -g -O2 -fPIC -shared $(WARNINGS) -o $@ $<

# the module, with allocations that can fail; its objects are in directories
# that have the last names of those of the sources

MODULE_OBJS = $(foreach c,$(abspath $(filter %.c,$(SOURCES))),\
                  addon/$(notdir $(patsubst %/,%,$(dir $c)))/$(notdir $(c:.c=.o)))

$(BUILD)/memory.so: t/credit/memory.c $(MODULE)
	@echo "cc $<"
	@$(CC) -g -O2 -fPIC -shared $(WARNINGS) -I$(NGINX_OBJS)/objs $(BENCH_HTTP) \
	    $(LD_OPT) $$(sed -n \
	        's/^memory_wrap(\(ngx_[a-z_]*\),.*/-Xlinker --wrap=\1/p' $<) \
	    -o $@ $< $(addprefix $(NGINX_OBJS)/objs/,\
	        ngx_http_modelgw_module_modules.o $(MODULE_OBJS)) \
	    -lyajl -lcrypto -lsqlite3 -lpthread

# the module of a version to come, which knows the next version of the tables of
# a cluster; see t/cluster/test_versions.py

NEXT        = $(wildcard src/cluster/*.c)

$(BUILD)/next.so: $(MODULE)
	@echo "cc $(NEXT)"
	@$(CC) -g -O2 -fPIC -shared $(WARNINGS) -DNGX_MODELGW_SCHEMA_VERSION=2 \
	    $(addprefix -I,$(sort $(dir $(SOURCES)))) -I$(NGINX_OBJS)/objs \
	    $(BENCH_HTTP) $(LD_OPT) -o $@ $(NEXT) $(addprefix $(NGINX_OBJS)/objs/,\
	        ngx_http_modelgw_module_modules.o \
	        $(filter-out addon/cluster/%,$(MODULE_OBJS))) \
	    -lyajl -lcrypto -lsqlite3 -lpthread

$(VENV)/.complete: t/tools/requirements.txt
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@

# the official SDKs and coding assistants; where they cannot be installed the
# tests that need them are skipped with a notice

$(NPM)/.complete: $(wildcard t/clients/sdk/package.json)
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
